"""The options of a runtime besides its configuration: the keywords of `Runtime.open`, as one value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict, cast

import msgspec

from loom.agent.approvals import Rule
from loom.agent.gate import Approve, StringRule, is_string_rule
from loom.agent.services import TurnLimits
from loom.compile.ports import Provider
from loom.config import Config
from loom.errors import ConfigError
from loom.providers import catalog
from loom.runtime.custom_provider import CustomProvider, CustomProviderAdapter, provider_name
from loom.runtime.servers import approval_rule
from loom.tools.base import Tool, tool
from loom.tools.mcp import McpServers

if TYPE_CHECKING:
    from typing_extensions import TypeIs

ToolChoice: TypeAlias = Literal["all"] | Mapping[str, Tool] | Iterable[str | Tool | Callable[..., Any]]
"""Tools by name, `Tool` objects and typed functions, mixed; "all", alone or among them, means every built-in tool."""
ProviderChoice: TypeAlias = Mapping[str, Provider | CustomProvider]
"""Providers by the name of a platform. A name that Loom does not know is a new platform."""

_MCP_TOOL: Final = re.compile(r"(.+)__(.+)")


class RuntimeKeywords(TypedDict, total=False):
    """The keywords of `Runtime.open`, for functions that pass them on."""

    model: str | CustomProvider
    tools: ToolChoice
    approve: Approve | StringRule | None
    providers: ProviderChoice | None
    store: str
    media: str
    system: str
    mcp: bool | McpServers
    instructions: bool
    limits: TurnLimits | None


class RuntimeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The keywords of `Runtime.open`, as a runtime stores them."""

    model: str | CustomProvider
    tools: Any
    """A `ToolChoice`."""
    approve: Approve | StringRule | None
    providers: Mapping[str, Any]
    """A `ProviderChoice`."""
    system: str
    mcp: bool | McpServers
    instructions: bool
    limits: TurnLimits | None


class ChosenTools(msgspec.Struct, frozen=True):
    """The tools that sessions may use, and which tools of MCP servers (None: all)."""

    tools: Mapping[str, Tool]
    mcp: frozenset[str] | None = None


def choose_tools(choice: ToolChoice, built_in: Callable[[], Mapping[str, Tool]]) -> ChosenTools:
    """Return the tools that `choice` names; raise `ConfigError` for a name that no tool can have."""
    if choice == "all":
        return ChosenTools(built_in())
    if isinstance(choice, str):
        raise ConfigError(
            f"tools={choice!r} is not a list of tools.", hint=f'Write tools=["{choice}"], or tools="all".'
        )
    if isinstance(choice, Mapping):
        return ChosenTools(dict(cast("Mapping[str, Tool]", choice)))
    chosen: dict[str, Tool] = {}
    of_servers: set[str] = set()
    for item in choice:
        if item == "all":
            chosen |= built_in()
        elif isinstance(item, str):
            known = built_in()
            if item in known:
                chosen[item] = known[item]
            elif _MCP_TOOL.fullmatch(item):
                of_servers.add(item)
            else:
                raise ConfigError(
                    f"Tool {item!r} not found.",
                    hint=f"Available: {', '.join(sorted(known))}; tools of MCP servers are called SERVER__TOOL.",
                )
        else:
            if not (isinstance(item, Tool) or callable(item)):
                raise ConfigError(
                    f"Not a tool: {item!r}.", hint="A tool is a function, a Tool, or the name of a built-in tool."
                )
            made = item if isinstance(item, Tool) else tool(item)
            chosen[made.name] = made
    return ChosenTools(chosen, frozenset(of_servers) or None)


def approval_of(approve: Approve | StringRule | None, config: Config) -> tuple[Rule, Approve | None]:
    """Return the rule and the function that decide on calls; with a function, the configured rules do not apply."""
    if approve is None:
        return approval_rule(config), None
    if is_string_rule(approve):
        return cast("Rule", approve), None
    return lambda _tool, _subject: None, cast("Approve", approve)


def split_providers(choice: ProviderChoice) -> tuple[dict[str, Provider], dict[str, CustomProviderAdapter]]:
    """Split providers into those of known platforms, by `Model.provider`, and those of new platforms."""
    known: dict[str, Provider] = {}
    own: dict[str, CustomProviderAdapter] = {}
    for name, provider in choice.items():
        if not _is_custom(provider):
            known[catalog.provider_name(name)] = provider
        elif name in catalog.platforms() or name in catalog.ALIASES:
            known[catalog.provider_name(name)] = CustomProviderAdapter(provider)
        else:
            own[name] = CustomProviderAdapter(provider)
    return known, own


def model_name(model: str | CustomProvider) -> str:
    """Return the name of a model; raise `ConfigError` for anything that is neither a name nor a provider."""
    if isinstance(model, str):
        return model
    if not hasattr(model, "name"):
        raise ConfigError(
            f"model={model!r} is neither a name nor a custom provider.",
            hint='Write model="platform/name", or leave it out for the default model.',
        )
    return provider_name(model)


def _is_custom(provider: Provider | CustomProvider) -> TypeIs[CustomProvider]:
    """Return whether `provider` declares capabilities; such a provider may also yield plain text."""
    return hasattr(provider, "capabilities")
