"""`loom users`: the users of the daemon, their sessions and the signed-in browsers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from loom.cli.shared.command_group import CommandGroup
from loom.cli.shared.terminal import safe_text
from loom.config.templates import remove_templates
from loom.errors import NotFound
from loom.runtime import Runtime
from loom.store.accounts import OWNER_NAME, Account, AccountRole
from loom.store.session_members import MemberAccess
from loom.store.user_costs import DayCost

T = TypeVar("T")


_ROLES = click.Choice(("admin", "user", "viewer"))


@click.group("users", cls=CommandGroup)
def users_command() -> None:
    """Manage who may use the daemon, and which browsers are signed in.

    Not needed if you use Loom alone: the owner has the token and the password. A user sees the sessions that they
    started and those that were shared with them. Admins can see and do everything; users cannot manage keys and the
    token; viewers can only read.
    """


@users_command.command("add")
@click.argument("name")
@click.option("--role", type=_ROLES, default="user", show_default=True, help="What the user may do.")
def add(name: str, role: AccountRole) -> None:
    """Add a user and print the key, once. Programs send it as a bearer token; browsers sign in with it."""

    async def run(runtime: Runtime) -> str:
        return (await runtime.accounts.add(name, role))[1]

    click.echo(asyncio.run(_with_runtime(run)))


@users_command.command("list")
def list_() -> None:
    """List the users."""

    async def run(runtime: Runtime) -> tuple[tuple[Account, ...], dict[str, DayCost]]:
        return await runtime.accounts.list(), await runtime.user_costs.list()

    found, spent = asyncio.run(_with_runtime(run))
    if not found:
        click.echo("No users besides the owner.  → loom users add NAME")
    for one in found:
        since = time.strftime("%Y-%m-%d", time.localtime(one.created_at))
        usd = f"${spent[one.name].usd:.2f}" + ("" if one.day_usd is None else f" of ${one.day_usd:.2f}")
        click.echo(f"{one.name:<20} {one.role:<8} since {since}  {usd} today")


@users_command.command("role")
@click.argument("name")
@click.argument("role", type=_ROLES)
def set_role(name: str, role: AccountRole) -> None:
    """Change the role of a user. It applies from the next request on."""

    async def run(runtime: Runtime) -> Account:
        return await runtime.accounts.set_role(name, role)

    click.echo(f"✔ {asyncio.run(_with_runtime(run)).name} is {role} now")


@users_command.command("budget")
@click.argument("name")
@click.argument("usd")
def set_budget(name: str, usd: str) -> None:
    """Limit what the sessions of a user may cost in a day: US dollars, or `none`. Applies from the next answer on."""
    try:
        limit = None if usd == "none" else float(usd)
    except ValueError:
        raise click.UsageError("Expected US dollars per day, or none.") from None

    async def run(runtime: Runtime) -> Account:
        return await runtime.accounts.set_budget(name, limit)

    asyncio.run(_with_runtime(run))
    click.echo(f"✔ {name} has no daily budget" if limit is None else f"✔ {name} may spend ${limit:.2f} a day")


@users_command.command("key")
@click.argument("name")
def new_key(name: str) -> None:
    """Replace the key of a user and print the new one. Browsers that the old one signed in are signed out."""

    async def run(runtime: Runtime) -> str:
        return await runtime.accounts.new_key(name)

    click.echo(asyncio.run(_with_runtime(run)))


@users_command.command("remove")
@click.argument("name")
def remove(name: str) -> None:
    """Remove a user: the key and all logins are refused at once, their prompts are deleted. Sessions stay."""

    async def run(runtime: Runtime) -> Account:
        return await runtime.accounts.remove(name)

    removed = asyncio.run(_with_runtime(run))
    remove_templates(removed.id)
    click.echo(f"✔ {removed.name} was removed; sessions stay")


@users_command.command("share")
@click.argument("session")
@click.argument("name")
@click.option("--access", type=click.Choice(("view", "edit", "own")), default="edit", show_default=True)
def share(session: str, name: str, access: MemberAccess) -> None:
    """Share a session with a user, or with `everyone`."""

    async def run(runtime: Runtime) -> str:
        found = await runtime.library.find(session)
        await runtime.session_users.share(found.id, name, access)
        return found.title

    click.echo(safe_text(f"✔ {name} may {access} “{asyncio.run(_with_runtime(run))}”"))


@users_command.command("unshare")
@click.argument("session")
@click.argument("name")
def unshare(session: str, name: str) -> None:
    """End sharing a session with a user, or with `everyone`."""

    async def run(runtime: Runtime) -> str:
        found = await runtime.library.find(session)
        await runtime.session_users.unshare(found.id, name)
        return found.title

    click.echo(safe_text(f"✔ {name} no longer sees “{asyncio.run(_with_runtime(run))}”"))


@users_command.command("members")
@click.argument("session")
def members(session: str) -> None:
    """List the users of a session."""

    async def run(runtime: Runtime) -> dict[str, MemberAccess]:
        return await runtime.session_users.list((await runtime.library.find(session)).id)

    found = asyncio.run(_with_runtime(run))
    if not found:
        click.echo("Only administrators see this session.  → loom users share SESSION NAME")
    for name, access in found.items():
        click.echo(f"{name:<20} {access}")


async def _with_runtime(run: Callable[[Runtime], Awaitable[T]]) -> T:
    async with Runtime.open() as runtime:
        return await run(runtime)


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
    """Sign out a browser: LOGIN is its id in `loom users logins`. A running daemon drops its connections."""
    if bool(login) == everyone:
        raise click.UsageError("Expected the id of a login, or --all.")
    asyncio.run(_sign_out(login))


async def _sign_out(login: str) -> None:
    async with Runtime.open() as runtime:
        ids = [one.id for one in await runtime.logins.list()]
        wanted = [one for one in ids if one.startswith(login)]
        if login and len(wanted) != 1:
            raise NotFound("Login not found.", hint="List them: `loom users logins`.")
        for one in wanted:
            await runtime.logins.close(one)
    click.echo(f"✔ signed out: {len(wanted)}")
