"""Turns that an earlier run left while they waited for your word: what waits is shown, answered, and they go on."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from loom.agent.session import LocalSession
from loom.cli.approving import Given, answer, is_anyone_there
from loom.cli.asking import Format, face_for
from loom.cli.choosing import Place, all_sessions, stored_session
from loom.cli.daemons import voice
from loom.cli.faces import Outcome, TextFace
from loom.cli.options import Speaking
from loom.cli.progress import Progress
from loom.cli.terminal import one_line, say, sentence
from loom.cli.turns import speak
from loom.errors import LoomError
from loom.events import ApprovalRequested
from loom.runtime import Runtime
from loom.store.session_rows import StoredSession

SHORT_ID = 8


class Waiting(msgspec.Struct, frozen=True):
    """A session and what it waits for."""

    session: StoredSession
    approvals: tuple[ApprovalRequested, ...]


async def waiting_in(runtime: Runtime, stored: StoredSession) -> tuple[ApprovalRequested, ...]:
    if not stored.settings.get("running", {}).get("approvals"):
        return ()
    runtime.offers_mcp = False  # to look needs no server
    return await (await runtime.session(stored.id)).approvals()


async def all_waiting(runtime: Runtime) -> AsyncIterator[Waiting]:
    """Every session that waits for an answer, newest first."""
    async for stored in all_sessions(runtime):
        approvals = await waiting_in(runtime, stored)
        if approvals:
            yield Waiting(stored, approvals)


async def settle(runtime: Runtime, speaking: Speaking, place: Place) -> None:
    """Before something else is said: what the session still waits for is asked, and its turn goes on to its end."""
    if place.is_new or place.fork:
        return
    stored = await stored_session(runtime, place)
    approvals = await waiting_in(runtime, stored)
    if not approvals:
        return
    if speaking.permission == "ask" and not is_anyone_there():
        raise _unanswered(approvals)
    say(f'"{one_line(stored.title or stored.id, 40)}" still waits for your word')
    if not await is_run_elsewhere(runtime, speaking, stored):
        outcome = await go_on(runtime, speaking, stored, beside=not sys.stdout.isatty())
        if outcome.error is not None:
            say(sentence(outcome.error))
        return
    session = await runtime.session(stored.id)
    for asked in approvals:
        await answer(session, asked, speaking.permission)


async def is_run_elsewhere(runtime: Runtime, speaking: Speaking, stored: StoredSession) -> bool:
    """Whether another process runs the turn, and no daemon through which it could be watched."""
    if not await runtime.leases.holder(stored.id):
        return False
    session = await runtime.session(stored.id)
    async with voice(runtime, speaking, session) as speaker:
        return isinstance(speaker, LocalSession)


async def go_on(
    runtime: Runtime,
    speaking: Speaking,
    stored: StoredSession,
    *,
    answers: Mapping[str, Given] | None = None,
    form: Format = "text",
    beside: bool = False,
) -> Outcome:
    """The rest of the turn, shown. The tools are those that it had; `beside` keeps it away from stdout."""
    runtime.tools = runtime.built_in_tools()
    runtime.offers_mcp = True
    session = await runtime.session(stored.id)
    face = face_for(runtime, form, shows_reasoning=speaking.shows_reasoning, plain=speaking.plain)
    if beside:
        face = TextFace(shows_reasoning=speaking.shows_reasoning)
        face.out = sys.stderr
    async with Progress(plain=speaking.plain) as progress, voice(runtime, speaking, session) as speaker:
        return await speak(
            runtime,
            speaker,
            speaker.resume(),
            face,
            said="",
            permission=speaking.permission,
            answers=answers or {},
            shows_reasoning=speaking.shows_reasoning,
            progress=progress,
        )


def described(asked: ApprovalRequested) -> str:
    """`3f2a91c0 run_command: rm -rf build`"""
    return f"{asked.approval[:SHORT_ID]} {one_line(asked.call.name)}: {one_line(asked.action)}"


def _unanswered(approvals: Sequence[ApprovalRequested]) -> LoomError:
    ids = " ".join(asked.approval[:SHORT_ID] for asked in approvals)
    return LoomError(
        f"this conversation waits for your word on {'; '.join(map(described, approvals))}.",
        hint=f"loom approve {ids} allows it, with --deny REASON it is not done; --permission auto|deny answers here.",
    )
