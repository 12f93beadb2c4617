"""The loop: prepare, ask, store, act, again. Every message is on disk before the next step begins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec

from loom.agent.ask import Answer, Desk, ask
from loom.agent.calls import Acted, Workshop, act, act_on, interrupted_results
from loom.agent.failures import failed
from loom.agent.mend import Asking
from loom.content.blocks import ToolResult
from loom.content.messages import Message, tool
from loom.context.policy import Placed
from loom.errors import LoomError, Unavailable
from loom.events import (
    Event,
    MessageStored,
    NoticeRaised,
    StepFinished,
    StepStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from loom.models import Usage

T = TypeVar("T")


class TurnLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Where a turn ends, finished or not. The time in which a person is asked does not count."""

    steps: int = 50
    seconds: float = 3_600.0
    usd: float | None = None


class Turn(msgspec.Struct, kw_only=True):
    """One turn and what it needs from its session."""

    id: str
    asking: Asking
    desk: Desk
    workshop: Workshop
    limits: TurnLimits
    store: Callable[[Sequence[Message], Answer | None], Awaitable[Sequence[Placed]]]
    """Writes messages below the head, all or none, with what is known of the answer that they came from."""
    remember: Callable[[Asking, Answer], Awaitable[None]]
    """Keeps what the step taught: watermark, quarantine, calibration, lessons."""
    price: Callable[[Usage], float | None]
    usage: Usage = Usage()
    steps: int = 0
    answer: Answer = msgspec.field(default_factory=Answer)
    told: set[str] = msgspec.field(default_factory=set[str])
    message: str = ""
    """The id that the message had in the queue, where it waited there."""
    waiting: frozenset[str] | None = None
    """Of a turn that is taken up again at the calls that end its path: those of them that have not begun."""
    done: Mapping[str, ToolResult] = msgspec.field(default_factory=dict[str, ToolResult])
    """And what those gave that had ended."""


async def run(turn: Turn) -> AsyncGenerator[Event]:
    """The events of a turn. It ends with TurnFinished or TurnFailed, whatever happens but cancellation."""
    if turn.waiting is None:
        yield TurnStarted(turn=turn.id, model=turn.asking.model.reference, message=turn.message)
    try:
        async with aclosing(_steps(turn)) as events:
            async for event in events:
                yield event
    except LoomError as error:
        yield failed(turn.id, error)


async def _steps(turn: Turn) -> AsyncGenerator[Event]:
    if turn.waiting is not None:
        calls = turn.asking.path[-1].message.calls
        acted = await act_on(calls, turn.waiting, turn.done, turn.workshop, turn.asking.model.capabilities)
        for event in await _answered(turn, acted):
            yield event
    while not (limit := _reached(turn)):
        turn.steps += 1
        async with aclosing(_step(turn)) as events:
            async for event in events:
                yield event
        folded = turn.answer.folded
        calls = folded.message.calls if folded is not None and folded.message is not None else ()
        if turn.answer.error is not None or folded is None or not folded.complete:
            for event in await stored(turn, [interrupted_results(calls, {})] if calls else []):
                yield event
            raise turn.answer.error or _incomplete(turn)
        if not calls:
            yield TurnFinished(turn=turn.id, node=turn.asking.path[-1].id, stop=folded.stop, usage=turn.usage)
            return
        for event in await _answered(turn, await act(calls, turn.workshop, turn.asking.model.capabilities)):
            yield event
    yield ended(turn, limit)


def _reached(turn: Turn) -> str:
    """The limit that lets it take no further step, if any."""
    limits = turn.limits
    if limits.usd is not None and (turn.price(turn.usage) or 0.0) > limits.usd:
        return f"${limits.usd:g}"
    if turn.steps < limits.steps:
        return ""
    return "1 step" if limits.steps == 1 else f"{limits.steps} steps"


async def _answered(turn: Turn, acted: Acted) -> list[Event]:
    injected = [Message("user", acted.injected)] if acted.injected else []
    return await stored(turn, [tool(*acted.results), *injected])


async def _step(turn: Turn) -> AsyncGenerator[Event]:
    step = turn.steps
    began = time.monotonic()
    answer = turn.answer = Answer()
    try:
        async with aclosing(ask(turn.asking, answer, turn.desk, step=step)) as events:
            async for event in events:
                yield event
                for notice in _news(turn) if isinstance(event, StepStarted) else ():
                    yield NoticeRaised(text=notice, code="receipt")
    except LoomError:
        await turn.remember(turn.asking, answer)
        raise
    await turn.remember(turn.asking, answer)
    folded = answer.folded
    if folded is None:
        return
    turn.usage += folded.usage
    answer.seconds = time.monotonic() - began
    for event in await stored(turn, [folded.message] if folded.message is not None else [], answer):
        yield event
    yield StepFinished(step=step, usage=folded.usage, stop=folded.stop, seconds=answer.seconds)


async def stored(turn: Turn, messages: Sequence[Message], answer: Answer | None = None) -> list[Event]:
    """Write them, and give the events that say so."""
    if not messages:
        return []
    placed = await finished(_write(turn, messages, answer))
    return [MessageStored(node=found.id, message=found.message) for found in placed]


async def finished(writing: Coroutine[Any, Any, T]) -> T:
    """Write to the end, also where the turn is cancelled meanwhile: whoever ends it must know what is on disk."""
    task = asyncio.create_task(writing)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def _write(turn: Turn, messages: Sequence[Message], answer: Answer | None) -> Sequence[Placed]:
    placed = await turn.store(messages, answer)
    turn.asking.path = (*turn.asking.path, *placed)
    if answer is not None:
        answer.is_stored = True
    return placed


def _news(turn: Turn) -> list[str]:
    """Each notice once a turn, and what the model cannot see only once, however many pictures tools show it."""
    if turn.answer.prepared is None:
        return []
    receipt = turn.answer.prepared.receipt
    unseen = f"{receipt.model} gets "
    news: list[str] = []
    for notice in receipt.notices:
        known = unseen if notice.startswith(unseen) else notice
        if known not in turn.told:
            turn.told.add(known)
            news.append(notice)
    return news


def ended(turn: Turn, limit: str) -> TurnFailed:
    text = f"the turn was ended after {limit}"
    return TurnFailed(turn=turn.id, code="turn.limit", text=text, hint='Say "go on" to continue.')


def _incomplete(turn: Turn) -> Unavailable:
    """What arrived is kept and labelled; it is never taken for an answer, and no half call was run."""
    return Unavailable(
        f"{turn.asking.model.reference}: the answer ended before it was complete",
        hint="What arrived is kept. Try again.",
    )
