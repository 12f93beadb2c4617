"""Tools from MCP servers: `async with McpServers(specs) as servers`, and `servers.tools` are tools like any other.

Servers are started when tools are first wanted (`ready`), so that looking at old sessions starts nothing; they connect
in the background, so that one that is dead or hangs delays nothing for long. One that dies is started again by
the next call of one of its tools. Every call needs the user's word unless a rule of the user's allows
it: what a server promises about its tools ("read-only") is believed only of one that the user calls `trusted`, and
then decides how calls are scheduled, not whether the user is asked.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from loom.content.blocks import ToolResult
from loom.errors import ConfigError, ToolError
from loom.tools.base import Tool, ToolContext
from loom.tools.mcp_connection import MAX_TOOLS, McpConnection, OnProgress, ServerGone, shorten
from loom.tools.mcp_content import result_of
from loom.tools.mcp_input_schema import form_of
from loom.tools.mcp_pins import Pins
from loom.tools.mcp_schema import fingerprint, tool_name, tool_spec
from loom.tools.mcp_specs import ServerSpec
from loom.tools.mcp_stdio import Tail
from loom.tools.sandbox import Sandbox

if TYPE_CHECKING:
    import mcp_types

READY_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 30.0
PROBE_SECONDS: Final = 5.0
PROGRESS_PAUSE_SECONDS: Final = 0.1

ServerState: TypeAlias = Literal["idle", "connecting", "ready", "failed"]


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What faces show of a server. `stderr` is the end of what it wrote there."""

    name: str
    state: ServerState
    tools: tuple[str, ...] = ()
    error: str = ""
    stderr: str = ""
    process_id: int | None = None


class McpServers:
    """`tools` is live: it changes when a server's tools do. `notice` gets one sentence for each thing worth telling."""

    def __init__(
        self,
        specs: Sequence[ServerSpec],
        *,
        pins: Pins | None = None,
        notice: Callable[[str], None] | None = None,
        sandbox: Sandbox | None = None,
    ) -> None:
        sandbox = sandbox or Sandbox()
        self.tools: dict[str, Tool] = {}
        self._pins = pins or Pins()
        self._notice: Callable[[str], None] = notice or (lambda _: None)
        self._servers: dict[str, _Server] = {}
        for spec in specs:
            if spec.name in self._servers:
                raise ConfigError("there are two servers of this name", key=f"mcp.servers.{spec.name}")
            self._servers[spec.name] = _Server(spec, self._on_tools_changed, self._notice, sandbox)

    async def __aenter__(self) -> McpServers:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    async def wait_ready(self, seconds: float | None = READY_SECONDS) -> None:
        """Wait until every server has told its tools or failed, but not longer than `seconds`; None: as long as each of
        them may take. What is late is named, and appears in `tools` when it comes; one that failed a while ago is tried
        again, and nothing waits for it."""
        attempts = [(server, server.has_failed, server.connect_soon()) for server in self._servers.values()]
        waiting = {task: server for server, has_failed, task in attempts if task is not None and not has_failed}
        if not waiting:
            return
        _, late = await asyncio.wait(waiting, timeout=seconds)
        for task in late:
            waiting[task].say_late(seconds or 0.0)

    def status(self) -> tuple[ServerStatus, ...]:
        return tuple(server.status() for server in self._servers.values())

    def _on_tools_changed(self, server: _Server, found: Sequence[mcp_types.Tool]) -> None:
        """Tools that are as they were stay the same objects, in the same order; the others are replaced."""
        listed = {tool.name: tool for tool in found}
        if [(tool.tool, tool.fingerprint) for tool in server.offered.values()] == [
            (name, fingerprint(tool)) for name, tool in listed.items()
        ]:
            return
        mine = {tool.tool: tool for tool in server.offered.values()}
        for name in server.offered:
            self.tools.pop(name, None)
        server.offered = {}
        names = {name: tool.name for name, tool in mine.items() if name in listed}
        for name, tool in listed.items():
            kept = mine.get(name)
            if kept is None or kept.fingerprint != fingerprint(tool):
                chosen = names.get(name) or tool_name(server.spec.name, name, {*self.tools, *names.values()})
                kept = McpTool(server, tool, chosen, self._pins)
            server.offered[kept.name] = self.tools[kept.name] = kept
        if len(found) >= MAX_TOOLS:
            self._notice(f"the MCP server {server.spec.name} has very many tools: the first {MAX_TOOLS} are used")


class McpTool(Tool):
    """A tool of a server, in the form that it had when it was listed."""

    def __init__(self, server: _Server, found: mcp_types.Tool, name: str, pins: Pins) -> None:
        hints = found.annotations if server.spec.trusted else None
        reads_only = hints is not None and hints.read_only_hint is True
        repeatable = hints is not None and hints.idempotent_hint is True
        super().__init__(
            _nothing, name=name, danger="ask", preview=self._shown, reads_only=reads_only, repeatable=repeatable
        )
        self._form = form_of(found.input_schema)
        self.spec = tool_spec(name, found, self._form)
        self.tool = found.name
        self.fingerprint = fingerprint(found)
        self._server = server
        self._pins = pins

    def check_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._form.check_arguments(self.name, arguments)

    def _shown(self, _workspace: Path, arguments: dict[str, Any]) -> str:
        """What the user reads before allowing a call: whose tool it is, what it says of itself, and every argument."""
        told = shorten(self.spec.description) or "it does not say what it does"
        lines = [f"{key}: {_as_text(value)}" for key, value in arguments.items()] or ["(no arguments)"]
        return "\n".join([f"{self.tool} of the MCP server {self._server.spec.name}: {told}", "", *lines])

    async def run(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        given = self._form.to_server_names(self.check_arguments(arguments))
        name = self._server.spec.name
        await self._approve_change(context, name)
        answer = await self._server.call(self, given, _progress_events(context))
        return await result_of(answer, context, name)

    async def _approve_change(self, context: ToolContext, server: str) -> None:
        # Under our own name, which rules and approvals go by: what is behind it cannot change without a question. Files
        # of older versions have it under the server's name.
        known = self._pins.get(server, self.name) or self._pins.get(server, self.tool)
        if known == self.fingerprint:
            return
        if known is not None:
            words = f"use {self.name}, which now says: {shorten(self.spec.description) or 'nothing'}"
            await context.confirm(words, why=f"the MCP server {server} has changed this tool since it was last used")
        try:
            await asyncio.to_thread(self._pins.put, server, self.name, self.fingerprint)
        except OSError as error:
            self._server.notice(f"the form of {self.name} could not be kept: {error.strerror}")


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _nothing() -> None:
    """What a tool of a server does, the server does."""


class _Server:
    """One configured server over all its connections."""

    def __init__(
        self,
        spec: ServerSpec,
        changed: Callable[[_Server, Sequence[mcp_types.Tool]], None],
        notice: Callable[[str], None],
        sandbox: Sandbox,
    ) -> None:
        self.spec = spec
        self._sandbox = sandbox
        self.offered: dict[str, McpTool] = {}
        self.notice = notice
        self._changed = changed
        self._tail = Tail()
        self._connection: McpConnection | None = None
        self._connecting: asyncio.Task[McpConnection] | None = None
        self._error = ""
        self._failed_at = -math.inf
        self._began_at = -math.inf
        self._late_at = -math.inf
        self._is_closed = False

    def status(self) -> ServerStatus:
        connection = self._connection
        state: ServerState = "idle"
        if self._attempt:
            state = "connecting"
        elif connection is not None and connection.is_alive:
            state = "ready"
        elif self._error:
            state = "failed"
        waited = time.monotonic() - self._began_at
        return ServerStatus(
            name=self.spec.name,
            state=state,
            tools=tuple(self.offered),
            error=f"it has not answered for {waited:.0f} s" if state == "connecting" else self._error,
            stderr=str(self._tail),
            process_id=connection.process_id if connection is not None and connection.is_alive else None,
        )

    @property
    def has_failed(self) -> bool:
        """Its last attempt, if there is no connection now."""
        return math.isfinite(self._failed_at)

    def say_late(self, seconds: float) -> None:
        """Name a server that is not ready, once for each attempt."""
        if self._late_at < self._began_at:
            self._late_at = time.monotonic()
            self.notice(
                f"the MCP server {self.spec.name} has not answered for {seconds:g} s:"
                " this request goes without its tools, and they come as soon as it is ready"
            )

    def connect_soon(self) -> asyncio.Task[McpConnection] | None:
        """The task that connects; None where there is a connection, or there was no luck a moment ago."""
        if self._attempt:
            return self._attempt
        if self._is_alive or time.monotonic() < self._failed_at + RETRY_SECONDS:
            return None
        return self._connect()

    async def call(self, tool: McpTool, arguments: dict[str, Any], progress: OnProgress) -> mcp_types.CallToolResult:
        """Connects first if it must. Start and call share the configured time."""
        from mcp import MCPError
        from pydantic import ValidationError

        try:
            async with asyncio.timeout(self.spec.timeout_seconds):
                connection = await self._alive()
                if self.offered.get(tool.name) is not tool:
                    raise ToolError(f"{tool.name} has changed or is gone: look at the tools that there are now")
                return await connection.call(tool.tool, arguments, progress)
        except TimeoutError:
            raise ToolError(await self._silent(tool)) from None
        except ServerGone as error:
            raise ToolError(self._error_text(error)) from None
        except MCPError as error:
            raise ToolError(f"the MCP server {self.spec.name} refused {tool.tool}: {shorten(error.message)}") from None
        except ValidationError:
            raise ToolError(
                f"the MCP server {self.spec.name} answered {tool.tool} with something that the protocol does not know"
            ) from None

    async def close(self) -> None:
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._connection is not None:
            await self._connection.close()

    @property
    def _is_alive(self) -> bool:
        return self._connection is not None and self._connection.is_alive

    async def _alive(self) -> McpConnection:
        if self._connection is not None and self._connection.is_alive:
            return self._connection
        if self._is_closed:
            raise ServerGone("it was closed")
        return await asyncio.shield(self._attempt or self._connect())

    @property
    def _attempt(self) -> asyncio.Task[McpConnection] | None:
        """The one that is under way."""
        return self._connecting if self._connecting is not None and not self._connecting.done() else None

    def _connect(self) -> asyncio.Task[McpConnection]:
        """One attempt for all who wait: a turn that is cancelled does not end it."""
        self._began_at = time.monotonic()
        task = self._connecting = asyncio.create_task(self._wait_connected(), name=f"mcp {self.spec.name}: connecting")
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        return task

    async def _wait_connected(self) -> McpConnection:
        connection = McpConnection(self.spec, self._tail, lambda found: self._changed(self, found), self._sandbox)
        try:
            async with asyncio.timeout(self.spec.timeout_seconds):
                await connection.open()
        except TimeoutError:
            gone = ServerGone(f"it did not answer within {self.spec.timeout_seconds:g} s")
        except ServerGone as error:
            gone = error
        else:
            self._connection, self._error, self._failed_at = connection, "", -math.inf
            return connection
        self._failed_at = time.monotonic()
        self._fail(gone.message)
        raise gone

    async def _silent(self, tool: McpTool) -> str:
        """A call took too long: is the tool slow, or does the server answer nothing any more? Then it is ended."""
        said = f"the MCP server {self.spec.name} did not answer {tool.tool} within {self.spec.timeout_seconds:g} s"
        from mcp import MCPError
        from pydantic import ValidationError

        connection = self._connection
        if connection is None or not connection.is_alive:
            return said
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await connection.relist()
        except (TimeoutError, ServerGone):
            await connection.close()
            self._fail(f"it hung in {tool.tool} and was ended")
            return f"{said}; it hung and was ended. The next call starts it again."
        except (MCPError, ValidationError):
            pass  # a refusal is an answer too
        return f"{said}; it still answers other requests."

    def _error_text(self, error: ServerGone) -> str:
        self._fail(error.message)
        return f"the MCP server {self.spec.name} is gone: {error.message}. The next call starts it again."

    def _fail(self, why: str) -> None:
        """Said once for each time that it goes."""
        if self._error != why:
            self._error = why
            self.notice(f"the MCP server {self.spec.name} is gone: {why}")


def _progress_events(context: ToolContext) -> OnProgress:
    """Progress as events, a few a second at most."""
    last = -math.inf

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        nonlocal last
        now = time.monotonic()
        fraction = progress / total if total else None
        if fraction is not None:
            fraction = min(max(fraction, 0.0), 1.0) if math.isfinite(fraction) else None
        if now >= last + PROGRESS_PAUSE_SECONDS:
            last = now
            await context.emit(
                shorten(message or f"{progress:g}{f' of {total:g}' if total else ''}"), fraction=fraction
            )

    return tell
