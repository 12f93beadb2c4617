"""McpServers: the configured servers. `async with McpServers(specs) as servers`; `servers.tools` are tools like any
other.

Servers are started when tools are first needed (`wait_ready`), so that viewing old sessions starts nothing; they
connect in the background, so that a dead one delays nothing for long. If one has died, the next call starts it again.
"""

from __future__ import annotations

import asyncio
import importlib
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from loom.content.blocks import ContentBlock, clean_text
from loom.errors import ConfigError, NotFound, ToolError
from loom.tools.base import Tool, ToolContext
from loom.tools.mcp.content import AttachBytes, content_blocks, shorten
from loom.tools.mcp.records import Pins, TokenFile
from loom.tools.mcp.specs import MAX_LISTED, Listing, ServerGone, ServerSpec, ServerState
from loom.tools.mcp.tools import McpTool, extra_tools, fingerprint, tool_name
from loom.tools.sandbox import Sandbox

if TYPE_CHECKING:
    from mcp import Client

    from loom.tools.mcp.connection import McpConnection
    from loom.tools.mcp.questions import Sampler

READY_SECONDS: Final = 10.0
LOGIN_SECONDS: Final = 300.0
RETRY_SECONDS: Final = 30.0
PROBE_SECONDS: Final = 5.0
T = TypeVar("T")


class ServerPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt of a server, which is a slash command `/SERVER:NAME`."""

    server: Server
    name: str
    description: str
    arguments: tuple[str, ...]

    @property
    def command(self) -> str:
        return f"{self.server.name}:{self.name}"

    async def blocks(self, words: str, attach: AttachBytes) -> list[ContentBlock]:
        """Return the blocks of the prompt; `words` are its arguments in order, the last one gets the rest."""
        given = words.split(maxsplit=max(len(self.arguments) - 1, 0)) if self.arguments else []
        return await self.server.get_prompt(self.name, dict(zip(self.arguments, given, strict=False)), attach)


class Server:
    """One configured server over all its connections. `tools` and `listing` are those of the newest one. `problem` is a
    sentence about why the tools are missing, empty while they are not."""

    def __init__(self, spec: ServerSpec, servers: McpServers) -> None:
        self.spec = spec
        self.name = spec.name
        self.notice = servers.notice
        self.listing = Listing()
        self.tools: dict[str, Tool] = {}
        self.problem = ""
        self._servers = servers
        self._connection: McpConnection | None = None
        self._errors = bytearray()
        """The end of its error output."""
        self._failed_at = -math.inf
        """When the last attempt to connect failed; infinite if it did not."""
        self._is_closed = False

    @property
    def state(self) -> ServerState:
        return self._connection.state if self._connection is not None else "idle"

    @property
    def prompts(self) -> tuple[ServerPrompt, ...]:
        return tuple(
            ServerPrompt(
                server=self,
                name=prompt.name,
                description=shorten(prompt.description or prompt.title or ""),
                arguments=tuple(argument.name for argument in prompt.arguments or ()),
            )
            for prompt in self.listing.prompts
        )

    @property
    def error(self) -> str:
        """Why the connection failed, or how long the server has not responded."""
        if self._connection is None or self.state != "connecting":
            return self._connection.error if self._connection is not None else ""
        return f"no response for {time.monotonic() - self._connection.began_at:.0f} s"

    @property
    def stderr(self) -> str:
        return clean_text(self._errors.decode(errors="replace")).strip()

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
        if self._connection is not None:
            self._connection.is_late = True
        self._report(
            f"MCP server {self.name!r} has not responded for {seconds:g} s."
            " This request is sent without its tools; they are added when it is ready."
        )

    async def call(self, what: str, run: Callable[[Client], Awaitable[T]], context: ToolContext | None = None) -> T:
        """Run a request; connect first if necessary. Both share the configured time. Raise ToolError if it fails."""
        await _load_sdk()
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
            from loom.tools.mcp.connection import McpConnection
            from loom.tools.mcp.oauth import stored_login

            self._connection = McpConnection(
                self.spec,
                self._set_tools,
                sampler=self._servers.sampler,
                sandbox=self._servers.sandbox,
                errors=self._errors,
                auth=stored_login(self.spec, self._servers.tokens),
            )
            self._connection.opened.add_done_callback(self._on_opened)
        return self._connection

    def _on_opened(self, opened: asyncio.Future[Client]) -> None:
        error = opened.exception()
        if not self._is_closed:
            self._failed_at = -math.inf if error is None else time.monotonic()
            self._report_failure(error.message if isinstance(error, ServerGone) else "")

    def _set_tools(self, listing: Listing) -> None:
        """Replace the tools. Unchanged ones stay the same objects, in the same order."""
        known = {tool.tool: tool for tool in self.tools.values() if isinstance(tool, McpTool)}
        listed = {tool.name: tool for tool in listing.tools}
        taken = self._servers.tools.keys() - self.tools.keys()
        taken |= {tool.name for name, tool in known.items() if name in listed}
        tools: list[Tool] = []
        for tool in listed.values():
            kept = known.get(tool.name)
            if kept is None or kept.fingerprint != fingerprint(tool):
                name = kept.name if kept is not None else tool_name(self.name, tool.name, taken)
                kept = McpTool(self, tool, name, self._servers.pins)
            tools.append(kept)
            taken.add(kept.name)
        tools += extra_tools(self, listing, taken)
        if len(listing.tools) >= MAX_LISTED > len(self.listing.tools):
            self.notice(f"MCP server {self.name!r} has too many tools: only the first {MAX_LISTED} are used.")
        self.listing, self.tools = listing, {tool.name: tool for tool in tools}
        self._servers.collect_tools()

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


class McpServers:
    """`tools` is live: it changes when a server's tools do. `notice` is called with a sentence for each event to
    show."""

    def __init__(
        self,
        specs: Sequence[ServerSpec],
        *,
        pins: Pins | None = None,
        notice: Callable[[str], None] | None = None,
        sandbox: Sandbox | None = None,
        tokens: TokenFile | None = None,
    ) -> None:
        self.tools: dict[str, Tool] = {}
        self.pins = pins or Pins()
        self.notice: Callable[[str], None] = notice or (lambda _: None)
        self.sandbox = sandbox or Sandbox()
        self.tokens = tokens
        self.sampler: Sampler | None = None
        self._servers: dict[str, Server] = {}
        for spec in specs:
            if spec.name in self._servers:
                raise ConfigError("two servers have this name", key=f"mcp.servers.{spec.name}")
            self._servers[spec.name] = Server(spec, self)

    async def __aenter__(self) -> McpServers:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    def use_sampler(self, sampler: Sampler) -> None:
        """Let servers call the model through `sampler`, unless they have another sampler."""
        self.sampler = self.sampler or sampler

    async def wait_ready(self, seconds: float | None = READY_SECONDS) -> None:
        """Wait until every server has listed its tools or failed, but not longer than `seconds` (None: as long as each
        of them may take). A late server is reported and waited for once; its tools appear in `tools` when it
        is ready. A server that failed a while ago is tried again without waiting."""
        if self._servers:
            await _load_sdk()
        waiting = {
            opened: server
            for server in self._servers.values()
            if (opened := server.connect_soon(waits_again=seconds is None)) is not None
        }
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=seconds)
            for opened in late:
                waiting[opened].report_late(seconds or 0.0)

    def problems(self) -> tuple[str, ...]:
        """Return a sentence for each server whose tools are missing, because it failed or is late."""
        return tuple(server.problem for server in self._servers.values() if server.problem)

    def status(self) -> tuple[Server, ...]:
        """Return the servers, which have their `state`, `tools`, `prompts`, `error` and `stderr`."""
        return tuple(self._servers.values())

    def prompts(self) -> tuple[ServerPrompt, ...]:
        """Return the prompts of all servers that are ready."""
        return tuple(prompt for server in self._servers.values() for prompt in server.prompts)

    def mentioned_resource(self, text: str) -> Callable[[AttachBytes], Awaitable[list[ContentBlock]]] | None:
        """Return a function that reads the resource of a mention `SERVER:URI`; None if no server has this name."""
        name, _, uri = text.partition(":")
        return partial(self._servers[name].read_resource, uri) if uri and name in self._servers else None

    def collect_tools(self) -> None:
        """Update `tools`, in the order of the configuration."""
        self.tools.clear()
        for server in self._servers.values():
            self.tools |= server.tools

    async def log_in(self, name: str, open_page: Callable[[str], Awaitable[None]], tokens: TokenFile) -> int:
        """Log in at a server; `open_page` gets the URL where the user agrees. Return the number of its tools, or raise
        ToolError."""
        if name not in self._servers:
            raise NotFound(f"MCP server {name!r} not found.", hint="List servers: `loom mcp list`.")
        spec = msgspec.structs.replace(self._servers[name].spec, timeout_seconds=LOGIN_SECONDS)
        if not spec.url:
            raise ToolError(f"{name} is a program, which needs no login", hint="Give it a key in its `env`.")
        await _load_sdk()
        from loom.tools.mcp.connection import McpConnection
        from loom.tools.mcp.oauth import login_auth

        listed: list[Listing] = []
        async with login_auth(spec, tokens, open_page) as auth:
            connection = McpConnection(spec, listed.append, auth=auth)
            try:
                await asyncio.shield(connection.opened)
            except ServerGone as error:
                raise ToolError(f"the login at {name} failed: {error.message}") from None
            finally:
                await connection.end()
        if name not in tokens.read():
            raise ToolError(f"{name} did not ask for a login")
        return len(listed[-1].tools)


async def _load_sdk() -> None:
    """Import the SDK in a thread: it takes a second, which must not block the loop."""
    await asyncio.to_thread(importlib.import_module, "loom.tools.mcp.connection")
