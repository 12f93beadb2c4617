"""One configured server over all its connections. If it has died, the next call starts it again."""

from __future__ import annotations

import asyncio
import importlib
import math
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

import msgspec

from loom.content.blocks import ContentBlock, clean_text
from loom.errors import LoomError, ToolError
from loom.tools.base import Tool, ToolContext
from loom.tools.mcp.content import AttachBytes, content_blocks
from loom.tools.mcp.specs import ServerSpec

if TYPE_CHECKING:
    import mcp_types as types
    from mcp import Client

    from loom.tools.mcp.connection import McpConnection

MAX_LISTED: Final = 200
RETRY_SECONDS: Final = 30.0
PROBE_SECONDS: Final = 5.0
ServerState: TypeAlias = Literal["idle", "connecting", "ready", "failed"]
T = TypeVar("T")


async def load_sdk() -> None:
    """Import the SDK in a thread: it takes a second, which must not block the loop."""
    await asyncio.to_thread(importlib.import_module, "loom.tools.mcp.connection")


class ServerGone(LoomError):
    """The connection has ended; the next call may open a new one."""

    code = "tool.server_gone"


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The tools and prompts of a server, and whether it has resources."""

    tools: tuple[types.Tool, ...] = ()
    prompts: tuple[types.Prompt, ...] = ()
    has_resources: bool = False


class Server:
    """`tools` and `listing` are those of the newest connection, which `open_connection` opens. `notice` is called with
    a sentence for each event to show; `problem` is one about why the tools are missing, empty while they are not.
    `output` is the end of its error output."""

    def __init__(
        self, spec: ServerSpec, notice: Callable[[str], None], open_connection: Callable[[Server], McpConnection]
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self.notice = notice
        self.listing = Listing()
        self.tools: dict[str, Tool] = {}
        self.output = bytearray()
        self.problem = ""
        self._open = open_connection
        self._connection: McpConnection | None = None
        self._failed_at = -math.inf
        """When the last attempt to connect failed; infinite if it did not."""
        self._is_closed = False

    @property
    def state(self) -> ServerState:
        return self._connection.state if self._connection is not None else "idle"

    @property
    def prompts(self) -> tuple[types.Prompt, ...]:
        return self.listing.prompts

    @property
    def error(self) -> str:
        """Why the connection failed, or how long the server has not responded."""
        if self._connection is None or self.state != "connecting":
            return self._connection.error if self._connection is not None else ""
        return f"no response for {time.monotonic() - self._connection.began_at:.0f} s"

    @property
    def stderr(self) -> str:
        return clean_text(self.output.decode(errors="replace")).strip()

    @property
    def process_id(self) -> int | None:
        return self._connection.process_id if self._connection is not None and self.state == "ready" else None

    def connect_soon(self, *, waits_again: bool) -> asyncio.Future[Client] | None:
        """Connect, unless the last attempt has just failed. Return the future to wait for, or None: a turn waits
        neither for a server that the last attempt did not reach, nor again (without `waits_again`) for a late one."""
        is_too_early = self.state != "connecting" and time.monotonic() < self._failed_at + RETRY_SECONDS
        if self.state == "ready" or is_too_early or self._is_closed:
            return None
        connection = self._connect()
        has_failed = math.isfinite(self._failed_at)
        return None if has_failed or (connection.is_late and not waits_again) else connection.opened

    def report_late(self, seconds: float) -> None:
        """Report that the connection is not open yet."""
        self._connect().is_late = True
        self._report(
            f"MCP server {self.name!r} has not responded for {seconds:g} s."
            " This request is sent without its tools; they are added when it is ready."
        )

    async def call(self, what: str, run: Callable[[Client], Awaitable[T]], context: ToolContext | None = None) -> T:
        """Run a request; connect first if necessary. Both share the configured time. Raise ToolError if it fails."""
        await load_sdk()
        try:
            async with asyncio.timeout(self.spec.timeout_seconds) as deadline:
                connection = self._connect()
                await asyncio.shield(connection.opened)
                with connection.questions.during(context, deadline):
                    await connection.request(what, connection.questions.announce_root)
                    return await connection.request(what, run)
        except TimeoutError:
            raise ToolError(await self._check_silence(what)) from None
        except ServerGone as error:
            self._report_failure(error.message)
            again = "" if "loom mcp login" in error.message else " The next call starts it again."
            raise ToolError(f"{self.problem}{again}") from None

    async def read_resource(
        self, uri: str, attach: AttachBytes, context: ToolContext | None = None
    ) -> list[ContentBlock]:
        found = await self.call("read_resource", lambda client: client.read_resource(uri), context)
        return await content_blocks(found.contents, attach, self.name)

    async def get_prompt(
        self, prompt: str, arguments: dict[str, str], attach: AttachBytes, context: ToolContext | None = None
    ) -> list[ContentBlock]:
        found = await self.call("get_prompt", lambda client: client.get_prompt(prompt, arguments), context)
        return await content_blocks([message.content for message in found.messages], attach, self.name)

    async def close(self) -> None:
        self._is_closed = True
        if self._connection is not None:
            await self._connection.end("it was closed")

    def _connect(self) -> McpConnection:
        """Return the connection that is ready or being opened, otherwise open one for all callers: cancelling a turn
        does not end it."""
        if self._is_closed:
            raise ServerGone("it was closed")
        if self._connection is None or self.state == "failed":
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
        silence = f"MCP server {self.name!r} did not complete {what!r} within {self.spec.timeout_seconds:g} s"
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
        self._report(f"MCP server {self.name!r} is unavailable: {reason}." if reason else "")

    def _report(self, problem: str) -> None:
        """Report a problem, once until it changes."""
        if problem and problem != self.problem:
            self.notice(problem)
        self.problem = problem
