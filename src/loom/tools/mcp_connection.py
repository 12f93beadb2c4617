"""One live connection to an MCP server. A single task owns the SDK's client, from its first word to its last; everyone
else hands it jobs through a queue and waits for a future. So no cancellation of a turn can reach into the connection,
and whatever ends the connection reaches all waiting callers.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

import msgspec

from loom.content.blocks import clean_text
from loom.content.json_values import sanitize_json
from loom.errors import LoomError, ToolError
from loom.tools.mcp_http import http_client
from loom.tools.mcp_specs import ServerSpec
from loom.tools.mcp_stdio import MAX_MESSAGE_BYTES, ChildServer, Tail
from loom.tools.sandbox import Sandbox

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client.session import IncomingMessage
    from mcp_types import CallToolResult, Tool

MAX_TOOLS: Final = 200
MAX_PAGES: Final = 20
CLOSE_SECONDS: Final = 7.0
RELIST_PAUSE_SECONDS: Final = 0.2
MAX_WORDS: Final = 500

T = TypeVar("T")


class OnProgress(Protocol):
    """Told how far a call is; `total` may not be known."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...


class ServerGone(LoomError):
    """The connection is over; the next call may open a new one. Tools say it as a ToolError."""

    code = "tool.server_gone"


class _Job(msgspec.Struct, frozen=True, eq=False):
    run: Callable[[Client], Awaitable[Any]]
    answer: asyncio.Future[Any]


class McpConnection:
    """Open it, call, close it. It is opened once; a server that is gone gets a new Connection."""

    def __init__(
        self, spec: ServerSpec, tail: Tail, on_tools: Callable[[tuple[Tool, ...]], None], sandbox: Sandbox
    ) -> None:
        self._spec = spec
        self._on_tools = on_tools
        self._jobs: asyncio.Queue[_Job | None] = asyncio.Queue()
        self._waiting: set[asyncio.Future[Any]] = set()
        self._child = ChildServer(spec, tail, on_end=self._stop, sandbox=sandbox) if spec.command else None
        self._owner: asyncio.Task[None] | None = None
        self._is_open = False
        self._relisting = False
        self.why_ended = ""

    @property
    def is_alive(self) -> bool:
        return self._is_open and not self.why_ended

    @property
    def process_id(self) -> int | None:
        return self._child.process.pid if self._child is not None and self._child.process is not None else None

    async def open(self) -> None:
        """Returns when the server has told its tools; ServerGone says why it did not."""
        opened = self._promise()
        self._owner = asyncio.create_task(self._own(opened), name=f"mcp {self._spec.name}")
        try:
            await opened
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the connection and its process; bounded, whatever the server does."""
        if self._owner is None:
            return
        self.why_ended = self.why_ended or "it was closed"
        if self._is_open:
            self._stop()
            await asyncio.wait([self._owner], timeout=CLOSE_SECONDS)
        if not self._owner.done():
            self._owner.cancel()
            await asyncio.wait([self._owner], timeout=CLOSE_SECONDS)

    async def call(self, tool: str, arguments: dict[str, Any], progress: OnProgress) -> CallToolResult:
        """The answer as it came. An MCPError is the server's refusal, ServerGone the end of the connection."""
        import mcp_types as types

        params = types.CallToolRequestParams(name=tool, arguments=sanitize_json(arguments))
        request = types.CallToolRequest(params=params)

        async def run(client: Client) -> CallToolResult:
            return await client.session.send_request(request, types.CallToolResult, progress_callback=progress)

        return await self._ask(run)

    async def relist(self) -> None:
        """Ask for the tools again; also how one finds out whether a silent server still answers at all."""
        await self._ask(self._list)

    async def _ask(self, run: Callable[[Client], Awaitable[T]]) -> T:
        if not self.is_alive:
            raise ServerGone(self.why_ended)
        answer = self._promise()
        self._jobs.put_nowait(_Job(run, answer))
        return cast("T", await answer)

    def _promise(self) -> asyncio.Future[Any]:
        promise: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.add(promise)
        promise.add_done_callback(self._waiting.discard)
        return promise

    def _stop(self) -> None:
        self._jobs.put_nowait(None)

    # The owner's task ------------------------------------------------------------------------------------------------

    async def _own(self, opened: asyncio.Future[Any]) -> None:
        try:
            async with self._client() as client:
                await self._list(client)
                self._is_open = True
                _answer(opened, None)
                await self._work(client)
        except Exception as error:  # noqa: BLE001  the SDK and the server are foreign code: whatever they raise ends this
            self.why_ended = self.why_ended or self._words(error)
        finally:
            self.why_ended = self.why_ended or (self._child.stderr_tail() if self._child else "the connection ended")
            for promise in list(self._waiting):
                _refuse(promise, ServerGone(self.why_ended))

    @asynccontextmanager
    async def _client(self) -> AsyncGenerator[Client]:
        await asyncio.to_thread(importlib.import_module, "mcp")  # a second of work that must not stop the others
        import mcp_types as types
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        for name in ("mcp", "client"):  # the SDK's loggers: without a handler, their warnings would go to the terminal
            if not (logger := logging.getLogger(name)).handlers:
                logger.addHandler(logging.NullHandler())
        info = types.Implementation(name="loom", version=version("loom-runtime"))
        if self._child is not None:
            async with Client(
                self._child.streams(), cache=None, client_info=info, message_handler=self._hear
            ) as client:
                yield client
            return
        async with http_client(self._spec, max_message_bytes=MAX_MESSAGE_BYTES) as http:
            transport = streamable_http_client(self._spec.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES)
            async with Client(transport, cache=None, client_info=info, message_handler=self._hear) as client:
                yield client

    async def _work(self, client: Client) -> None:
        import anyio

        async with anyio.create_task_group() as group:
            group.start_soon(self._subscribe, client)
            while (job := await self._jobs.get()) is not None:
                group.start_soon(self._do, client, job)
            group.cancel_scope.cancel()

    async def _do(self, client: Client, job: _Job) -> None:
        """A caller that gives up cancels its own job, and the server is notified."""
        import anyio

        with anyio.CancelScope() as scope:
            job.answer.add_done_callback(lambda answer: scope.cancel() if answer.cancelled() else None)
            try:
                found = await job.run(client)
            except Exception as error:  # noqa: BLE001  it goes to the caller, which handles it
                if self._is_the_end(error):
                    self._stop()  # everyone who waits is answered when it is known how the server ended
                else:
                    _refuse(job.answer, error)
            else:
                _answer(job.answer, found)

    async def _list(self, client: Client) -> None:
        found: list[Tool] = []
        cursor: str | None = None
        if client.server_capabilities.tools is not None:
            for _ in range(MAX_PAGES):
                page = await client.list_tools(cursor=cursor)
                found.extend(page.tools)
                cursor = page.next_cursor
                if cursor is None or len(found) >= MAX_TOOLS:
                    break
        self._on_tools(tuple(found[:MAX_TOOLS]))

    async def _hear(self, message: IncomingMessage) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._relist_soon()

    async def _subscribe(self, client: Client) -> None:
        """Newer servers tell of changes only to who subscribes."""
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        tools = client.server_capabilities.tools
        if client.session.discover_result is None or tools is None or not tools.list_changed:
            return
        try:
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._relist_soon()
        except (MCPError, ListenNotSupportedError, SubscriptionLost, TimeoutError):
            return  # it is asked again with the next connection

    def _relist_soon(self) -> None:
        """However often a server says that its tools changed, it is asked a few times a second at most."""
        if self._relisting:
            return
        self._relisting = True

        async def run(client: Client) -> None:
            import anyio

            await anyio.sleep(RELIST_PAUSE_SECONDS)
            self._relisting = False
            await self._list(client)

        answer = self._promise()
        answer.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        self._jobs.put_nowait(_Job(run, answer))

    def _is_the_end(self, error: BaseException) -> bool:
        """Whether this connection will answer nothing any more. Servers use the SDK's error code for it too, so over
        HTTP the words decide: they are the SDK's own, for a stream that broke off or a session that was forgotten."""
        from mcp import MCPError

        if self._child is not None:
            return self._child.has_ended
        words = ("Connection closed", "SSE stream", "Session terminated")
        return isinstance(error, MCPError) and error.message.startswith(words)

    def _words(self, error: BaseException) -> str:
        """What went wrong, for people, without the addresses and secrets that foreign errors may print."""
        import httpx2
        from mcp import MCPError
        from pydantic import ValidationError

        error = _innermost(error)
        if self._child is not None and self._child.has_ended:
            return self._child.stderr_tail()
        match error:
            case ToolError():
                return error.message
            case FileNotFoundError() | NotADirectoryError():
                return f"there is no program {self._spec.command}"
            case OSError():
                return f"it cannot be started: {error.strerror or type(error).__name__}"
            case ValidationError():
                return "its answer is not what the protocol says"
            case httpx2.TransportError():
                return f"it cannot be reached ({type(error).__name__}): {shorten(str(error))}"
            case MCPError():
                return shorten(error.message)
            case _:
                return f"{type(error).__name__}: {shorten(str(error))}"


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def shorten(text: str) -> str:
    """Words of a server, as one line that cannot flood anything."""
    line = " ".join(clean_text(text).split())
    return line if len(line) <= MAX_WORDS else f"{line[:MAX_WORDS]}…"


def _answer(promise: asyncio.Future[Any], value: Any) -> None:
    if not promise.done():
        promise.set_result(value)


def _refuse(promise: asyncio.Future[Any], error: Exception) -> None:
    if not promise.done():
        promise.set_exception(error)
