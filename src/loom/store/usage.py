"""Usage: the model answers and the tool results of a period, by session. A message that forks share is counted once.

An answer that repeats an earlier one word for word is no message of its own, but it was paid for: it is counted by its
record, of the turn or of the gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec

from loom.content.blocks import ToolResult
from loom.content.codec import decode_message
from loom.errors import LoomError
from loom.store.database import Database, Row
from loom.store.gateway import ANSWER_KEY
from loom.struct_types import decode_json

# Walk up from the ends of each session until a message is older than the period: a parent is never younger.
_SELECT: Final = (
    "WITH RECURSIVE ends (session_key, key) AS ("
    " SELECT key, head_key FROM session WHERE updated_at >= :since AND (:session = '' OR id = :session)"
    " UNION SELECT t.session_key, t.node_key FROM tip t JOIN session s ON s.key = t.session_key"
    " WHERE s.updated_at >= :since AND (:session = '' OR s.id = :session)),"
    " up (session_key, key, parent_key, role, created_at) AS ("
    " SELECT e.session_key, n.key, n.parent_key, n.role, n.created_at FROM ends e JOIN node n ON n.key = e.key"
    " UNION SELECT u.session_key, n.key, n.parent_key, n.role, n.created_at"
    " FROM up u JOIN node n ON n.key = u.parent_key WHERE u.created_at >= :since)"
    " SELECT u.key, s.id, s.title, n.{column}, u.created_at FROM up u JOIN node n ON n.key = u.key"
    " JOIN session s ON s.key = u.session_key"
    " WHERE u.role = '{role}' AND u.created_at >= :since ORDER BY s.created_at, u.key"
)
_ANSWERS: Final = _SELECT.format(column="meta", role="assistant")
_RESULTS: Final = _SELECT.format(column="message", role="tool")
_REPEATED_ANSWERS: Final = (
    "SELECT r.seq, s.id, s.title, r.meta, r.created_at FROM repeated_answer r JOIN session s ON s.key = r.session_key"
    " WHERE r.created_at >= :since AND (:session = '' OR s.id = :session) ORDER BY r.created_at, r.session_key, r.seq"
)
_REPEATED_GATEWAY_ANSWERS: Final = (
    "SELECT r.id, s.id, s.title, r.receipt, r.created_at FROM ("
    " SELECT id, session_id, receipt, created_at,"
    " ROW_NUMBER() OVER (PARTITION BY node_id ORDER BY created_at, id) AS place"
    " FROM gateway_answer WHERE node_id <> '' AND (:session = '' OR session_id = :session)"
    ") r JOIN session s ON s.id = r.session_id WHERE r.place > 1 AND r.created_at >= :since ORDER BY r.created_at, r.id"
)


class AnswerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An answer and the oldest session that contains it. `meta` holds its model, usage and duration."""

    session: str
    title: str
    meta: dict[str, Any]
    created_at: float


class ResultRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tool call and the oldest session that contains it."""

    session: str
    title: str
    result: ToolResult
    created_at: float


async def read_answers(database: Database, since: float, session: str = "") -> tuple[AnswerRecord, ...]:
    """Return the answers since a time, of all sessions or of one."""
    params = {"since": since, "session": session}
    rows, repeated, from_gateway = await database.read_aside(
        lambda tx: [tx.execute(sql, params) for sql in (_ANSWERS, _REPEATED_ANSWERS, _REPEATED_GATEWAY_ANSWERS)]
    )
    own = (_answer(row) for row in (*_first_of_each(rows), *repeated))
    return (*own, *(_answer(row, ANSWER_KEY) for row in from_gateway))


async def read_results(database: Database, since: float) -> tuple[ResultRecord, ...]:
    """Return the results of tool calls since a time."""
    rows = await database.read_aside(lambda tx: tx.execute(_RESULTS, {"since": since, "session": ""}))
    return await asyncio.to_thread(lambda: tuple(found for row in _first_of_each(rows) for found in _results(row)))


def _first_of_each(rows: list[Row]) -> list[Row]:
    """Return the first row of each message."""
    first: dict[object, Row] = {}
    for row in rows:
        first.setdefault(row[0], row)
    return list(first.values())


def _answer(row: Row, key: str = "") -> AnswerRecord:
    """Return the record of a row. With `key`, the metadata is the object under this key of the row's JSON."""
    _, session, title, meta, created_at = row
    try:
        facts = decode_json(str(meta), dict[str, Any])
    except msgspec.DecodeError:  # damaged, so its usage is unknown
        facts = {}
    if key:
        inner = facts.get(key)
        facts = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
    return AnswerRecord(session=str(session), title=str(title), meta=facts, created_at=float(str(created_at)))


def _results(row: Row) -> Iterator[ResultRecord]:
    _, session, title, stored, created_at = row
    try:
        message = decode_message(str(stored))
    except LoomError:  # damaged: the doctor reports it
        return
    for block in message.blocks:
        if isinstance(block, ToolResult):
            yield ResultRecord(session=str(session), title=str(title), result=block, created_at=float(str(created_at)))
