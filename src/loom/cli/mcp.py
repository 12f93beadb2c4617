"""`loom mcp` configures MCP servers; `loom mcp-serve` serves Loom's own tools over MCP."""

from __future__ import annotations

import asyncio
import re
import signal
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

import click
import msgspec

from loom.cli.shared.command_group import CommandGroup
from loom.cli.shared.exit_codes import FAILED, OK
from loom.cli.shared.terminal import one_line, print_line, safe_text
from loom.config import Config, load_config
from loom.config.files import display_path
from loom.config.mcp_files import (
    MAX_PROJECT_BYTES,
    ProjectServers,
    foreign_files,
    foreign_servers,
    project_servers,
    read_json_object,
)
from loom.config.toml_files import add_table, remove_table, user_config_file, write_user_file
from loom.errors import ConfigError
from loom.runtime import Runtime, mcp_servers
from loom.runtime.servers import login_file, trusted_by
from loom.tools.number_text import count_text
from loom.tools.workspace import MCP_FILE

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PATH: Final = ("mcp", "servers")


@click.group("mcp", cls=CommandGroup)
def mcp_command() -> None:
    """Manage MCP servers: programs that Loom starts, or URLs."""


@mcp_command.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("target", nargs=-1, required=True, metavar="COMMAND [ARGS]... | URL", type=click.UNPROCESSED)
@click.option(
    "-e", "--env", "env", multiple=True, metavar="NAME=VALUE", help="An environment variable for the program."
)
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME: VALUE", help="An HTTP header for the URL.")
@click.option("--project", is_flag=True, help=f"In {MCP_FILE} of this folder, shared with the project.")
def add(name: str, target: tuple[str, ...], env: tuple[str, ...], headers: tuple[str, ...], project: bool) -> None:
    """Add a server.

    \b
    loom mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
    loom mcp add search https://example.org/mcp -H "Authorization: Bearer {env:SEARCH_KEY}"

    Put Loom's options before the name or the --. Reference secrets instead of writing them: {env:NAME} in your own
    file, ${NAME} in the project's.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a valid server name.", hint="Use letters, digits, - and _.")
    entry = _entry(target, env, headers)
    if project:
        file = Path.cwd() / MCP_FILE
        _change_project(file, name, entry)
        for warning in _project_servers(load_config()).warnings:  # an untrusted folder's servers are not used
            print_line(warning)
    else:
        file = user_config_file()
        if name in load_config().mcp.servers:
            raise ConfigError(f"Server {name} already exists.", hint=f"Remove it first: loom mcp remove {name}")
        add_table(file, (*_PATH, name), entry)
    does = "asks" if "url" in entry else "starts"
    click.echo(
        f"✔ {name} added to {display_path(file, Path.cwd())}; `loom mcp list --check` {does} it and counts its tools"
    )


@mcp_command.command("import")
@click.argument("file", required=False, type=click.Path(path_type=Path))
def import_(file: Path | None) -> int:
    """Import the servers of another program: Claude Desktop, Claude Code, Cursor, VS Code, Codex, OpenCode.

    FILE is its configuration; without it, the usual places of these programs are read. A server whose name you have
    already is left out. Check the file afterwards: secrets are copied unchanged.

    The .vscode/mcp.json of a project is not among these places: Loom uses it without an import, in trusted folders.
    """
    files = [file] if file is not None else [found for found in foreign_files(Path.home()) if found.is_file()]
    if not files:
        raise ConfigError("No configuration of another program was found.", hint="Name its file.")
    known = set(load_config().mcp.servers)
    for found in files:
        entries, problems = foreign_servers(found)
        for name, entry in entries.items():
            if name in known or not _NAME.fullmatch(name):
                problems.append(f"{name}: " + ("already exists" if name in known else "not a valid server name"))
                continue
            try:
                load_config(flags={f"mcp.servers.{name}": entry})
            except ConfigError as error:  # a reference that Loom does not know, for instance: loom.toml stays valid
                problems.append(f"{name}: {error.message.removeprefix('flags: ')}")
                continue
            add_table(user_config_file(), (*_PATH, name), entry)
            known.add(name)
            click.echo(f"✔ {name} imported from {display_path(found, Path.cwd())}")
        for problem in problems:
            print_line(problem)
    return OK


_PAIRS: Final = {"header": 'Headers: -H "Name: value"', "variable": "Variables: -e NAME=VALUE"}


def _entry(target: Sequence[str], env: Sequence[str], headers: Sequence[str]) -> dict[str, Any]:
    first, *rest = target
    if first.startswith(("http://", "https://")):
        if rest or env:
            raise ConfigError("Arguments and variables are only for programs, not for a URL.", hint=_PAIRS["header"])
        return {"url": first, **({"headers": _pairs("header", headers, ":")} if headers else {})}
    if _SCHEME.match(first):
        raise ConfigError(f"Not a server URL: {first}", hint="It begins with http:// or https://.")
    if headers:
        raise ConfigError("Headers are only for URLs, not for a program.", hint=_PAIRS["variable"])
    return {
        "command": first,
        **({"args": rest} if rest else {}),
        **({"env": _pairs("variable", env, "=")} if env else {}),
    }


def _pairs(noun: str, written: Sequence[str], sign: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in written:
        name, has_sign, value = item.partition(sign)
        if not has_sign or not name.strip():
            raise ConfigError(f"Not a {noun}: {item}.", hint=_PAIRS[noun])
        found[name.strip()] = value.strip()
    return found


@mcp_command.command("list")
@click.option("--check", is_flag=True, help="Connect to each server and count its tools.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def list_(check: bool, as_json: bool) -> int:
    """List the servers; with --check, test them."""
    return asyncio.run(_list(check, as_json))


async def _list(check: bool, as_json: bool) -> int:
    config = load_config()
    project = _project_servers(config)
    rows = [
        {"name": name, "where": "loom.toml", "target": entry.command or "(address)", "enabled": entry.enabled}
        for name, entry in config.mcp.servers.items()
    ]
    rows += [
        {"name": spec.name, "where": project.files[spec.name], "target": spec.command or "(address)", "enabled": True}
        for spec in project.specs
        if spec.name not in config.mcp.servers
    ]
    states, notices = await _states() if check else ({}, ())
    for row in rows:
        state = states.get(str(row["name"]), {})
        click.echo(msgspec.json.encode({**row, **state}) if as_json else _row(row, state))
    for warning in dict.fromkeys([*project.warnings, *notices]):
        print_line(warning)
    if not rows and not as_json:
        click.echo("No servers. Add one: `loom mcp add NAME -- COMMAND`.", err=True)
    return FAILED if any(state["error"] for state in states.values()) else OK


async def _states() -> tuple[dict[str, dict[str, Any]], Sequence[str]]:
    """Return the state of each server, and notices about servers that were not started."""
    async with Runtime.open() as runtime:
        left_out = tuple(runtime.notices)  # failures of started servers are in their own rows
        await runtime.mcp.wait_ready(None)
        found = runtime.mcp.status()
        states = {
            status.name: {
                "tools": len(status.tools),
                "prompts": len(status.prompts),
                "error": status.error or None,
                "stderr": status.stderr.rpartition("\n")[2] if status.error else "",
            }
            for status in found
        }
        return states, left_out


def _row(row: dict[str, Any], state: dict[str, Any]) -> str:
    mark = "○" if not row["enabled"] or state.get("error") else "✔" if state else "·"
    problem = ": ".join(part for part in (state.get("error"), state.get("stderr")) if part)
    result = one_line(problem, 120) if problem else _listing_label(state) if state else ""
    line = f"{mark} {safe_text(row['name']):<16} {one_line(row['target'], 30):<30} {row['where']:<10} {result}"
    return line.rstrip()


def _listing_label(state: dict[str, Any]) -> str:
    prompts = f", {count_text(state['prompts'], 'prompt')}" if state["prompts"] else ""
    return count_text(state["tools"], "tool") + prompts


@mcp_command.command()
@click.argument("name")
@click.option("--no-browser", is_flag=True, help="Only print the URL to open.")
def login(name: str, no_browser: bool) -> None:
    """Log in to a server that uses OAuth. The tokens are stored next to your API keys, readable by you only."""
    count = asyncio.run(_login(name, no_browser))
    click.echo(f"✔ logged in at {safe_text(name)}: {count_text(count, 'tool')}")


async def _login(name: str, no_browser: bool) -> int:
    async def open_page(url: str) -> None:
        click.echo(f"Open this URL and grant access:\n{url}", err=True)
        if not no_browser:
            await asyncio.to_thread(webbrowser.open, url)

    config = load_config()
    return await mcp_servers(config, Path.cwd(), print_line).log_in(name, open_page, login_file(config))


@mcp_command.command()
@click.argument("name")
def logout(name: str) -> None:
    """Remove the stored login at a server."""
    logins = login_file(load_config())
    if name not in logins.read():
        raise ConfigError(f"You are not logged in at {name!r}.", hint="List servers: `loom mcp list`.")
    logins.put(name, None)
    click.echo(f"✔ logged out at {safe_text(name)}")


@mcp_command.command()
@click.argument("name")
@click.option("--project", is_flag=True, help=f"From {MCP_FILE} of this folder.")
def remove(name: str, project: bool) -> None:
    """Remove a server."""
    if project:
        file = Path.cwd() / MCP_FILE
        _change_project(file, name, None)
    else:
        file = user_config_file()
        if name not in load_config().mcp.servers:
            raise ConfigError(f"MCP server {name!r} not found.", hint="List servers: `loom mcp list`.")
        remove_table(file, (*_PATH, name))
    click.echo(f"✔ {safe_text(name)} removed from {display_path(file, Path.cwd())}")


def _change_project(file: Path, name: str, entry: dict[str, Any] | None) -> None:
    """Add a server to the project's file, or remove it if `entry` is None; everything else in the file stays. JSON has
    no comments to lose."""
    data = read_json_object(file, MCP_FILE, MAX_PROJECT_BYTES) if file.exists() else {}
    servers = data.get("mcpServers", {})
    if not isinstance(servers, dict):
        raise ConfigError("mcpServers is not an object.", file=MCP_FILE, hint="Edit the file.")
    table = cast("dict[str, Any]", servers)
    if (name in table) == (entry is not None):
        problem = f"server {name!r} {'already exists' if entry else 'not found'}."
        raise ConfigError(problem, file=MCP_FILE, hint="List servers: `loom mcp list`.")
    changed = {**table, name: entry} if entry else {key: value for key, value in table.items() if key != name}
    whole = msgspec.json.encode({**data, "mcpServers": changed})
    write_user_file(file, msgspec.json.format(whole, indent=2).decode() + "\n", mode=0o644)


def _project_servers(config: Config) -> ProjectServers:
    return project_servers(Path.cwd(), trusted_by(config, Path.cwd()))


@click.command("mcp-serve")
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="The folder whose files may be read. Default: the current folder.",
)
@click.option("--allow-outside", is_flag=True, help="Also read files outside that folder, except files with secrets.")
def mcp_serve_command(workspace: Path, allow_outside: bool) -> None:
    """Serve the tools read_file and look to an MCP client, such as an editor, which starts this command itself."""
    from loom.config import load_config
    from loom.tools.mcp.serve import ServeOptions, serve_stdio

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # else a read of stdin would continue; there is nothing to save
    limits = load_config(cwd=workspace.absolute()).media_limits()
    asyncio.run(serve_stdio(ServeOptions(workspace=workspace.absolute(), allow_outside=allow_outside, limits=limits)))
