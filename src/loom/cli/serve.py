"""`loom serve`: the daemon, for browsers and programs on this machine or, with a password, in this network."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import click

from loom.cli.attachment_options import read_password
from loom.config import Config, load_config

EVERYWHERE = "0.0.0.0"  # noqa: S104  only with a password, which `lan` makes sure of
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
def command(host: str, port: int | None, password_file: str, lan: bool) -> None:
    """Run the daemon until Ctrl+C or SIGTERM: the web client, the HTTP API and live events, one for all your sessions.

    Without a password it listens on localhost only. Programs use the token that `loom token` prints.
    """
    from loom.daemon.serve import Listening, run

    config, made_up = served_config(password_file, lan=lan)

    def listening(found: Listening) -> None:
        click.echo(f"loom listens on {found.url}\nopen it with {found.link}")
        if made_up:
            click.echo(f"password for this run: {made_up}")

    run(config, host=EVERYWHERE if lan and not host else host, port=port, on_listening=listening, log_level="warning")


def served_config(password_file: str, *, lan: bool) -> tuple[Config, str]:
    """The configuration with the password in it, and the password if it was made up."""
    flags: dict[str, Any] = {}
    made_up = ""
    if password_file:
        flags = {"server": {"password": read_password(password_file)}}
    elif lan and not load_config(cwd=Path.cwd()).secret("server", "password"):
        made_up = "".join(secrets.choice(_ALPHABET) for _ in range(12))
        flags = {"server": {"password": made_up}}
    return load_config(flags=flags), made_up
