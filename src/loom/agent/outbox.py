"""Outbox: events on their way to the record and to whoever watches.

They are written in order, as many at once as have gathered while the last ones were written, and shown when they are on
disk: a fast model is not slowed down by the disk, and a face never sees what a restart would not know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from loom.events import CallDelta, Event, TextDelta, ThinkingDelta

_GATHERED: Final = 200
"""So many words may wait; then the model waits for the disk."""


class Outbox:
    def __init__(self, write: Callable[[Sequence[Event]], Awaitable[object]], show: Callable[[Event], None]) -> None:
        self._write = write
        self._show = show
        self._waiting: list[Event] = []
        self._writer: asyncio.Task[None] | None = None

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
            await asyncio.shield(self._writing())

    def drop(self) -> None:
        """Give up what could not be written."""
        self._waiting.clear()

    def _writing(self) -> asyncio.Task[None]:
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_all())
            self._writer.add_done_callback(_seen)
        return self._writer

    async def _write_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                await self._write(batch)
            except BaseException:
                self._waiting = batch + self._waiting
                raise
            for event in batch:
                self._show(event)


def _seen(writer: asyncio.Task[None]) -> None:
    """What failed while nobody waited is still waiting, and fails again for whoever does."""
    if not writer.cancelled():
        writer.exception()
