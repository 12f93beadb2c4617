"""One configured server over all its connections. If it has died, the next call starts it again."""

from __future__ import annotations

import asyncio
import importlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias, TypeVar

import msgspec

from loom.content.blocks import ContentBlock, clean_text
from loom.errors import LoomError, ToolError
from loom.tools.base import Tool, ToolContext
from loom.tools.mcp.content import AttachBytes, content_blocks, shorten
from loom.tools.mcp.http import HttpTransport
from loom.tools.mcp.questions import ServerQuestions
from loom.tools.mcp.specs import ServerSpec
from loom.tools.mcp.stdio import StdioTransport

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client.session import IncomingMessage
    from mcp_types import Prompt
    from mcp_types import Tool as ListedTool

MAX_LISTED: Final = 200
MAX_PAGES: Final = 50
CLOSE_SECONDS: Final = 7.0
RELIST_PAUSE_SECONDS: Final = 0.2
RETRY_SECONDS: Final = 30.0
PROBE_SECONDS: Final = 5.0
_END_WORDS: Final = ("Connection closed", "SSE stream", "Session terminated")
"""The beginnings of the SDK's errors for a connection that ended. Servers use the SDK's error code for other errors,
too, so the message decides."""

ServerState: TypeAlias = Literal["idle", "connecting", "ready", "failed"]
T = TypeVar("T")


class ServerGone(LoomError):
    """The connection has ended; the next call may open a new one."""

    code = "tool.server_gone"


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The tools and prompts of a server, and whether it has resources."""

    tools: tuple[ListedTool, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    has_resources: bool = False


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a server for interfaces. `stderr` is the end of its error output."""

    name: str
    state: ServerState
    tools: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    error: str = ""
    stderr: str = ""
    process_id: int | None = None


class McpConnection:
    """One attempt to connect to a server, and the connection that it becomes. A task owns the SDK's client from
    beginning to end, so that a cancelled turn cannot damage it; requests run in the tasks of their callers.

    `opened` is set when the server has listed its tools, or to ServerGone if it does not within its time. `error` is
    the reason why the connection failed or ended.
    """

    def __init__(
        self,
        spec: ServerSpec,
        transport: StdioTransport | HttpTransport,
        questions: ServerQuestions,
        on_listed: Callable[[Listing], None],
    ) -> None:
        self.opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.opened.add_done_callback(lambda done: done.exception())  # perhaps no call waits for it
        self.error = ""
        self.began_at = time.monotonic()
        self._spec = spec
        self._transport = transport
        self._questions = questions
        self._on_listed = on_listed
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"mcp {spec.name}")

    @property
    def state(self) -> ServerState:
        return "failed" if self._task.done() else "ready" if self.opened.done() else "connecting"

    @property
    def process_id(self) -> int | None:
        return self._transport.process_id if self.state == "ready" else None

    async def request(self, what: str, run: Callable[[Client], Awaitable[T]]) -> T:
        """Run a request. Raise ToolError if the server refuses it or its response is invalid, ServerGone if the
        connection has ended."""
        from mcp import MCPError
        from pydantic import ValidationError

        client = await asyncio.shield(self.opened)
        try:
            return await run(client)
        except (MCPError, ValidationError, RuntimeError) as error:
            reason = describe_error(error, self._spec)
            if self._task.done() or self._task.cancelling() or reason.startswith(_END_WORDS):
                await self.end()
                self.error = self.error or reason
                raise ServerGone(self.error) from None
            raise ToolError(f"MCP server {self._spec.name!r} could not complete {what!r}: {reason}") from None

    async def end(self, reason: str = "") -> None:
        """End the connection and its process within a bounded time."""
        self.error = self.error or reason
        for attempt in (1, 2):  # the second one interrupts a server that does not respond to the end of its session
            self._cancel(attempt)
            await asyncio.wait([self._task], timeout=CLOSE_SECONDS)

    def _cancel(self, attempt: int = 1) -> None:
        """Cancel the task, but not again while it ends the process."""
        if self._task.cancelling() < attempt:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            async with asyncio.timeout(self._spec.timeout_seconds) as deadline, await self._make_client() as client:
                await self.list_all(client)
                deadline.reschedule(None)
                self.opened.set_result(client)
                await self._follow_changes(client)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  whatever the SDK raises ends the connection
            self.error = self.error or self._transport.reason or describe_error(error, self._spec)
            if not self.opened.done():
                self.opened.set_exception(ServerGone(self.error))

    async def _make_client(self) -> Client:
        await asyncio.to_thread(importlib.import_module, "mcp")  # a second of work that must not block the loop
        import mcp_types as types
        from mcp import Client

        for name in ("mcp", "client"):  # without a handler, the SDK's warnings would be written to the terminal
            if not (logger := logging.getLogger(name)).handlers:
                logger.addHandler(logging.NullHandler())
        return Client(
            self._transport.streams(self._cancel),
            cache=None,
            client_info=types.Implementation(name="loom", version=version("loom-runtime")),
            message_handler=self._on_message,
            elicitation_callback=self._questions.elicit,
            list_roots_callback=self._questions.list_roots,
            sampling_callback=self._questions.sample if self._questions.sampler is not None else None,
        )

    async def list_all(self, client: Client) -> None:
        """Request the lists. This is also the test whether a silent server still responds."""
        has = client.server_capabilities
        tools = await list_pages(client.list_tools, "tools", MAX_LISTED) if has.tools is not None else []
        prompts = await list_pages(client.list_prompts, "prompts", MAX_LISTED) if has.prompts is not None else []
        self._on_listed(Listing(tools=tuple(tools), prompts=tuple(prompts), has_resources=has.resources is not None))

    async def _on_message(self, message: IncomingMessage) -> None:
        from mcp_types import PromptListChangedNotification, ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification | PromptListChangedNotification):
            self._changed.set()

    async def _follow_changes(self, client: Client) -> NoReturn:
        """List again after changes, at most a few times a second. A list that is refused stays as it was."""
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
        from pydantic import ValidationError

        async with AsyncExitStack() as stack:
            # Newer servers announce changes to subscribers only, older ones to all.
            with suppress(MCPError, ListenNotSupportedError, SubscriptionLost):
                await stack.enter_async_context(client.listen(tools_list_changed=True, prompts_list_changed=True))
            while True:
                await self._changed.wait()
                await asyncio.sleep(RELIST_PAUSE_SECONDS)
                self._changed.clear()
                with suppress(MCPError, ValidationError):
                    await self.list_all(client)


class Server:
    """`tools` and `listing` are those of the newest connection, which `open_connection` opens. `notice` is called with
    a sentence for each event to show."""

    def __init__(
        self, spec: ServerSpec, notice: Callable[[str], None], open_connection: Callable[[Server], McpConnection]
    ) -> None:
        self.spec = spec
        self.notice = notice
        self.questions = ServerQuestions(spec)
        self.listing = Listing()
        self.tools: dict[str, Tool] = {}
        self.stderr = bytearray()
        self._open = open_connection
        self._connection: McpConnection | None = None
        self._late: McpConnection | None = None
        """The connection that was reported as late."""
        self._failed_at = -math.inf
        """When the last attempt to connect failed; infinite if it did not."""
        self.problem = ""
        """A sentence about why its tools are missing; empty while they are not."""
        self._is_closed = False

    def status(self) -> ServerStatus:
        connection = self._connection
        error = connection.error if connection is not None else ""
        if connection is not None and connection.state == "connecting":
            error = f"no response for {time.monotonic() - connection.began_at:.0f} s"
        return ServerStatus(
            name=self.spec.name,
            state=connection.state if connection is not None else "idle",
            tools=tuple(self.tools),
            prompts=tuple(prompt.name for prompt in self.listing.prompts),
            error=error,
            stderr=clean_text(self.stderr.decode(errors="replace")).strip(),
            process_id=connection.process_id if connection is not None else None,
        )

    @property
    def is_late(self) -> bool:
        """Whether the connection that is being opened was reported as late."""
        return self._late is not None and self._late is self._connection and not self._late.opened.done()

    def report_late(self, seconds: float) -> None:
        """Report that the connection is not open yet."""
        self._late = self._connection
        self._report(
            f"MCP server {self.spec.name!r} has not responded for {seconds:g} s."
            " This request is sent without its tools; they are added when it is ready."
        )

    def connect_soon(self) -> asyncio.Future[Client] | None:
        """Connect, unless the last attempt has just failed. Return the future to wait for; None if there is nothing to
        wait for, or if the last attempt failed: a turn does not wait for the same server twice."""
        state = self._connection.state if self._connection is not None else "idle"
        is_too_early = state != "connecting" and time.monotonic() < self._failed_at + RETRY_SECONDS
        if state == "ready" or is_too_early or self._is_closed:
            return None
        opened = self._connect().opened
        return None if math.isfinite(self._failed_at) else opened

    async def call(
        self,
        what: str,
        run: Callable[[Client], Awaitable[T]],
        context: ToolContext | None = None,
        tool: Tool | None = None,
    ) -> T:
        """Run a request; connect first if necessary. Both share the configured time. Raise ToolError if it fails."""
        try:
            async with asyncio.timeout(self.spec.timeout_seconds) as deadline:
                connection = self._connect()
                await asyncio.shield(connection.opened)
                if tool is not None and self.tools.get(tool.name) is not tool:
                    raise ToolError(f"{tool.name} has changed or was removed. Look at the current tools.")
                if context is None:
                    return await connection.request(what, run)
                with self.questions.during(context, deadline):
                    await connection.request(what, self.questions.announce_root)
                    return await connection.request(what, run)
        except TimeoutError:
            raise ToolError(await self._check_silence(what)) from None
        except ServerGone as error:
            self._report_failure(error.message)
            again = "" if "loom mcp login" in error.message else " The next call starts it again."
            raise ToolError(f"MCP server {self.spec.name!r} is unavailable: {error.message}.{again}") from None

    async def read_resource(
        self, uri: str, attach: AttachBytes, context: ToolContext | None = None
    ) -> list[ContentBlock]:
        found = await self.call("read_resource", lambda client: client.read_resource(uri), context)
        return await content_blocks(found.contents, attach, self.spec.name)

    async def get_prompt(
        self, prompt: str, arguments: Mapping[str, str], attach: AttachBytes, context: ToolContext | None = None
    ) -> list[ContentBlock]:
        found = await self.call("get_prompt", lambda client: client.get_prompt(prompt, dict(arguments)), context)
        return await content_blocks([message.content for message in found.messages], attach, self.spec.name)

    async def close(self) -> None:
        self._is_closed = True
        if self._connection is not None:
            await self._connection.end("it was closed")

    def _connect(self) -> McpConnection:
        """Return the connection that is ready or being opened, otherwise open one for all callers: cancelling a turn
        does not end it."""
        if self._is_closed:
            raise ServerGone("it was closed")
        if self._connection is None or self._connection.state == "failed":
            self._connection = self._open(self)
            self._connection.opened.add_done_callback(self._on_opened)
        return self._connection

    def _on_opened(self, opened: asyncio.Future[Client]) -> None:
        error = opened.exception()
        if not self._is_closed:
            self._failed_at = -math.inf if error is None else time.monotonic()
            self._report_failure(error.message if isinstance(error, ServerGone) else "")

    async def _check_silence(self, what: str) -> str:
        """Check after a timeout whether the call is slow or the server hangs; end a server that hangs."""
        silence = f"MCP server {self.spec.name!r} did not complete {what!r} within {self.spec.timeout_seconds:g} s"
        connection = self._connection
        if connection is None or connection.state != "ready":
            return f"{silence}."
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await connection.request(what, connection.list_all)
        except (TimeoutError, ServerGone):
            await connection.end(f"it stopped responding in {what!r} and was stopped")
            self._report_failure(connection.error)
            return f"{silence}. It stopped responding and was stopped. The next call starts it again."
        except ToolError:
            pass  # a refusal is a response, too
        return f"{silence}. It still responds to other requests."

    def _report_failure(self, reason: str) -> None:
        """Report why the server is unavailable; an empty `reason` means that it is available."""
        self._report(f"MCP server {self.spec.name!r} is unavailable: {reason}." if reason else "")

    def _report(self, problem: str) -> None:
        """Report a problem, once until it changes."""
        if problem and problem != self.problem:
            self.notice(problem)
        self.problem = problem


def describe_error(error: BaseException, spec: ServerSpec) -> str:
    """Return a description of an error, without the URLs and secrets that third-party errors may contain."""
    import httpx2
    from pydantic import ValidationError

    match error:
        case BaseExceptionGroup():
            return describe_error(error.exceptions[0], spec)
        case asyncio.CancelledError():
            return ""  # Loom ended it
        case TimeoutError():
            return f"no response within {spec.timeout_seconds:g} s"
        case FileNotFoundError() | NotADirectoryError():
            return f"command not found: {spec.command}"
        case OSError():
            return f"it cannot be started: {error.strerror or type(error).__name__}"
        case ValidationError():
            return "its response does not follow the protocol"
        case httpx2.TransportError():
            return f"it cannot be reached ({type(error).__name__}): {shorten(str(error))}"
        case _:
            return shorten(str(error)) or type(error).__name__


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
