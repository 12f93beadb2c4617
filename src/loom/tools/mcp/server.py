"""One configured server over all its connections. If it has died, the next call starts it again."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from loom.content.blocks import ContentBlock, clean_text
from loom.errors import ToolError
from loom.tools.base import Tool, ToolContext
from loom.tools.mcp.connection import ConnectionState, Listing, McpConnection, RequestRefused, ServerGone
from loom.tools.mcp.content import AttachBytes, content_blocks
from loom.tools.mcp.http import HttpTransport
from loom.tools.mcp.oauth import TokenFile, stored_login
from loom.tools.mcp.questions import ServerQuestions
from loom.tools.mcp.specs import ServerSpec
from loom.tools.mcp.stdio import StdioTransport
from loom.tools.sandbox import Sandbox

if TYPE_CHECKING:
    from mcp import Client

RETRY_SECONDS: Final = 30.0
PROBE_SECONDS: Final = 5.0

ServerState: TypeAlias = Literal["idle"] | ConnectionState
T = TypeVar("T")


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a server for interfaces. `stderr` is the end of its error output."""

    name: str
    state: ServerState
    tools: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    error: str = ""
    stderr: str = ""
    process_id: int | None = None


class ServerHost(Protocol):
    """The services for servers. `notice` is called with a sentence for each event to show."""

    notice: Callable[[str], None]
    sandbox: Sandbox
    tokens: TokenFile | None

    def update_tools(self, server: Server, listing: Listing, /) -> None: ...


class Server:
    """`tools` and `listing` are those of the newest connection."""

    def __init__(self, spec: ServerSpec, host: ServerHost) -> None:
        self.spec = spec
        self.notice = host.notice
        self.questions = ServerQuestions(spec)
        self.listing = Listing()
        self.tools: dict[str, Tool] = {}
        self._host = host
        self._stderr = bytearray()
        self._connection: McpConnection | None = None
        self._late: McpConnection | None = None
        """The connection that was reported as late."""
        self._failed_at = -math.inf
        """When the last attempt to connect failed; infinite if it did not."""
        self._reported = ""
        """The last failure that was reported."""
        self._is_closed = False

    @property
    def has_failed(self) -> bool:
        """Return whether the last complete attempt to connect failed."""
        return math.isfinite(self._failed_at)

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
            stderr=clean_text(self._stderr.decode(errors="replace")).strip(),
            process_id=connection.process_id if connection is not None else None,
        )

    def report_late(self, seconds: float) -> None:
        """Report a server that is not ready, once for each attempt."""
        if self._late is not self._connection:
            self._late = self._connection
            self.notice(
                f"MCP server {self.spec.name!r} has not responded for {seconds:g} s."
                " This request is sent without its tools; they are added when it is ready."
            )

    def connect_soon(self) -> asyncio.Future[Client] | None:
        """Return the future of the connection, or None if it is ready or closed or the last attempt has just failed."""
        state = self._connection.state if self._connection is not None else "idle"
        is_too_early = state != "connecting" and time.monotonic() < self._failed_at + RETRY_SECONDS
        if state == "ready" or is_too_early or self._is_closed:
            return None
        return self._connect().ready

    async def call(
        self,
        what: str,
        run: Callable[[Client], Awaitable[T]],
        context: ToolContext | None = None,
        tool: Tool | None = None,
    ) -> T:
        """Run a request; connect first if necessary. Both share the configured time. Raise ToolError if it fails."""
        name = self.spec.name
        try:
            async with asyncio.timeout(self.spec.timeout_seconds) as deadline:
                connection = self._connect()
                await asyncio.shield(connection.ready)
                if tool is not None and self.tools.get(tool.name) is not tool:
                    raise ToolError(f"{tool.name} has changed or was removed. Look at the current tools.")
                if context is None:
                    return await connection.request(run)
                with self.questions.during(context, deadline):
                    await connection.request(lambda client: self.questions.announce_root(client, context.workspace))
                    return await connection.request(run)
        except TimeoutError:
            raise ToolError(await self._check_silence(what)) from None
        except ServerGone as error:
            self._report(error.message)
            again = "" if "loom mcp login" in error.message else " The next call starts it again."
            raise ToolError(f"MCP server {name!r} is unavailable: {error.message}.{again}") from None
        except RequestRefused as error:
            raise ToolError(f"MCP server {name!r} could not complete {what!r}: {error.message}") from None

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
            await self._connection.close()

    def _connect(self) -> McpConnection:
        """Return the connection that is ready or being opened, otherwise open one for all callers: cancelling a turn
        does not end it."""
        if self._is_closed:
            raise ServerGone("it was closed")
        if self._connection is not None and self._connection.state != "failed":
            return self._connection
        spec = self.spec
        transport = (
            StdioTransport(spec, self._host.sandbox, self._stderr)
            if spec.command
            else HttpTransport(spec, stored_login(spec, self._host.tokens))
        )
        on_listed = partial(self._host.update_tools, self)
        self._connection = McpConnection(spec, transport, self.questions, on_listed, spec.timeout_seconds)
        self._connection.ready.add_done_callback(self._on_opened)
        return self._connection

    def _on_opened(self, opened: asyncio.Future[Client]) -> None:
        error = opened.exception()
        if self._is_closed:
            return
        self._failed_at = -math.inf if error is None else time.monotonic()
        self._report(error.message if isinstance(error, ServerGone) else "")

    async def _check_silence(self, what: str) -> str:
        """Check after a timeout whether the call is slow or the server hangs; end a server that hangs."""
        silence = f"MCP server {self.spec.name!r} did not complete {what!r} within {self.spec.timeout_seconds:g} s"
        connection = self._connection
        if connection is None or connection.state != "ready":
            return f"{silence}."
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await connection.relist()
        except (TimeoutError, ServerGone):
            await connection.close(f"it stopped responding in {what!r} and was stopped")
            self._report(connection.error)
            return f"{silence}. It stopped responding and was stopped. The next call starts it again."
        except RequestRefused:
            pass  # a refusal is a response, too
        return f"{silence}. It still responds to other requests."

    def _report(self, reason: str) -> None:
        """Report a failure, once until the reason changes."""
        if reason and reason != self._reported:
            self.notice(f"MCP server {self.spec.name!r} is unavailable: {reason}.")
        self._reported = reason
