"""Events that are heard before their turn: while a person is asked here, somebody else may answer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from loom.events import ApprovalAnswered, Event, TurnFailed, TurnFinished
from loom.session import EventIterator

T = TypeVar("T")


class EventLookahead:
    """The events of a turn, one by one. Use it inside the `async with` that closes them."""

    def __init__(self, events: EventIterator) -> None:
        self._events = events
        self._held: deque[Event] = deque()
        self._coming: asyncio.Task[Event | None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._coming is not None:
            await _cancel_task(self._coming)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._held:
            return self._held.popleft()
        if self._coming is None:
            return await anext(self._events)
        coming, self._coming = self._coming, None
        event = await coming
        if event is None:
            raise StopAsyncIteration
        return event

    async def wait_for_answer(self, asking: Coroutine[Any, Any, T], approval: str) -> T | None:
        """Wait for an answer that is asked for here; None where one came from elsewhere first. What happens meanwhile
        is told afterwards."""
        answering = asyncio.create_task(asking)
        try:
            while not answering.done():
                coming = self._coming = self._coming or asyncio.create_task(_next(self._events))
                await asyncio.wait([answering, coming], return_when=asyncio.FIRST_COMPLETED)
                if answering.done() or not coming.done():
                    continue
                event = coming.result()
                if event is None:
                    return None
                self._coming = None
                self._held.append(event)
                if isinstance(event, TurnFinished | TurnFailed):
                    return None
                if isinstance(event, ApprovalAnswered) and event.approval == approval:
                    return None
            return await answering
        finally:
            if not answering.done():
                await _cancel_task(answering)


async def _next(events: EventIterator) -> Event | None:
    return await anext(events, None)


async def _cancel_task(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])
