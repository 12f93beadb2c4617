"""One turn on the command line: show its events, answer its approvals, return its outcome; and continue one that an
earlier run left with pending approvals."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, nullcontext
from typing import Protocol

import msgspec

from loom.cli.shared.daemon_lookup import open_session
from loom.cli.shared.exit_codes import TurnError
from loom.cli.shared.options import ApprovalMode, MessageOptions, MessageTarget
from loom.cli.shared.questions import ApprovalReply, EventLookahead, answer, answer_in, is_interactive
from loom.cli.shared.renderers import TextRenderer, TurnOutcome, TurnRenderer
from loom.cli.shared.session_options import OutputFormat, renderer_for, target_session
from loom.cli.shared.terminal import ProgressLine, one_line, print_line, sentence
from loom.cli.shared.typed_lines import TypedLines
from loom.content.blocks import ThinkingBlock
from loom.content.messages import Message
from loom.errors import LoomError
from loom.estimates import continuation_label
from loom.events import (
    ApprovalRequested,
    Event,
    MessageStored,
    NoticeRaised,
    StepFinished,
    StepStarted,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    TurnFailed,
    TurnFinished,
)
from loom.models import Usage
from loom.runtime import Runtime
from loom.runtime.session import LocalSession
from loom.session import EventIterator, Session


class TurnHost(Protocol):
    """Where a session runs: in this process or in a daemon."""

    async def model_of(self, session: Session) -> str:
        """Return the reference of the model that the session uses now."""
        ...

    def cost(self, model: str, usage: Usage) -> float | None:
        """Return the price in US dollars, None if it is unknown."""
        ...

    def follow_renditions(self, show: Callable[[str], None] | None) -> None:
        """Call `show` with the rendition in progress; None ends it."""
        ...


class RuntimeHost:
    """The host of sessions in this process."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def model_of(self, session: Session) -> str:
        return self._runtime.models.resolve((await session.info()).model).reference

    def cost(self, model: str, usage: Usage) -> float | None:
        return self._runtime.models.cost_by_name(model, usage)

    def follow_renditions(self, show: Callable[[str], None] | None) -> None:
        self._runtime.library.follow_renditions(show)


class _TurnLog:
    """The results of a turn so far."""

    def __init__(self) -> None:
        self.node = ""
        self.answers: list[Message] = []
        self.notices: list[str] = []
        self.tool_calls = 0
        self.usage = Usage()
        self.estimated_tokens = 0
        self.finished: TurnFinished | None = None
        self.error: LoomError | None = None

    def add(self, event: Event) -> None:
        match event:
            case MessageStored():
                self.node = event.node
                if event.message.role == "assistant":
                    self.answers.append(event.message)
            case NoticeRaised():
                self.notices.append(event.text)
            case ToolStarted():
                self.tool_calls += 1
            case StepStarted():
                self.estimated_tokens += event.tokens
            case StepFinished():
                self.usage += event.usage
            case TurnFinished():
                self.finished = event
                self.usage = event.usage
            case TurnFailed():
                self.error = TurnError(event.code, event.text, hint=event.hint)
            case _:
                pass


async def run_turn(
    host: TurnHost,
    session: Session,
    turn: EventIterator,
    renderer: TurnRenderer,
    *,
    said: str,
    permission: ApprovalMode = "ask",
    answers: Mapping[str, ApprovalReply] | None = None,
    notices: Sequence[str] = (),
    priced: bool = True,
    shows_reasoning: bool = True,
    progress: ProgressLine,
    typed: TypedLines | None = None,
    advise: Callable[[TurnOutcome], Awaitable[Sequence[str]]] | None = None,
) -> TurnOutcome:
    """Show one turn and return its outcome, also if the turn failed.

    `answers` are given in advance, by the id of the approval. Without `priced` the price list is not loaded, which
    takes time. `typed` sends lines that are typed meanwhile; `advise` returns hints to show below the answer.
    """
    model = await host.model_of(session)
    name = model.partition("/")[2]
    began = time.monotonic()
    seen = _TurnLog()
    seen.notices += notices
    await renderer.begin(session.id, model, said)
    progress.show(f"asking {name}")
    host.follow_renditions(progress.show)
    try:
        # Close the turn here, even if a renderer fails: it must not outlive the runtime that it writes to.
        async with aclosing(turn), EventLookahead(turn) as events, typed.reading() if typed else nullcontext():
            async for event in events:
                seen.add(event)
                if typed:
                    typed.note_event(event)
                _follow(progress, event, name, shows_reasoning=shows_reasoning)
                await renderer.event(event)
                if isinstance(event, ApprovalRequested):
                    progress.clear()
                    with typed.step_aside() if typed else nullcontext():
                        await answer_in(events, session, event, permission, (answers or {}).get(event.approval))
    except LoomError as error:
        seen.error = error
    finally:
        host.follow_renditions(None)
        progress.clear()
    outcome = await _outcome(host, session, model, seen, time.monotonic() - began, priced=priced)
    if advise is not None:
        outcome = msgspec.structs.replace(outcome, advice=tuple(await advise(outcome)))
    await renderer.finish(outcome)
    return outcome


def _follow(progress: ProgressLine, event: Event, model: str, *, shows_reasoning: bool) -> None:
    """Show what the turn waits for. Erase the line before text may be written to it."""
    progress.step_aside()
    match event:
        case StepStarted():
            progress.show(f"asking {model}")
        case ToolStarted():
            progress.show(f"running {event.call.name}")
        case ThinkingDelta() if not shows_reasoning:
            progress.show(f"{model} is thinking")
        case ToolFinished() | TextDelta() | ThinkingDelta() | NoticeRaised() | TurnFailed() | TurnFinished():
            progress.clear()
        case _:
            pass


async def _outcome(
    host: TurnHost, session: Session, model: str, seen: _TurnLog, seconds: float, *, priced: bool
) -> TurnOutcome:
    outcome = TurnOutcome(
        session=session.id,
        model=model,
        node=seen.node,
        text=seen.answers[-1].text if seen.answers else "",
        reasoning="\n".join(
            block.text for message in seen.answers for block in message.blocks if isinstance(block, ThinkingBlock)
        ),
        usage=seen.usage,
        estimated_tokens=seen.estimated_tokens,
        usd=host.cost(model, seen.usage) if priced and seen.usage != Usage() else None,
        seconds=seconds,
        tool_calls=seen.tool_calls,
        notices=tuple(seen.notices),
        error=seen.error,
    )
    if seen.finished is None:
        return outcome
    (receipt,) = await session.plan()
    return msgspec.structs.replace(outcome, stop=seen.finished.stop, receipt=receipt)


SHORT_ID = 8


async def answer_pending(runtime: Runtime, speaking: MessageOptions, place: MessageTarget) -> None:
    """Before a new message, answer the pending approvals of the session and continue its turn to the end. Raise
    `LoomError` if there are any and they cannot be answered here."""
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
    (receipt,) = await session.plan()
    if receipt.estimate is not None and receipt.estimate.usd != 0:
        print_line(continuation_label(receipt.estimate))
    if not await runs_elsewhere(runtime, speaking, session):
        outcome = await continue_turn(runtime, speaking, session, beside=not sys.stdout.isatty())
        if outcome.error is not None:
            print_line(sentence(outcome.error))
        return
    for asked in approvals:
        await answer(session, asked, speaking.permission)


async def runs_elsewhere(runtime: Runtime, speaking: MessageOptions, session: LocalSession) -> bool:
    """Return whether another process runs the turn, and no daemon is available to watch it."""
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
    """Show the rest of the turn, which keeps its tools; with `beside`, on stderr."""
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


async def print_last_failure(session: Session) -> None:
    """Print how the last turn ended, unless it finished."""
    failure = (await session.history(limit=1)).failure
    if failure is not None:
        ended = TurnError(failure.code, failure.text, hint=failure.hint)
        print_line(f"The last turn did not finish: {sentence(ended)}")


def approval_line(asked: ApprovalRequested) -> str:
    """Return `3f2a91c0 run_command: rm -rf build`."""
    action, _, _ = asked.action.partition("\n\n(")  # without the note of the sandbox
    return f"{asked.approval[:SHORT_ID]} {one_line(asked.call.name)}: {one_line(action)}"


def _approvals_pending_error(approvals: Sequence[ApprovalRequested]) -> LoomError:
    ids = " ".join(asked.approval[:SHORT_ID] for asked in approvals)
    return LoomError(
        f"Approval pending: {'; '.join(map(approval_line, approvals))}.",
        hint=f"Approve with `loom approve {ids}`, deny with `--deny REASON`; --permission auto|deny answers here.",
    )
