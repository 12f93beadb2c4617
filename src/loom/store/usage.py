"""Usage: what the answers of a period have used, by session. It is read from the messages; nothing counts twice."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from loom.store.database import Database, Row

# Up from the ends of each session, as far as its messages are of the period: a parent is never younger.
_SELECT: Final = (
    "WITH RECURSIVE up (session_key, key) AS ("
    " SELECT key, head_key FROM session WHERE updated_at >= :since AND (:session = '' OR id = :session)"
    " UNION SELECT t.session_key, t.node_key FROM tip t JOIN session s ON s.key = t.session_key"
    " WHERE s.updated_at >= :since AND (:session = '' OR s.id = :session)"
    " UNION SELECT u.session_key, n.parent_key FROM up u JOIN node n ON n.key = u.key"
    " WHERE n.parent_key IS NOT NULL AND n.created_at >= :since)"
    " SELECT n.key, s.id, s.title, n.meta, n.created_at FROM up u JOIN node n ON n.key = u.key"
    " JOIN session s ON s.key = u.session_key"
    " WHERE n.role = 'assistant' AND n.created_at >= :since ORDER BY s.created_at, n.key"
)


class AnswerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An answer and the oldest session that has it. `meta` describes it: model, usage, seconds."""

    session: str
    title: str
    meta: dict[str, Any]
    created_at: float


async def read_answers(database: Database, since: float, session: str = "") -> tuple[AnswerRecord, ...]:
    """Return the answers since a time, of one session if given. An answer that forks share is returned once."""
    rows = await database.read_aside(lambda tx: tx.execute(_SELECT, {"since": since, "session": session}))
    first: dict[object, Row] = {}
    for row in rows:
        first.setdefault(row[0], row)
    return tuple(_record(row) for row in first.values())


def _record(row: Row) -> AnswerRecord:
    _, session, title, meta, created_at = row
    try:
        facts = msgspec.json.decode(str(meta), type=dict[str, Any])
    except msgspec.DecodeError:  # damaged: it has used something that is not known
        facts = {}
    return AnswerRecord(session=str(session), title=str(title), meta=facts, created_at=float(str(created_at)))
