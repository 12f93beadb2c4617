"""`loom web`: the web client, in the daemon that runs or in one that is started for it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import webbrowser
from urllib.parse import urlsplit, urlunsplit

import click
import msgspec

from loom.cli.qr import draw_qr
from loom.cli.serve import EVERYWHERE, served_config
from loom.cli.terminal import print_line
from loom.config import Config
from loom.errors import ConfigError


class _Link(msgspec.Struct):
    url: str


@click.command("web")
@click.option(
    "--lan", is_flag=True, help="For a phone on the local network: with a password and a QR code of the link."
)
@click.option("--port", type=click.IntRange(0, 65_535), default=None, help="The port of the started daemon.")
@click.option("--password-file", default="", metavar="FILE", help="A file with the password for browsers.")
@click.option("--no-browser", is_flag=True, help="Print the link without opening a browser.")
def command(lan: bool, port: int | None, password_file: str, no_browser: bool) -> None:
    """Open Loom in the browser. If no daemon is running, one is started until Ctrl+C.

    The link works once; the browser stays logged in.
    """
    config, made_up = served_config(password_file, lan=lan)
    opens = not no_browser and not lan
    link = asyncio.run(_link_of_running(config))
    if link:
        if lan:
            raise ConfigError(
                "A daemon is already running with other settings.",
                hint="Stop it and run `loom web --lan`, or start it with `loom serve --lan`.",
            )
        _show(link, opens=opens)
        return
    _serve(config, lan=lan, port=port, made_up=made_up, opens=opens)


def _serve(config: Config, *, lan: bool, port: int | None, made_up: str, opens: bool) -> None:
    from loom.daemon.serve import Listening, run

    def listening(found: Listening) -> None:
        _show(in_network(found.link) if lan else found.link, opens=opens, with_code=lan)
        if made_up:
            click.echo(f"  password for this run: {made_up}")

    run(config, host=EVERYWHERE if lan else "", port=port, on_listening=listening)


async def _link_of_running(config: Config) -> str:
    """A new one-time link of the daemon that runs here; empty where none does."""
    from loom.cli.daemon_lookup import running_daemon

    link = await running_daemon(config)
    if link is None:
        return ""
    try:
        made = msgspec.json.decode(await link.ask("POST", "/v1/links", repeats=False), type=_Link)
    finally:
        await link.close()
    return f"{link.url}{made.url}"


def _show(link: str, *, opens: bool, with_code: bool = False) -> None:
    click.echo(f"  {link}    one-time link")
    if with_code and sys.stdout.isatty():
        click.echo(draw_qr(link))
    if opens and not _open(link):
        print_line("Cannot open a browser: open the link yourself")


def _open(link: str) -> bool:
    """Without a display a text browser would take the terminal over."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        return webbrowser.open(link)
    except webbrowser.Error:
        return False


def in_network(link: str) -> str:
    """The same link with this machine's address, as others in the network reach it."""
    parts = urlsplit(link)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it only asks which way out there is
            address = probe.getsockname()[0]
        except OSError:
            return link
    return urlunsplit(parts._replace(netloc=f"{address}:{parts.port}"))
