"""One change of a session in one transaction: nodes, the head, the queue, settings and events.

A step of a turn ends with one commit. A process that dies has either written all of it or nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, assert_never

import msgspec

from loom.session import LeaseChange, SessionChange
from loom.store.database import Database, Params, Transaction
from loom.store.events import EncodedEvents, append_events
from loom.store.leases import HANDED_OVER
from loom.store.nodes import (
    Node,
    NodeDraft,
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

_RELEASE: Final = "UPDATE session SET holder = '', held_until = 0 WHERE key = :key"
_HAND_OVER: Final = "UPDATE session SET holder = :holder, held_until = 0 WHERE key = :key"
_INSERT_REPEATED: Final = (
    "INSERT INTO repeated_answer (session_key, seq, meta, created_at) VALUES (:key, :seq, :meta, :now)"
)
_IS_WAITED_FOR: Final = "SELECT 1 FROM queued WHERE session_key = :key AND answers_left > 0 AND paused = 0 LIMIT 1"


class KnownPath(msgspec.Struct, frozen=True):
    """A path that was read before: the id of its last node and how many messages it has."""

    head: str = ""
    depth: int = 0


_NOTHING_KNOWN: Final = KnownPath()


class SessionPath(msgspec.Struct, frozen=True, kw_only=True):
    """A session and the nodes up to its head. With `is_continuation`, only those below the node that was known."""

    session: StoredSession
    nodes: tuple[Node, ...]
    is_continuation: bool


class CommitResult(msgspec.Struct, frozen=True, kw_only=True):
    """`nodes` are the ids of the new messages in order, with that of the queued one at the end; `seq` is the number of
    the last event. `is_gone`: the queued message had been removed, so nothing was changed. `is_released`: the lease
    ended with this change."""

    nodes: tuple[str, ...] = ()
    seq: int = 0
    is_gone: bool = False
    is_released: bool = False
    after: SessionPath | None = None
    """The session and its path after the change, where the change asks to read them back."""


class JournalCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a change that depend on the ids of its new nodes."""

    events: EncodedEvents = ()
    settings: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    overrides: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])


class Journal:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, session_id: str, known: KnownPath = _NOTHING_KNOWN) -> SessionPath:
        """Read a session and its path in one view. Where the path continues `known`, read only what follows it."""
        return await self._database.read(lambda tx: _read_session_path(tx, session_id, known))

    async def commit(
        self,
        session_id: str,
        change: SessionChange,
        complete: Callable[[tuple[str, ...]], JournalCompletion] = lambda _: JournalCompletion(),
        *,
        fence: int | None = None,
        known: KnownPath = _NOTHING_KNOWN,
    ) -> CommitResult:
        """Apply `change` together with the events and settings that `complete` returns for the ids of the new nodes.

        With the `fence` of a lease, raise `Conflict` if the lease was lost. `complete` may run more than once. `known`
        is the path that the caller has, for a change that reads back.
        """
        drafts = [draft for new in change.nodes for draft in drafts_of([new.message], new.source, new.meta)]
        values = {
            "title": None if change.title is None else one_line(change.title),
            "model": None if change.model is None else plain_text(change.model, "the name of a model"),
            "overrides": None if change.overrides is None else plain_json(dict(change.overrides), "overrides"),
            "watermark": None if change.watermark is None else plain_json(dict(change.watermark), "a watermark"),
            "quarantine": None if change.quarantine is None else plain_json(dict(change.quarantine), "quarantine"),
        }
        now = time.time()

        def work(tx: Transaction) -> CommitResult:
            if change.queued or change.move_to:
                tx.lock(PRUNE)
            key, head_key, _ = lock_head(tx, session_id, fence=fence)
            if change.queued and not is_queued(tx, key, change.queued):
                return CommitResult(is_gone=True)
            head, nodes, repeated = ref_at(tx, head_key), tuple[str, ...](), list[NodeDraft]()
            if change.move_to and (target := ref_of(tx, change.move_to)).key != head.key:
                move_head(tx, key, head, target, now)
                head = target
            if drafts:
                added = append_below_head(tx, key, head, drafts, now)
                repeated = [draft for node, draft in zip(added, drafts, strict=True) if _repeats_answer(node, now)]
                nodes = tuple(node.id for node in added)
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
            seq = append_events(tx, key, completion.events, now)
            for draft in repeated:
                tx.execute(_INSERT_REPEATED, {"key": key, "seq": seq, "meta": draft.meta_stored, "now": now})
            is_released = _end_lease(tx, key, change.lease)
            after = _read_session_path(tx, session_id, known) if change.reads_back else None
            return CommitResult(nodes=nodes, seq=seq, is_released=is_released, after=after)

        return await self._database.write(work)


_NO_COLUMNS: Final[Params] = dict.fromkeys(CHANGED_COLUMNS)


def _read_session_path(tx: Transaction, session_id: str, known: KnownPath) -> SessionPath:
    session = read_session(tx, session_id)
    if known.head and session.head_id == known.head:
        return SessionPath(session=session, nodes=(), is_continuation=True)
    if known.head:
        rows = read_path(tx, session.head_id, above=known.depth)
        if rows and has_true_id(rows[0], known.head):
            return SessionPath(session=session, nodes=nodes_below(known.head, rows), is_continuation=True)
    root, *rows = read_path(tx, session.head_id)
    nodes = (node_of(root, None), *nodes_below(root.id, rows))
    return SessionPath(session=session, nodes=nodes, is_continuation=False)


def _repeats_answer(node: Node, now: float) -> bool:
    """Return whether an answer of this commit was stored before."""
    return node.created_at != now and node.message is not None and node.message.role == "assistant"


def _end_lease(tx: Transaction, key: int, wish: LeaseChange) -> bool:
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
