"""The event log of sessions. A stored message is in the log as the id of its node: its content is kept once, in the
forest, and inserted when the log is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

from loom.events import Event, MessageStored, NoticeRaised, encode_event, stored_node_of
from loom.store.events import Events, StoredEvent
from loom.store.forest import Forest
from loom.store.nodes import Node

OnEvents: TypeAlias = Callable[[str, int, Sequence[tuple[str, bytes]]], None]
"""Receives the id of a session, the number of the last event, and the events (type and JSON) that are on disk."""

_LOOKED_BACK: Final = 1_000


class EventLog:
    def __init__(self, events: Events, forest: Forest) -> None:
        self._events = events
        self._forest = forest
        self._subscribers: list[OnEvents] = []

    def subscribe(self, subscriber: OnEvents) -> None:
        """Call `subscriber` with all events that are written in this process."""
        self._subscribers.append(subscriber)

    def unsubscribe(self, subscriber: OnEvents) -> None:
        self._subscribers.remove(subscriber)

    def publish(self, session_id: str, seq: int, events: Sequence[Event]) -> None:
        """Pass stored events to the subscribers."""
        if not events or not self._subscribers:
            return
        encoded = [(event.type, encode_event(event)) for event in events]
        for subscriber in tuple(self._subscribers):
            subscriber(session_id, seq, encoded)

    async def append(self, session_id: str, events: Sequence[Event], *, fence: int | None = None) -> int:
        """Write events; return the number of the last one. `publish` shows them."""
        encoded = [(event.type, encode_event(event, for_log=True)) for event in events]
        return await self._events.append(session_id, encoded, fence=fence)

    async def after(self, session_id: str, seq: int, limit: int = 1000) -> tuple[StoredEvent, ...]:
        """Return the events after number `seq`, in order, with the messages that they refer to."""
        stored = await self._events.after(session_id, seq, limit)
        nodes = {
            event.seq: node
            for event in stored
            if (node := (stored_node_of(event.data) if event.type == "message_stored" else ""))
        }
        if not nodes:
            return stored
        found = await self._forest.nodes(set(nodes.values()))
        return tuple(
            _with_message(event, nodes[event.seq], found.get(nodes[event.seq])) if event.seq in nodes else event
            for event in stored
        )

    async def last_of(self, session_id: str, types: tuple[str, str]) -> StoredEvent | None:
        """Return the newest event of either type, as it is stored."""
        return await self._events.last_of(session_id, types)

    async def since_last(
        self, session_id: str, start: str, types: Sequence[str], *, ends: Sequence[str], until: int
    ) -> tuple[StoredEvent, ...]:
        """Return the events of `types`, up to number `until`, since the last of `ends` before the newest `start`, as
        they are stored."""
        return await self._events.since_last(session_id, start, types, ends=ends, until=until)

    async def head(self, session_id: str) -> int:
        return await self._events.head(session_id)

    async def heads(self, session_ids: Iterable[str]) -> dict[str, int]:
        return await self._events.heads(session_ids)

    async def find_batch(self, session_id: str, batch: Sequence[bytes], after: int) -> int | None:
        """Return the number of the last event of a batch if the log contains it after number `after`, else None. The
        last match counts, because models repeat themselves."""
        if not batch:
            return None
        head = await self._events.head(session_id)
        recent = await self._events.after(session_id, max(after, head - _LOOKED_BACK), _LOOKED_BACK)
        data = [event.data for event in recent]
        for start in range(len(data) - len(batch), -1, -1):
            if data[start : start + len(batch)] == list(batch):
                return recent[start + len(batch) - 1].seq
        return None


def _with_message(event: StoredEvent, node_id: str, node: Node | None) -> StoredEvent:
    if node is None or node.message is None:
        lost = NoticeRaised(text="A stored message of this session cannot be read.", code="message.lost")
        return msgspec.structs.replace(event, type=lost.type, data=encode_event(lost))
    return msgspec.structs.replace(event, data=encode_event(MessageStored(node=node_id, message=node.message)))
