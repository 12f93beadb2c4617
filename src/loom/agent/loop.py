"""The loop: prepare, ask, store, act, again. Every message is on disk before the next step begins."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from loom.agent.ask import Answer, Asking, ask
from loom.agent.calls import Workshop, act
from loom.agent.ports import Provider
from loom.content.blocks import ContentBlock
from loom.content.messages import Message, tool
from loom.context.policy import Known, Placed
from loom.context.prepare import Prepared
from loom.errors import ProviderError, Unavailable
from loom.events import Event, MessageStored, NoticeRaised, StepFinished, TurnFailed, TurnFinished, TurnStarted
from loom.models import Usage


class TurnLimits(msgspec.Struct, frozen=True, kw_only=True):
    steps: int = 50
    seconds: float = 3_600.0


class Turn(msgspec.Struct, kw_only=True):
    """One turn and what it needs from its session."""

    id: str
    asking: Asking
    provider: Provider
    workshop: Workshop
    limits: TurnLimits
    settle: Callable[[Callable[[Known], Prepared]], Awaitable[Prepared]]
    keep: Callable[[bytes], Awaitable[ContentBlock]]
    store: Callable[[Message, Answer | None], Awaitable[Placed]]
    """Writes a message below the head, with what is known of the answer that it came from."""
    remember: Callable[[Asking, Answer], Awaitable[None]]
    """Keeps what the step taught: watermark, quarantine, calibration."""
    usage: Usage = Usage()
    answer: Answer = msgspec.field(default_factory=Answer)


async def run(turn: Turn) -> AsyncIterator[Event]:
    """The events of a turn. It ends with TurnFinished or TurnFailed, whatever happens but cancellation."""
    began = time.monotonic()
    yield TurnStarted(turn=turn.id, model=turn.asking.model.reference)
    for step in range(1, turn.limits.steps + 1):
        try:
            async for event in _step(turn, step):
                yield event
        except ProviderError as error:
            yield TurnFailed(turn=turn.id, code=error.code, text=error.message, hint=error.hint)
            return
        folded = turn.answer.folded
        if turn.answer.error is not None or folded is None or not folded.complete:
            yield _incomplete(turn)
            return
        calls = folded.message.calls if folded.message else ()
        if not calls:
            yield TurnFinished(turn=turn.id, node=turn.asking.path[-1].id, stop=folded.stop, usage=turn.usage)
            return
        acted = await act(calls, turn.workshop, turn.asking.model.capabilities)
        messages = [tool(*acted.results), *([Message("user", acted.injected)] if acted.injected else [])]
        for message in messages:
            yield await _stored(turn, message, None)
        if time.monotonic() - began > turn.limits.seconds:
            break
    text = f"the turn was ended after {turn.limits.steps} steps or {turn.limits.seconds:.0f} seconds"
    yield TurnFailed(turn=turn.id, code="turn.limit", text=text, hint='Say "go on" to continue.')


async def _step(turn: Turn, step: int) -> AsyncIterator[Event]:
    began = time.monotonic()
    turn.answer = Answer()
    async for event in ask(
        turn.asking, turn.answer, step=step, settle=turn.settle, provider=turn.provider, keep=turn.keep
    ):
        yield event
    folded = turn.answer.folded
    if folded is None:
        return
    turn.usage += folded.usage
    await turn.remember(turn.asking, turn.answer)
    if turn.answer.prepared is not None and step == 1:
        for notice in turn.answer.prepared.receipt.notices:
            yield NoticeRaised(text=notice, code="receipt")
    if folded.message is not None:
        yield await _stored(turn, folded.message, turn.answer)
    yield StepFinished(step=step, usage=folded.usage, stop=folded.stop, seconds=time.monotonic() - began)


async def _stored(turn: Turn, message: Message, answer: Answer | None) -> MessageStored:
    placed = await turn.store(message, answer)
    turn.asking.path = (*turn.asking.path, placed)
    return MessageStored(node=placed.id, message=message)


def _incomplete(turn: Turn) -> TurnFailed:
    """What arrived is kept and labelled; it is never taken for an answer, and no half call was run."""
    error = turn.answer.error or Unavailable(
        f"{turn.asking.model.reference}: the answer ended before it was complete",
        hint="What arrived is kept. Try again.",
    )
    return TurnFailed(turn=turn.id, code=error.code, text=error.message, hint=error.hint)
