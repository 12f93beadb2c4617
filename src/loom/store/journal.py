"""One change of a session in one transaction: nodes, the head, the queue, settings and events.

A step of a turn ends with one commit. A process that dies has either written all of it or nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, assert_never

import msgspec

from loom.session import LeaseWish, SessionChange
from loom.store.database import Database, Params, Transaction, execute_rows
from loom.store.events import INSERT_EVENTS, event_json
from loom.store.forest import Clock
from loom.store.leases import HANDED_OVER
from loom.store.nodes import (
    Node,
    drafts_of,
    has_true_id,
    node_of,
    nodes_below,
    plain_json,
    plain_text,
    read_path,
    ref_at,
    ref_of,
)
from loom.store.queue import is_queued, pop_queued
from loom.store.session_rows import (
    CHANGED_COLUMNS,
    PRUNE,
    UPDATE_SESSION,
    StoredSession,
    append_below_head,
    lock_head,
    move_head,
    one_line,
    read_session,
)

EncodedEvents: TypeAlias = Sequence[tuple[str, bytes]]
"""(type, JSON) pairs."""

_TAKE_SEQS: Final = "UPDATE session SET last_seq = last_seq + :count WHERE key = :key RETURNING last_seq"
_SELECT_SEQ: Final = "SELECT last_seq FROM session WHERE key = :key"
_RELEASE: Final = "UPDATE session SET holder = '', held_until = 0 WHERE key = :key"
_HAND_OVER: Final = "UPDATE session SET holder = :holder, held_until = 0 WHERE key = :key"
_IS_WAITED_FOR: Final = "SELECT 1 FROM queued WHERE session_key = :key AND answers_left > 0 LIMIT 1"


class CommitResult(msgspec.Struct, frozen=True, kw_only=True):
    """`nodes` are the ids of the new messages in order, with that of the queued one at the end; `seq` is the number of
    the last event. `is_gone`: the queued message had been removed, so nothing was changed. `is_released`: the lease
    ended with this change."""

    nodes: tuple[str, ...] = ()
    seq: int = 0
    is_gone: bool = False
    is_released: bool = False


class JournalCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a change that depend on the ids of its new nodes."""

    events: EncodedEvents = ()
    settings: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    overrides: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])


class SessionPath(msgspec.Struct, frozen=True, kw_only=True):
    """A session and the nodes up to its head. With `is_continuation`, only those below the node that was known."""

    session: StoredSession
    nodes: tuple[Node, ...]
    is_continuation: bool


class Journal:
    def __init__(self, database: Database, *, clock: Clock = time.time) -> None:
        self._database = database
        self._clock = clock

    async def read(self, session_id: str, *, known_head: str = "", known_depth: int = 0) -> SessionPath:
        """Read a session and its path in one view. With `known_head` (at depth `known_depth`), read only the nodes
        below it if the path still contains it."""

        def work(tx: Transaction) -> SessionPath:
            session = read_session(tx, session_id)
            if known_head and session.head_id == known_head:
                return SessionPath(session=session, nodes=(), is_continuation=True)
            if known_head:
                rows = read_path(tx, session.head_id, above=known_depth)
                if rows and has_true_id(rows[0], known_head):
                    return SessionPath(session=session, nodes=nodes_below(known_head, rows), is_continuation=True)
            root, *rows = read_path(tx, session.head_id)
            nodes = (node_of(root, None), *nodes_below(root.id, rows))
            return SessionPath(session=session, nodes=nodes, is_continuation=False)

        return await self._database.read(work)

    async def commit(
        self,
        session_id: str,
        change: SessionChange,
        complete: Callable[[tuple[str, ...]], JournalCompletion] = lambda _: JournalCompletion(),
        *,
        fence: int | None = None,
    ) -> CommitResult:
        """Apply `change` together with the events and settings that `complete` returns for the ids of the new nodes.

        With the `fence` of a lease, raise `Conflict` if the lease was lost. `complete` may run more than once.
        """
        drafts = [draft for new in change.nodes for draft in drafts_of([new.message], new.source, new.meta)]
        values = {
            "title": None if change.title is None else one_line(change.title),
            "model": None if change.model is None else plain_text(change.model, "the name of a model"),
            "overrides": None if change.overrides is None else plain_json(dict(change.overrides), "overrides"),
            "watermark": None if change.watermark is None else plain_json(dict(change.watermark), "a watermark"),
            "quarantine": None if change.quarantine is None else plain_json(dict(change.quarantine), "quarantine"),
        }
        now = self._clock()

        def work(tx: Transaction) -> CommitResult:
            if change.queued or change.move_to:
                tx.lock(PRUNE)
            key, head_key, _ = lock_head(tx, session_id, fence=fence)
            if change.queued and not is_queued(tx, key, change.queued):
                return CommitResult(is_gone=True)
            head, nodes = ref_at(tx, head_key), tuple[str, ...]()
            if change.move_to and (target := ref_of(tx, change.move_to)).key != head.key:
                move_head(tx, key, head, target, now)
                head = target
            if drafts:
                nodes = tuple(node.id for node in append_below_head(tx, key, head, drafts, now))
                head = ref_of(tx, nodes[-1])
            if change.queued:
                nodes = (*nodes, pop_queued(tx, key, change.queued, head, now))
            completion = complete(nodes)
            settings = {**(change.settings or {}), **completion.settings}
            if settings or completion.overrides:
                stored = read_session(tx, session_id)
                merged = {name: it for name, it in {**stored.settings, **settings}.items() if it is not None}
                values["settings"] = plain_json(merged, "settings")
                values["overrides"] = plain_json({**stored.overrides, **completion.overrides}, "overrides")
            if any(value is not None for value in values.values()):
                tx.execute(UPDATE_SESSION, {**_NO_COLUMNS, **values, "now": now, "key": key})
            seq = _append_events(tx, key, completion.events, now)
            return CommitResult(nodes=nodes, seq=seq, is_released=_end_lease(tx, key, change.lease))

        return await self._database.write(work)


_NO_COLUMNS: Final[Params] = dict.fromkeys(CHANGED_COLUMNS)


def _end_lease(tx: Transaction, key: int, wish: LeaseWish) -> bool:
    match wish:
        case "keep":
            return False
        case "release-if-idle":
            if tx.execute(_IS_WAITED_FOR, {"key": key}):
                return False
            tx.execute(_RELEASE, {"key": key})
        case "hand-over":
            tx.execute(_HAND_OVER, {"key": key, "holder": HANDED_OVER})
        case _:
            assert_never(wish)
    return True


def _append_events(tx: Transaction, key: int, events: EncodedEvents, now: float) -> int:
    if not events:
        ((seq,),) = tx.execute(_SELECT_SEQ, {"key": key})
        return int(seq)
    ((last,),) = tx.execute(_TAKE_SEQS, {"key": key, "count": len(events)})
    rows: list[Params] = [
        {"key": key, "seq": seq, "type": plain_text(kind, "an event type"), "data": event_json(data), "now": now}
        for seq, (kind, data) in enumerate(events, int(last) - len(events) + 1)
    ]
    execute_rows(tx, INSERT_EVENTS, rows)
    return int(last)
