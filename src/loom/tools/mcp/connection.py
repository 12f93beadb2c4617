"""One attempt to connect to an MCP server, and the connection that it becomes. A separate task owns the SDK's client
from beginning to end, so that a cancelled turn cannot damage it; calls run in the tasks of their callers."""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast

import msgspec

from loom.errors import LoomError, ToolError
from loom.tools.mcp.content import shorten
from loom.tools.mcp.http import HttpTransport
from loom.tools.mcp.questions import ServerQuestions
from loom.tools.mcp.specs import ServerSpec
from loom.tools.mcp.stdio import StdioTransport

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client.session import IncomingMessage
    from mcp_types import Prompt, Tool

MAX_LISTED: Final = 200
MAX_PAGES: Final = 50
CLOSE_SECONDS: Final = 7.0
RELIST_PAUSE_SECONDS: Final = 0.2

ConnectionState: TypeAlias = Literal["connecting", "ready", "failed"]
ServerTransport: TypeAlias = StdioTransport | HttpTransport
T = TypeVar("T")


class ServerGone(LoomError):
    """The connection has ended; the next call may open a new one."""

    code = "tool.server_gone"


class RequestRefused(LoomError):
    """The server refused a request, or its response is invalid; the connection goes on."""

    code = "tool.request_refused"


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The tools and prompts of a server, and whether it has resources."""

    tools: tuple[Tool, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    has_resources: bool = False


class McpConnection:
    """Starts to connect at once. `ready` is set when the server has listed its tools, or to ServerGone if it does not
    within `seconds`. `error` is the reason why the connection failed or ended."""

    def __init__(
        self,
        spec: ServerSpec,
        transport: ServerTransport,
        questions: ServerQuestions,
        on_listed: Callable[[Listing], None],
        seconds: float | None,
    ) -> None:
        self.ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.ready.add_done_callback(lambda done: done.exception())  # perhaps no call waits for it
        self.error = ""
        self.began_at = time.monotonic()
        self._spec = spec
        self._transport = transport
        self._questions = questions
        self._on_listed = on_listed
        self._seconds = seconds
        self._changed = asyncio.Event()
        self._cause: BaseException | None = None
        self._task = asyncio.create_task(self._run(), name=f"mcp {spec.name}")

    @property
    def state(self) -> ConnectionState:
        return "failed" if self.error else "ready" if self.ready.done() else "connecting"

    @property
    def process_id(self) -> int | None:
        return self._transport.process_id if self.state == "ready" else None

    async def close(self, reason: str = "it was closed") -> None:
        """End the connection and its process within a bounded time."""
        self.error = self.error or reason
        await self._finish()

    async def request(self, run: Callable[[Client], Awaitable[T]]) -> T:
        """Run a request. Raise RequestRefused if the server refuses it, ServerGone if the connection has ended."""
        from mcp import MCPError
        from pydantic import ValidationError

        client = await asyncio.shield(self.ready)
        if self.error:
            raise ServerGone(self.error)
        try:
            return await run(client)
        except Exception as error:
            if self._transport.is_end(error):
                self._cause = error
                await self._finish()
                raise ServerGone(self.error) from None
            if isinstance(error, MCPError | ValidationError | RuntimeError):
                raise RequestRefused(describe_error(error, self._spec)) from None
            raise

    async def relist(self) -> None:
        """Request the lists again. This is also the test whether a silent server still responds."""
        await self.request(self._list)

    async def _finish(self) -> None:
        self._transport.ended.set()
        if not self.ready.done():
            self._task.cancel()
        await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
        self._task.cancel()
        await asyncio.wait([self._task], timeout=CLOSE_SECONDS)

    # The task that owns the client -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._seconds):
                    client = await stack.enter_async_context(self._open_client())
                    await self._list(client)
                self.ready.set_result(client)
                watchers = [asyncio.create_task(watch) for watch in (self._watch(), self._subscribe(client))]
                try:
                    await self._transport.ended.wait()
                finally:
                    for watcher in watchers:
                        watcher.cancel()
                    await asyncio.wait(watchers)
        except TimeoutError:
            self.error = self.error or f"no response within {self._seconds:g} s"
        except Exception as error:  # noqa: BLE001  the SDK and the server may raise anything: it ends the connection
            self._cause = self._cause or error
        finally:
            self.error = self.error or self._describe(self._cause)
            if not self.ready.done():
                self.ready.set_exception(ServerGone(self.error))

    @asynccontextmanager
    async def _open_client(self) -> AsyncGenerator[Client]:
        await asyncio.to_thread(importlib.import_module, "mcp")  # a second of work that must not block the loop
        import mcp_types as types
        from mcp import Client

        for name in ("mcp", "client"):  # without a handler, the SDK's warnings would be written to the terminal
            if not (logger := logging.getLogger(name)).handlers:
                logger.addHandler(logging.NullHandler())
        async with Client(
            self._transport.streams(),
            cache=None,
            client_info=types.Implementation(name="loom", version=version("loom-runtime")),
            message_handler=self._on_message,
            elicitation_callback=self._questions.elicit,
            list_roots_callback=self._questions.list_roots,
            sampling_callback=self._questions.sample if self._questions.sampler is not None else None,
        ) as client:
            yield client

    async def _list(self, client: Client) -> None:
        has = client.server_capabilities
        tools = await list_pages(client.list_tools, "tools", MAX_LISTED) if has.tools is not None else []
        prompts = await list_pages(client.list_prompts, "prompts", MAX_LISTED) if has.prompts is not None else []
        self._on_listed(Listing(tools=tuple(tools), prompts=tuple(prompts), has_resources=has.resources is not None))

    async def _on_message(self, message: IncomingMessage) -> None:
        from mcp_types import PromptListChangedNotification, ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification | PromptListChangedNotification):
            self._changed.set()

    async def _watch(self) -> None:
        """List again after changes, at most a few times a second. A list that is refused stays as it was."""
        while await self._changed.wait():
            await asyncio.sleep(RELIST_PAUSE_SECONDS)
            self._changed.clear()
            with suppress(RequestRefused, ServerGone):
                await self.relist()

    async def _subscribe(self, client: Client) -> None:
        """Subscribe to changes: newer servers announce them to subscribers only."""
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        try:
            async with client.listen(tools_list_changed=True, prompts_list_changed=True) as changes:
                async for _ in changes:
                    self._changed.set()
        except (MCPError, ListenNotSupportedError, SubscriptionLost, TimeoutError):
            return  # the next connection subscribes again

    def _describe(self, error: BaseException | None) -> str:
        while isinstance(error, BaseExceptionGroup):
            error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
        if isinstance(error, ToolError):
            return error.message
        return self._transport.end_reason() or (describe_error(error, self._spec) if error else "the connection ended")


def describe_error(error: BaseException, spec: ServerSpec) -> str:
    """Return a description of an error, without the URLs and secrets that third-party errors may contain."""
    import httpx2
    from mcp import MCPError
    from pydantic import ValidationError

    match error:
        case FileNotFoundError() | NotADirectoryError():
            return f"command not found: {spec.command}"
        case OSError():
            return f"it cannot be started: {error.strerror or type(error).__name__}"
        case ValidationError():
            return "its response does not follow the protocol"
        case httpx2.TransportError():
            return f"it cannot be reached ({type(error).__name__}): {shorten(str(error))}"
        case MCPError() | RuntimeError():  # RuntimeError: structured content that does not match the server's schema
            return shorten(str(error))
        case _:
            return f"{type(error).__name__}: {shorten(str(error))}"


async def list_pages(fetch: Callable[..., Awaitable[Any]], key: str, most: int) -> list[Any]:
    """Return the items of all pages of a list, `most` at most; none if the server does not have this list."""
    from mcp import MCPError
    from mcp_types import METHOD_NOT_FOUND

    found: list[Any] = []
    cursor: str | None = None
    try:
        for _ in range(MAX_PAGES):
            page = await fetch(cursor=cursor)
            found += getattr(page, key)
            cursor = page.next_cursor
            if cursor is None or len(found) >= most:
                break
    except MCPError as error:
        if error.code != METHOD_NOT_FOUND:
            raise
    return found[:most]
