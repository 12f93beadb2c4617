"""MCP servers from the configuration of other programs: Claude Desktop, Claude Code, Cursor, VS Code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from loom.errors import ConfigError

MAX_FILE_BYTES: Final = 5_000_000
_COMMENT: Final = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA: Final = re.compile(r",(\s*[}\]])")
_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_KEPT: Final = ("command", "args", "env", "url", "headers")


def foreign_files(home: Path) -> tuple[Path, ...]:
    """Return the files in which these programs store their servers on Linux and macOS."""
    support = home / "Library" / "Application Support"
    return (
        home / ".config" / "Claude" / "claude_desktop_config.json",
        support / "Claude" / "claude_desktop_config.json",
        home / ".claude.json",
        home / ".cursor" / "mcp.json",
        home / ".config" / "Code" / "User" / "mcp.json",
        support / "Code" / "User" / "mcp.json",
    )


def foreign_servers(file: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the servers of a file in Loom's form, and a sentence for each that cannot be used. Raise ConfigError if
    the file cannot be read or has another format."""
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES).decode("utf-8-sig")
        text = _TRAILING_COMMA.sub(r"\1", _COMMENT.sub(lambda found: found[1] or "", raw))
        data = msgspec.json.decode(text, type=dict[str, Any])
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}.", hint="Check the path.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{file} is not a JSON object: {error}.") from None
    nested = data.get("mcp")
    places: list[Any] = [data.get("mcpServers"), data.get("servers")]
    if isinstance(nested, dict):
        places.append(cast("dict[str, Any]", nested).get("servers"))
    servers = next((cast("dict[str, Any]", found) for found in places if isinstance(found, dict)), None)
    if servers is None:
        raise ConfigError(f"{file} names no MCP servers.", hint="It needs an object mcpServers or servers.")
    entries: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    for name, written in servers.items():
        try:
            entries[name] = _convert(written)
        except ConfigError as error:
            problems.append(f"{name}: {error.message}")
    return entries, problems


def _convert(written: Any) -> dict[str, Any]:
    """Return one server in Loom's form; variables become `{env:NAME}`."""
    if not isinstance(written, dict):
        raise ConfigError("its entry is not an object")
    entry = cast("dict[str, Any]", written)
    if not isinstance(entry.get("command") or entry.get("url"), str):
        raise ConfigError("it has neither a command nor a url")
    if entry.get("type") == "sse":
        raise ConfigError("servers of type sse are not supported; use streamable HTTP")
    found = {key: _references(entry[key]) for key in _KEPT if entry.get(key)}
    if entry.get("disabled") is True:
        found["enabled"] = False
    return found


def _references(value: Any) -> Any:
    match value:
        case str():
            return _VARIABLE.sub(r"{env:\1}", value)
        case list():
            return [_references(item) for item in cast("list[Any]", value)]
        case dict():
            return {str(key): _references(item) for key, item in cast("dict[Any, Any]", value).items()}
        case _:
            return str(value)
