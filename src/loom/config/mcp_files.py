"""Files that list MCP servers: the project's `.mcp.json` and `.vscode/mcp.json`, and those of other programs for the
import.

A project file contains programs to start, so it is used only in a folder that the user trusts; elsewhere it is reported
and nothing of it is run.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import msgspec

from loom.content.json_values import get_object
from loom.errors import ConfigError
from loom.struct_types import convert, decode_json
from loom.tools.mcp.specs import ServerSpec
from loom.tools.workspace import MCP_FILE, MCP_FILES

MAX_PROJECT_BYTES: Final = 100_000
MAX_OTHER_BYTES: Final = 5_000_000
"""Files of other programs hold more than their servers."""
_COMMENT: Final = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA: Final = re.compile(r",(\s*[}\]])")
_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_QUESTION: Final = re.compile(r"\$\{(?:input|command):[^}]*\}")
"""A value for which VS Code asks the user or runs a command of its own."""
_HTTP_TYPES: Final = ("", "http", "streamable-http", "streamableHttp")
_Scalar: TypeAlias = str | bool | int | float
"""Some files have numbers as arguments and as values of variables."""


class ProjectServers(msgspec.Struct, frozen=True):
    """The servers in a project's files, and warnings for the user."""

    specs: tuple[ServerSpec, ...] = ()
    warnings: tuple[str, ...] = ()
    files: Mapping[str, str] = {}
    """For each server, the file that lists it."""


class _ServerEntry(msgspec.Struct, frozen=True):
    """One server in such a file; keys for other programs are ignored."""

    type: str = ""
    command: str = ""
    args: tuple[_Scalar, ...] = ()
    env: dict[str, _Scalar] = {}
    url: str = ""
    headers: dict[str, _Scalar] = {}
    disabled: bool = False
    env_file: str = msgspec.field(default="", name="envFile")


def project_servers(
    cwd: Path, is_trusted: Callable[[Path], bool], environ: Mapping[str, str] | None = None
) -> ProjectServers:
    """Return the servers of the nearest `.mcp.json` and the nearest `.vscode/mcp.json`, from `cwd` up to the root of
    its repository. If both have a server of the same name, `.mcp.json` counts."""
    specs: dict[str, ServerSpec] = {}
    files: dict[str, str] = {}
    warnings: list[str] = []
    for name in MCP_FILES:
        if (folder := _nearest(cwd.absolute(), name)) is None:
            continue
        found, problems = _file_servers(folder, name, is_trusted, os.environ if environ is None else environ)
        warnings += problems
        for spec in found:
            specs.setdefault(spec.name, spec)
            files.setdefault(spec.name, name)
    return ProjectServers(tuple(specs.values()), tuple(warnings), files)


def _file_servers(
    place: Path, file: str, is_trusted: Callable[[Path], bool], environ: Mapping[str, str]
) -> tuple[list[ServerSpec], list[str]]:
    """Return the servers of one file of a project, and warnings."""
    is_vscode = file != MCP_FILE
    key = "servers" if is_vscode else "mcpServers"
    warnings: list[str] = []
    try:
        data = read_json_object(place / file, file, MAX_PROJECT_BYTES, has_comments=is_vscode)
        if not is_vscode and key not in data and "servers" in data:
            key = "servers"
            warnings.append(f'{file}: the key "servers" belongs to another editor\'s file; here it is "mcpServers"')
        if not isinstance(data.get(key, {}), dict):
            raise ConfigError(f"{key} is not an object", file=file)
    except ConfigError as error:
        return [], [str(error)]
    servers, folder = get_object(data.get(key)), place.resolve()
    if servers and not is_trusted(folder):
        names = ", ".join(sorted(servers))
        how = f'To start them, add "{folder}" to trusted_folders in your own configuration, or run: loom trust add'
        return [], [f"{file}: not started: {names}: this folder is not trusted. {how}"]
    known = _vscode_values(folder) if is_vscode else {}

    def value_of(found: re.Match[str]) -> str:
        value = known.get(found[1]) or environ.get(found[1]) or found[2]
        if value is None:
            raise ConfigError(f"the environment variable {found[1]} is not set")
        return value

    specs: list[ServerSpec] = []
    for name, written in servers.items():
        try:
            entry = _read_entry(written)
            if not entry.disabled:
                fields = _fields(entry, value_of)
                fields["args"] = tuple(fields.get("args", ()))
                specs.append(ServerSpec(name=name, folder=folder, **fields))
        except ConfigError as error:
            warnings.append(f"{file}: {name}: {error}")
    return specs, warnings


def _nearest(cwd: Path, name: str) -> Path | None:
    """Return the nearest folder of the repository that has this file."""
    top = next((folder for folder in (cwd, *cwd.parents) if (folder / ".git").exists()), cwd)
    folders = (folder for folder in (cwd, *cwd.parents) if folder.is_relative_to(top))
    return next((folder for folder in folders if (folder / name).is_file()), None)


def _vscode_values(folder: Path) -> dict[str, str]:
    """Return what the variables of VS Code stand for in the project `folder`."""
    return {
        "workspaceFolder": str(folder),
        "workspaceFolderBasename": folder.name,
        "userHome": str(Path.home()),
    }


def foreign_files(home: Path) -> tuple[Path, ...]:
    """Return the files in which Claude Desktop, Claude Code, Cursor, VS Code, Codex and OpenCode store their servers on
    Linux and macOS."""
    support = home / "Library" / "Application Support"
    return (
        home / ".config" / "Claude" / "claude_desktop_config.json",
        support / "Claude" / "claude_desktop_config.json",
        home / ".claude.json",
        home / ".cursor" / "mcp.json",
        home / ".config" / "Code" / "User" / "mcp.json",
        support / "Code" / "User" / "mcp.json",
        home / ".codex" / "config.toml",
        home / ".config" / "opencode" / "opencode.json",
    )


def foreign_servers(file: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the servers of another program's file as tables for loom.toml, and a sentence for each that cannot be
    used. Raise ConfigError if the file cannot be read or has another format."""
    if file.suffix == ".toml":
        data = _read_toml(file)
    else:
        data = read_json_object(file, str(file), MAX_OTHER_BYTES, has_comments=True)
    mcp = data.get("mcp")
    places = (data.get("mcpServers"), data.get("mcp_servers"), data.get("servers"), get_object(mcp).get("servers"), mcp)
    servers = next((cast("dict[str, Any]", found) for found in places if isinstance(found, dict)), None)
    if servers is None:
        raise ConfigError("has no MCP servers.", file=str(file), hint="It needs an object mcpServers or servers.")
    place = file.absolute().parent
    known = _vscode_values(place.parent.resolve()) if place.name == ".vscode" else {}

    def value_of(found: re.Match[str]) -> str:
        # loom.toml has no defaults of variables: such a text stays as it is
        return known.get(found[1]) or (found[0] if found[2] else f"{{env:{found[1]}}}")

    entries: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    for name, written in servers.items():
        try:
            entry = _read_entry(_usual_form(written))
            fields = _fields(entry, value_of)
            entries[name] = fields | ({"enabled": False} if entry.disabled else {})
        except ConfigError as error:
            problems.append(f"{name}: {error}")
    return entries, problems


def _usual_form(written: Any) -> Any:
    """Return an entry of Codex or OpenCode with the keys of all others."""
    if not isinstance(written, dict):
        return written
    entry = dict(cast("dict[str, Any]", written))
    command = entry.get("command")
    if isinstance(command, list) and command:
        entry["command"], *entry["args"] = cast("list[Any]", command)
    if entry.get("type") in ("local", "remote"):
        del entry["type"]
    if entry.get("enabled") is False:
        entry["disabled"] = True
    for theirs, ours in (("environment", "env"), ("http_headers", "headers")):
        entry.setdefault(ours, entry.get(theirs, {}))
    if isinstance(token := entry.get("bearer_token_env_var"), str):
        entry["headers"] = {**get_object(entry["headers"]), "Authorization": f"Bearer ${{{token}}}"}
    return entry


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(file), hint="Check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"is not a TOML file: {error}", file=str(file)) from None


def _read_entry(written: Any) -> _ServerEntry:
    try:
        return convert(written, _ServerEntry)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ConfigError(str(error)) from None


def _fields(entry: _ServerEntry, value_of: Callable[[re.Match[str]], str]) -> dict[str, Any]:
    """Return the fields that are set, with each `${NAME}`, `${NAME:-default}` and `${env:NAME}` replaced by `value_of`.
    Raise ConfigError if it is no server that Loom can use."""
    if bool(entry.command) == bool(entry.url):
        raise ConfigError("it needs either a command or a url")
    if entry.url and entry.type not in _HTTP_TYPES:
        raise ConfigError(f"servers of type {entry.type!r} are not supported", hint="Use streamable HTTP.")

    if entry.env_file:
        raise ConfigError("envFile is not supported", hint="Write its variables into env, as ${env:NAME}.")

    def fill(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: fill(item) for key, item in cast("dict[str, Any]", value).items()}
        if isinstance(value, tuple):
            return [fill(item) for item in cast("tuple[Any, ...]", value)]
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if question := _QUESTION.search(text):
            raise ConfigError(f"{question[0]} is not supported", hint="Use an environment variable: ${env:NAME}.")
        return _VARIABLE.sub(value_of, text)

    names = ("command", "args", "env", "url", "headers")
    return {name: fill(value) for name in names if (value := getattr(entry, name))}


def read_json_object(file: Path, name: str, max_bytes: int, *, has_comments: bool = False) -> dict[str, Any]:
    """Return the content of a JSON file, which errors call `name`. Raise ConfigError if it cannot be read or is not an
    object."""
    try:
        with file.open("rb") as stream:
            raw = stream.read(max_bytes + 1)
        if len(raw) > max_bytes:
            raise ConfigError(f"is over {max_bytes} bytes, which no list of servers needs", file=name)
        text = raw.decode("utf-8-sig")
        if has_comments:
            text = _TRAILING_COMMA.sub(r"\1", _COMMENT.sub(lambda found: found[1] or "", text))
        return decode_json(text, dict[str, Any])
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=name, hint="Check the path.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"is not a JSON object: {error}", file=name) from None
