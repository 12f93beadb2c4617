"""The configuration of one MCP server (how it is started or reached, and what it may do), and what it lists."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from loom.errors import ConfigError, LoomError
from loom.tools.processes import environment

if TYPE_CHECKING:
    import mcp_types as types

MAX_LISTED: Final = 200
MAX_MESSAGE_BYTES: Final = 48 * 1024 * 1024
_XDG: Final = ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR")
DESKTOP_VARIABLES: Final = ("TERM", "DISPLAY", "WAYLAND_DISPLAY", *_XDG)
"""The variables that a server inherits in addition to those of commands."""

ServerSandbox: TypeAlias = Literal["off", "offline", "online"]
ServerState: TypeAlias = Literal["idle", "connecting", "ready", "failed"]


class ServerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A program (`command`) or a URL (`url`). `env` and `headers` may contain keys: `repr` shows neither."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    url: str = ""
    headers: Mapping[str, str] = {}
    timeout_seconds: float = 60.0
    trusted: bool = False
    """Whether the server's hints about its tools (read-only, idempotent) are trusted."""
    sandbox: ServerSandbox = "off"
    """Whether the program is started in the sandbox of commands, and whether it has network access there."""
    folder: Path | None = None
    """The folder in which the program is started; None means our working directory."""
    roots: tuple[Path, ...] | None = None
    """The folders that the server gets as its roots; None means the workspace of the session."""

    def __post_init__(self) -> None:
        if not self.name or bool(self.command) == bool(self.url):
            raise ConfigError("a server needs a name and either a command or a url", key=f"mcp.servers.{self.name}")

    def __repr__(self) -> str:
        return f"ServerSpec({self.name!r}, {'command' if self.command else 'url'})"

    def environment(self) -> dict[str, str]:
        """Return the environment of the program: a few variables that contain no keys, and those configured for it."""
        desktop = {name: os.environ[name] for name in DESKTOP_VARIABLES if name in os.environ}
        return environment(desktop | dict(self.env))


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The tools and prompts of a server, and whether it has resources."""

    tools: tuple[types.Tool, ...] = ()
    prompts: tuple[types.Prompt, ...] = ()
    has_resources: bool = False


class ServerGone(LoomError):
    """The connection has ended; the next call may open a new one."""

    code = "tool.server_gone"
