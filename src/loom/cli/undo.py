"""`loom undo`: take back what the agent changed in files."""

from __future__ import annotations

import asyncio

import click
import msgspec

from loom.cli.shared.exit_codes import OK
from loom.cli.shared.options import complete_sessions
from loom.cli.shared.session_lookup import find_or_last
from loom.cli.shared.terminal import safe_text
from loom.runtime import Runtime
from loom.work_types import ChangedStep


@click.command("undo")
@click.argument("step", type=click.IntRange(min=1), required=False)
@click.option(
    "-r",
    "--resume",
    "session",
    default="",
    metavar="SESSION",
    shell_complete=complete_sessions,
    help="The conversation. Default: the last one of this folder.",
)
@click.option("--list", "is_list", is_flag=True, help="List the steps that changed files, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def undo_command(step: int | None, session: str, is_list: bool, as_json: bool) -> int:
    """Undo the file changes of the last step, or of STEP and all later ones.

    Files are restored as they were before. A file that something else changed since is left alone. The model reads
    what was undone. Only changes by write_file, edit_file and multi_edit can be undone, for `cleanup_after_days`.
    """
    return asyncio.run(_undo(step, session, is_list=is_list, as_json=as_json))


async def _undo(step: int | None, wanted: str, *, is_list: bool, as_json: bool) -> int:
    async with Runtime.open() as runtime:
        session = await runtime.session((await find_or_last(runtime.library, wanted)).id)
        if is_list:
            steps = await session.changes()
            for found in steps:
                click.echo(msgspec.json.encode(found) if as_json else safe_text(_step_line(found)))
            if not steps and not as_json:
                click.echo("No step of this conversation has changed a file.", err=True)
            return OK
        report = await session.undo(step)
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        for sentence in report.files:
            click.echo(safe_text(sentence))
    return OK


def _step_line(found: ChangedStep) -> str:
    files = ", ".join(dict.fromkeys(change.path for change in found.changes))
    return f"{found.step:>4}  {files}{'  (undone)' if found.is_undone else ''}"
