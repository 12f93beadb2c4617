"""Durable events, for interfaces that reconnect. Each session has one sequence, from 1, without gaps, independent of
the clock."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import msgspec

from loom.content.blocks import clean_text
from loom.errors import Conflict, ContentError, Corrupt, LoomError
from loom.store.batcher import Batcher
from loom.store.database import (
    MAX_NUMBER,
    Database,
    Params,
    Row,
    Transaction,
    checked_limit,
    execute_rows,
    row_as,
    rows_among,
)
from loom.store.forest import Clock
from loom.store.nodes import plain_text
from loom.store.session_rows import check_session_id, lease_lost, session_not_found

EncodedEvents: TypeAlias = Sequence[tuple[str, bytes]]
"""(type, JSON) pairs."""

_TAKE_SEQS: Final = (
    "UPDATE session SET last_seq = last_seq + w.column2 FROM (VALUES {}) AS w WHERE session.id = w.column1"
    " AND (w.column3 = 0 OR (session.fence = w.column3 AND session.holder <> '')) RETURNING session.id, key, last_seq"
)
_SELECT_SEQ: Final = "SELECT last_seq FROM session WHERE key = :key"
_TAKE_SEQS_OF_ONE: Final = "UPDATE session SET last_seq = last_seq + :count WHERE key = :key RETURNING last_seq"
_INSERT_EVENTS: Final = "INSERT INTO event (session_key, seq, type, data, created_at) VALUES {}"
_EXISTING: Final = "SELECT id FROM session WHERE id"
_SELECT_AFTER: Final = (
    "SELECT e.seq, e.type, e.data FROM event e WHERE e.session_key = :key AND e.seq > :seq ORDER BY e.seq LIMIT :limit"
)
_SELECT_LAST: Final = (
    "SELECT e.seq, e.type, e.data FROM event e WHERE e.session_key = :key"
    " AND e.type IN (:first, :second) ORDER BY e.seq DESC LIMIT 1"
)
_SELECT_NEWEST: Final = (
    "SELECT e.seq FROM event e WHERE e.session_key = :key AND e.seq <= :until AND e.type IN ({})"
    " ORDER BY e.seq DESC LIMIT 1"
)
_SELECT_SINCE: Final = (
    "SELECT e.seq, e.type, e.data FROM event e WHERE e.session_key = :key AND e.seq > :seq AND e.seq <= :until"
    " AND e.type IN ({}) ORDER BY e.seq"
)
_RECORD: Final = "The record of this session"
_SELECT_HEAD: Final = "SELECT key, last_seq FROM session WHERE id = :id"
_SELECT_HEADS: Final = "SELECT id, last_seq FROM session WHERE id"


class StoredEvent(msgspec.Struct, frozen=True):
    """`data` is the event's JSON, byte for byte as it was appended."""

    seq: int
    type: str
    data: bytes


class _Batch(msgspec.Struct, frozen=True):
    """The (type, JSON) pairs that one call appends to a session; `fence` is 0 without a lease."""

    session_id: str
    fence: int
    rows: tuple[tuple[str, str], ...]


def last_number(tx: Transaction, session_key: int) -> int:
    """Return the number of a session's last event; 0 if there is none."""
    ((last,),) = tx.execute(_SELECT_SEQ, {"key": session_key})
    return int(last)


def append_events(tx: Transaction, session_key: int, events: EncodedEvents, now: float) -> int:
    """Append events inside a transaction that has locked the session; return the number of the last event."""
    if not events:
        return last_number(tx, session_key)
    ((last,),) = tx.execute(_TAKE_SEQS_OF_ONE, {"key": session_key, "count": len(events)})
    rows: list[Params] = [
        {
            "key": session_key,
            "seq": seq,
            "type": plain_text(kind, "an event type"),
            "data": event_json(data),
            "now": now,
        }
        for seq, (kind, data) in enumerate(events, int(last) - len(events) + 1)
    ]
    execute_rows(tx, _INSERT_EVENTS, rows)
    return int(last)


class Events:
    def __init__(self, database: Database, *, clock: Clock = time.time) -> None:
        self._database = database
        self._clock = clock
        self._appending = Batcher(self._append_all)

    async def append(self, session_id: str, events: Sequence[tuple[str, bytes]], *, fence: int | None = None) -> int:
        """Append (type, JSON) pairs with consecutive sequence numbers; return the number of the last. With the `fence`
        of a lease, raise `Conflict` if the lease was lost."""
        rows = tuple((plain_text(kind, "an event type"), event_json(data)) for kind, data in events)
        last = await self._appending.submit(_Batch(check_session_id(session_id), fence or 0, rows))
        if isinstance(last, LoomError):
            raise last
        return last

    async def _append_all(self, batches: Sequence[_Batch]) -> list[int | LoomError]:
        """Append the batches of many sessions in few statements: each statement costs a thread switch, which is slower
        than the write itself. Return the last number or the error of each batch; one damaged session fails only its
        own batch."""
        try:
            return await self._append_at_once(batches)
        except (Conflict, Corrupt) as error:
            if len(batches) == 1:
                return [error]
            return [last for batch in batches for last in await self._append_all([batch])]

    async def _append_at_once(self, batches: Sequence[_Batch]) -> list[int | LoomError]:
        now = self._clock()

        def work(tx: Transaction) -> list[int | LoomError]:
            written: dict[int, int | LoomError] = {}
            for part in _rounds(batches):
                taken = _reserve_numbers(tx, [batches[at] for at in part])
                rows: list[Params] = []
                for at in part:
                    batch = batches[at]
                    if batch.session_id not in taken:
                        written[at] = (
                            lease_lost() if rows_among(tx, _EXISTING, [batch.session_id]) else session_not_found()
                        )
                        continue
                    key, last = taken[batch.session_id]
                    written[at] = last
                    rows += [
                        {"key": key, "seq": seq, "type": kind, "data": data, "now": now}
                        for seq, (kind, data) in enumerate(batch.rows, last - len(batch.rows) + 1)
                    ]
                execute_rows(tx, _INSERT_EVENTS, rows)
            return [written[at] for at in range(len(batches))]

        return await self._database.write(work)

    async def after(self, session_id: str, seq: int, limit: int = 1000) -> tuple[StoredEvent, ...]:
        """Return up to `limit` events with a higher number than `seq`, in order."""
        check_session_id(session_id)
        bounds = {"seq": min(max(seq, 0), MAX_NUMBER), "limit": checked_limit(limit)}

        def work(tx: Transaction) -> tuple[StoredEvent, ...]:
            key, _ = _head(tx, session_id)
            found = tx.execute(_SELECT_AFTER, {"key": key, **bounds})
            return tuple(_event_of(row) for row in found)

        return await self._database.read(work)

    async def last_of(self, session_id: str, types: tuple[str, str]) -> StoredEvent | None:
        """Return the newest event of one of these two types; None if there is none."""
        check_session_id(session_id)

        def work(tx: Transaction) -> StoredEvent | None:
            key, _ = _head(tx, session_id)
            rows = tx.execute(_SELECT_LAST, {"key": key, "first": types[0], "second": types[1]})
            return _event_of(rows[0]) if rows else None

        return await self._database.read(work)

    async def since_last(
        self, session_id: str, start: str, types: Sequence[str], *, ends: Sequence[str], until: int
    ) -> tuple[StoredEvent, ...]:
        """Return the events of `types` that belong to what began last, in order: those after the last of `ends` that
        came before the newest event of type `start`. Only events up to number `until` count."""
        check_session_id(session_id)

        def work(tx: Transaction) -> tuple[StoredEvent, ...]:
            key, _ = _head(tx, session_id)
            began = _newest(tx, key, (start,), until)
            seq = _newest(tx, key, ends, began - 1)
            names, params = _type_params(types)
            rows = tx.execute(_SELECT_SINCE.format(names), {"key": key, "seq": seq, "until": until, **params})
            return tuple(_event_of(row) for row in rows)

        return await self._database.read(work) if types else ()

    async def head(self, session_id: str) -> int:
        """Return the number of the last event; 0 if there is none yet."""
        check_session_id(session_id)
        return await self._database.read(lambda tx: _head(tx, session_id)[1])

    async def heads(self, session_ids: Iterable[str]) -> dict[str, int]:
        """Return the number of the last event of each session that exists; 0 if there is none or the session's record
        is damaged."""
        ids = [check_session_id(session_id) for session_id in session_ids]
        rows = await self._database.read(lambda tx: rows_among(tx, _SELECT_HEADS, ids))
        return {session_id: seq if isinstance(seq, int) else 0 for session_id, seq in rows}


def event_json(data: bytes) -> str:
    if b"\0" in data:  # not allowed in PostgreSQL text, and always escaped in JSON
        raise ContentError("An event must be JSON, which has no NUL byte")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ContentError("An event must be JSON in UTF-8") from None


def _rounds(batches: Sequence[_Batch]) -> list[list[int]]:
    """Group the indexes of `batches` so that no group holds the same session twice."""
    rounds: list[list[int]] = []
    known: list[set[str]] = []
    for at, batch in enumerate(batches):
        number = next((number for number, ids in enumerate(known) if batch.session_id not in ids), None)
        if number is None:
            number = len(rounds)
            rounds.append([])
            known.append(set())
        rounds[number].append(at)
        known[number].add(batch.session_id)
    return rounds


def _reserve_numbers(tx: Transaction, batches: Sequence[_Batch]) -> dict[str, tuple[int, int]]:
    """Reserve sequence numbers. Return, by session id, the session's key and the last number reserved. A session that
    does not exist or whose lease was lost is left out."""
    counts = [{"id": batch.session_id, "count": len(batch.rows), "fence": batch.fence} for batch in batches]
    rows = [row_as(row, tuple[str, int, int], _RECORD) for row in execute_rows(tx, _TAKE_SEQS, counts)]
    return {session_id: (key, last) for session_id, key, last in rows}


def _head(tx: Transaction, session_id: str) -> tuple[int, int]:
    rows = tx.execute(_SELECT_HEAD, {"id": session_id})
    if not rows:
        raise session_not_found()
    return row_as(rows[0], tuple[int, int], _RECORD)


def _newest(tx: Transaction, key: int, types: Sequence[str], until: int) -> int:
    """Return the number of the newest event of these types up to number `until`; 0 if there is none."""
    names, params = _type_params(types)
    rows = tx.execute(_SELECT_NEWEST.format(names), {"key": key, "until": until, **params})
    return row_as(rows[0], tuple[int], _RECORD)[0] if rows else 0


def _type_params(types: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return the placeholders for types of events in a statement, and their values."""
    params = {f"type_{at}": name for at, name in enumerate(types)}
    return ", ".join(f":{name}" for name in params), params


def _event_of(row: Row) -> StoredEvent:
    seq, kind, text = row_as(row, tuple[int, str, str], f"Event {row[0]!r} of this session")
    return StoredEvent(seq, clean_text(kind), clean_text(text).encode())
