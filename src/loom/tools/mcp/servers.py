"""McpServers: the configured servers. `async with McpServers(specs) as servers`; `servers.tools` are tools like any
other.

Servers are started when tools are first needed (`wait_ready`), so that viewing old sessions starts nothing; they
connect in the background, so that a dead one delays nothing for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from loom.content.blocks import ContentBlock
from loom.errors import ConfigError, NotFound, ToolError
from loom.tools.base import Tool
from loom.tools.mcp.content import AttachBytes, shorten
from loom.tools.mcp.records import Pins, TokenFile
from loom.tools.mcp.server import MAX_LISTED, Listing, Server, ServerGone, load_sdk
from loom.tools.mcp.specs import ServerSpec
from loom.tools.mcp.tools import McpTool, extra_tools, fingerprint, tool_name
from loom.tools.sandbox import Sandbox

if TYPE_CHECKING:
    from loom.tools.mcp.connection import McpConnection
    from loom.tools.mcp.questions import Sampler

READY_SECONDS: Final = 10.0
LOGIN_SECONDS: Final = 300.0


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
    ) -> None:
        self.tools: dict[str, Tool] = {}
        self._sandbox = sandbox or Sandbox()
        self._tokens = tokens
        self._pins = pins or Pins()
        self._sampler: Sampler | None = None
        self._servers: dict[str, Server] = {}
        for spec in specs:
            if spec.name in self._servers:
                raise ConfigError("two servers have this name", key=f"mcp.servers.{spec.name}")
            self._servers[spec.name] = Server(spec, notice or (lambda _: None), self._open_connection)

    async def __aenter__(self) -> McpServers:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    def use_sampler(self, sampler: Sampler) -> None:
        """Let servers call the model through `sampler`, unless they have another sampler."""
        self._sampler = self._sampler or sampler

    async def wait_ready(self, seconds: float | None = READY_SECONDS) -> None:
        """Wait until every server has listed its tools or failed, but not longer than `seconds` (None: as long as each
        of them may take). A late server is reported and waited for once; its tools appear in `tools` when it
        is ready. A server that failed a while ago is tried again without waiting."""
        if self._servers:
            await load_sdk()
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
        return tuple(
            ServerPrompt(
                server=name,
                name=prompt.name,
                description=shorten(prompt.description or prompt.title or ""),
                arguments=tuple(argument.name for argument in prompt.arguments or ()),
            )
            for name, server in self._servers.items()
            for prompt in server.prompts
        )

    async def get_prompt(self, prompt: ServerPrompt, words: str, attach: AttachBytes) -> list[ContentBlock]:
        """Return the blocks of a prompt; `words` are its arguments in order, the last one gets the rest."""
        given = words.split(maxsplit=max(len(prompt.arguments) - 1, 0)) if prompt.arguments else []
        arguments = dict(zip(prompt.arguments, given, strict=False))
        return await self._server(prompt.server).get_prompt(prompt.name, arguments, attach)

    def mentioned_resource(self, text: str) -> tuple[str, str] | None:
        """Return server and URI of a mention `SERVER:URI`; None if no server has this name."""
        server, _, uri = text.partition(":")
        return (server, uri) if uri and server in self._servers else None

    async def read_resource(self, server: str, uri: str, attach: AttachBytes) -> list[ContentBlock]:
        """Return the blocks of a resource that the user mentioned."""
        return await self._server(server).read_resource(uri, attach)

    async def log_in(self, name: str, open_page: Callable[[str], Awaitable[None]], tokens: TokenFile) -> int:
        """Log in at a server; `open_page` gets the URL where the user agrees. Return the number of its tools, or raise
        ToolError."""
        await load_sdk()
        from loom.tools.mcp.connection import McpConnection
        from loom.tools.mcp.oauth import login_auth

        spec = msgspec.structs.replace(self._server(name).spec, timeout_seconds=LOGIN_SECONDS)
        if not spec.url:
            raise ToolError(f"{name} is a program, which needs no login", hint="Give it a key in its `env`.")
        listed: list[Listing] = []
        async with login_auth(spec, tokens, open_page) as auth:
            connection = McpConnection(spec, listed.append, auth=auth)
            try:
                await connection.opened
            except ServerGone as error:
                raise ToolError(f"the login at {name} failed: {error.message}") from None
            finally:
                await connection.end()
        if name not in tokens.read():
            raise ToolError(f"{name} did not ask for a login")
        return len(listed[-1].tools)

    def _server(self, name: str) -> Server:
        if name not in self._servers:
            raise NotFound(f"MCP server {name!r} not found.", hint="List servers: `loom mcp list`.")
        return self._servers[name]

    def _open_connection(self, server: Server) -> McpConnection:
        from loom.tools.mcp.connection import McpConnection
        from loom.tools.mcp.oauth import stored_login

        return McpConnection(
            server.spec,
            partial(self._update_tools, server),
            sampler=self._sampler,
            sandbox=self._sandbox,
            stderr=server.output,
            auth=stored_login(server.spec, self._tokens),
        )

    def _update_tools(self, server: Server, listing: Listing) -> None:
        """Replace the tools of a server. Unchanged tools stay the same objects, in the same order."""
        known = {tool.tool: tool for tool in server.tools.values() if isinstance(tool, McpTool)}
        listed = {tool.name: tool for tool in listing.tools}
        taken = {name for other in self._servers.values() if other is not server for name in other.tools}
        taken |= {tool.name for name, tool in known.items() if name in listed}
        tools: list[Tool] = []
        for tool in listed.values():
            kept = known.get(tool.name)
            if kept is None or kept.fingerprint != fingerprint(tool):
                name = kept.name if kept is not None else tool_name(server.name, tool.name, taken)
                kept = McpTool(server, tool, name, self._pins)
            tools.append(kept)
            taken.add(kept.name)
        tools += extra_tools(server, listing, taken)
        if len(listing.tools) >= MAX_LISTED > len(server.listing.tools):
            server.notice(f"MCP server {server.name!r} has too many tools: only the first {MAX_LISTED} are used.")
        server.listing, server.tools = listing, {tool.name: tool for tool in tools}
        self.tools.clear()
        for each in self._servers.values():
            self.tools |= each.tools
