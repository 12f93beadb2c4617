"""Requests of servers while one of their calls runs: values from the user (elicitation), a response of the model
(sampling), and the folders that they may work in (roots). The first two need the user's approval."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import msgspec

from loom.content.blocks import ContentBlock
from loom.content.messages import Message, text_of
from loom.errors import LoomError, ToolError
from loom.sampling import Sampling
from loom.tools.approval_values import describe_values, read_values
from loom.tools.base import ToolContext
from loom.tools.mcp.content import content_blocks
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
    options: Sampling


class SampleAnswer(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    model: str
    stop: str


Sampler: TypeAlias = Callable[[ToolContext, SampleRequest], Awaitable[SampleAnswer]]
"""Calls the model of the turn that the context belongs to."""


class ServerQuestions:
    """The requests of one server. They belong to its newest call; without a call they are declined."""

    def __init__(self, spec: ServerSpec) -> None:
        self.sampler: Sampler | None = None
        self._spec = spec
        self._calls: list[tuple[ToolContext, asyncio.Timeout]] = []
        self._workspace: Path | None = None
        """The workspace that was sent to the server."""
        self._has_sent_roots = asyncio.Event()

    @contextmanager
    def during(self, context: ToolContext, deadline: asyncio.Timeout) -> Generator[None]:
        """Send requests of the server to `context` while a call runs."""
        call = (context, deadline)
        self._calls.append(call)
        try:
            yield
        finally:
            self._calls.remove(call)

    @contextmanager
    def _ask(self) -> Generator[ToolContext]:
        """Yield the context of the newest call; its deadline is paused while a user or a model is asked."""
        context, deadline = self._calls[-1]
        loop = asyncio.get_running_loop()
        left = (deadline.when() or loop.time()) - loop.time()
        deadline.reschedule(None)
        try:
            yield context
        finally:
            if not deadline.expired():
                deadline.reschedule(loop.time() + left)

    async def list_roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        import mcp_types as types
        from pydantic import FileUrl

        self._workspace = self._calls[-1][0].workspace if self._calls else self._spec.folder or Path.cwd()
        self._has_sent_roots.set()
        folders = (self._workspace,) if self._spec.roots is None else self._spec.roots
        return types.ListRootsResult(
            roots=[types.Root(uri=FileUrl(folder.absolute().as_uri()), name=folder.name) for folder in folders]
        )

    async def announce_root(self, client: Client) -> None:
        """Make a server that has another workspace request the roots again, before the newest call."""
        workspace = self._calls[-1][0].workspace
        if self._spec.roots is not None or self._workspace in (None, workspace):
            return
        import mcp_types as types

        self._has_sent_roots.clear()
        await client.session.send_notification(types.RootsListChangedNotification())
        with suppress(TimeoutError):
            async with asyncio.timeout(ROOTS_SECONDS):
                await self._has_sent_roots.wait()
        await asyncio.sleep(SETTLE_SECONDS)

    async def elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        import mcp_types as types

        if not self._calls:
            return types.ElicitResult(action="cancel")
        why = f"MCP server {self._spec.name!r} asks"
        try:
            with self._ask() as user:
                if isinstance(params, types.ElicitRequestFormParams):
                    values = await _ask_values(user, params.message, params.requested_schema, why)
                    return types.ElicitResult(action="accept", content=values)
                await user.confirm(f"{params.message}\nOpen {params.url} and approve when you are done.", why=why)
                return types.ElicitResult(action="accept")
        except ToolError:
            return types.ElicitResult(action="decline")

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        import mcp_types as types

        if self.sampler is None or not self._calls:
            return types.ErrorData(code=types.INVALID_REQUEST, message="no turn is running that could ask a model")
        name, most = self._spec.name, params.max_tokens
        try:
            with self._ask() as user:
                contents: list[tuple[types.Role, tuple[ContentBlock, ...]]]
                contents = [(message.role, await self._blocks(message, user)) for message in params.messages]
                if not contents or contents[-1][0] != "user":
                    raise ToolError("a request to the model must end with a message of the user")
                texts = [f"{role}: {' '.join(text_of(block) for block in blocks)}" for role, blocks in contents]
                shown = "\n\n".join([*([params.system_prompt] if params.system_prompt else []), *texts])
                why = f"MCP server {name!r} asks for a model response, with {most} tokens at most"
                await user.confirm(f"send this to the model:\n{shown}", why=why)
                stop = tuple(params.stop_sequences or ())
                request = SampleRequest(
                    server=name,
                    system=params.system_prompt or "",
                    earlier=tuple(Message(role, blocks) for role, blocks in contents[:-1]),
                    question=contents[-1][1],
                    options=Sampling(max_tokens=most, temperature=params.temperature, stop=stop),
                )
                answer = await self.sampler(user, request)
        except LoomError as error:
            return types.ErrorData(code=types.INVALID_REQUEST, message=error.message)
        content = types.TextContent(text=answer.text)
        return types.CreateMessageResult(role="assistant", content=content, model=answer.model, stop_reason=answer.stop)

    async def _blocks(self, message: types.SamplingMessage, context: ToolContext) -> tuple[ContentBlock, ...]:
        items = message.content if isinstance(message.content, list) else [message.content]
        return tuple(await content_blocks(cast("list[Any]", items), context.attach, self._spec.name))


async def _ask_values(context: ToolContext, question: str, schema: dict[str, Any], why: str) -> dict[str, Any]:
    """Return the values that a user entered. Raise ToolError if the user denies it or enters none that are valid."""
    problem = ""
    for _ in range(MAX_TRIES):
        text = await context.confirm(f"{question}\n{describe_values(schema)}{problem}", why=why, schema=schema)
        try:
            return read_values(text, schema)
        except ToolError as error:
            problem = f"\nInvalid: {error.message}"
    raise ToolError("no valid values were entered")
