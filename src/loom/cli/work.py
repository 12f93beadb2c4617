"""`loom approvals`, `approve`, `ps` and `undo`: pending approvals, background processes and file changes of agents."""

from __future__ import annotations

import asyncio

import click
import msgspec

from loom.cli.shared.daemon_lookup import no_daemon, running_daemon
from loom.cli.shared.exit_codes import FAILED, OK, exit_code
from loom.cli.shared.options import MessageOptions, complete_sessions
from loom.cli.shared.questions import ApprovalReply, is_interactive
from loom.cli.shared.session_options import OutputFormat, find_or_last
from loom.cli.shared.terminal import one_line, print_line, safe_text, sentence
from loom.cli.shared.turns import (
    SHORT_ID,
    approval_line,
    continue_turn,
    runs_elsewhere,
)
from loom.config import load_config
from loom.errors import ConfigError, NotFound
from loom.events import ApprovalRequested
from loom.message_types import SessionApprovals
from loom.runtime import Runtime
from loom.struct_types import decode_json
from loom.work_types import ChangedStep, ProcessList, process_line


@click.command("approvals")
@click.argument("session", default="", shell_complete=complete_sessions)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def approvals_command(session: str, as_json: bool) -> None:
    """List pending approvals, in one SESSION or in all.

    Answer with `loom approve ID`. A turn waits until it is answered, even if the program that ran it has exited.
    """
    asyncio.run(_show(session, as_json))


async def _show(wanted: str, as_json: bool) -> None:
    async with Runtime.open() as runtime:
        if wanted:
            view = await runtime.library.find(wanted)
            pending = await (await runtime.library.open(view.id)).approvals()
            found = [SessionApprovals(session=view, approvals=pending)]
        else:
            found = list(await runtime.library.approvals())
    for waiting in found:
        click.echo("\n".join(_rows(waiting) if as_json else _lines(waiting)), nl=bool(waiting.approvals))
    if not as_json and not any(waiting.approvals for waiting in found):
        click.echo("No pending approvals", err=True)


def _rows(waiting: SessionApprovals) -> list[str]:
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


def _lines(waiting: SessionApprovals) -> list[str]:
    """Return the lines of pending approvals. The action is printed in full, so that the user sees exactly what is
    approved."""
    title = one_line(waiting.session.title or waiting.session.id, 50)
    lines: list[str] = []
    for asked in waiting.approvals:
        lines.append(f'{asked.approval[:SHORT_ID]}  {one_line(asked.call.name)}  in "{title}"')
        lines += [f"  {line}" for line in safe_text(asked.action).splitlines()]
    return lines


_SHORTEST_ID = 4


@click.command("approve")
@click.argument("names", nargs=-1, required=True, metavar="ID...")
@click.option("--always", is_flag=True, help="Approve the same action for the rest of this session.")
@click.option("--deny", "reason", metavar="REASON", help="Deny with a reason, which the model reads.")
@click.option("--values", default="", metavar="NAME=VALUE,...", help="The values that a form asks for.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as one JSON object.")
def approve_command(names: tuple[str, ...], always: bool, reason: str | None, values: str, as_json: bool) -> int:
    """Approve a pending tool call once. `loom approvals` lists the ids; a prefix is enough.

    The turn continues and its answer is shown, even if the program that ran it has exited.
    """
    if sum((always, reason is not None, bool(values))) > 1:
        raise click.UsageError("--always, --deny and --values exclude each other.")
    given: ApprovalReply = ("deny", reason) if reason is not None else ("always" if always else "once", values)
    return asyncio.run(_approve(names, given, "json" if as_json else "text"))


async def _approve(names: tuple[str, ...], given: ApprovalReply, form: OutputFormat) -> int:
    speaking = MessageOptions()
    async with Runtime.open(tools="all") as runtime:
        waiting, chosen = await _find_approvals(runtime, names)
        session = await runtime.library.open(waiting.session.id)
        if await runs_elsewhere(runtime, speaking, session):
            for asked in chosen:
                await session.answer(asked.approval, *given)
            click.echo("Answered. The program that runs the turn continues it.", err=True)
            return OK
        left = [asked for asked in waiting.approvals if asked not in chosen]
        if left and not is_interactive():
            raise ConfigError(
                f"More approvals are pending in this turn: {'; '.join(map(approval_line, left))}.",
                hint="Answer all of them in one command.",
            )
        answers = {asked.approval: given for asked in chosen}
        outcome = await continue_turn(runtime, speaking, session, answers=answers, form=form)
    if outcome.error is None:
        return OK
    if form == "text":
        print_line(sentence(outcome.error))
    return exit_code(outcome.error)


async def _find_approvals(runtime: Runtime, names: tuple[str, ...]) -> tuple[SessionApprovals, list[ApprovalRequested]]:
    """Return the approvals with these id prefixes; raise `ConfigError` if they belong to different sessions, `NotFound`
    if a prefix does not match exactly one."""
    everything = await runtime.library.approvals()
    found: dict[str, SessionApprovals] = {}
    chosen: list[ApprovalRequested] = []
    for name in names:
        here = [
            (waiting, asked)
            for waiting in everything
            for asked in waiting.approvals
            if len(name) >= _SHORTEST_ID and asked.approval.startswith(name.lower())
        ]
        if len(here) != 1:
            how_many = "Several pending approvals match" if here else "No pending approval matches"
            raise NotFound(f"{how_many} {name!r}.", hint="List pending approvals: `loom approvals`.")
        waiting, asked = here[0]
        found[waiting.session.id] = waiting
        chosen.append(asked)
    if len(found) > 1:
        raise ConfigError("These approvals belong to different sessions.", hint="Answer one session at a time.")
    return next(iter(found.values())), chosen


@click.command("ps")
@click.option("--stop", nargs=2, default=None, metavar="SESSION PROCESS", help="Stop a process.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
def ps_command(stop: tuple[str, str] | None, as_json: bool) -> int:
    """List the background processes that agents have started, and the ports that they listen on.

    Processes belong to a session and live in the program that runs it: those of `loom serve` are listed here. Those of
    `loom chat` and `loom ask` end with the command.
    """
    return asyncio.run(_ps(stop, as_json=as_json))


async def _ps(stop: tuple[str, str] | None, *, as_json: bool) -> int:
    config = load_config()
    link = await running_daemon(config)
    if link is None:
        missing = no_daemon(config)
        if stop or not isinstance(missing, NotFound):
            raise missing
        if not as_json:
            click.echo("No daemon is running.", err=True)
        return OK
    try:
        if stop:
            await link.ask("DELETE", f"/v1/sessions/{stop[0]}/processes/{stop[1]}", repeats=False)
            return OK
        found = decode_json(await link.ask("GET", "/v1/processes"), ProcessList).processes
    finally:
        await link.close()
    for process in found:
        click.echo(
            msgspec.json.encode(process) if as_json else safe_text(f"{process.session}  {process_line(process)}")
        )
    if not found and not as_json:
        click.echo("No background processes.", err=True)
    return OK


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

    Files are restored as they were before. A file that something else changed since is left alone; the exit code is 1
    if no step could be undone completely. The model reads what was undone. Only changes by write_file, edit_file and
    multi_edit can be undone, for `cleanup_after_days`.
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
    return OK if report.steps else FAILED


def _step_line(found: ChangedStep) -> str:
    files = ", ".join(dict.fromkeys(change.path for change in found.changes))
    return f"{found.step:>4}  {files}{'  (undone)' if found.is_undone else ''}"
