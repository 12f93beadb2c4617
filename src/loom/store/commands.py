"""Commands that other processes send to a running turn. The holder of the lease receives them."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from loom.store.database import Database, Row, Transaction
from loom.store.nodes import plain_json
from loom.store.session_rows import check_session, check_session_id, lock_session
from loom.struct_types import convert, decode_json

_log = logging.getLogger(__name__)

CommandKind: TypeAlias = Literal["cancel", "answer"]

_INSERT: Final = "INSERT INTO request (session_key, kind, data, created_at) VALUES (:session_key, :kind, :data, :now)"
_SELECT: Final = "SELECT key, kind, data FROM request WHERE session_key = :session_key ORDER BY key"


class StoredCommand(msgspec.Struct, frozen=True):
    kind: CommandKind
    data: dict[str, Any]


class Commands:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, session_id: str, kind: CommandKind, data: Mapping[str, Any] | None = None) -> None:
        values = {"kind": kind, "data": plain_json(dict(data or {}), "a request"), "now": time.time()}

        def work(tx: Transaction) -> None:
            key, _, _ = lock_session(tx, session_id)
            tx.execute(_INSERT, {**values, "session_key": key})

        await self._database.write(work)

    async def take(self, session_id: str, *, fence: int) -> tuple[StoredCommand, ...]:
        """Pop pending commands, oldest first. Raise `Conflict` if the lease with this `fence` was lost. A damaged
        command is dropped: its sender gets no answer and sends it again."""
        check_session_id(session_id)

        def is_empty(tx: Transaction) -> bool:
            return not tx.execute(f"{_SELECT} LIMIT 1", {"session_key": check_session(tx, session_id)[0]})

        def work(tx: Transaction) -> tuple[StoredCommand, ...]:
            key, _, _ = lock_session(tx, session_id, fence=fence)
            rows = tx.execute(_SELECT, {"session_key": key})
            tx.executemany("DELETE FROM request WHERE key = :key", [{"key": row[0]} for row in rows])
            return tuple(command for row in rows if (command := _command_from_row(session_id, row)) is not None)

        if await self._database.read(is_empty):
            return ()
        return await self._database.write(work)


def _command_from_row(session_id: str, row: Row) -> StoredCommand | None:
    try:
        _, kind, data = convert(row, tuple[int, CommandKind, str])
        return StoredCommand(kind, decode_json(data, dict[str, Any]))
    except (msgspec.DecodeError, UnicodeError):
        _log.warning("a command for session %s is damaged and was dropped", session_id)
        return None
