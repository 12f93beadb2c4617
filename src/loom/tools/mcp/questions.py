"""Requests of servers while one of their calls runs: values from the user (elicitation), a response of the model
(sampling), and the folders that they may work in (roots). The first two need the user's approval."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec

from loom.content.blocks import ContentBlock
from loom.content.messages import Message, text_of
from loom.errors import LoomError, ToolError
from loom.tools.approval_values import describe_values, read_values
from loom.tools.base import ToolContext
from loom.tools.mcp.content import blocks_of_items
from loom.tools.mcp.specs import ServerSpec

if TYPE_CHECKING:
    import mcp_types as types
    from mcp import Client
    from mcp.client.context import ClientRequestContext

MAX_TRIES: Final = 3
"""How often the user is asked for invalid values again, before the server gets a refusal."""
ROOTS_SECONDS: Final = 1.0
SETTLE_SECONDS: Final = 0.2
"""The time for a server to switch to other roots: the protocol has no confirmation."""


class SampleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a server to the model."""

    server: str
    system: str
    earlier: tuple[Message, ...]
    question: tuple[ContentBlock, ...]
    max_tokens: int
    temperature: float | None
    stop: tuple[str, ...]


class SampleAnswer(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    model: str
    stop: str


Sampler: TypeAlias = Callable[[ToolContext, SampleRequest], Awaitable[SampleAnswer]]
"""Calls the model of the turn that the context belongs to."""


class _RunningCall(msgspec.Struct, frozen=True, eq=False):
    context: ToolContext
    deadline: asyncio.Timeout

    @contextmanager
    def pause_clock(self) -> Generator[None]:
        """Pause the deadline of the call while a user or a model is asked."""
        loop = asyncio.get_running_loop()
        left = (self.deadline.when() or loop.time()) - loop.time()
        self.deadline.reschedule(None)
        try:
            yield
        finally:
            if not self.deadline.expired():
                self.deadline.reschedule(loop.time() + left)


class ServerQuestions:
    """The requests of one server. They belong to its newest call; without a call they are declined."""

    def __init__(self, spec: ServerSpec, sampler: Sampler | None = None) -> None:
        self._spec = spec
        self._server = spec.name
        self.sampler = sampler
        self._calls: list[_RunningCall] = []
        self.told_root: Path | None = None
        """The workspace that was sent to the server."""
        self._has_told = asyncio.Event()

    @property
    def can_sample(self) -> bool:
        return self.sampler is not None

    @contextmanager
    def during(self, context: ToolContext, deadline: asyncio.Timeout) -> Generator[None]:
        """Send requests of the server to `context` while a call runs."""
        call = _RunningCall(context, deadline)
        self._calls.append(call)
        try:
            yield
        finally:
            self._calls.remove(call)

    async def roots(self, _: ClientRequestContext) -> types.ListRootsResult:
        import mcp_types as types
        from pydantic import FileUrl

        self.told_root = self._calls[-1].context.workspace if self._calls else self._spec.folder or Path.cwd()
        self._has_told.set()
        folders = (self.told_root,) if self._spec.roots is None else self._spec.roots
        return types.ListRootsResult(
            roots=[types.Root(uri=FileUrl(folder.absolute().as_uri()), name=folder.name) for folder in folders]
        )

    async def announce_root(self, client: Client, workspace: Path) -> None:
        """Make a server that has another workspace request the roots again, before a call from this one."""
        if self._spec.roots is not None or self.told_root in (None, workspace):
            return
        import mcp_types as types

        self._has_told.clear()
        await client.session.send_notification(types.RootsListChangedNotification())
        with suppress(TimeoutError):
            async with asyncio.timeout(ROOTS_SECONDS):
                await self._has_told.wait()
        await asyncio.sleep(SETTLE_SECONDS)

    async def elicit(self, _: ClientRequestContext, asked: types.ElicitRequestParams) -> types.ElicitResult:
        import mcp_types as types

        if not self._calls:
            return types.ElicitResult(action="cancel")
        call = self._calls[-1]
        why = f"the MCP server {self._server} asks"
        try:
            with call.pause_clock():
                if isinstance(asked, types.ElicitRequestURLParams):
                    await call.context.confirm(
                        f"{asked.message}\nOpen {asked.url} and approve when you are done.", why=why
                    )
                    return types.ElicitResult(action="accept")
                return await self._ask_values(call.context, asked, why)
        except ToolError:
            return types.ElicitResult(action="decline")

    async def _ask_values(
        self, context: ToolContext, asked: types.ElicitRequestFormParams, why: str
    ) -> types.ElicitResult:
        import mcp_types as types

        problem = ""
        for _ in range(MAX_TRIES):
            action = f"{asked.message}\n{describe_values(asked.requested_schema)}{problem}"
            said = await context.confirm(action, why=why, schema=asked.requested_schema)
            try:
                return types.ElicitResult(action="accept", content=read_values(said, asked.requested_schema))
            except ToolError as error:
                problem = f"\nThat does not fit: {error.message}"
        raise ToolError("no values that fit were given")

    async def sample(
        self, _: ClientRequestContext, asked: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        import mcp_types as types

        if self.sampler is None or not self._calls:
            return types.ErrorData(code=types.INVALID_REQUEST, message="no turn is running that could ask a model")
        call = self._calls[-1]
        try:
            with call.pause_clock():
                request = await self._sample_request(call.context, asked)
                said = [f"{message.role}: {message.text}" for message in request.earlier]
                said.append(f"user: {' '.join(text_of(block) for block in request.question)}")
                words = "\n\n".join([*([request.system] if request.system else []), *said])
                why = f"the MCP server {self._server} asks for a model answer, with {request.max_tokens} tokens at most"
                await call.context.confirm(f"send this to the model:\n{words}", why=why)
                answer = await self.sampler(call.context, request)
        except LoomError as error:
            return types.ErrorData(code=types.INVALID_REQUEST, message=error.message)
        content = types.TextContent(text=answer.text)
        return types.CreateMessageResult(role="assistant", content=content, model=answer.model, stop_reason=answer.stop)

    async def _sample_request(self, context: ToolContext, asked: types.CreateMessageRequestParams) -> SampleRequest:
        if not asked.messages or asked.messages[-1].role != "user":
            raise ToolError("a request to the model ends with a message of the user")
        said: list[tuple[ContentBlock, ...]] = []
        for message in asked.messages:
            items = message.content if isinstance(message.content, list) else [message.content]
            said.append(tuple(await blocks_of_items(cast("Sequence[Any]", items), context.attach, self._server)))
        return SampleRequest(
            server=self._server,
            system=asked.system_prompt or "",
            earlier=tuple(
                Message(message.role, blocks) for message, blocks in zip(asked.messages[:-1], said, strict=False)
            ),
            question=said[-1],
            max_tokens=asked.max_tokens,
            temperature=asked.temperature,
            stop=tuple(asked.stop_sequences or ()),
        )
