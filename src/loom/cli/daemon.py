"""`loom serve`, `status`, `stop`, `web`, `token` and `service`: run the daemon and connect to it."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import webbrowser
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import click
import msgspec
import segno

from loom.cli.shared.attachments import read_password
from loom.cli.shared.command_group import CommandGroup
from loom.cli.shared.daemon_lookup import no_daemon, running_daemon
from loom.cli.shared.exit_codes import FAILED, OK
from loom.cli.shared.terminal import print_line
from loom.client import local_client
from loom.config import Config, load_config
from loom.config.files import display_path, home_folder
from loom.config.toml_files import write_user_file
from loom.errors import ConfigError, NotFound
from loom.store.process_identity import has_ended
from loom.struct_types import decode_json

EVERYWHERE = "0.0.0.0"  # noqa: S104  only with a password, which `lan` ensures
_STOP_SECONDS: Final = 30
"""Longer than a daemon takes to stop: at most ten seconds."""
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"


@click.command("serve")
@click.option("--host", default="", help="The address to listen on. Default: localhost.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=None, help="The port. Default: 5666; 0 picks a free one."
)
@click.option("--password-file", default="", metavar="FILE", help="A file with the password for browsers.")
@click.option(
    "--lan", is_flag=True, help="Listen on the local network, with a password; one is generated if none is set."
)
@click.option("--tls-cert", default="", metavar="FILE", help="Serve https with this certificate chain (PEM).")
@click.option("--tls-key", default="", metavar="FILE", help="The private key of that certificate (PEM).")
def serve_command(*, host: str, port: int | None, password_file: str, lan: bool, tls_cert: str, tls_key: str) -> None:
    """Run the daemon until Ctrl+C or SIGTERM: the web client, the HTTP API and live events, one for all your sessions.

    Without a password it listens on localhost only. Programs use the token that `loom token` prints.
    """
    from loom.daemon.serve import ListeningAddress, run_daemon

    config, made_up = served_config(password_file, lan=lan, tls=(tls_cert, tls_key))

    def listening(found: ListeningAddress) -> None:
        click.echo(f"Loom listens on {found.url}\nOpen it once with {found.link}")
        if made_up:
            click.echo(f"Password for this run: {made_up}")

    run_daemon(
        config, host=EVERYWHERE if lan and not host else host, port=port, on_listening=listening, log_level="warning"
    )


def served_config(password_file: str, *, lan: bool, tls: tuple[str, str] = ("", "")) -> tuple[Config, str]:
    """Return the configuration including the password, and the password if it was generated, else an empty string."""
    server: dict[str, Any] = {name: file for name, file in zip(("tls_cert", "tls_key"), tls, strict=True) if file}
    made_up = ""
    if password_file:
        server["password"] = read_password(password_file)
    elif lan and not load_config(cwd=Path.cwd()).secret("server", "password"):
        made_up = "".join(secrets.choice(_ALPHABET) for _ in range(12))
        server["password"] = made_up
    return load_config(flags={"server": server} if server else {}), made_up


class DaemonStatus(msgspec.Struct):
    """The output of `loom status --json`; only `running` is set if there is no daemon."""

    running: bool
    url: str = ""
    pid: int = 0
    version: str = ""


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status_command(as_json: bool) -> int:
    """Show whether the daemon of this data folder is running, and where. If it is not, the exit code is 1.

    `loom doctor` checks everything else.
    """
    found = asyncio.run(_daemon_status(load_config()))
    if as_json:
        click.echo(msgspec.json.encode(found))
    elif found.pid and not found.running:
        click.echo(f"✖ the daemon (pid {found.pid}) does not respond  → loom stop")
    elif found.running:
        click.echo(f"✔ daemon running at {found.url} (pid {found.pid}, version {found.version})")
    else:
        click.echo("○ no daemon running  → loom serve, or loom service install")
    return OK if found.running else FAILED


@click.command("stop")
def stop_command() -> None:
    """Stop the daemon of this data folder. Sessions stay; a turn that runs continues with the next daemon."""
    config = load_config()
    found = asyncio.run(_daemon_status(config))
    if not found.pid:
        raise NotFound("No daemon is running for this data folder.")
    try:
        os.kill(found.pid, signal.SIGTERM)
        if not _wait_for_end(found.pid):
            raise ConfigError(
                f"The daemon (pid {found.pid}) is still running after {_STOP_SECONDS} s.",
                hint=f"End it with: kill -9 {found.pid}",
            )
    except PermissionError:
        raise ConfigError(
            f"The daemon (pid {found.pid}) belongs to another user.", hint="Stop it as that user."
        ) from None
    click.echo(f"✔ daemon stopped ({found.url or f'pid {found.pid}'})")


async def _daemon_status(config: Config) -> DaemonStatus:
    """Return the status that the daemon itself reports, or the pid of one that does not respond: the pid in its file
    may belong to another program by now."""
    from loom.daemon.serve import find_daemon, unresponsive_daemon

    here, link = find_daemon(config), await local_client(config)
    if link is None:
        return DaemonStatus(running=False, pid=unresponsive_daemon(config) or 0)
    async with link:
        version = await link.version()
    return DaemonStatus(running=here is not None, url=link.url, pid=here.pid if here else 0, version=version)


def _wait_for_end(pid: int) -> bool:
    """Wait until a process has ended. Return False if it does not end in time."""
    deadline = time.monotonic() + _STOP_SECONDS
    while not has_ended(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class _Link(msgspec.Struct):
    url: str


@click.command("web")
@click.option(
    "--lan", is_flag=True, help="For a phone on the local network: with a password and a QR code of the link."
)
@click.option("--port", type=click.IntRange(0, 65_535), default=None, help="The port of the started daemon.")
@click.option("--password-file", default="", metavar="FILE", help="A file with the password for browsers.")
@click.option("--no-browser", is_flag=True, help="Print the link without opening a browser.")
def web_command(lan: bool, port: int | None, password_file: str, no_browser: bool) -> None:
    """Open Loom in the browser. If no daemon is running, one is started until Ctrl+C.

    The link works once; the browser stays signed in.
    """
    config, made_up = served_config(password_file, lan=lan)
    opens = not no_browser and not lan
    link = asyncio.run(_link_of_running(config))
    if link:
        if lan:
            raise ConfigError(
                "A daemon is already running with other settings.",
                hint="Stop it (`loom stop`) and run `loom web --lan`.",
            )
        _show(link, opens=opens)
        return
    _serve(config, lan=lan, port=port, made_up=made_up, opens=opens)


def _serve(config: Config, *, lan: bool, port: int | None, made_up: str, opens: bool) -> None:
    from loom.daemon.serve import ListeningAddress, run_daemon

    def listening(found: ListeningAddress) -> None:
        _show(in_network(found.link) if lan else found.link, opens=opens, with_code=lan)
        if made_up:
            click.echo(f"  password for this run: {made_up}")

    run_daemon(config, host=EVERYWHERE if lan else "", port=port, on_listening=listening)


async def _link_of_running(config: Config) -> str:
    """Return a new one-time link of the running daemon; empty if there is none."""
    link = await running_daemon(config)
    if link is None:
        return ""
    try:
        made = decode_json(await link.ask("POST", "/v1/links", repeats=False), _Link)
    finally:
        await link.close()
    return f"{link.url}{made.url}"


def _show(link: str, *, opens: bool, with_code: bool = False) -> None:
    click.echo(f"  {link}    one-time link")
    if with_code and sys.stdout.isatty():
        click.echo(draw_qr(link))
    if opens and not _open(link):
        print_line("No browser could be opened. Open the link yourself.")


def draw_qr(link: str) -> str:
    """Return a QR code, two rows of modules per line of text, dark on light in any color scheme."""
    rows = [bytes(row) for row in segno.make_qr(link, error="l").matrix_iter(border=4)]
    blank = bytes(len(rows[0]))
    glyphs = {(0, 0): " ", (1, 0): "▀", (0, 1): "▄", (1, 1): "█"}
    lines = (
        "".join(glyphs[pair] for pair in zip(upper, lower, strict=True))
        for upper, lower in itertools.zip_longest(rows[::2], rows[1::2], fillvalue=blank)
    )
    return "\n".join(f"\x1b[30;107m{line}\x1b[0m" for line in lines)


def _open(link: str) -> bool:
    """Open the link in a browser; return whether that worked. Without a display, do nothing: a text browser would take
    over the terminal."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        return webbrowser.open(link)
    except webbrowser.Error:
        return False


def in_network(link: str) -> str:
    """Return the link with this machine's network address in place of its host; unchanged without a network."""
    parts = urlsplit(link)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # selects a route; nothing is sent
            address = probe.getsockname()[0]
        except OSError:
            return link
    return urlunsplit(parts._replace(netloc=f"{address}:{parts.port}"))


class _TokenAnswer(msgspec.Struct):
    token: str


@click.command("token")
@click.option("--rotate", is_flag=True, help="Create a new token; the old one stops working at once.")
def token_command(rotate: bool) -> None:
    """Print the access token of the local daemon: `curl -H "Authorization: Bearer $(loom token)" …`

    The token is created the first time, by this command or by the daemon.
    """
    from loom.daemon.auth import ensure_token

    click.echo(asyncio.run(_rotate_token()) if rotate else ensure_token(load_config().token_file()))


async def _rotate_token() -> str:
    config = load_config()
    link = await running_daemon(config)
    if link is None:
        raise no_daemon(config)
    try:
        return decode_json(await link.ask("POST", "/v1/token/rotate", repeats=False), _TokenAnswer).token
    finally:
        await link.close()


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


@click.group("service", cls=CommandGroup)
def service_command() -> None:
    """Run the daemon as a systemd user service."""


@service_command.command()
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
    write_user_file(file, text, mode=0o644)
    _systemctl("daemon-reload")
    _systemctl("enable", "--now", UNIT)
    click.echo(f"✔ {display_path(file, Path.cwd())} installed and started; `loom web` opens it")


@service_command.command()
def uninstall() -> None:
    """Stop it and remove the unit. Sessions and media stay."""
    _require_systemd()
    if not _file().is_file():
        raise ConfigError("The service is not installed.", hint="Install it: `loom service install`.")
    _systemctl("disable", "--now", UNIT)
    _file().unlink()
    _systemctl("daemon-reload")
    click.echo("✔ stopped and removed; sessions and media stay")


@service_command.command()
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
    """Return the text of the unit: it runs this Python and this installation with the current data folder."""
    words = [sys.executable, "-m", "loom.cli.main", "serve", *(["--port", str(port)] if port else [])]
    home = os.environ.get("LOOM_HOME", "").strip()
    environment = f"Environment={_quote(f'LOOM_HOME={Path(home).absolute()}')}\n" if home else ""
    load_config()  # report errors now rather than in the journal
    return _TEXT.format(command=" ".join(_quote(word) for word in words), environment=environment)


def _quote(word: str) -> str:
    """Return a quoted word for a systemd unit, where % and $ have a meaning."""
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
        output = (ran.stderr or ran.stdout).strip().splitlines()
        raise ConfigError(f"systemctl --user {words[0]} failed: {output[0] if output else ran.returncode}.")
