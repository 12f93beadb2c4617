"""One live connection to an MCP server. A separate task owns the SDK's client from beginning to end, so that a
cancelled turn cannot damage it; calls run in the tasks of their callers."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec

from loom.content.blocks import clean_text
from loom.content.media import size_label
from loom.errors import LoomError, ToolError
from loom.tools.mcp.oauth import TokenFile, stored_login
from loom.tools.mcp.questions import ServerQuestions
from loom.tools.mcp.specs import ServerSpec
from loom.tools.mcp.stdio import MAX_MESSAGE_BYTES, ChildServer, Tail
from loom.tools.sandbox import Sandbox

if TYPE_CHECKING:
    import httpx2
    from mcp import Client
    from mcp.client.session import IncomingMessage
    from mcp_types import Prompt, Tool

MAX_LISTED: Final = 200
MAX_PAGES: Final = 20
CLOSE_SECONDS: Final = 7.0
RELIST_PAUSE_SECONDS: Final = 0.2
MAX_WORDS: Final = 500
CONNECT_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 3600.0
"""A stream of events may be silent for long; calls have their own deadlines."""
REFUSALS: Final = (401, 403)
_END_WORDS: Final = ("Connection closed", "SSE stream", "Session terminated")
"""The beginnings of the SDK's errors for a stream that broke and a session that the server dropped."""

T = TypeVar("T")


class ServerGone(LoomError):
    """The connection has ended; the next call may open a new one."""

    code = "tool.server_gone"


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The tools and prompts of a server, and whether it has resources."""

    tools: tuple[Tool, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    has_resources: bool = False


class McpConnection:
    """Opened once; a server that is gone gets a new connection. `login` replaces the stored logins."""

    def __init__(
        self,
        spec: ServerSpec,
        tail: Tail,
        on_listed: Callable[[Listing], None],
        sandbox: Sandbox,
        questions: ServerQuestions,
        *,
        tokens: TokenFile | None = None,
        login: httpx2.Auth | None = None,
    ) -> None:
        self._spec = spec
        self._on_listed = on_listed
        self._questions = questions
        self._tokens = tokens
        self._login = login
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()
        self._refusal = 0
        """The last HTTP status if it is one of `REFUSALS`, else 0: the SDK's errors do not contain it."""
        self._child = ChildServer(spec, tail, on_end=self._stop.set, sandbox=sandbox) if spec.command else None
        self._owner: asyncio.Task[None] | None = None
        self._client: Client | None = None
        self.why_ended = ""

    @property
    def is_alive(self) -> bool:
        return self._client is not None and not self.why_ended

    @property
    def process_id(self) -> int | None:
        return self._child.process.pid if self._child is not None and self._child.process is not None else None

    async def open(self) -> None:
        """Return when the server has listed its tools. Raise ServerGone if it does not."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._own(opened), name=f"mcp {self._spec.name}")
        try:
            await opened
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the connection and its process within a bounded time."""
        self.why_ended = self.why_ended or "it was closed"
        self._stop.set()
        if self._owner is not None:
            if self._client is None:
                self._owner.cancel()
            await asyncio.wait([self._owner], timeout=CLOSE_SECONDS)
            self._owner.cancel()
            await asyncio.wait([self._owner], timeout=CLOSE_SECONDS)

    async def ask(self, run: Callable[[Client], Awaitable[T]]) -> T:
        """Run a request. Raise MCPError if the server refuses it, ServerGone if the connection has ended."""
        client = self._client
        if client is None or self._owner is None or self.why_ended:
            raise ServerGone(self.why_ended or "it is not connected")
        try:
            return await run(client)
        except Exception as error:
            if not self._is_end(error):
                raise
            self._stop.set()
            await asyncio.wait([self._owner], timeout=CLOSE_SECONDS)
            raise ServerGone(self.why_ended or self._describe(error)) from None

    async def relist(self) -> None:
        """Request the lists again. This is also the test whether a silent server still responds."""
        await self.ask(self._list)

    # The owner's task -------------------------------------------------------------------------------------------------

    async def _own(self, opened: asyncio.Future[None]) -> None:
        try:
            async with self._connect() as client:
                await self._list(client)
                self._client = client
                opened.set_result(None)
                watchers = [asyncio.create_task(watch) for watch in (self._watch(client), self._subscribe(client))]
                try:
                    await self._stop.wait()
                finally:
                    for watcher in watchers:
                        watcher.cancel()
                    await asyncio.wait(watchers)
        except Exception as error:  # noqa: BLE001  the SDK and the server may raise anything: it ends the connection
            self.why_ended = self.why_ended or self._describe(error)
        finally:
            self._client = None
            self.why_ended = self.why_ended or (self._child.end_reason() if self._child else "the connection ended")
            if not opened.done():
                opened.set_exception(ServerGone(self.why_ended))

    @asynccontextmanager
    async def _connect(self) -> AsyncGenerator[Client]:
        await asyncio.to_thread(importlib.import_module, "mcp")  # a second of work that must not block the loop
        import mcp_types as types
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        for name in ("mcp", "client"):  # without a handler, the SDK's warnings would be written to the terminal
            if not (logger := logging.getLogger(name)).handlers:
                logger.addHandler(logging.NullHandler())
        options: dict[str, Any] = {
            "cache": None,
            "client_info": types.Implementation(name="loom", version=version("loom-runtime")),
            "message_handler": self._on_message,
            "elicitation_callback": self._questions.elicit,
            "list_roots_callback": self._questions.roots,
            **({"sampling_callback": self._questions.sample} if self._questions.can_sample else {}),
        }
        if self._child is not None:
            async with Client(self._child.streams(), **options) as client:
                yield client
            return
        auth = self._login or stored_login(self._spec, self._tokens)
        async with http_client(self._spec, self._note_status, auth) as http:
            transport = streamable_http_client(self._spec.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES)
            async with Client(transport, **options) as client:
                yield client

    def _note_status(self, status: int) -> None:
        self._refusal = status if status in REFUSALS else 0

    async def _list(self, client: Client) -> None:
        has = client.server_capabilities
        tools: list[Tool] = []
        prompts: list[Prompt] = []
        for is_offered, found, fetch, name in (
            (has.tools, tools, client.list_tools, "tools"),
            (has.prompts, prompts, client.list_prompts, "prompts"),
        ):
            cursor: str | None = None
            for _ in range(MAX_PAGES if is_offered is not None else 0):
                page = await fetch(cursor=cursor)
                found.extend(getattr(page, name))
                cursor = page.next_cursor
                if cursor is None or len(found) >= MAX_LISTED:
                    break
        self._on_listed(
            Listing(
                tools=tuple(tools[:MAX_LISTED]),
                prompts=tuple(prompts[:MAX_LISTED]),
                has_resources=has.resources is not None,
            )
        )

    async def _on_message(self, message: IncomingMessage) -> None:
        from mcp_types import PromptListChangedNotification, ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification | PromptListChangedNotification):
            self._changed.set()

    async def _watch(self, client: Client) -> None:
        """List again after changes, at most a few times a second."""
        from mcp import MCPError
        from pydantic import ValidationError

        while await self._changed.wait():
            await asyncio.sleep(RELIST_PAUSE_SECONDS)
            self._changed.clear()
            try:
                await self._list(client)
            except (MCPError, ValidationError) as error:
                if self._is_end(error):
                    self._stop.set()

    async def _subscribe(self, client: Client) -> None:
        """Subscribe to changes: newer servers announce them to subscribers only."""
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        has = client.server_capabilities
        tools = has.tools is not None and has.tools.list_changed is True
        prompts = has.prompts is not None and has.prompts.list_changed is True
        if client.session.discover_result is None or not (tools or prompts):
            return
        try:
            async with client.listen(tools_list_changed=tools, prompts_list_changed=prompts) as changes:
                async for _ in changes:
                    self._changed.set()
        except (MCPError, ListenNotSupportedError, SubscriptionLost, TimeoutError):
            return  # the next connection subscribes again

    def _is_end(self, error: BaseException) -> bool:
        """Return whether this connection will not respond any more. Servers use the SDK's error code for other errors,
        too, so over HTTP the message decides."""
        from mcp import MCPError

        if self._child is not None:
            return self._child.has_ended
        return isinstance(error, MCPError) and error.message.startswith(_END_WORDS)

    def _describe(self, error: BaseException) -> str:
        """Return a description of an error, without the URLs and secrets that third-party errors may contain."""
        import httpx2
        from mcp import MCPError
        from pydantic import ValidationError

        while isinstance(error, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
        if self._child is not None and self._child.has_ended:
            return self._child.end_reason()
        if self._refusal and not isinstance(error, ToolError):
            if any(name.lower() == "authorization" for name in self._spec.headers):
                return f"it refused the configured key (HTTP {self._refusal})"
            return f"it needs a login: run `loom mcp login {self._spec.name}`"
        match error:
            case ToolError():
                return error.message
            case FileNotFoundError() | NotADirectoryError():
                return f"command not found: {self._spec.command}"
            case OSError():
                return f"it cannot be started: {error.strerror or type(error).__name__}"
            case ValidationError():
                return "its answer does not follow the protocol"
            case httpx2.TransportError():
                return f"it cannot be reached ({type(error).__name__}): {shorten(str(error))}"
            case MCPError():
                return shorten(error.message)
            case _:
                return f"{type(error).__name__}: {shorten(str(error))}"


def shorten(text: str) -> str:
    """Return a server's text as one line of limited length."""
    line = " ".join(clean_text(text).split())
    return line if len(line) <= MAX_WORDS else f"{line[:MAX_WORDS]}…"


def http_client(spec: ServerSpec, on_status: Callable[[int], None], auth: httpx2.Auth | None) -> httpx2.AsyncClient:
    """Return the client of a remote server. Responses are uncompressed and are counted as they arrive; the SDK limits
    streams of events event by event."""
    import httpx2

    class CappedStream(httpx2.AsyncByteStream):
        def __init__(self, stream: httpx2.AsyncByteStream) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for part in self._stream:
                size += len(part)
                if size > MAX_MESSAGE_BYTES:
                    raise httpx2.ReadError(f"it sent a message of more than {size_label(MAX_MESSAGE_BYTES)}")
                yield part

        async def aclose(self) -> None:
            await self._stream.aclose()

    class CappedTransport(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            response = await super().handle_async_request(request)
            on_status(response.status_code)
            if response.headers.get("content-encoding", "identity") != "identity":
                await response.aclose()
                raise httpx2.DecodingError("it sent a compressed answer, which Loom did not request")
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                assert isinstance(response.stream, httpx2.AsyncByteStream)
                response.stream = CappedStream(response.stream)
            return response

    return httpx2.AsyncClient(
        transport=CappedTransport(),
        headers={**spec.headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=IDLE_SECONDS),
        auth=auth,
    )
