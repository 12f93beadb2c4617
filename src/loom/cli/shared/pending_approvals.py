"""Turns that an earlier run left while they waited for your word: what waits is shown, answered, and they go on."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from loom.cli.shared.approval_prompt import ApprovalReply, answer, is_interactive
from loom.cli.shared.daemon_lookup import open_session
from loom.cli.shared.options import MessageOptions, MessageTarget
from loom.cli.shared.renderers import TextRenderer, TurnOutcome
from loom.cli.shared.session_lookup import all_sessions, stored_session
from loom.cli.shared.session_options import OutputFormat, renderer_for
from loom.cli.shared.terminal import ProgressLine, one_line, print_line, sentence
from loom.cli.shared.turns import RuntimeHost, run_turn
from loom.errors import LoomError
from loom.events import ApprovalRequested
from loom.runtime import Runtime
from loom.runtime.session import LocalSession
from loom.store.session_rows import StoredSession

SHORT_ID = 8


class PendingApprovals(msgspec.Struct, frozen=True):
    """A session and what it waits for."""

    session: StoredSession
    approvals: tuple[ApprovalRequested, ...]


async def pending_in(runtime: Runtime, stored: StoredSession) -> tuple[ApprovalRequested, ...]:
    if not stored.settings.get("running", {}).get("approvals"):
        return ()
    return await (await runtime.session(stored.id, tools=())).approvals()  # waits for no MCP server


async def all_pending(runtime: Runtime) -> AsyncIterator[PendingApprovals]:
    """Every session that waits for an answer, newest first."""
    async for stored in all_sessions(runtime):
        approvals = await pending_in(runtime, stored)
        if approvals:
            yield PendingApprovals(stored, approvals)


async def answer_pending(runtime: Runtime, speaking: MessageOptions, place: MessageTarget) -> None:
    """Before something else is said: what the session still waits for is asked, and its turn goes on to its end."""
    if place.is_new or place.fork:
        return
    stored = await stored_session(runtime, place)
    approvals = await pending_in(runtime, stored)
    if not approvals:
        return
    if speaking.permission == "ask" and not is_interactive():
        raise _approvals_pending_error(approvals)
    print_line(f'"{one_line(stored.title or stored.id, 40)}" has a pending approval')
    if not await runs_elsewhere(runtime, speaking, stored):
        outcome = await continue_turn(runtime, speaking, stored, beside=not sys.stdout.isatty())
        if outcome.error is not None:
            print_line(sentence(outcome.error))
        return
    session = await runtime.session(stored.id, tools=())
    for asked in approvals:
        await answer(session, asked, speaking.permission)


async def runs_elsewhere(runtime: Runtime, speaking: MessageOptions, stored: StoredSession) -> bool:
    """Whether another process runs the turn, and no daemon through which it could be watched."""
    if not await runtime.leases.holder(stored.id):
        return False
    session = await runtime.session(stored.id, tools=())
    async with open_session(runtime, speaking, session) as speaker:
        return isinstance(speaker, LocalSession)


async def continue_turn(
    runtime: Runtime,
    speaking: MessageOptions,
    stored: StoredSession,
    *,
    answers: Mapping[str, ApprovalReply] | None = None,
    form: OutputFormat = "text",
    beside: bool = False,
) -> TurnOutcome:
    """The rest of the turn, shown. The tools are those that it had; `beside` keeps it away from stdout."""
    session = await runtime.session(stored.id)
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
    return f"{asked.approval[:SHORT_ID]} {one_line(asked.call.name)}: {one_line(asked.action)}"


def _approvals_pending_error(approvals: Sequence[ApprovalRequested]) -> LoomError:
    ids = " ".join(asked.approval[:SHORT_ID] for asked in approvals)
    return LoomError(
        f"Approval pending: {'; '.join(map(approval_line, approvals))}.",
        hint=f"Approve with `loom approve {ids}`, deny with `--deny REASON`; --permission auto|deny answers here.",
    )
