"""`loom approvals`: what waits for your word, in every conversation."""

from __future__ import annotations

import asyncio

import click
import msgspec

from loom.cli.completion_values import complete_sessions
from loom.cli.pending_approvals import SHORT_ID, PendingApprovals, all_pending, pending_in
from loom.cli.session_lookup import find_session
from loom.cli.terminal import one_line, safe_text
from loom.runtime import Runtime


@click.command("approvals")
@click.argument("session", default="", shell_complete=complete_sessions)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def command(session: str, as_json: bool) -> None:
    """List pending approvals, in one SESSION or in all.

    Answer with `loom approve ID`. A turn waits until it is answered, even if the program that ran it has exited.
    """
    asyncio.run(_show(session, as_json))


async def _show(wanted: str, as_json: bool) -> None:
    async with Runtime.open() as runtime:
        if wanted:
            stored = await find_session(runtime, wanted)
            found = [PendingApprovals(stored, await pending_in(runtime, stored))]
        else:
            found = [waiting async for waiting in all_pending(runtime)]
    for waiting in found:
        click.echo("\n".join(_rows(waiting) if as_json else _lines(waiting)), nl=bool(waiting.approvals))
    if not as_json and not any(waiting.approvals for waiting in found):
        click.echo("No pending approvals", err=True)


def _rows(waiting: PendingApprovals) -> list[str]:
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


def _lines(waiting: PendingApprovals) -> list[str]:
    """The action stands there as it was asked: what is approved is what is seen."""
    title = one_line(waiting.session.title or waiting.session.id, 50)
    lines: list[str] = []
    for asked in waiting.approvals:
        lines.append(f'{asked.approval[:SHORT_ID]}  {one_line(asked.call.name)}  in "{title}"')
        lines += [f"  {line}" for line in safe_text(asked.action).splitlines()]
    return lines
