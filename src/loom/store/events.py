"""Durable events: what a face may have missed. One sequence per session, from 1, without gaps, whatever the clock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import msgspec

from loom.content.blocks import clean_text
from loom.store.database import Database, Row, Transaction, shaped
from loom.store.forest import Clock
from loom.store.nodes import plain_text
from loom.store.session_rows import check_session_id, no_session, taken_over

_TAKE_SEQ: Final = (
    "UPDATE session SET last_seq = last_seq + :count WHERE id = :id"
    " AND (:fence = 0 OR (fence = :fence AND holder <> '')) RETURNING key, last_seq"
)
_INSERT: Final = "INSERT INTO event (session_key, seq, type, data, created_at) VALUES (:key, :seq, :type, :data, :now)"
_SELECT_AFTER: Final = (
    "SELECT e.seq, e.type, e.data FROM event e WHERE e.session_key = :key AND e.seq > :seq ORDER BY e.seq LIMIT :limit"
)
_SELECT_LAST: Final = (
    "SELECT e.seq, e.type, e.data FROM event e WHERE e.session_key = :key"
    " AND e.type IN (:first, :second) ORDER BY e.seq DESC LIMIT 1"
)
_RECORD: Final = "The record of this session"
_SELECT_HEAD: Final = "SELECT key, last_seq FROM session WHERE id = :id"


class StoredEvent(msgspec.Struct, frozen=True):
    """`data` is the event's JSON, as it was given."""

    seq: int
    type: str
    data: bytes


class Events:
    def __init__(self, database: Database, *, clock: Clock = time.time) -> None:
        self._database = database
        self._clock = clock

    async def append(self, session_id: str, events: Sequence[tuple[str, bytes]], *, fence: int | None = None) -> int:
        """Write (type, JSON) pairs in this order, next to each other; gives the sequence number of the last. With the
        `fence` of a lease, only while that holds (else `Conflict`)."""
        now = self._clock()
        rows = [{"type": plain_text(kind, "an event type"), "data": data.decode(), "now": now} for kind, data in events]
        params = {"count": len(rows), "id": check_session_id(session_id), "fence": fence or 0}

        def work(tx: Transaction) -> int:
            taken = tx.execute(_TAKE_SEQ, params)
            if not taken:
                _head(tx, session_id)
                raise taken_over()
            key, last = shaped(taken[0], tuple[int, int], _RECORD)
            first = last - len(rows) + 1
            tx.executemany(_INSERT, [{**row, "key": key, "seq": first + at} for at, row in enumerate(rows)])
            return last

        return await self._database.write(work)

    async def after(self, session_id: str, seq: int, limit: int = 1000) -> tuple[StoredEvent, ...]:
        """The events that follow number `seq`, in order."""
        check_session_id(session_id)

        def work(tx: Transaction) -> tuple[StoredEvent, ...]:
            key, _ = _head(tx, session_id)
            found = tx.execute(_SELECT_AFTER, {"key": key, "seq": seq, "limit": limit})
            return tuple(_event_of(row) for row in found)

        return await self._database.read(work)

    async def last_of(self, session_id: str, types: tuple[str, str]) -> StoredEvent | None:
        """The newest event of either type."""
        check_session_id(session_id)

        def work(tx: Transaction) -> StoredEvent | None:
            key, _ = _head(tx, session_id)
            rows = tx.execute(_SELECT_LAST, {"key": key, "first": types[0], "second": types[1]})
            return _event_of(rows[0]) if rows else None

        return await self._database.read(work)

    async def head(self, session_id: str) -> int:
        """The number of the last event; 0 where there is none yet."""
        check_session_id(session_id)
        return await self._database.read(lambda tx: _head(tx, session_id)[1])


def _head(tx: Transaction, session_id: str) -> tuple[int, int]:
    rows = tx.execute(_SELECT_HEAD, {"id": session_id})
    if not rows:
        raise no_session()
    return shaped(rows[0], tuple[int, int], _RECORD)


def _event_of(row: Row) -> StoredEvent:
    seq, kind, text = shaped(row, tuple[int, str, str], f"Event {row[0]!r} of this session")
    return StoredEvent(seq, clean_text(kind), clean_text(text).encode())
