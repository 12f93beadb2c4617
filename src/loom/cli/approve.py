"""`loom approve`: answer what waits for your word; the turn goes on here, or where it runs."""

from __future__ import annotations

import asyncio

import click

from loom.cli.approval_prompt import ApprovalReply, is_interactive
from loom.cli.exit_codes import OK, exit_code
from loom.cli.options import MessageOptions
from loom.cli.pending_approvals import PendingApprovals, all_pending, approval_line, continue_turn, runs_elsewhere
from loom.cli.session_options import OutputFormat
from loom.cli.terminal import print_line, sentence
from loom.errors import ConfigError, NotFound
from loom.events import ApprovalRequested
from loom.runtime import Runtime

_SHORTEST_ID = 4


@click.command("approve")
@click.argument("names", nargs=-1, required=True, metavar="ID...")
@click.option("--always", is_flag=True, help="Approve the same action for the rest of this session.")
@click.option("--deny", "reason", metavar="REASON", help="Deny with a reason, which the model reads.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as one JSON object.")
def command(names: tuple[str, ...], always: bool, reason: str | None, as_json: bool) -> int:
    """Approve a pending tool call once. `loom approvals` lists the ids; a prefix is enough.

    The turn continues and its answer is shown, even if the program that ran it has exited.
    """
    if always and reason is not None:
        raise click.UsageError("--always and --deny exclude each other.")
    given: ApprovalReply = ("deny", reason) if reason is not None else ("always" if always else "once", "")
    return asyncio.run(_approve(names, given, "json" if as_json else "text"))


async def _approve(names: tuple[str, ...], given: ApprovalReply, form: OutputFormat) -> int:
    speaking = MessageOptions()
    async with Runtime.open(tools="all") as runtime:
        waiting, chosen = await _find_approvals(runtime, names)
        stored = waiting.session
        if await runs_elsewhere(runtime, speaking, stored):
            session = await runtime.session(stored.id)
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
        outcome = await continue_turn(runtime, speaking, stored, answers=answers, form=form)
    if outcome.error is None:
        return OK
    if form == "text":
        print_line(sentence(outcome.error))
    return exit_code(outcome.error)


async def _find_approvals(runtime: Runtime, names: tuple[str, ...]) -> tuple[PendingApprovals, list[ApprovalRequested]]:
    """The approvals with these names, which are all of one conversation."""
    everything = [waiting async for waiting in all_pending(runtime)]
    found: dict[str, PendingApprovals] = {}
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
