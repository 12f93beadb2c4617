"""`loom token`: what programs show to the daemon."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

import click
import msgspec

from loom.cli.daemon_lookup import running_daemon
from loom.config import load_config
from loom.errors import NotFound

_PATIENCE_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.05


class _Token(msgspec.Struct):
    token: str


@click.command("token")
@click.option("--rotate", is_flag=True, help="Create a new token; the old one stops working at once.")
def command(rotate: bool) -> None:
    """Print the access token of the local daemon: `curl -H "Authorization: Bearer $(loom token)" …`"""
    click.echo(asyncio.run(_rotate_token()) if rotate else _read(load_config().token_file()))


def _read(file: Path) -> str:
    """A daemon that is being started (`loom serve & loom token`) is given time to write it. It is never made here: two
    that make one at once would disagree."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise NotFound("There is no token yet.", hint="The daemon creates it: loom serve") from None


async def _rotate_token() -> str:
    link = await running_daemon(load_config())
    if link is None:
        raise NotFound("No daemon is running.", hint="Start one: loom serve")
    try:
        return msgspec.json.decode(await link.ask("POST", "/v1/token/rotate", repeats=False), type=_Token).token
    finally:
        await link.close()
