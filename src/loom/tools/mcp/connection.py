"""One connection to a server, from the first attempt to its end, through the SDK's client.

This module and those that it imports load the SDK, which takes a second: `McpServers` does that in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from importlib.metadata import version
from typing import Any, Final, NoReturn, TypeVar

import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from pydantic import ValidationError

from loom.errors import ToolError
from loom.tools.mcp.content import shorten
from loom.tools.mcp.http import http_streams
from loom.tools.mcp.questions import Sampler, ServerQuestions
from loom.tools.mcp.specs import MAX_LISTED, Listing, ServerGone, ServerSpec, ServerState
from loom.tools.mcp.stdio import process_streams
from loom.tools.sandbox import Sandbox

MAX_PAGES: Final = 50
CLOSE_SECONDS: Final = 7.0
RELIST_PAUSE_SECONDS: Final = 0.2
_END_WORDS: Final = ("Connection closed", "SSE stream", "Session terminated")
"""The beginnings of the SDK's errors for a connection that ended. Servers use the SDK's error code for other errors,
too, so the message decides."""
T = TypeVar("T")

for _name in ("mcp", "client"):  # without a handler, the SDK's warnings would be written to the terminal
    logging.getLogger(_name).addHandler(logging.NullHandler())


class McpConnection:
    """One attempt to connect to a server, and the connection that it becomes. A task owns the SDK's client from
    beginning to end, so that a cancelled turn cannot damage it; requests run in the tasks of their callers.

    `opened` is set when the server has listed its tools, or to ServerGone if it does not within its time. `error` is
    the reason why the connection failed or ended. The streams set `process_id`, and `refusal` while the server refuses
    requests.
    """

    def __init__(
        self,
        spec: ServerSpec,
        on_listed: Callable[[Listing], None],
        *,
        sampler: Sampler | None = None,
        sandbox: Sandbox | None = None,
        errors: bytearray | None = None,
        auth: httpx2.Auth | None = None,
    ) -> None:
        self.spec = spec
        self.questions = ServerQuestions(spec, sampler)
        self.opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.opened.add_done_callback(lambda done: done.exception())  # perhaps no call waits for it
        self.error = ""
        self.refusal = ""
        self.process_id: int | None = None
        self.began_at = time.monotonic()
        self.is_late = False
        """Whether it was reported that it opens late."""
        self._streams = (
            process_streams(self, sandbox or Sandbox(), bytearray() if errors is None else errors)
            if spec.command
            else http_streams(self, auth)
        )
        self._on_listed = on_listed
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"mcp {spec.name}")
        self._task.add_done_callback(self._on_ended)

    @property
    def state(self) -> ServerState:
        return "failed" if self._task.done() else "ready" if self.opened.done() else "connecting"

    async def request(self, what: str, run: Callable[[Client], Awaitable[T]]) -> T:
        """Run a request. Raise ToolError if the server refuses it or its response is invalid, ServerGone if the
        connection has ended."""
        client = await asyncio.shield(self.opened)
        try:
            return await run(client)
        except (MCPError, ValidationError, RuntimeError) as error:
            reason = _describe_error(error, self.spec)
            if self._task.done() or self._task.cancelling() or reason.startswith(_END_WORDS):
                await self.end()
                self.error = self.error or reason
                raise ServerGone(self.error) from None
            raise ToolError(f"MCP server {self.spec.name!r} could not complete {what!r}: {reason}") from None

    def stop(self, reason: str = "", attempt: int = 1) -> None:
        """Begin to end the connection. Its end is not interrupted, unless by another `attempt`."""
        self.error = self.error or reason
        if self._task.cancelling() < attempt:
            self._task.cancel()

    async def end(self, reason: str = "") -> None:
        """End the connection and its process within a bounded time."""
        for attempt in (1, 2):  # the second one interrupts a server that does not respond to the end of its session
            self.stop(reason, attempt)
            await asyncio.wait([self._task], timeout=CLOSE_SECONDS)

    async def list_all(self, client: Client) -> None:
        """Request the lists. This is also the test whether a silent server still responds."""
        has = client.server_capabilities
        tools = await list_pages(client.list_tools, "tools", MAX_LISTED) if has.tools is not None else []
        prompts = await list_pages(client.list_prompts, "prompts", MAX_LISTED) if has.prompts is not None else []
        self._on_listed(Listing(tools=tuple(tools), prompts=tuple(prompts), has_resources=has.resources is not None))

    async def _run(self) -> None:
        try:
            client = Client(
                self._streams,
                cache=None,
                client_info=types.Implementation(name="loom", version=version("loom-runtime")),
                message_handler=self._on_message,
                elicitation_callback=self.questions.elicit,
                list_roots_callback=self.questions.list_roots,
                sampling_callback=self.questions.sample if self.questions.sampler is not None else None,
            )
            async with asyncio.timeout(self.spec.timeout_seconds) as deadline, client:
                await self.list_all(client)
                deadline.reschedule(None)
                self.opened.set_result(client)
                await self._follow_changes(client)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  whatever the SDK raises ends the connection
            self.error = self.error or self.refusal or _describe_error(error, self.spec)

    def _on_ended(self, _: asyncio.Task[None]) -> None:
        if not self.opened.done():
            self.opened.set_exception(ServerGone(self.error))

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification | types.PromptListChangedNotification):
            self._changed.set()

    async def _follow_changes(self, client: Client) -> NoReturn:
        """List again after changes, at most a few times a second. A list that is refused stays as it was."""
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


async def list_pages(fetch: Callable[..., Awaitable[Any]], key: str, most: int) -> list[Any]:
    """Return the items of all pages of a list, `most` at most; none if the server does not have this list."""
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
        if error.code != types.METHOD_NOT_FOUND:
            raise
    return found[:most]


def _describe_error(error: BaseException, spec: ServerSpec) -> str:
    """Return a description of an error, without the URLs and secrets that third-party errors may contain."""
    match error:
        case BaseExceptionGroup():
            return _describe_error(error.exceptions[0], spec)
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
