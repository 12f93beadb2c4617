"""One turn on the command line: say something, show what happens, and tell what came of it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing

import msgspec

from loom.agent.session import LocalSession
from loom.cli.shared.approval_prompt import ApprovalMode, ApprovalReply, EventLookahead, answer_in
from loom.cli.shared.exit_codes import TurnError
from loom.cli.shared.renderers import TurnOutcome, TurnRenderer
from loom.cli.shared.terminal import ProgressLine
from loom.client import RemoteSession
from loom.content.blocks import ThinkingBlock
from loom.content.messages import Message
from loom.errors import LoomError
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
from loom.session import EventIterator


class _Seen:
    """What a turn has shown so far."""

    def __init__(self) -> None:
        self.node = ""
        self.answers: list[Message] = []
        self.notices: list[str] = []
        self.tool_calls = 0
        self.usage = Usage()
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
    runtime: Runtime,
    session: LocalSession | RemoteSession,
    turn: EventIterator,
    face: TurnRenderer,
    *,
    said: str,
    permission: ApprovalMode = "ask",
    answers: Mapping[str, ApprovalReply] | None = None,
    notices: Sequence[str] = (),
    priced: bool = True,
    shows_reasoning: bool = True,
    progress: ProgressLine,
    advise: Callable[[TurnOutcome], Awaitable[Sequence[str]]] | None = None,
) -> TurnOutcome:
    """Show one turn. A turn that fails is an outcome, too; only a bug or an interruption leaves by exception.

    `answers` are those that were given in advance, by the name of the approval. `priced` False spares the time to load
    the price list where nobody reads the price.
    """
    model = runtime.model((await runtime.sessions.get(session.id)).model)
    began = time.monotonic()
    seen = _Seen()
    seen.notices += notices
    await face.begin(session.id, model.reference, said)
    progress.show(f"asking {model.name}")
    runtime.renditions.on_progress = progress.show
    try:
        # Closed here and now, also when a face fails: a turn must not outlive the runtime that it writes to.
        async with aclosing(turn), EventLookahead(turn) as events:
            async for event in events:
                seen.add(event)
                _follow(progress, event, model.name, shows_reasoning=shows_reasoning)
                await face.event(event)
                if isinstance(event, ApprovalRequested):
                    progress.clear()
                    await answer_in(events, session, event, permission, (answers or {}).get(event.approval))
    except LoomError as error:
        seen.error = error
    finally:
        runtime.renditions.on_progress = None
        progress.clear()
    outcome = await _outcome(runtime, session, seen, time.monotonic() - began, priced=priced)
    if advise is not None:
        outcome = msgspec.structs.replace(outcome, advice=tuple(await advise(outcome)))
    await face.finish(outcome)
    return outcome


def _follow(progress: ProgressLine, event: Event, model: str, *, shows_reasoning: bool) -> None:
    """What is waited for now. Nothing stays drawn where words may be about to be written."""
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
    runtime: Runtime, session: LocalSession | RemoteSession, seen: _Seen, seconds: float, *, priced: bool
) -> TurnOutcome:
    stored = await runtime.sessions.get(session.id)
    model = runtime.model(stored.model)
    outcome = TurnOutcome(
        session=session.id,
        model=model.reference,
        node=seen.node,
        text=seen.answers[-1].text if seen.answers else "",
        reasoning="\n".join(
            block.text for said in seen.answers for block in said.blocks if isinstance(block, ThinkingBlock)
        ),
        usage=seen.usage,
        usd=runtime.cost(model, seen.usage) if priced and seen.usage != Usage() else None,
        seconds=seconds,
        tool_calls=seen.tool_calls,
        notices=tuple(seen.notices),
        error=seen.error,
    )
    if seen.finished is None:
        return outcome
    (receipt,) = await session.plan()
    return msgspec.structs.replace(outcome, stop=seen.finished.stop, receipt=receipt)
