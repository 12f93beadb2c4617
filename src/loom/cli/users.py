"""`loom users`: who may use the daemon, and which browsers are signed in."""

from __future__ import annotations

import asyncio
import time

import click

from loom.cli.shared.terminal import safe_text
from loom.errors import NotFound
from loom.runtime import Runtime
from loom.store.accounts import OWNER_NAME


@click.group("users")
def users_command() -> None:
    """Manage the browsers that are signed in to the daemon."""


@users_command.command("logins")
def logins() -> None:
    """List the browsers that are signed in."""
    asyncio.run(_list_logins())


async def _list_logins() -> None:
    async with Runtime.open() as runtime:
        names = {account.id: account.name for account in await runtime.accounts.list()}
        found = await runtime.logins.list()
    if not found:
        click.echo("No browser is signed in.")
    for one in found:
        who = names.get(one.account, OWNER_NAME)
        seen = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.seen_at))
        click.echo(safe_text(f"{one.id}  {who:<12} last seen {seen}  {one.address}  {one.agent}").rstrip())


@users_command.command("sign-out")
@click.argument("login", required=False, default="")
@click.option("--all", "everyone", is_flag=True, help="Sign out every browser.")
def sign_out(login: str, everyone: bool) -> None:
    """Sign a browser out: LOGIN is its id in `loom users logins`. A running daemon drops its connections."""
    if bool(login) == everyone:
        raise click.UsageError("Give the id of a login, or --all.")
    asyncio.run(_sign_out(login))


async def _sign_out(login: str) -> None:
    async with Runtime.open() as runtime:
        ids = [one.id for one in await runtime.logins.list()]
        wanted = [one for one in ids if one.startswith(login)]
        if login and len(wanted) != 1:
            raise NotFound("There is no such login.", hint="List them: loom users logins")
        for one in wanted:
            await runtime.logins.close(one)
    click.echo(f"✔ signed out: {len(wanted)}")
