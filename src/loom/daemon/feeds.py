"""Feeds: the watchers of sessions. Nothing is sent before it is on disk.

Each watched session has one reader, for any number of watchers. It reads at most thirty times a second, so that deltas
are joined, and caches the last envelopes. Events that this process wrote are passed to it directly, others are read
from the store.

A watcher has no queue, only a position in the sequence. It takes the next envelopes when it is ready for them: from the
cache or, if it is late, from the store. So a stalled watcher delays no other and uses almost no memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from loom.daemon.background_tasks import start_task
from loom.daemon.bus import Bus, BusMessage
from loom.daemon.envelopes import Composer, EncodedEnvelope
from loom.daemon.previews import Previews
from loom.daemon.problems import Draining
from loom.errors import LoomError, NotFound
from loom.runtime import Runtime
from loom.runtime.dispatch import Dispatch
from loom.store.events import StoredEvent

PER_SECOND: Final = 30
"""The maximum reads per second of one session."""
READINGS_PER_SECOND: Final = 1_000
"""The maximum reads per second of all sessions together."""
AT_HAND: Final = 500
AT_HAND_BYTES: Final = 500_000
PAGE: Final = 200
"""The maximum events per read."""
TAKEN: Final = 5
"""The maximum envelopes that a watcher takes at once."""
TAKEN_BYTES: Final = 100_000
"""The maximum bytes that a watcher takes at once, but at least one envelope: fifty stalled watchers hold this much
each."""
LATE_PAGE: Final = 20
"""The events of the first read for a watcher that is late."""
SERVED_AT_ONCE: Final = 4
"""The number of watchers that are sent something in one iteration of the event loop."""
LOOK_SECONDS: Final = 1.0
"""How often the store is polled while bus messages may be lost: the bus is down, or another program writes to the same
file."""
LOOK_SELDOM_SECONDS: Final = 5.0


class Feed:
    """The reader of one watched session."""

    def __init__(
        self, dispatch: Dispatch, previews: Previews, session_id: str, seq: int, pause_seconds: Callable[[], float]
    ) -> None:
        """`pause_seconds` returns the pause between two reads, in which deltas accumulate."""
        self.watchers = 0
        self.seq = seq
        """The number of the last event that was read."""
        self._dispatch = dispatch
        self._previews = previews
        self._composer = Composer(dispatch, previews, session_id)
        self._id = session_id
        self._known = seq
        self._pause_seconds = pause_seconds
        self._handed: deque[StoredEvent] = deque()
        """Events that this process wrote and that are not read yet, without a gap."""
        self._at_hand: deque[EncodedEnvelope] = deque()
        self._at_hand_bytes = 0
        self._news = asyncio.Event()
        self._moved = asyncio.Event()
        self._is_over = False
        self._late = asyncio.Lock()
        self._late_page = LATE_PAGE
        self._error: LoomError | None = None
        self._reader = start_task(self._read_on(), "reading the events of a session")

    def on_bus_message(self, seq: int) -> None:
        """Note that there are events up to `seq`."""
        if seq > self._known:
            self._known = seq
            self._news.set()

    def deliver(self, events: Sequence[StoredEvent]) -> None:
        """Pass events that are already on disk, so that they need not be read from there."""
        if self._handed and self._handed[-1].seq + 1 != events[0].seq:
            self._handed.clear()
        self._handed.extend(events)
        if len(self._handed) > AT_HAND:
            self._handed.clear()
        self.on_bus_message(events[-1].seq)

    def end(self, error: LoomError | None = None) -> None:
        """End the feed; raise `error`, if any, in the waiting watchers."""
        self._is_over, self._error = True, error
        self._reader.cancel()
        self._moved.set()

    async def after(self, seq: int) -> list[EncodedEnvelope]:
        """Return the envelopes after `seq`, as soon as there are some; empty when the feed has ended."""
        while seq >= self.seq:
            if self._error is not None:
                raise self._error
            if self._is_over:
                return []
            await self._moved.wait()
        return self._cached_after(seq) or await self._read_late(seq)

    async def _read_late(self, seq: int) -> list[EncodedEnvelope]:
        """Return envelopes from the store. Only one watcher reads at a time; pages are smaller where events are
        large."""
        async with self._late:
            stored = await self._dispatch.events.after(self._id, seq, self._late_page)
            found = await Composer(self._dispatch, self._previews, self._id).compose(stored)
            taken = _first_bytes(found)
            is_whole = len(taken) == len(found)
            self._late_page = min(PAGE, self._late_page * 2) if is_whole else max(1, self._late_page // 2)
        return taken

    def _cached_after(self, seq: int) -> list[EncodedEnvelope]:
        """Return cached envelopes after `seq`; empty if no cached envelope begins there."""
        found: list[EncodedEnvelope] = []
        for envelope in reversed(self._at_hand):
            if envelope.first <= seq:
                break
            found.append(envelope)
        found.reverse()
        return _first_bytes(found[:TAKEN]) if found and found[0].first == seq + 1 else []

    async def _read_on(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self.seq < self._known:
                try:
                    await self._read()
                except NotFound as error:
                    self.end(error)
                except LoomError:  # the store is unavailable
                    await asyncio.sleep(LOOK_SECONDS)
                await asyncio.sleep(self._pause_seconds())

    async def _read(self) -> None:
        known = self._known
        stored = self._take_pending() or await self._dispatch.events.after(self._id, self.seq, PAGE)
        if not stored:
            if self._known == known:  # announced, but not in the store
                self._known = self.seq
            return
        for envelope in await self._composer.compose(stored):
            self._at_hand.append(envelope)
            self._at_hand_bytes += len(envelope.json)
        while len(self._at_hand) > AT_HAND or self._at_hand_bytes > AT_HAND_BYTES:
            self._at_hand_bytes -= len(self._at_hand.popleft().json)
        self.seq = stored[-1].seq
        self._moved.set()
        self._moved = asyncio.Event()

    def _take_pending(self) -> Sequence[StoredEvent]:
        """Return the events that were passed directly, if they are the next ones."""
        handed = self._handed
        while handed and handed[0].seq <= self.seq:
            handed.popleft()
        if not handed or handed[0].seq != self.seq + 1:
            return ()
        return [handed.popleft() for _ in range(min(PAGE, len(handed)))]


def _first_bytes(envelopes: list[EncodedEnvelope]) -> list[EncodedEnvelope]:
    """Return the first envelopes of at most `TAKEN_BYTES` in total, but at least one."""
    left = TAKEN_BYTES
    for at, envelope in enumerate(envelopes):
        left -= len(envelope.json)
        if left < 0:
            return envelopes[: max(1, at)]
    return envelopes


class Watch:
    """A position in a session's sequence of events."""

    def __init__(self, feed: Feed, seq: int) -> None:
        self.seq = seq
        """The number of the last event that was returned."""
        self.head = feed.seq
        """The number of the session's last event when the watch began."""
        self._feed = feed

    async def take(self) -> list[EncodedEnvelope]:
        """Return the next envelopes, waiting until there are some; empty when the daemon stops. Raise `NotFound` if the
        session was deleted. A cancelled call loses nothing."""
        page = await self._feed.after(self.seq)
        if page:
            self.seq = page[-1].seq
        return page


class Feeds:
    def __init__(self, runtime: Runtime, bus: Bus) -> None:
        self.previews = Previews(runtime.library.forms)
        self.on_stop: list[Callable[[], Awaitable[None]]] = []
        self._dispatch = runtime.dispatch
        self._bus = bus
        self._feeds: dict[str, Feed] = {}
        self._served = asyncio.Semaphore(SERVED_AT_ONCE)
        self._looker: asyncio.Task[None] | None = None
        self._next_look = 0.0
        self._is_stopped = False

    @property
    def watcher_count(self) -> int:
        return sum(feed.watchers for feed in self._feeds.values())

    async def start(self) -> None:
        self._dispatch.events.subscribe(self._deliver_events)
        self._bus.listeners.append(self._on_bus_message)
        self._looker = start_task(self._look_on(), "polling for events")

    async def stop(self) -> None:
        """End every watch, then call the `on_stop` handlers."""
        self._is_stopped = True
        self.end_all()
        while self.on_stop:
            await self.on_stop.pop()()
        if self._looker is not None:
            self._looker.cancel()
            await asyncio.gather(self._looker, return_exceptions=True)
            self._bus.listeners.remove(self._on_bus_message)
            self._dispatch.events.unsubscribe(self._deliver_events)
            self._looker = None

    async def turn(self) -> None:
        """Wait before sending a few envelopes, or one with bytes. This splits sending to a hundred watchers into many
        short rounds, so that other requests to the daemon wait for only one of them."""
        async with self._served:
            await asyncio.sleep(0)

    def end_all(self) -> None:
        """End all watches: clients have to reconnect and authenticate again."""
        for feed in self._feeds.values():
            feed.end()
        self._feeds.clear()

    @asynccontextmanager
    async def watch(self, session_id: str, after: int | None = 0) -> AsyncGenerator[Watch]:
        """Watch the events after number `after`; None means from now on. Raise `Draining` once the daemon stops: a
        client that reconnects then reaches another one, or waits."""
        if self._is_stopped:
            raise Draining("The daemon is stopping.", hint="Reconnect in a moment.")
        head = await self._dispatch.events.head(session_id)
        feed = self._feeds.get(session_id)
        if feed is None:
            feed = Feed(self._dispatch, self.previews, session_id, head, self._pause_seconds)
            self._feeds[session_id] = feed
        feed.on_bus_message(head)
        feed.watchers += 1
        try:
            yield Watch(feed, head if after is None else max(0, min(after, head)))
        finally:
            feed.watchers -= 1
            if not feed.watchers:
                feed.end()
                if self._feeds.get(session_id) is feed:
                    del self._feeds[session_id]

    def _pause_seconds(self) -> float:
        """Return the pause between two reads; it grows with the number of watched sessions."""
        return max(1 / PER_SECOND, len(self._feeds) / READINGS_PER_SECOND)

    def _deliver_events(self, session_id: str, seq: int, events: Sequence[tuple[str, bytes]]) -> None:
        if feed := self._feeds.get(session_id):
            first = seq - len(events) + 1
            feed.deliver([StoredEvent(first + at, kind, data) for at, (kind, data) in enumerate(events)])

    def _on_bus_message(self, message: BusMessage) -> None:
        match message.what:
            case "events" if feed := self._feeds.get(message.session):
                feed.on_bus_message(message.seq)
            case "deleted" if feed := self._feeds.get(message.session):
                feed.end(_session_deleted())
            case "all":
                self._next_look = 0.0
            case _:
                pass

    async def _look_on(self) -> None:
        """Poll the store for events that the bus did not announce."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._bus.is_shared and self._bus.is_up and loop.time() < self._next_look:
                continue
            self._next_look = loop.time() + LOOK_SELDOM_SECONDS
            if self._feeds:
                await self._look()

    async def _look(self) -> None:
        """Read the last event numbers of the watched sessions from the store."""
        watched = list(self._feeds.items())
        try:
            heads = await self._dispatch.events.heads(session_id for session_id, _ in watched)
        except LoomError:  # the store is unavailable: a later poll finds the events
            return
        for session_id, feed in watched:
            if session_id in heads:
                feed.on_bus_message(heads[session_id])
            else:
                feed.end(_session_deleted())


def _session_deleted() -> NotFound:
    return NotFound("This session was deleted.")
