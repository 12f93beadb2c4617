"""MessageQueue: messages that wait for their turn. Each is delivered exactly once.

A message leaves the queue in the same transaction that writes it below the head, so that a crash neither loses nor
repeats it. Its row stays for a week: a client that sends the same key again, because it missed the acknowledgement,
gets the first result.

A paused message stays where it is in the queue, and no turn takes it until it is resumed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from loom.content.codec import decode_message, encode_stored
from loom.content.messages import Message
from loom.errors import ContentError, Corrupt, KeyReused, NotFound
from loom.session import Options, Queued
from loom.store.database import Database, Row, Transaction
from loom.store.events import EncodedEvents, append_events, last_number
from loom.store.forest import Clock
from loom.store.nodes import NodeRef, digests_of, drafts_of, plain_json, plain_text, ref_of
from loom.store.session_rows import append_below_head, check_session, keeps, lock_session, move_head
from loom.struct_types import convert, decode_json

MAX_ANSWERS: Final = 100
_PLAIN: Final = Options()
_REMEMBERED_SECONDS: Final = 7 * 86_400.0

_SELECT: Final = "SELECT id, request_key, message, options, node, answers_left, created_at, paused FROM queued"
_SELECT_KNOWN: Final = f"{_SELECT} WHERE session_key = :session_key AND request_key = :request_key"
_SELECT_WAITING: Final = f"{_SELECT} WHERE session_key = :session_key AND answers_left > 0 ORDER BY key"
_SELECT_ONE: Final = f"{_SELECT} WHERE session_key = :session_key AND id = :id AND answers_left > 0"
_SELECT_NODE: Final = "SELECT node FROM queued WHERE session_key = :session_key AND id = :id AND answers_left > 0"
_SELECT_RUNNABLE: Final = f"{_SELECT_NODE} AND paused = 0"
_SELECT_UNSTARTED: Final = (
    f"{_SELECT} WHERE session_key = :session_key AND answers_left > 0 AND message <> '' ORDER BY key"
)
_UPDATE_PAUSED: Final = "UPDATE queued SET paused = :paused WHERE id = :id"
_SELECT_SESSIONS: Final = (
    "SELECT s.id FROM queued q JOIN session s ON s.key = q.session_key WHERE q.answers_left > 0"
    " AND q.paused = 0 GROUP BY s.id ORDER BY MIN(q.key)"
)
_INSERT: Final = (
    "INSERT INTO queued (session_key, id, request_key, message, options, node, answers_left, created_at)"
    " VALUES (:session_key, :id, :request_key, :message, :options, :node, :answers_left, :now) RETURNING key"
)
_INSERT_MEDIA: Final = "INSERT INTO queued_media (queued_key, digest) VALUES (:key, :digest)"
_DELETE_OLD: Final = "DELETE FROM queued WHERE session_key = :session_key AND answers_left = 0 AND created_at < :before"
_UPDATE: Final = "UPDATE queued SET message = :message, node = :node, answers_left = :answers_left WHERE id = :id"
_SELECT_FIRST_SINCE: Final = "SELECT MIN(seq) FROM event WHERE session_key = :session_key AND created_at >= :since"
_DELETE_MEDIA: Final = "DELETE FROM queued_media WHERE queued_key = (SELECT key FROM queued WHERE id = :id)"


class _QueuedRow(msgspec.Struct, frozen=True, array_like=True):
    id: str
    request_key: str
    message: str
    options: str
    node: str
    answers_left: int
    created_at: float
    paused: int


class MessageQueue:
    def __init__(self, database: Database, *, clock: Clock = time.time) -> None:
        self._database = database
        self._clock = clock

    async def put(
        self,
        session_id: str,
        key: str,
        message: Message | None,
        options: Options = _PLAIN,
        events: Callable[[str], EncodedEvents] = lambda _: (),
    ) -> Queued:
        """Queue a message, and append `events` (called with its id) in the same transaction. Without a `message`,
        request another answer to `options.parent`.

        If `key` was used before, change nothing and return the first result with `is_new` False; its `seq` is not after
        the first one, so that no event of the message is missed. Raise `KeyReused` if the message or the options
        differ. Raise `NotFound` if `options.parent` is not part of the session.
        """
        if not 1 <= options.n <= MAX_ANSWERS:
            raise ContentError(f"The number of answers must be 1 to {MAX_ANSWERS}, not {options.n}")
        if message is None and not options.parent:
            raise ContentError("Another answer needs `parent`, the message to answer")
        queued_id, now = secrets.token_hex(16), self._clock()
        request_key = plain_text(key, "a key") or secrets.token_hex(16)
        values: dict[str, object] = {
            "id": queued_id,
            "request_key": request_key,
            "message": "" if message is None else encode_stored(message),
            "options": plain_json(msgspec.json.decode(msgspec.json.encode(options)), "options"),
            "answers_left": options.n,
            "now": now,
        }
        digests = digests_of(message) if message is not None else frozenset[str]()

        def work(tx: Transaction) -> Queued:
            session_key, _, _ = lock_session(tx, session_id)
            at = {"session_key": session_key}
            known = tx.execute(_SELECT_KNOWN, {**at, "request_key": values["request_key"]})
            if known:
                same = _same_request(tx, known[0], values)
                ((first,),) = tx.execute(_SELECT_FIRST_SINCE, {**at, "since": same.created_at})
                return msgspec.structs.replace(same, seq=last_number(tx, session_key) if first is None else first - 1)
            seq = last_number(tx, session_key)
            parent = ref_of(tx, options.parent) if options.parent else None
            if parent is not None and not keeps(tx, session_key, parent):
                raise NotFound("That message is not part of this session.", hint="Show its tree: `loom tree`.")
            tx.execute(_DELETE_OLD, {**at, "before": self._clock() - _REMEMBERED_SECONDS})
            node = parent.id if parent is not None and message is None else ""
            ((key_of_row,),) = tx.execute(_INSERT, {**values, **at, "node": node})
            if digests:
                tx.executemany(_INSERT_MEDIA, [{"key": key_of_row, "digest": digest} for digest in sorted(digests)])
            append_events(tx, session_key, events(queued_id), now)
            return Queued(
                id=queued_id,
                key=request_key,
                message=message,
                options=options,
                node=node,
                answers_left=options.n,
                created_at=now,
                seq=seq,
            )

        return await self._database.write(work)

    async def list(self, session_id: str) -> tuple[Queued, ...]:
        """Return the queued messages in order, paused ones included. One with a `node` has started, or requests another
        answer to that node."""

        def work(tx: Transaction) -> tuple[Queued, ...]:
            rows = tx.execute(_SELECT_WAITING, {"session_key": check_session(tx, session_id)[0]})
            return tuple(_queued_from_row(row) for row in rows)

        return await self._database.read(work)

    async def remove(self, session_id: str, queued_id: str) -> bool:
        """Remove a message from the queue; one that has started gets no further answers. Return False if it is not in
        the queue."""
        plain_text(queued_id, "an id")

        def work(tx: Transaction) -> bool:
            session_key, _, _ = lock_session(tx, session_id)
            found = tx.execute(_SELECT_NODE, {"session_key": session_key, "id": queued_id})
            if found:  # its message is not decoded, so that a damaged one can be removed
                _settle(tx, queued_id, node=found[0][0], answers_left=0)
            return bool(found)

        return await self._database.write(work)

    async def set_paused(
        self,
        session_id: str,
        queued_ids: Collection[str],
        *,
        is_paused: bool,
        events: Callable[[Sequence[Queued]], EncodedEvents] = lambda _: (),
    ) -> int:
        """Pause or resume messages whose turn has not started; without ids, all of them. Append `events`, called with
        those that changed, in the same transaction. Return the number of the last event. Raise `NotFound` if one of the
        ids is not in the queue or its turn has started; then nothing is changed.
        """
        wanted = {plain_text(queued_id, "an id") for queued_id in queued_ids}

        def work(tx: Transaction) -> int:
            session_key, _, _ = lock_session(tx, session_id)
            found = tx.execute(_SELECT_UNSTARTED, {"session_key": session_key})
            rows = [convert(row, _QueuedRow) for row in found]
            if not wanted <= {row.id for row in rows}:
                raise NotFound("That message is no longer queued.", hint="Its turn has started, or it was removed.")
            chosen = [row for row in rows if bool(row.paused) != is_paused and (not wanted or row.id in wanted)]
            for row in chosen:
                tx.execute(_UPDATE_PAUSED, {"id": row.id, "paused": int(is_paused)})
            changed = tuple(
                msgspec.structs.replace(_queued_from_row(msgspec.structs.astuple(row)), is_paused=is_paused)
                for row in chosen
            )
            return append_events(tx, session_key, events(changed), self._clock())

        return await self._database.write(work)

    async def waiting(self) -> tuple[str, ...]:
        """Return the ids of the sessions with queued messages that are not paused, the longest waiting first."""
        return tuple(row[0] for row in await self._database.read(lambda tx: tx.execute(_SELECT_SESSIONS)))


def _same_request(tx: Transaction, row: Row, values: Mapping[str, object]) -> Queued:
    """Return the result of the first request with a key. Raise `KeyReused` if the message or its options differ: they
    would be lost. A client that tries again does so in a new span; attachments that are known have other notices."""
    known = _queued_from_row(row)
    stored = convert(row, _QueuedRow)
    text = stored.message
    if not text and stored.node and values["message"]:  # it was delivered: its text is in the forest
        found = tx.execute("SELECT message FROM node WHERE id = :id", {"id": stored.node})
        text = found[0][0] if found else ""
    again = decode_json(str(values["options"]), Options)
    again = msgspec.structs.replace(again, traceparent=known.options.traceparent, notices=known.options.notices)
    if known.options != again or text not in ("", values["message"]):
        raise KeyReused(
            "This Idempotency-Key was used for another message.", hint="Send a new key with each new message."
        )
    return msgspec.structs.replace(known, is_new=False)


def is_queued(tx: Transaction, session_key: int, queued_id: str) -> bool:
    """Return whether a turn may take the message: it is in the queue and not paused."""
    at = {"session_key": session_key, "id": plain_text(queued_id, "an id")}
    return bool(tx.execute(_SELECT_RUNNABLE, at))


def pop_queued(tx: Transaction, session_key: int, queued_id: str, head: NodeRef, now: float) -> str:
    """Take a message that `is_queued` and write it below `head`; return its node. For another answer, move the head
    back to the message to answer, and return that; for a summary, return the head. The caller holds the lock
    `PRUNE`."""
    rows = tx.execute(_SELECT_ONE, {"session_key": session_key, "id": queued_id})
    found = _queued_from_row(rows[0])
    if found.message is not None:
        (node,) = append_below_head(tx, session_key, head, drafts_of([found.message]), now)
        _settle(tx, found.id, node=node.id, answers_left=found.answers_left - 1)
        return node.id
    target = head if found.options.is_compact else ref_of(tx, found.node)
    if target.key != head.key:
        move_head(tx, session_key, head, target, now)
    _settle(tx, found.id, node=target.id, answers_left=found.answers_left - 1)
    return target.id


def _settle(tx: Transaction, queued_id: str, *, node: str, answers_left: int) -> None:
    """Record that a message was delivered or removed, and delete its text and media references from the queue."""
    tx.execute(_UPDATE, {"id": queued_id, "message": "", "node": node, "answers_left": answers_left})
    tx.execute(_DELETE_MEDIA, {"id": queued_id})


def _queued_from_row(row: Row) -> Queued:
    try:
        found = convert(row, _QueuedRow)
        message = decode_message(found.message) if found.message else None
        options = decode_json(found.options, Options)
    except (ContentError, msgspec.DecodeError, UnicodeError):
        raise Corrupt(
            f"The queued message {ascii(row[0])[1:-1][:80]} is damaged.",
            hint="Remove it from the queue (DELETE /v1/sessions/{session}/queue/{message}) and send it again.",
        ) from None
    return Queued(
        id=found.id,
        key=found.request_key,
        message=message,
        options=options,
        node=found.node,
        answers_left=found.answers_left,
        created_at=found.created_at,
        is_paused=bool(found.paused),
    )
