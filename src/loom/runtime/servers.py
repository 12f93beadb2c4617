"""What the configuration says of tools from elsewhere, and of what tools may do without asking."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from loom.agent.approvals import Action, Rule
from loom.config import Config
from loom.config.approval import decide
from loom.config.schema import McpServer
from loom.errors import ConfigError
from loom.tools.mcp import McpServers
from loom.tools.mcp_pins import Pins
from loom.tools.mcp_specs import ServerSpec, project_servers


def mcp_servers(config: Config, cwd: Path, notice: Callable[[str], None]) -> McpServers:
    """The configured servers and, in a trusted folder, the project's; one of the user's own wins over its name. One
    that lacks a variable is left out and told: the others, and all that needs none of them, work without it."""
    own: list[ServerSpec] = []
    for name, entry in config.mcp.servers.items():
        try:
            own += [_spec(config, name, entry)] if entry.enabled else []
        except ConfigError as error:
            notice(f"the MCP server {name} is left out: {error}")
    project = project_servers(cwd, [Path(folder).expanduser() for folder in config.trusted_folders])
    for warning in project.warnings:
        notice(warning)
    theirs = [spec for spec in project.specs if spec.name not in config.mcp.servers]
    return McpServers([*own, *theirs], pins=Pins(config.state_folder() / "mcp-tools.json"), notice=notice)


def _spec(config: Config, name: str, entry: McpServer) -> ServerSpec:
    return ServerSpec(
        name=name,
        command=entry.command,
        args=entry.args,
        env=config.secrets("mcp", "servers", name, "env"),
        url=config.secret("mcp", "servers", name, "url"),
        headers=config.secrets("mcp", "servers", name, "headers"),
        timeout_seconds=entry.timeout_seconds,
    )


def approval_rule(config: Config) -> Rule:
    """What the user's and the project's rules say. The default `ask` is no rule: it leaves it to the tool whether a
    call needs the user's word; a rule that says `ask` asks for every call that it matches."""
    rules_only = msgspec.structs.replace(config.approval, default="allow")

    def rule(tool: str, subject: str) -> Action | None:
        decided = config.action_for(tool, subject)
        by_default = decide(rules_only, config.project_approval, tool, (subject,)) == "allow"
        return None if decided == "ask" and by_default else decided

    return rule
