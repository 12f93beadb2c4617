"""`loom approvals`: what waits for your word, in every conversation."""

from __future__ import annotations

import asyncio

import click
import msgspec

from loom.cli.choosing import find_session
from loom.cli.completing import complete_sessions
from loom.cli.left_open import SHORT_ID, Waiting, all_waiting, waiting_in
from loom.cli.terminal import harmless, one_line
from loom.runtime import Runtime


@click.command("approvals")
@click.argument("session", default="", shell_complete=complete_sessions)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(session: str, as_json: bool) -> None:
    """Show what waits for your word: in one SESSION, or in all.

    `loom approve ID` answers. A turn waits as long as it takes, also when the program that ran it was ended.
    """
    asyncio.run(_show(session, as_json))


async def _show(wanted: str, as_json: bool) -> None:
    async with Runtime.open() as runtime:
        if wanted:
            stored = await find_session(runtime, wanted)
            found = [Waiting(stored, await waiting_in(runtime, stored))]
        else:
            found = [waiting async for waiting in all_waiting(runtime)]
    for waiting in found:
        click.echo("\n".join(_rows(waiting) if as_json else _lines(waiting)), nl=bool(waiting.approvals))
    if not as_json and not any(waiting.approvals for waiting in found):
        click.echo("nothing waits for your word", err=True)


def _rows(waiting: Waiting) -> list[str]:
    return [
        msgspec.json.encode(
            {
                "approval": asked.approval,
                "session": waiting.session.id,
                "title": waiting.session.title,
                "tool": asked.call.name,
                "arguments": asked.call.arguments,
                "action": asked.action,
                "pattern": asked.pattern,
            }
        ).decode()
        for asked in waiting.approvals
    ]


def _lines(waiting: Waiting) -> list[str]:
    """The action stands there as it was asked: what is approved is what is seen."""
    title = one_line(waiting.session.title or waiting.session.id, 50)
    lines: list[str] = []
    for asked in waiting.approvals:
        lines.append(f'{asked.approval[:SHORT_ID]}  {one_line(asked.call.name)}  in "{title}"')
        lines += [f"  {line}" for line in harmless(asked.action).splitlines()]
    return lines
