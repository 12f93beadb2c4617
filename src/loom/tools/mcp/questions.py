"""Requests of servers while one of their calls runs: values from the user (elicitation), a response of the model
(sampling), and the folders that they may work in (roots). The first two need the user's approval."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import mcp_types as types
import msgspec
from mcp import Client
from mcp.client.context import ClientRequestContext
from pydantic import FileUrl

from loom.content.messages import Message, text_of
from loom.errors import LoomError, ToolError
from loom.sampling import Sampling
from loom.tools.approval_values import describe_values, read_values
from loom.tools.base import ToolContext
from loom.tools.mcp.content import content_blocks
from loom.tools.mcp.specs import ServerSpec

MAX_TRIES: Final = 3
"""How often the user is asked for invalid values again, before the server gets a refusal."""
ROOTS_SECONDS: Final = 1.0
SETTLE_SECONDS: Final = 0.2
"""The time for a server to switch to other roots: the protocol has no confirmation."""


class SampleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a server to the model. The last message is one of the user."""

    server: str
    system: str
    messages: tuple[Message, ...]
    options: Sampling


Sampler: TypeAlias = Callable[[ToolContext, SampleRequest], Awaitable[types.CreateMessageResult]]
"""Calls the model of the turn that the context belongs to."""


class ServerQuestions:
    """The requests of one server. They belong to its newest call; without a call they are declined."""

    def __init__(self, spec: ServerSpec, sampler: Sampler | None) -> None:
        self.sampler = sampler
        self._spec = spec
        self._calls: list[tuple[ToolContext, asyncio.Timeout]] = []
        self._workspace: Path | None = None
        """The workspace that was sent to the server."""
        self._has_sent_roots = asyncio.Event()

    @contextmanager
    def during(self, context: ToolContext | None, deadline: asyncio.Timeout) -> Generator[None]:
        """Send requests of the server to `context` while a call runs; decline them if it is None."""
        calls = [(context, deadline)] if context is not None else []
        self._calls += calls
        try:
            yield
        finally:
            self._calls = [call for call in self._calls if call not in calls]

    @contextmanager
    def _ask(self) -> Generator[ToolContext]:
        """Yield the context of the newest call; its deadline is paused while a user or a model is asked. Raise
        ToolError if there is no call."""
        if not self._calls:
            raise ToolError("no turn is running, so the user cannot be asked")
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
        self._workspace = self._calls[-1][0].workspace if self._calls else self._spec.folder or Path.cwd()
        self._has_sent_roots.set()
        folders = (self._workspace,) if self._spec.roots is None else self._spec.roots
        return types.ListRootsResult(
            roots=[types.Root(uri=FileUrl(folder.absolute().as_uri()), name=folder.name) for folder in folders]
        )

    async def announce_root(self, client: Client) -> None:
        """Make a server that has another workspace than the newest call request the roots again."""
        workspace = self._calls[-1][0].workspace if self._calls else None
        if workspace is None or self._spec.roots is not None or self._workspace in (None, workspace):
            return
        self._has_sent_roots.clear()
        await client.session.send_notification(types.RootsListChangedNotification())
        with suppress(TimeoutError):
            async with asyncio.timeout(ROOTS_SECONDS):
                await self._has_sent_roots.wait()
        await asyncio.sleep(SETTLE_SECONDS)

    async def elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        why = f"MCP server {self._spec.name!r} asks"
        try:
            with self._ask() as user:
                if isinstance(params, types.ElicitRequestFormParams):
                    values = await _ask_values(user, params.message, params.requested_schema, why)
                    return types.ElicitResult(action="accept", content=values)
                await user.confirm(f"{params.message}\nOpen {params.url} and approve when you are done.", why=why)
                return types.ElicitResult(action="accept")
        except ToolError:
            return types.ElicitResult(action="decline" if self._calls else "cancel")

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        assert self.sampler is not None, "without a sampler, servers are not offered this method"
        system = params.system_prompt or ""
        try:
            with self._ask() as user:
                messages = tuple([await self._message(message, user) for message in params.messages])
                if not messages or messages[-1].role != "user":
                    raise ToolError("a request to the model must end with a message of the user")
                texts = [system] if system else []
                texts += [f"{it.role}: {' '.join(text_of(block) for block in it.blocks)}" for it in messages]
                why = (
                    f"MCP server {self._spec.name!r} asks for a model response, with {params.max_tokens} tokens at most"
                )
                await user.confirm("send this to the model:\n" + "\n\n".join(texts), why=why)
                stop = tuple(params.stop_sequences or ())
                options = Sampling(max_tokens=params.max_tokens, temperature=params.temperature, stop=stop)
                request = SampleRequest(server=self._spec.name, system=system, messages=messages, options=options)
                return await self.sampler(user, request)
        except LoomError as error:
            return types.ErrorData(code=types.INVALID_REQUEST, message=error.message)

    async def _message(self, message: types.SamplingMessage, context: ToolContext) -> Message:
        items: list[Any] = message.content if isinstance(message.content, list) else [message.content]
        return Message(message.role, tuple(await content_blocks(items, context.attach, self._spec.name)))


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
