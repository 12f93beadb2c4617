"""The event sink of a turn: events are stored first and then shown, in the order in which they were emitted.

Events are collected for a moment and written together, so that a fast model does not wait for the disk, and an
interface never shows anything that a restart would lose. Consecutive deltas of one block in a batch become one event in
the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import count, groupby
from math import ceil
from typing import Final

import msgspec

from loom.agent.observer import TurnObserver
from loom.agent.ports import Committed, Completion, SessionRecord
from loom.events import CallDelta, Event, TextDelta, ThinkingDelta
from loom.session import SessionChange

_MAX_PENDING: Final = 200
"""With this many events unwritten, the model waits for the disk."""
_WRITES_PER_SECOND: Final = 30
"""The limit for one turn."""
_TOTAL_WRITES_PER_SECOND: Final = 800
"""The limit for all turns of a process together."""


class WriteBatching:
    """A shared schedule of writes: turns write at the same moments, so that one commit serves all turns that are
    due."""

    def __init__(self) -> None:
        self.running = 0
        """The number of turns that run in this process."""
        self._slots = count()

    def next_slot(self) -> int:
        return next(self._slots)

    def due(self, written: float, slot: int) -> float:
        """Return when to write next after a write at `written`. With very many turns, each is due only at every second
        or third moment."""
        rounds = max(1, ceil(self.running * _WRITES_PER_SECOND / _TOTAL_WRITES_PER_SECOND))
        moment = int(written * _WRITES_PER_SECOND + 0.01) + 1  # 0.01: a moment just reached counts as past
        return (moment + (slot - moment) % rounds) / _WRITES_PER_SECOND


class EventSink:
    """Writes the events of a turn. `observer` receives each event when it is emitted, `show` once it is on disk."""

    def __init__(
        self, record: SessionRecord, show: Callable[[Event], None], batching: WriteBatching, observer: TurnObserver
    ) -> None:
        self._record = record
        self._show = show
        self._observer = observer
        self._batching = batching
        self._slot = batching.next_slot()
        self._pending: list[Event] = []
        self._writer: asyncio.Task[None] | None = None
        self._written = 0.0
        self._hurry = asyncio.Event()
        self._lock = asyncio.Lock()

    async def emit(self, event: Event) -> None:
        """Queue an event. It is written within a moment; this waits only while too many are unwritten."""
        self._observer.observe(event)
        self._pending.append(event)
        self._start_writer()
        if len(self._pending) >= _MAX_PENDING:
            await self.flush()

    async def emit_now(self, event: Event) -> None:
        """Return when the event and all before it are on disk."""
        self._observer.observe(event)
        self._pending.append(event)
        await self.flush()

    async def flush(self) -> None:
        """Return when nothing is unwritten. Cancelling the wait does not cancel the write."""
        while self._pending or self._lock.locked():
            writer = self._start_writer()
            self._hurry.set()
            await asyncio.shield(writer)

    async def commit(
        self,
        change: SessionChange,
        complete: Callable[[tuple[str, ...]], Completion] = lambda _: Completion(),
        then: Callable[[Committed], None] = lambda _: None,
    ) -> Committed:
        """Apply a change of the session, all pending events, and what `complete` returns for the ids of the new nodes,
        in one transaction; call `then` with the outcome. If the caller is cancelled meanwhile, the write still
        finishes, and `then` is called, before this raises `CancelledError`."""
        task = asyncio.ensure_future(self._commit(change, complete, then))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

    async def _commit(
        self,
        change: SessionChange,
        complete: Callable[[tuple[str, ...]], Completion],
        then: Callable[[Committed], None],
    ) -> Committed:
        async with self._lock:
            batch, self._pending = self._pending, []
            shown: list[Event] = []

            def complete_batch(nodes: tuple[str, ...]) -> Completion:
                completion = complete(nodes)
                shown[:] = completion.events
                return msgspec.structs.replace(completion, events=[*join_deltas(batch), *shown])

            try:
                committed = await self._record.commit(change, complete_batch)
            except BaseException:
                self._pending = batch + self._pending
                raise
            if committed.is_gone:
                self._pending = batch + self._pending
                return committed
            self._written = asyncio.get_running_loop().time()
            then(committed)
            for event in shown:
                self._observer.observe(event)
            for event in (*batch, *shown):
                self._show(event)
            return committed

    def show_unstored(self, event: Event) -> None:
        """Show an event that cannot be stored: the store is unavailable, or another process has the session."""
        self._pending.clear()
        self._observer.observe(event)
        self._show(event)

    async def close(self) -> None:
        """End the writer, which may still be waiting for its next moment to write. Flush or commit events before."""
        if self._writer is not None and not self._writer.done():
            self._writer.cancel()
            await asyncio.wait([self._writer])

    def _start_writer(self) -> asyncio.Task[None]:
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_pending())
            self._writer.add_done_callback(_retrieve_exception)
        return self._writer

    async def _write_pending(self) -> None:
        loop = asyncio.get_running_loop()
        while self._pending or self._lock.locked():
            if (due := self._batching.due(self._written, self._slot)) > loop.time():
                timer = loop.call_at(due, self._hurry.set)
                try:
                    await self._hurry.wait()
                finally:
                    timer.cancel()
            self._hurry.clear()
            async with self._lock:
                batch, self._pending = self._pending, []
                if not batch:
                    continue
                try:
                    await self._record.append_events(join_deltas(batch))
                except BaseException:
                    self._pending = batch + self._pending
                    raise
                self._written = loop.time()
                for event in batch:
                    self._show(event)


def join_deltas(events: Iterable[Event]) -> list[Event]:
    """Join consecutive deltas of the same block."""
    runs = [list(run) for _, run in groupby(events, lambda event: (type(event), getattr(event, "index", None)))]
    return [event for run in runs for event in _join(run)]


def _join(run: list[Event]) -> list[Event]:
    match run[0]:
        case TextDelta() | ThinkingDelta() as first if len(run) > 1:
            return [msgspec.structs.replace(first, text="".join(_delta_text(delta) for delta in run))]
        case CallDelta() as first if len(run) > 1:
            return [msgspec.structs.replace(first, arguments="".join(_delta_text(delta) for delta in run))]
        case _:
            return run


def _delta_text(delta: Event) -> str:
    match delta:
        case TextDelta(text=text) | ThinkingDelta(text=text) | CallDelta(arguments=text):
            return text
        case _:
            raise AssertionError("only deltas are joined")


def _retrieve_exception(writer: asyncio.Task[None]) -> None:
    """Mark the writer's exception as retrieved. Events that could not be written stay pending, and the next flush
    raises the error again."""
    if not writer.cancelled():
        writer.exception()
