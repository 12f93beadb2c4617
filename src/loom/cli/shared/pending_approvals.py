"""Pending approvals of turns that an earlier run left: they are shown, answered, and the turn continues."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from loom.cli.shared.approval_prompt import ApprovalReply, answer, is_interactive
from loom.cli.shared.daemon_lookup import open_session
from loom.cli.shared.options import MessageOptions, MessageTarget
from loom.cli.shared.renderers import TextRenderer, TurnOutcome
from loom.cli.shared.session_lookup import target_session
from loom.cli.shared.session_options import OutputFormat, renderer_for
from loom.cli.shared.terminal import ProgressLine, one_line, print_line, sentence
from loom.cli.shared.turns import RuntimeHost, run_turn
from loom.errors import LoomError
from loom.events import ApprovalRequested
from loom.runtime import Runtime
from loom.runtime.session import LocalSession

SHORT_ID = 8


async def answer_pending(runtime: Runtime, speaking: MessageOptions, place: MessageTarget) -> None:
    """Before a new message: ask for the pending approvals of the session, and continue its turn to the end."""
    if place.is_new or place.fork:
        return
    found = await target_session(runtime.library, place)
    session = await runtime.library.open(found.id)
    approvals = await session.approvals()
    if not approvals:
        return
    if speaking.permission == "ask" and not is_interactive():
        raise _approvals_pending_error(approvals)
    print_line(f'"{one_line(found.title or found.id, 40)}" has a pending approval')
    if not await runs_elsewhere(runtime, speaking, session):
        outcome = await continue_turn(runtime, speaking, session, beside=not sys.stdout.isatty())
        if outcome.error is not None:
            print_line(sentence(outcome.error))
        return
    for asked in approvals:
        await answer(session, asked, speaking.permission)


async def runs_elsewhere(runtime: Runtime, speaking: MessageOptions, session: LocalSession) -> bool:
    """Return whether another process runs the turn, and there is no daemon through which it could be watched."""
    if not await session.is_running():
        return False
    async with open_session(runtime, speaking, session) as speaker:
        return isinstance(speaker, LocalSession)


async def continue_turn(
    runtime: Runtime,
    speaking: MessageOptions,
    session: LocalSession,
    *,
    answers: Mapping[str, ApprovalReply] | None = None,
    form: OutputFormat = "text",
    beside: bool = False,
) -> TurnOutcome:
    """Show the rest of the turn, which keeps its tools. `beside` shows it on stderr."""
    face = renderer_for(runtime, form, shows_reasoning=speaking.shows_reasoning, plain=speaking.plain)
    if beside:
        face = TextRenderer(shows_reasoning=speaking.shows_reasoning)
        face.out = sys.stderr
    async with ProgressLine(plain=speaking.plain) as progress, open_session(runtime, speaking, session) as speaker:
        return await run_turn(
            RuntimeHost(runtime),
            speaker,
            speaker.resume(),
            face,
            said="",
            permission=speaking.permission,
            answers=answers or {},
            shows_reasoning=speaking.shows_reasoning,
            progress=progress,
        )


def approval_line(asked: ApprovalRequested) -> str:
    """`3f2a91c0 run_command: rm -rf build`"""
    action, _, _ = asked.action.partition("\n\n(")  # without what the sandbox says about it
    return f"{asked.approval[:SHORT_ID]} {one_line(asked.call.name)}: {one_line(action)}"


def _approvals_pending_error(approvals: Sequence[ApprovalRequested]) -> LoomError:
    ids = " ".join(asked.approval[:SHORT_ID] for asked in approvals)
    return LoomError(
        f"Approval pending: {'; '.join(map(approval_line, approvals))}.",
        hint=f"Approve with `loom approve {ids}`, deny with `--deny REASON`; --permission auto|deny answers here.",
    )
