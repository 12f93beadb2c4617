"""Outbox: events on their way to the record and to whoever watches.

They are written in order, as many at once as have gathered since the last ones were, and shown when they are on disk: a
fast model is not slowed down by the disk, and a face never sees what a restart would not know. Pieces of words that
were gathered are one event on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import count, groupby
from math import ceil
from typing import Final

import msgspec

from loom.events import CallDelta, Event, TextDelta, ThinkingDelta

_GATHERED: Final = 200
"""So many words may wait; then the model waits for the disk."""
_PER_SECOND: Final = 30
"""Writings of one turn while it only talks."""
_WRITINGS_PER_SECOND: Final = 800
"""Of all turns together."""


class Pace:
    """How long words gather: with hundreds of turns that talk at once, each is written down a little less often."""

    def __init__(self) -> None:
        self.running = 0
        """Turns that run in this process."""
        self._places = count()

    def place(self) -> int:
        """For each who writes one of their own."""
        return next(self._places)

    def due(self, written: float, place: int) -> float:
        """When to write again what follows a writing at this time. There are common moments, so that one commit serves
        all who are due; where each of them is due at every third only, a third of them is due at each."""
        rounds = max(1, ceil(self.running * _PER_SECOND / _WRITINGS_PER_SECOND))
        moment = int(written * _PER_SECOND + 0.01) + 1  # a moment that was just reached is over, whatever its digits
        return (moment + (place - moment) % rounds) / _PER_SECOND


class Outbox:
    def __init__(
        self, write: Callable[[Sequence[Event]], Awaitable[object]], show: Callable[[Event], None], pace: Pace
    ) -> None:
        self._write = write
        self._show = show
        self._pace = pace
        self._place = pace.place()
        self._waiting: list[Event] = []
        self._writer: asyncio.Task[None] | None = None
        self._written = 0.0
        self._hurry = asyncio.Event()

    async def put(self, event: Event) -> None:
        """Returns when the event is on disk; for a piece of a model's words at once."""
        self._waiting.append(event)
        if isinstance(event, TextDelta | ThinkingDelta | CallDelta) and len(self._waiting) < _GATHERED:
            self._writing()
        else:
            await self.flush()

    async def flush(self) -> None:
        """Cancelling the wait does not cancel the writing."""
        while self._waiting or (self._writer is not None and not self._writer.done()):
            writing = self._writing()
            self._hurry.set()
            await asyncio.shield(writing)

    def drop(self) -> None:
        """Give up what could not be written."""
        self._waiting.clear()

    def _writing(self) -> asyncio.Task[None]:
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_all())
            self._writer.add_done_callback(_seen)
        return self._writer

    async def _write_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            if (due := self._pace.due(self._written, self._place)) > loop.time():
                timer = loop.call_at(due, self._hurry.set)
                await self._hurry.wait()
                timer.cancel()
            self._hurry.clear()
            batch, self._waiting = self._waiting, []
            try:
                await self._write(joined(batch))
            except BaseException:
                self._waiting = batch + self._waiting
                raise
            self._written = loop.time()
            for event in batch:
                self._show(event)


def joined(events: Iterable[Event]) -> list[Event]:
    """Neighbours that are pieces of one block become one piece."""
    runs = [list(run) for _, run in groupby(events, lambda event: (type(event), getattr(event, "index", None)))]
    return [event for run in runs for event in _whole(run)]


def _whole(run: list[Event]) -> list[Event]:
    match run[0]:
        case TextDelta() | ThinkingDelta() as first if len(run) > 1:
            return [msgspec.structs.replace(first, text="".join(_words(piece) for piece in run))]
        case CallDelta() as first if len(run) > 1:
            return [msgspec.structs.replace(first, arguments="".join(_words(piece) for piece in run))]
        case _:
            return run


def _words(piece: Event) -> str:
    match piece:
        case TextDelta(text=text) | ThinkingDelta(text=text) | CallDelta(arguments=text):
            return text
        case _:
            raise AssertionError("only pieces of words are joined")


def _seen(writer: asyncio.Task[None]) -> None:
    """What failed while nobody waited is still waiting, and fails again for whoever does."""
    if not writer.cancelled():
        writer.exception()
