"""Agents: a model, a system prompt, tools and rules under one name: `[agents.NAME]`, or a Markdown file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from loom.agent.approvals import Action, ExplicitRules, Rule
from loom.agent.services import Services, TurnLimits
from loom.api_types import AgentView
from loom.config import Config
from loom.config.approval import ApprovalPolicy, ProjectApproval
from loom.config.schema import AgentEntry, ApprovalSettings
from loom.errors import ConfigError, NotFound
from loom.models import PLAIN_IMAGES, Model
from loom.runtime.agent_files import AgentDefinition, read_agent_files
from loom.runtime.model_access import ModelAccess
from loom.runtime.session_settings import ALL_TOOLS, matching_tools, tools_of
from loom.struct_types import convert
from loom.tools.base import Tool

AGENT: Final = "agent"
"""The session setting that names the agent of the session."""
STAYS: Final = "Its tools and rules apply from the next message on; the model and the system prompt stay."
"""The notice about an agent that is chosen in the middle of a conversation."""
CALLER: Final = "parent_agent"
"""The session setting of a sub-agent that names the agent which started it."""


def with_agents(config: Config, agents: Mapping[str, AgentEntry | Mapping[str, Any]]) -> Config:
    """Return the configuration with additional agents; raise `ConfigError` if one has an unknown field.

    An agent is a mapping with the fields of `[agents.NAME]`: `model`, `system`, `tools`, `description` …
    """
    entries = dict(config.agents)
    for name, given in agents.items():
        if isinstance(given, AgentEntry):
            entries[name] = msgspec.structs.replace(given, id=name)
            continue
        unknown = [key for key in given if key not in AgentEntry.__struct_fields__]
        try:
            if unknown:
                raise msgspec.ValidationError(f"{unknown[0]} is not a known field")
            entries[name] = convert({**given, "id": name}, AgentEntry)
        except msgspec.ValidationError as error:
            fields = ", ".join(field for field in AgentEntry.__struct_fields__ if field != "id")
            raise ConfigError(f"The agent {name!r} cannot be used: {error}.", hint=f"Fields: {fields}.") from None
    return msgspec.structs.replace(config, agents=entries)


def list_agents(config: Config, workspace: Path) -> dict[str, AgentDefinition]:
    """Return the configured agents, and those in files of the user and of a trusted workspace. A configured agent takes
    precedence. This reads files."""
    configured = {name: _configured_agent(config, name) for name in config.agents}
    return dict(sorted({**read_agent_files(config, workspace), **configured}.items()))


def get_agent(config: Config, name: str, workspace: Path) -> AgentDefinition | None:
    """Return an agent, or None. This reads files unless the agent is configured."""
    return _configured_agent(config, name) if name in config.agents else read_agent_files(config, workspace).get(name)


def find_agent(config: Config, name: str, workspace: Path) -> AgentDefinition:
    """Return an agent; raise `ConfigError` with the known names if there is none."""
    found = get_agent(config, name, workspace)
    if found is None:
        names = ", ".join(list_agents(config, workspace))
        known = f"Available: {names}." if names else "Define it in loom.toml: [agents.NAME], or in .claude/agents."
        if not config.may_instruct(workspace) and "agents" in config.folder_trust(workspace).kinds:
            known += f" The agents of this folder are ignored until it is trusted. Run: loom trust add {workspace}"
        raise ConfigError(f"Agent {name!r} not found.", hint=known)
    return found


def _configured_agent(config: Config, name: str) -> AgentDefinition:
    origin = config.origin("agents", name, "system")
    return AgentDefinition(entry=config.agents[name], origin=origin.file or "loom.toml")


def agent_system(config: Config, agent: AgentDefinition) -> str:
    """Return the system prompt of an agent; empty means the default one."""
    return agent.system if agent.is_file else config.system_prompt(agent.entry.id)


def agent_model(agent: AgentDefinition, models: ModelAccess, *, instead: str = "the default model") -> tuple[str, str]:
    """Return the reference of the agent's model, empty for the default model, and a notice. A model that another
    program knows and that cannot be used here is replaced by the default model; the notice calls it `instead`."""
    entry = agent.entry
    reference = entry.model
    if not reference and entry.brain.model:
        brain = entry.brain
        reference = f"{brain.provider}/{brain.model}" if brain.provider else brain.model
    if not agent.is_file or not reference or models.can_use(reference):
        return reference, ""
    hint = f"to choose one, define [models.{reference}]" if "/" not in reference else "add its key with loom keys set"
    return "", f"Agent {entry.id!r}: its model {reference!r} is not available; {instead} is used ({hint})."


def agent_tools(agent: AgentDefinition, tools: Mapping[str, Tool]) -> Mapping[str, Tool]:
    """Return the tools that the agent may use."""
    chosen = tools if agent.entry.tools is None else matching_tools(tools, agent.entry.tools)
    if not agent.is_file:
        return chosen
    return {
        name: tool
        for name, tool in chosen.items()
        if agent.has_tool(name) and (tool.reads_only or not agent.reads_only)
    }


def agent_lines(agents: Iterable[AgentDefinition]) -> str:
    """Return the part of the system prompt about agents that tasks can be handed to; empty if there are none."""
    lines = [f"- {it.entry.id}: {it.entry.description or 'no description'}" for it in agents if it.is_subagent]
    return "# Agents\nHand tasks to these with ask_agent.\n" + "\n".join(lines) if lines else ""


def agent_list(agents: Sequence[AgentView], current: str) -> str:
    """Return the agents for a user to choose from, one per line, each with its origin."""
    lines = [
        f"{'*' if it.name == current else ' '} {it.name}: {it.description or 'no description'} ({it.origin})"
        for it in agents
    ]
    return "\n".join(lines) or "No agents. Define one in loom.toml ([agents.NAME]) or in .claude/agents/NAME.md."


def chosen_agent(agents: Sequence[AgentView], name: str) -> AgentView | None:
    """Return the agent that a user chose; None for `none`. Raise `NotFound` with the known names."""
    if name == "none":
        return None
    found = next((it for it in agents if it.name == name), None)
    if found is None:
        known = ", ".join(it.name for it in agents)
        raise NotFound(f"Agent {name[:80]!r} not found.", hint=f"Available: {known or 'none'}.")
    return found


def session_services(services: Services, settings: Mapping[str, Any], config: Config, workspace: Path) -> Services:
    """Return the services of a session with these settings, restricted to the tools of its agent and of the session.
    This may read files."""
    name = str(settings.get(AGENT, ""))
    if name:
        agent = get_agent(config, name, workspace)
        services = msgspec.structs.replace(agent_services(services, agent, config), agent=name)
    if (caller := str(settings.get(CALLER, ""))) and caller != name:
        services = _limit_as(services, get_agent(config, caller, workspace))
    if (patterns := tools_of(settings)) != ALL_TOOLS:
        services = msgspec.structs.replace(services, tools=matching_tools(services.tools, patterns))
    return services


def agent_services(services: Services, agent: AgentDefinition | None, config: Config) -> Services:
    """Return the services of a session that belongs to an agent. An agent that is no longer there (None) has no tools:
    removing its entry or file must not remove its restrictions."""
    if agent is None:
        return msgspec.structs.replace(services, tools={})
    entry = agent.entry

    async def resolve_model(reference: str) -> Model:
        return apply_vision(await services.resolve_model(reference), entry.vision)

    return msgspec.structs.replace(
        services,
        tools=agent_tools(agent, services.tools),
        rule=_agent_rule(services.rule, agent, config),
        turn_limits=_agent_limits(services.turn_limits, entry),
        resolve_model=resolve_model,
    )


def _limit_as(services: Services, caller: AgentDefinition | None) -> Services:
    """Return the services of a sub-agent, restricted to the tools and by the rules of the agent that started it: an
    agent must not get around its restrictions by handing the work to another."""
    if caller is None:
        return msgspec.structs.replace(services, tools={})
    limits = ApprovalPolicy(ApprovalSettings(default="allow"), ProjectApproval(rules=caller.entry.rules), caller.limits)
    return msgspec.structs.replace(
        services, tools=agent_tools(caller, services.tools), rule=_StricterRule(services.rule, limits)
    )


class _StricterRule:
    """A rule, and limits that can only make it stricter."""

    def __init__(self, rule: Rule, limits: ApprovalPolicy) -> None:
        self._rule = rule
        self._limits = limits

    def __call__(self, tool: str, subject: str) -> Action | None:
        return _stricter(self._rule(tool, subject), self._limits(tool, subject))

    def explicit(self, tool: str, subject: str) -> Action | None:
        own = self._rule.explicit(tool, subject) if isinstance(self._rule, ExplicitRules) else self._rule(tool, subject)
        return _stricter(own, self._limits.explicit(tool, subject))

    def restricts(self, tool: str) -> bool:
        is_restricted = self._rule.restricts(tool) if isinstance(self._rule, ExplicitRules) else True
        return is_restricted or self._limits.restricts(tool)


def _stricter(own: Action | None, limit: Action | None) -> Action | None:
    return limit if limit == "deny" or (limit == "ask" and own != "deny") else own


def _agent_limits(limits: TurnLimits, entry: AgentEntry) -> TurnLimits:
    """Return the limits of an agent's turns; they are never higher than the general limits."""
    steps = limits.steps if entry.max_steps is None else min(limits.steps, entry.max_steps)
    usd = [value for value in (limits.usd, entry.max_usd) if value is not None]
    return msgspec.structs.replace(limits, steps=steps, usd=min(usd) if usd else None)


def _agent_rule(rule: Rule, agent: AgentDefinition, config: Config) -> Rule:
    if not agent.entry.rules and not agent.limits.rules:
        return rule
    approval = msgspec.structs.replace(config.approval, rules=(*config.approval.rules, *agent.entry.rules))
    policy = ApprovalPolicy(approval, config.project_approval, agent.limits)
    return policy if isinstance(rule, ApprovalPolicy) else _StricterRule(rule, policy)


def apply_vision(model: Model, vision: bool | str) -> Model:
    """Return the model with or without image support; "auto" leaves it unchanged."""
    known = model.capabilities
    if vision == "auto" or vision is known.vision:
        return model
    if vision:
        accepts = {"accepts": (*known.accepts, *PLAIN_IMAGES)}
    else:
        accepts = {
            name: tuple(kind for kind in kinds if not kind.startswith("image/"))
            for name, kinds in (("accepts", known.accepts), ("result_accepts", known.result_accepts))
        }
    return msgspec.structs.replace(model, capabilities=msgspec.structs.replace(known, **accepts))
