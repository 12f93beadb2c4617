"""Agents: a model, a system prompt, tools and rules under one name (`[agents.NAME]`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from loom.agent.approvals import Action, Rule
from loom.agent.services import Services, TurnLimits
from loom.config import Config
from loom.config.approval import ApprovalPolicy
from loom.config.schema import AgentEntry
from loom.errors import ConfigError
from loom.models import PLAIN_IMAGES, Model
from loom.runtime.session_settings import ALL_TOOLS, matching_tools, tools_of
from loom.tools.base import Tool

AGENT: Final = "agent"
"""The session setting that names the agent of the session."""


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
            entries[name] = msgspec.convert({**given, "id": name}, AgentEntry)
        except msgspec.ValidationError as error:
            fields = ", ".join(field for field in AgentEntry.__struct_fields__ if field != "id")
            raise ConfigError(f"The agent {name!r} cannot be used: {error}.", hint=f"Fields: {fields}.") from None
    return msgspec.structs.replace(config, agents=entries)


def find_agent(config: Config, name: str) -> AgentEntry:
    """Return a configured agent; raise `ConfigError` with the known names if there is none."""
    found = config.agents.get(name)
    if found is None:
        known = (
            f"Configured: {', '.join(sorted(config.agents))}."
            if config.agents
            else "Define it in loom.toml: [agents.NAME]."
        )
        raise ConfigError(f"Agent {name!r} not found.", hint=known)
    return found


def agent_model(entry: AgentEntry) -> str:
    """Return the reference of the agent's model; empty means the default model."""
    if entry.model or not entry.brain.model:
        return entry.model
    return f"{entry.brain.provider}/{entry.brain.model}" if entry.brain.provider else entry.brain.model


def agent_tools(entry: AgentEntry, tools: Mapping[str, Tool]) -> Mapping[str, Tool]:
    """Return the tools that the agent may use."""
    return tools if entry.tools is None else matching_tools(tools, entry.tools)


def session_services(services: Services, settings: Mapping[str, Any], config: Config) -> Services:
    """Return the services of a session with these settings, restricted to the tools of its agent and of the session."""
    if name := str(settings.get(AGENT, "")):
        services = msgspec.structs.replace(agent_services(services, config.agents.get(name), config), agent=name)
    if (patterns := tools_of(settings)) != ALL_TOOLS:
        services = msgspec.structs.replace(services, tools=matching_tools(services.tools, patterns))
    return services


def agent_services(services: Services, entry: AgentEntry | None, config: Config) -> Services:
    """Return the services of a session that belongs to an agent. An agent that is no longer configured (None) has no
    tools: removing its entry must not remove its restrictions."""
    if entry is None:
        return msgspec.structs.replace(services, tools={})

    async def resolve_model(reference: str) -> Model:
        return apply_vision(await services.resolve_model(reference), entry.vision)

    return msgspec.structs.replace(
        services,
        tools=agent_tools(entry, services.tools),
        rule=_agent_rule(services.rule, entry, config),
        turn_limits=_agent_limits(services.turn_limits, entry),
        resolve_model=resolve_model,
    )


def _agent_limits(limits: TurnLimits, entry: AgentEntry) -> TurnLimits:
    """Return the limits of an agent's turns; they are never higher than the general limits."""
    steps = limits.steps if entry.max_steps is None else min(limits.steps, entry.max_steps)
    usd = [value for value in (limits.usd, entry.max_usd) if value is not None]
    return msgspec.structs.replace(limits, steps=steps, usd=min(usd) if usd else None)


def _agent_rule(rule: Rule, entry: AgentEntry, config: Config) -> Rule:
    if not entry.rules:
        return rule
    approval = msgspec.structs.replace(config.approval, rules=(*config.approval.rules, *entry.rules))
    policy = ApprovalPolicy(approval, config.project_approval)
    if isinstance(rule, ApprovalPolicy):
        return policy

    def decide(tool: str, subject: str) -> Action | None:
        """Let a rule given in code decide; the agent's rules can only be stricter."""
        own, given = policy(tool, subject), rule(tool, subject)
        return own if own == "deny" or (own == "ask" and given != "deny") else given

    return decide


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
