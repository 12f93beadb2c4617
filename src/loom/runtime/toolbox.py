"""Toolbox: the tools that sessions may use: built-in tools, those of the program and of packages, and those of MCP
servers."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from loom.config import Config
from loom.errors import ConfigError
from loom.runtime.options import ToolChoice, choose_tools
from loom.runtime.servers import sandbox_for
from loom.runtime.skills import find_skills, skill_tool
from loom.tools.base import Tool
from loom.tools.mcp import McpServers


class Toolbox:
    """The tools of a runtime. `choice` is the selection that the runtime was given; `own` returns tools that use the
    runtime. Without `uses_mcp`, the tools of MCP servers are left out."""

    def __init__(
        self,
        config: Callable[[], Config],
        choice: ToolChoice,
        own: Callable[[], Iterable[Tool]],
        mcp: McpServers,
        *,
        uses_mcp: bool,
    ) -> None:
        self._config = config
        self._own = own
        self._mcp = mcp
        self._uses_mcp = uses_mcp
        self._chosen = choose_tools(choice, self.built_in)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools that sessions may use, besides those of MCP servers."""
        return MappingProxyType(dict(self._chosen.tools))

    def built_in(self) -> dict[str, Tool]:
        """Return every tool of Loom and of installed packages, by name."""
        from loom.runtime.plugins import plugin_tools
        from loom.tools.builtin import builtin_tools
        from loom.tools.egress import Egress

        config = self._config()
        own = {made.name: made for made in (*self._own(), skill_tool(config))}
        egress = Egress(allow=config.tools.allow_hosts)
        known = builtin_tools(egress, sandbox=sandbox_for(config), variables=config.tools.environment)
        return plugin_tools() | own | known

    def available_tools(self, names: Collection[str] | None = None) -> Mapping[str, Tool]:
        """Return the tools that sessions may use, or only those called `names`. Raise `ConfigError` for an unknown
        name."""
        found = self._all()
        if names is None:
            return found
        unknown = next((name for name in names if name not in found), None)
        if unknown is not None:
            raise ConfigError(f"Tool {unknown!r} not found.", hint=f"Available: {', '.join(sorted(found))}.")
        return {name: tool for name, tool in found.items() if name in names}

    def _all(self) -> Mapping[str, Tool]:
        tools, only = dict(self._chosen.tools), self._chosen.mcp
        if not self._uses_mcp:
            return tools
        if only is None:
            return ChainMap(tools, self._mcp.tools)  # live: a server's tools may change while sessions are open
        return tools | {name: it for name, it in self._mcp.tools.items() if name in only}

    async def wait_and_list(self) -> Mapping[str, Tool]:
        """Return the tools that sessions may use, once the MCP servers have answered."""
        await self.wait_ready()
        return self.available_tools()

    async def wait_ready(self, names: Collection[str] | None = None) -> Sequence[str]:
        """Wait until the tools of MCP servers are known, if any of `names` (None: all tools) may be one of theirs.
        Return a sentence for each server whose tools are missing."""
        if not self._uses_mcp or (names is not None and self._chosen.tools.keys() >= set(names)):
            return ()
        await self._mcp.wait_ready()
        return self._mcp.problems()

    def resolve(self, choice: Iterable[str | Tool | Callable[..., Any]]) -> tuple[str | Tool, ...]:
        """Return the tools that the program chose for a session: names of the runtime's tools, and additional tools."""
        chosen = self._chosen.tools
        named = {item: None for item in choice if isinstance(item, str)}
        mine = [item for item in named if item in chosen or (item not in self.built_in() and "__" in item)]
        others = [item for item in choice if not isinstance(item, str) or item not in mine]
        return (*mine, *choose_tools(others, self.built_in).tools.values())

    def unused_tools(self, workspace: Path) -> frozenset[str]:
        """Return the tools that are of no use in a workspace: `use_skill` if there are no skills. It reads files."""
        return frozenset() if find_skills(self._config(), workspace) else frozenset({"use_skill"})

    def all_names(self) -> list[str]:
        """Return the names of all tools that an approval rule may refer to."""
        return [*self.built_in(), *self._chosen.tools, *self._mcp.tools]
