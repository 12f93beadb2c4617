"""The configuration of MCP servers: how a server is started, and the project's `.mcp.json`.

A project file contains programs to start, so it is used only in a folder that the user trusts; elsewhere it is reported
and nothing of it is run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from loom.errors import ConfigError
from loom.tools.processes import proxy_variables
from loom.tools.workspace import MCP_FILE

PROJECT_FILE: Final = MCP_FILE
MAX_FILE_BYTES: Final = 100_000
SAFE_VARIABLES: Final = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE"),
    *("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
)
"""The variables that a server inherits: those that programs need to run, and none that may contain a key."""

ServerSandbox: TypeAlias = Literal["off", "offline", "online"]
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_HTTP_TYPES: Final = ("", "http", "streamable-http", "streamableHttp")


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

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the program: a few safe variables of this process, and those configured for it."""
        safe = {name: environ[name] for name in SAFE_VARIABLES if name in environ}
        return safe | proxy_variables(environ) | dict(self.env)


class ProjectServers(msgspec.Struct, frozen=True):
    """The servers in a project's file, and warnings for the user."""

    specs: tuple[ServerSpec, ...] = ()
    warnings: tuple[str, ...] = ()


def project_servers(
    cwd: Path, is_trusted: Callable[[Path], bool], environ: Mapping[str, str] | None = None
) -> ProjectServers:
    """Return the servers of the nearest `.mcp.json`, from `cwd` up to the root of its repository."""
    file = _nearest(cwd.absolute())
    if file is None:
        return ProjectServers()
    folder = file.parent.resolve()
    entries, warnings = _entries(file)
    if entries and not is_trusted(folder):
        names = ", ".join(sorted(entries))
        said = f'To start them, add "{folder}" to trusted_folders in your own configuration, or run: loom trust add'
        return ProjectServers(warnings=(f"{PROJECT_FILE}: not started: {names}: this folder is not trusted. {said}",))
    specs: list[ServerSpec] = []
    for name, entry in entries.items():
        try:
            spec = _spec(name, entry, folder, os.environ if environ is None else environ)
        except ConfigError as error:
            warnings.append(f"{PROJECT_FILE}: {error}")
        else:
            specs += [spec] if spec else []
    return ProjectServers(tuple(specs), tuple(warnings))


def _nearest(cwd: Path) -> Path | None:
    within_repository = next((folder for folder in (cwd, *cwd.parents) if (folder / ".git").exists()), cwd)
    for folder in (cwd, *cwd.parents):
        if (folder / PROJECT_FILE).is_file():
            return folder / PROJECT_FILE
        if folder == within_repository:
            return None
    return None


def _entries(file: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        return {}, [f"{PROJECT_FILE}: cannot be read: {error.strerror}"]
    if len(raw) > MAX_FILE_BYTES:
        return {}, [f"{PROJECT_FILE}: is over {MAX_FILE_BYTES} bytes, which no list of servers needs"]
    try:
        found = msgspec.json.decode(raw.removeprefix(b"\xef\xbb\xbf"), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return {}, [f"{PROJECT_FILE}: is not a JSON object: {error}"]
    warnings: list[str] = []
    key = "mcpServers"
    if key not in found and "servers" in found:
        key = "servers"
        warnings.append(f'{PROJECT_FILE}: the key "servers" belongs to another editor\'s file; here it is "mcpServers"')
    servers = found.get(key, {})
    if not isinstance(servers, dict):
        return {}, [*warnings, f"{PROJECT_FILE}: {key} is not an object"]
    return cast("dict[str, Any]", servers), warnings


class _Entry(msgspec.Struct, frozen=True):
    """One server in such a file; keys for other programs are ignored."""

    type: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}
    disabled: bool = False


def _spec(name: str, data: Any, folder: Path, environ: Mapping[str, str]) -> ServerSpec | None:
    """Return None for a disabled server."""
    try:
        entry = msgspec.convert(data, _Entry)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ConfigError(f"{error}", key=name) from None
    if entry.disabled:
        return None
    if entry.url and entry.type not in _HTTP_TYPES:
        raise ConfigError(f"servers of type {entry.type!r} are not supported", key=name, hint="Use streamable HTTP.")

    def filled(text: str) -> str:
        return _VARIABLE.sub(lambda found: _value(found, name, environ), text)

    return ServerSpec(
        name=name,
        command=filled(entry.command),
        args=tuple(filled(word) for word in entry.args),
        env={key: filled(value) for key, value in entry.env.items()},
        url=filled(entry.url),
        headers={key: filled(value) for key, value in entry.headers.items()},
        folder=folder,
    )


def _value(found: re.Match[str], server: str, environ: Mapping[str, str]) -> str:
    """Expand `${NAME}` or `${NAME:-default}`, the syntax of these files."""
    value = environ.get(found[1]) or found[2]
    if value is None:
        raise ConfigError(f"the environment variable {found[1]} is not set", key=server)
    return value
