"""McpServers: the configured servers. `async with McpServers(specs) as servers`; `servers.tools` are tools like any
other.

Servers are started when tools are first needed (`wait_ready`), so that viewing old sessions starts nothing; they
connect in the background, so that a dead one delays nothing for long. If a server has died, the next call of one of its
tools starts it again.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar

import msgspec

from loom.content.blocks import ContentBlock
from loom.errors import ConfigError, NotFound, ToolError
from loom.tools.base import Tool, ToolContext
from loom.tools.mcp.connection import MAX_LISTED, Listing, McpConnection, ServerGone, shorten
from loom.tools.mcp.content import AttachBytes, blocks_of_items
from loom.tools.mcp.oauth import LoginListener, TokenFile, login_auth
from loom.tools.mcp.questions import Sampler, ServerQuestions
from loom.tools.mcp.specs import ServerSpec
from loom.tools.mcp.stdio import Tail
from loom.tools.mcp.tools import McpTool, Pins, extra_tools, fingerprint, tool_name
from loom.tools.sandbox import Sandbox

if TYPE_CHECKING:
    from mcp import Client

READY_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 30.0
PROBE_SECONDS: Final = 5.0

ServerState: TypeAlias = Literal["idle", "connecting", "ready", "failed"]
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


class ServerPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt of a server, which is a slash command `/SERVER:NAME`."""

    server: str
    name: str
    description: str
    arguments: tuple[str, ...]


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
        sampler: Sampler | None = None,
    ) -> None:
        self.tools: dict[str, Tool] = {}
        self._pins = pins or Pins()
        self._servers: dict[str, _Server] = {}
        for spec in specs:
            if spec.name in self._servers:
                raise ConfigError("there are two servers of this name", key=f"mcp.servers.{spec.name}")
            self._servers[spec.name] = _Server(spec, self._offer, notice or _ignore, sandbox or Sandbox(), tokens)
        self.use_sampler(sampler)

    async def __aenter__(self) -> McpServers:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    def use_sampler(self, sampler: Sampler | None) -> None:
        """Let servers call the model through `sampler`, unless they have another sampler."""
        for server in self._servers.values():
            server.questions.sampler = server.questions.sampler or sampler

    async def wait_ready(self, seconds: float | None = READY_SECONDS) -> None:
        """Wait until every server has listed its tools or failed, but not longer than `seconds` (None: as long as each
        of them may take). A late server is reported, and its tools appear in `tools` when it is ready; a server that
        failed a while ago is tried again without waiting."""
        attempts = [(server, server.has_failed, server.connect_soon()) for server in self._servers.values()]
        waiting = {task: server for server, has_failed, task in attempts if task is not None and not has_failed}
        if not waiting:
            return
        _, late = await asyncio.wait(waiting, timeout=seconds)
        for task in late:
            waiting[task].say_late(seconds or 0.0)

    def status(self) -> tuple[ServerStatus, ...]:
        return tuple(server.status() for server in self._servers.values())

    def prompts(self) -> tuple[ServerPrompt, ...]:
        """Return the prompts of all servers that are ready."""
        return tuple(
            ServerPrompt(
                server=name,
                name=prompt.name,
                description=shorten(prompt.description or prompt.title or ""),
                arguments=tuple(argument.name for argument in prompt.arguments or ()),
            )
            for name, server in self._servers.items()
            for prompt in server.listing.prompts
        )

    async def get_prompt(self, prompt: ServerPrompt, words: str, attach: AttachBytes) -> list[ContentBlock]:
        """Return the blocks of a prompt; `words` are its arguments in order, the last one gets the rest."""
        given = words.split(maxsplit=max(len(prompt.arguments) - 1, 0)) if prompt.arguments else []
        arguments = dict(zip(prompt.arguments, given, strict=False))
        server = self._server(prompt.server)
        found = await server.call("get_prompt", lambda client: client.get_prompt(prompt.name, arguments))
        return await blocks_of_items([message.content for message in found.messages], attach, prompt.server)

    def mentioned_resource(self, text: str) -> tuple[str, str] | None:
        """Return server and URI of a mention `SERVER:URI`; None if no server has this name."""
        server, _, uri = text.partition(":")
        return (server, uri) if uri and server in self._servers else None

    async def read_resource(self, server: str, uri: str, attach: AttachBytes) -> list[ContentBlock]:
        """Return the blocks of a resource that the user mentioned."""
        found = await self._server(server).call("read_resource", lambda client: client.read_resource(uri))
        return await blocks_of_items(found.contents, attach, server)

    async def log_in(self, name: str, open_page: Callable[[str], Awaitable[None]], tokens: TokenFile) -> int:
        """Log in at a server; `open_page` gets the URL where the user agrees. Return the number of its tools, or raise
        ToolError."""
        spec = self._server(name).spec
        if not spec.url:
            raise ToolError(f"{name} is a program, which needs no login", hint="Give it a key in its `env`.")
        listed: list[Listing] = []
        async with LoginListener() as listener:
            auth = login_auth(spec, tokens, listener, open_page)
            connection = McpConnection(spec, Tail(), listed.append, Sandbox(), ServerQuestions(spec), login=auth)
            try:
                await connection.open()
            except ServerGone as gone:
                raise ToolError(f"the login at {name} failed: {gone.message}") from None
            await connection.close()
        if name not in tokens.read():
            raise ToolError(f"{name} asked for no login")
        return len(listed[-1].tools)

    def _server(self, name: str) -> _Server:
        if name not in self._servers:
            raise NotFound(f"MCP server {name!r} not found.", hint="List servers: loom mcp list")
        return self._servers[name]

    def _offer(self, server: _Server, listing: Listing) -> None:
        """Add the tools of a server. Unchanged tools stay the same objects, in the same order."""
        prints = [(tool.name, fingerprint(tool)) for tool in listing.tools]
        known = {tool.tool: tool for tool in server.offered.values() if isinstance(tool, McpTool)}
        extras = (listing.has_resources, [prompt.model_dump() for prompt in listing.prompts])
        if (
            server.is_listed
            and prints == [(it.tool, it.fingerprint) for it in known.values()]
            and extras == server.extras
        ):
            return
        for name in server.offered:
            self.tools.pop(name, None)
        names = {name: tool.name for name, tool in known.items() if name in dict(prints)}
        offered: list[Tool] = []
        for tool in {tool.name: tool for tool in listing.tools}.values():
            kept = known.get(tool.name)
            if kept is None or kept.fingerprint != fingerprint(tool):
                taken = {*self.tools, *names.values(), *(it.name for it in offered)}
                kept = McpTool(
                    server, tool, names.get(tool.name) or tool_name(server.spec.name, tool.name, taken), self._pins
                )
            offered.append(kept)
        offered += extra_tools(server, listing, {*self.tools, *(tool.name for tool in offered)})
        server.listing, server.extras, server.is_listed = listing, extras, True
        server.offered = {tool.name: tool for tool in offered}
        self.tools |= server.offered
        if len(listing.tools) >= MAX_LISTED:
            server.notice(f"the MCP server {server.spec.name} has very many tools: the first {MAX_LISTED} are used")


def _ignore(_: str) -> None:
    """Do nothing: no interface shows notices."""


class _Server:
    """One configured server over all its connections."""

    def __init__(
        self,
        spec: ServerSpec,
        on_listed: Callable[[_Server, Listing], None],
        notice: Callable[[str], None],
        sandbox: Sandbox,
        tokens: TokenFile | None,
    ) -> None:
        self.spec = spec
        self.notice = notice
        self.questions = ServerQuestions(spec)
        self.listing = Listing()
        self.extras: tuple[bool, Sequence[object]] = (False, ())
        self.is_listed = False
        self.offered: dict[str, Tool] = {}
        self._sandbox = sandbox
        self._tokens = tokens
        self._on_listed = on_listed
        self._tail = Tail()
        self._connection: McpConnection | None = None
        self._connecting: asyncio.Task[McpConnection] | None = None
        self._error = ""
        self._failed_at = self._began_at = self._late_at = -math.inf
        self._is_closed = False

    def status(self) -> ServerStatus:
        alive = self._alive
        state: ServerState = (
            "connecting" if self._attempt else "ready" if alive else "failed" if self._error else "idle"
        )
        waited = time.monotonic() - self._began_at
        return ServerStatus(
            name=self.spec.name,
            state=state,
            tools=tuple(self.offered),
            prompts=tuple(prompt.name for prompt in self.listing.prompts),
            error=f"it has not answered for {waited:.0f} s" if state == "connecting" else self._error,
            stderr=str(self._tail),
            process_id=alive.process_id if alive is not None else None,
        )

    @property
    def has_failed(self) -> bool:
        """Return whether its last attempt failed and there is no connection now."""
        return math.isfinite(self._failed_at)

    def say_late(self, seconds: float) -> None:
        """Report a server that is not ready, once for each attempt."""
        if self._late_at < self._began_at:
            self._late_at = time.monotonic()
            self.notice(
                f"the MCP server {self.spec.name} has not answered for {seconds:g} s:"
                " this request goes without its tools, and they come as soon as it is ready"
            )

    def connect_soon(self) -> asyncio.Task[McpConnection] | None:
        """Return the task that connects, or None if there is a connection or the last attempt has just failed."""
        if self._attempt:
            return self._attempt
        if self._alive or time.monotonic() < self._failed_at + RETRY_SECONDS:
            return None
        return self._connect()

    async def call(
        self,
        what: str,
        run: Callable[[Client], Awaitable[T]],
        context: ToolContext | None = None,
        tool: Tool | None = None,
    ) -> T:
        """Run a request; connect first if necessary. Both share the configured time. Raise ToolError if it fails."""
        from mcp import MCPError
        from pydantic import ValidationError

        name = self.spec.name
        try:
            async with asyncio.timeout(self.spec.timeout_seconds) as deadline:
                connection = self._alive or await self._connected()
                if tool is not None and self.offered.get(tool.name) is not tool:
                    raise ToolError(f"{tool.name} has changed or is gone: look at the tools that there are now")
                if context is None:
                    return await connection.ask(run)
                with self.questions.during(context, deadline):
                    await connection.ask(lambda client: self.questions.announce_root(client, context.workspace))
                    return await connection.ask(run)
        except TimeoutError:
            raise ToolError(await self._check_silence(what)) from None
        except ServerGone as error:
            self._fail(error.message)
            again = "" if "loom mcp login" in error.message else " The next call starts it again."
            raise ToolError(f"the MCP server {name} is gone: {error.message}.{again}") from None
        except MCPError as error:
            raise ToolError(f"the MCP server {name} refused {what}: {shorten(error.message)}") from None
        except ValidationError:
            raise ToolError(
                f"the MCP server {name} answered {what} with something that is not in the protocol"
            ) from None
        except RuntimeError as error:  # the SDK checks structured content against the server's schema
            raise ToolError(
                f"the answer of the MCP server {name} to {what} is not valid: {shorten(str(error))}"
            ) from None

    async def close(self) -> None:
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._connection is not None:
            await self._connection.close()

    @property
    def _alive(self) -> McpConnection | None:
        return self._connection if self._connection is not None and self._connection.is_alive else None

    @property
    def _attempt(self) -> asyncio.Task[McpConnection] | None:
        """The running attempt."""
        return self._connecting if self._connecting is not None and not self._connecting.done() else None

    async def _connected(self) -> McpConnection:
        if self._is_closed:
            raise ServerGone("it was closed")
        return await asyncio.shield(self._attempt or self._connect())

    def _connect(self) -> asyncio.Task[McpConnection]:
        """Start one attempt for all waiting callers: cancelling a turn does not end it."""
        self._began_at = time.monotonic()
        task = self._connecting = asyncio.create_task(self._open(), name=f"mcp {self.spec.name}: connecting")
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        return task

    async def _open(self) -> McpConnection:
        connection = McpConnection(
            self.spec,
            self._tail,
            lambda listing: self._on_listed(self, listing),
            self._sandbox,
            self.questions,
            tokens=self._tokens,
        )
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

    async def _check_silence(self, what: str) -> str:
        """Check after a timeout whether the call is slow or the server hangs; end a server that hangs."""
        from mcp import MCPError
        from pydantic import ValidationError

        said = f"the MCP server {self.spec.name} did not answer {what} within {self.spec.timeout_seconds:g} s"
        connection = self._alive
        if connection is None:
            return said
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await connection.relist()
        except (TimeoutError, ServerGone):
            await connection.close()
            self._fail(f"it hung in {what} and was ended")
            return f"{said}; it hung and was ended. The next call starts it again."
        except (MCPError, ValidationError):
            pass  # a refusal is a response, too
        return f"{said}; it still answers other requests."

    def _fail(self, why: str) -> None:
        """Report a failure, once until the reason changes."""
        if self._error != why:
            self._error = why
            self.notice(f"the MCP server {self.spec.name} is gone: {why}")
