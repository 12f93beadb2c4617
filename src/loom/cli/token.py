"""`loom token`: what programs show to the daemon."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

import click
import msgspec

from loom.cli.daemons import running
from loom.config import load_config
from loom.errors import NotFound

_PATIENCE_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.05


class _Token(msgspec.Struct):
    token: str


@click.command("token")
@click.option("--rotate", is_flag=True, help="Make a new one; the old one is refused at once.")
def command(rotate: bool) -> None:
    """Print the token of the daemon on this machine: `curl -H "Authorization: Bearer $(loom token)" …`"""
    click.echo(asyncio.run(_rotated()) if rotate else _read(load_config().token_file()))


def _read(file: Path) -> str:
    """A daemon that is being started (`loom serve & loom token`) is given time to write it. It is never made here: two
    that make one at once would disagree."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise NotFound("there is no token yet.", hint="The daemon makes it: loom serve") from None


async def _rotated() -> str:
    link = await running(load_config())
    if link is None:
        raise NotFound("no daemon runs here.", hint="Start it: loom serve")
    try:
        return msgspec.json.decode(await link.ask("POST", "/v1/token/rotate", repeats=False), type=_Token).token
    finally:
        await link.close()
