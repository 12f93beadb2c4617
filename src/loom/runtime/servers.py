"""Configured MCP servers, the sandbox, hooks and approval rules."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from loom.agent.approvals import Rule
from loom.config import Config
from loom.config.approval import ApprovalPolicy
from loom.config.key_file import keys_file
from loom.config.loader import user_folder
from loom.config.mcp_files import project_servers
from loom.config.schema import McpServer
from loom.errors import ConfigError
from loom.tools.mcp import McpServers
from loom.tools.mcp.records import Pins, TokenFile
from loom.tools.mcp.specs import ServerSpec
from loom.tools.sandbox import Sandbox, SandboxSettings


def trusted_by(config: Config, cwd: Path) -> Callable[[Path], bool]:
    """Return a function that tells whether servers of a folder (`cwd` or above) may be started. It reads files."""
    return lambda folder: config.is_trusted(folder) or config.trust_decision(cwd) == "trusted"


def mcp_servers(config: Config, cwd: Path, notice: Callable[[str], None]) -> McpServers:
    """Return the configured servers and, in a trusted folder, those of the project; a server of the user takes
    precedence over one of the project with the same name. A server that lacks a variable is left out with a notice; the
    others still work."""
    own: list[ServerSpec] = []
    for name, entry in config.mcp.servers.items():
        try:
            own += [_spec(config, name, entry)] if entry.enabled else []
        except ConfigError as error:
            notice(f"MCP server {name!r} is left out: {error}")
    project = project_servers(cwd, trusted_by(config, cwd))
    for warning in project.warnings:
        notice(warning)
    theirs = [spec for spec in project.specs if spec.name not in config.mcp.servers]
    return McpServers(
        [*own, *theirs],
        pins=Pins(config.state_folder() / "mcp-tools.json"),
        notice=notice,
        sandbox=sandbox_for(config),
        tokens=login_file(config),
    )


def login_file(config: Config) -> TokenFile:
    """Return the file with the logins at MCP servers, beside the file of API keys."""
    return TokenFile(keys_file(config.provenance.environ).with_name("mcp-logins.json"))


def _spec(config: Config, name: str, entry: McpServer) -> ServerSpec:
    return ServerSpec(
        name=name,
        command=entry.command,
        args=entry.args,
        env=config.secrets("mcp", "servers", name, "env"),
        url=config.secret("mcp", "servers", name, "url"),
        headers=config.secrets("mcp", "servers", name, "headers"),
        timeout_seconds=entry.timeout_seconds,
        trusted=entry.trusted,
        sandbox=entry.sandbox,
        roots=None if entry.roots is None else tuple(Path(folder).expanduser() for folder in entry.roots),
    )


def sandbox_for(config: Config) -> Sandbox:
    """Return the configured sandbox. It hides Loom's own folders, which contain keys and tokens."""
    found = config.sandbox
    own = (config.data_folder(), config.state_folder(), user_folder(os.environ, Path.cwd()))
    return Sandbox(
        SandboxSettings(
            mode=found.mode,
            network=found.network,
            writable=tuple(Path(path).expanduser() for path in found.writable),
            hidden=(*own, *(Path(path).expanduser() for path in found.hidden)),
            max_memory_bytes=found.max_memory_bytes,
            max_processes=found.max_processes,
            max_file_bytes=found.max_file_bytes,
        )
    )


def approval_rule(config: Config) -> Rule:
    """Return the rules of the user and of the project as one."""
    return ApprovalPolicy(config.approval, config.project_approval)
