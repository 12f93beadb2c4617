"""`loom approve`: answer what waits for your word; the turn goes on here, or where it runs."""

from __future__ import annotations

import asyncio

import click

from loom.cli.approving import Given, is_anyone_there
from loom.cli.asking import Format
from loom.cli.exits import OK, exit_code
from loom.cli.left_open import Waiting, all_waiting, described, go_on, is_run_elsewhere
from loom.cli.options import Speaking
from loom.cli.terminal import say, sentence
from loom.errors import ConfigError, NotFound
from loom.events import ApprovalRequested
from loom.runtime import Runtime

_SHORTEST_ID = 4


@click.command("approve")
@click.argument("names", nargs=-1, required=True, metavar="ID...")
@click.option("--always", is_flag=True, help="Also whenever the same is asked again in this conversation.")
@click.option("--deny", "reason", metavar="REASON", help="It is not done; the model reads why.")
@click.option("--json", "as_json", is_flag=True, help="What came of the turn as one JSON object.")
def command(names: tuple[str, ...], always: bool, reason: str | None, as_json: bool) -> int:
    """Allow what waits for your word, once. `loom approvals` shows it, and its ID; the beginning of an ID is enough.

    The turn goes on and its answer is shown, also when the program that ran it was ended.
    """
    if always and reason is not None:
        raise click.UsageError("--always and --deny exclude each other.")
    given: Given = ("deny", reason) if reason is not None else ("always" if always else "once", "")
    return asyncio.run(_approve(names, given, "json" if as_json else "text"))


async def _approve(names: tuple[str, ...], given: Given, form: Format) -> int:
    speaking = Speaking()
    async with Runtime.open() as runtime:
        waiting, chosen = await _chosen(runtime, names)
        stored = waiting.session
        if await is_run_elsewhere(runtime, speaking, stored):
            session = await runtime.session(stored.id)
            for asked in chosen:
                await session.answer(asked.approval, *given)
            click.echo("answered; the program that runs the turn goes on with it", err=True)
            return OK
        left = [asked for asked in waiting.approvals if asked not in chosen]
        if left and not is_anyone_there():
            raise ConfigError(
                f"the same turn waits for more: {'; '.join(map(described, left))}.", hint="Name them all in one go."
            )
        answers = {asked.approval: given for asked in chosen}
        outcome = await go_on(runtime, speaking, stored, answers=answers, form=form)
    if outcome.error is None:
        return OK
    if form == "text":
        say(sentence(outcome.error))
    return exit_code(outcome.error)


async def _chosen(runtime: Runtime, names: tuple[str, ...]) -> tuple[Waiting, list[ApprovalRequested]]:
    """The approvals with these names, which are all of one conversation."""
    everything = [waiting async for waiting in all_waiting(runtime)]
    found: dict[str, Waiting] = {}
    chosen: list[ApprovalRequested] = []
    for name in names:
        here = [
            (waiting, asked)
            for waiting in everything
            for asked in waiting.approvals
            if len(name) >= _SHORTEST_ID and asked.approval.startswith(name.lower())
        ]
        if len(here) != 1:
            how_many = "more than one thing" if here else "nothing"
            raise NotFound(f"{how_many} that waits is called {name!r}.", hint="See what waits: `loom approvals`.")
        waiting, asked = here[0]
        found[waiting.session.id] = waiting
        chosen.append(asked)
    if len(found) > 1:
        raise ConfigError("these belong to different conversations.", hint="Answer one conversation at a time.")
    return next(iter(found.values())), chosen
