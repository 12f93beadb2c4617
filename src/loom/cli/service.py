"""`loom service`: the daemon as a service of your own login, by systemd."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import click

from loom.cli.toml_files import write_file_whole
from loom.config import load_config
from loom.config.files import display_path, home_folder
from loom.errors import ConfigError, NotFound

UNIT: Final = "loom.service"
_TEXT: Final = """\
[Unit]
Description=Loom
After=network-online.target

[Service]
Type=exec
ExecStart={command}
Restart=on-failure
RestartSec=2
TimeoutStopSec=20
{environment}NoNewPrivileges=yes
PrivateTmp=yes
UMask=0077

[Install]
WantedBy=default.target
"""


@click.group("service")
def command() -> None:
    """Run the daemon as a systemd user service."""


@command.command()
@click.option("--port", type=click.IntRange(1, 65_535), default=None, help="The port. Default: 5666.")
@click.option("--print", "prints", is_flag=True, help="Print the unit instead of installing it.")
def install(port: int | None, prints: bool) -> None:
    """Write the unit and start it, now and at every login."""
    text = unit(port)
    if prints:
        click.echo(text, nl=False)
        return
    _require_systemd()
    file = _file()
    write_file_whole(file, text, mode=0o644)
    _systemctl("daemon-reload")
    _systemctl("enable", "--now", UNIT)
    click.echo(f"✔ {display_path(file, Path.cwd())} installed and started; `loom web` opens it")


@command.command()
def uninstall() -> None:
    """Stop it and remove the unit. Sessions and media stay."""
    _require_systemd()
    if not _file().is_file():
        raise ConfigError("the service is not installed.", hint="Install it: loom service install")
    _systemctl("disable", "--now", UNIT)
    _file().unlink()
    _systemctl("daemon-reload")
    click.echo("✔ stopped and removed; sessions and media stay")


@command.command()
def status() -> int:
    """Show whether it is installed and running."""
    if not _file().is_file():
        click.echo("○ not installed  → loom service install")
        return 1
    _require_systemd()
    ran = subprocess.run(["systemctl", "--user", "is-active", UNIT], capture_output=True, text=True, check=False)
    state = ran.stdout.strip() or "unknown"
    is_active = state == "active"
    more = "" if is_active else f"  → journalctl --user -u {UNIT}"
    click.echo(f"{'✔' if is_active else '!'} {state}: {display_path(_file(), Path.cwd())}{more}")
    return 0 if is_active else 1


def unit(port: int | None) -> str:
    """The unit's text: this Python, this installation, and the data folder that is in force now."""
    words = [sys.executable, "-m", "loom.cli.main", "serve", *(["--port", str(port)] if port else [])]
    home = os.environ.get("LOOM_HOME", "").strip()
    environment = f"Environment={_quote(f'LOOM_HOME={Path(home).absolute()}')}\n" if home else ""
    load_config()  # what is wrong with it is better said now than in a journal
    return _TEXT.format(command=" ".join(_quote(word) for word in words), environment=environment)


def _quote(word: str) -> str:
    """As systemd reads it: % and $ mean something there."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME", "").strip()
    home = home_folder()
    if not base and home is None:
        raise ConfigError("No home folder for the service.", hint="Set HOME.")
    return (Path(base) if base or home is None else home / ".config") / "systemd" / "user" / UNIT


def _require_systemd() -> None:
    if shutil.which("systemctl") is None:
        raise NotFound("systemd is not available.", hint="Start `loom serve` with your own service manager.")


def _systemctl(*words: str) -> None:
    ran = subprocess.run(["systemctl", "--user", *words], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        said = (ran.stderr or ran.stdout).strip().splitlines()
        raise ConfigError(f"systemctl --user {words[0]} failed: {said[0] if said else ran.returncode}.")
