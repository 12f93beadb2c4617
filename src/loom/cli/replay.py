"""`loom replay`: a conversation again, with another model, side by side with the original."""

from __future__ import annotations

import asyncio
import sys
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

import click
import msgspec

from loom.cli.shared.exit_codes import OK, exit_code
from loom.cli.shared.options import ApprovalMode, complete_models, complete_sessions
from loom.cli.shared.renderers import TurnOutcome
from loom.cli.shared.session_options import find_or_last
from loom.cli.shared.terminal import (
    Colors,
    ProgressLine,
    money_label,
    one_line,
    print_line,
    safe_text,
    sentence,
    tokens_label,
    width,
)
from loom.cli.shared.turns import RuntimeHost, run_turn
from loom.content.blocks import ToolCall
from loom.content.messages import Message
from loom.events import Event
from loom.message_types import MessageView
from loom.models import Usage
from loom.runtime import Runtime
from loom.runtime.replay import RecordedTurn, fork_for_replay, question_content

_GAP: Final = " │ "


class ReplayAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one model to one question: its last text, and what all steps of the turn took."""

    model: str
    text: str
    tool_calls: int
    usage: Usage
    usd: float | None
    seconds: float | None

    @property
    def facts(self) -> str:
        calls = f"{self.tool_calls} tool {'call' if self.tool_calls == 1 else 'calls'}, " if self.tool_calls else ""
        seconds = "" if self.seconds is None else f", {self.seconds:.1f} s"
        tokens = f"{tokens_label(self.usage.input_tokens)} in, {tokens_label(self.usage.output_tokens)} out"
        return f"{calls}{tokens}, {money_label(self.usd)}{seconds}"


class ReplayRow(msgspec.Struct, frozen=True, kw_only=True):
    """One question and both answers."""

    question: str
    original: ReplayAnswer
    replay: ReplayAnswer


class SilentRenderer:
    """Shows nothing of a turn: the answers are compared when they are complete."""

    async def begin(self, session: str, model: str, said: str) -> None:
        pass

    async def event(self, event: Event) -> None:
        pass

    async def finish(self, outcome: TurnOutcome) -> None:
        pass


@click.command("replay")
@click.argument("session", default="", shell_complete=complete_sessions)
@click.option(
    "-m", "--model", required=True, metavar="MODEL", shell_complete=complete_models, help="The model to replay with."
)
@click.option(
    "--tools",
    type=click.Choice(("recorded", "live")),
    default="recorded",
    show_default=True,
    help="recorded: calls return the results of the original, nothing is run. live: tools run again.",
)
@click.option(
    "--permission",
    type=click.Choice(("ask", "auto", "deny")),
    default="ask",
    show_default=True,
    help="With live tools: how calls that need approval are answered.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per question.")
def replay_command(session: str, model: str, tools: str, permission: ApprovalMode, as_json: bool) -> int:
    """Send the user messages of SESSION to another model and compare the answers.

    Default: the last session of this folder. The replay is a separate session in the same tree; the original is not
    changed.
    """
    return asyncio.run(_replay(session, model, runs_tools=tools == "live", permission=permission, as_json=as_json))


async def _replay(wanted: str, model: str, *, runs_tools: bool, permission: ApprovalMode, as_json: bool) -> int:
    async with Runtime.open(tools="all") as runtime, ProgressLine() as progress:
        resolved = runtime.models.resolve(model)  # fail before anything is stored
        found = await find_or_last(runtime.library, wanted)
        original = await runtime.library.open(found.id)
        title = f"{found.title or found.id} (replay with {resolved.name})"
        replay = await fork_for_replay(runtime, original, title=title, runs_tools=runs_tools)
        await replay.session.use(model)
        for number, turn in enumerate(replay.turns, 1):
            outcome = await run_turn(
                RuntimeHost(runtime),
                replay.session,
                replay.session.stream(*question_content(turn)),
                SilentRenderer(),
                said="",
                permission=permission,
                progress=progress,
            )
            if outcome.error is not None:
                left = len(replay.turns) - number
                more = f" {left} more {'question was' if left == 1 else 'questions were'} not replayed." if left else ""
                print_line(f"{sentence(outcome.error)}{more}")
                return exit_code(outcome.error)
            row = _row(turn, outcome)
            click.echo(msgspec.json.encode(row) if as_json else _comparison(number, row))
        if not as_json:
            click.echo(f"Stored as session {replay.session.id}. Continue it: loom -r {replay.session.id}", err=True)
    return OK


def _row(turn: RecordedTurn, outcome: TurnOutcome) -> ReplayRow:
    return ReplayRow(
        question=Message(role="user", blocks=turn.question.blocks).text,
        original=_recorded_answer(turn.replies),
        replay=ReplayAnswer(
            model=outcome.model,
            text=outcome.text,
            tool_calls=outcome.tool_calls,
            usage=outcome.usage,
            usd=outcome.usd,
            seconds=outcome.seconds,
        ),
    )


def _recorded_answer(replies: Sequence[MessageView]) -> ReplayAnswer:
    answers = [reply for reply in replies if reply.role == "assistant"]
    prices = [reply.usd for reply in answers if reply.usd is not None]
    times = [reply.seconds for reply in answers if reply.seconds is not None]
    return ReplayAnswer(
        model=answers[-1].model if answers else "",
        text=Message(role="assistant", blocks=answers[-1].blocks).text if answers else "",
        tool_calls=sum(isinstance(block, ToolCall) for reply in answers for block in reply.blocks),
        usage=sum((reply.usage for reply in answers if reply.usage is not None), Usage()),
        usd=sum(prices) if len(prices) == len(answers) else None,
        seconds=sum(times) if times else None,
    )


def _comparison(number: int, row: ReplayRow) -> str:
    """Return both answers in two columns, or one below the other on a narrow terminal."""
    ink = Colors(sys.stdout)
    heading = ink.bold(f"{number}. {one_line(row.question, width() - 4)}")
    pair = (row.original, row.replay)
    column = (width() - len(_GAP)) // 2
    if column < 36:
        parts = [f"{ink.dim(it.model or 'no answer')}\n{safe_text(it.text)}\n{ink.dim(it.facts)}" for it in pair]
        return "\n\n".join((heading, *parts, ""))
    left, right = ([it.model or "no answer", "", *_wrap(it.text, column), "", *_wrap(it.facts, column)] for it in pair)
    lines = [f"{one:<{column}}{_GAP}{other}".rstrip() for one, other in zip_longest(left, right, fillvalue="")]
    return "\n".join((heading, *lines, ""))


def _wrap(text: str, column: int) -> list[str]:
    return [part for line in safe_text(text).splitlines() for part in textwrap.wrap(line, column) or [""]]
