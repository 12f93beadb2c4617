"""What a gateway remembers: which conversation is which session, the answers that it gave, and its secret."""

from __future__ import annotations

import secrets
import time
from typing import Final

import msgspec

from loom.store.database import Database, Params, Row, Transaction, row_as
from loom.store.forest import Clock
from loom.store.nodes import plain_text

MAX_ANSWERS: Final = 20_000
"""Receipts and answers beyond this number are deleted, oldest first."""
_COLUMNS: Final = "id, session_id, node_id, client, model, usd, receipt, response, created_at"


class GatewayAnswer(msgspec.Struct, frozen=True, array_like=True):
    """`usd` is None where the price is not known; `response` is empty where the client may not ask for it again."""

    id: str
    session_id: str
    node_id: str
    client: str
    model: str
    usd: float | None
    receipt: str
    response: str
    created_at: float


class GatewayRecords:
    def __init__(self, database: Database, *, clock: Clock = time.time) -> None:
        self._database = database
        self._clock = clock

    async def session_of(self, key: str) -> str:
        """Return the session that continues a conversation; empty if there is none, or it was deleted."""
        sql = "SELECT g.session_id FROM gateway_session g JOIN session s ON s.id = g.session_id WHERE g.key = :key"
        rows = await self._database.read(lambda tx: tx.execute(sql, {"key": plain_text(key, "a key")}))
        return str(rows[0][0]) if rows else ""

    async def keep_session(self, key: str, session_id: str) -> str:
        """Remember the session of a conversation; return the one that another request remembered first, if it did."""
        values: Params = {"key": plain_text(key, "a key"), "session_id": session_id, "now": self._clock()}

        def work(tx: Transaction) -> str:
            tx.execute(
                "DELETE FROM gateway_session WHERE key = :key"
                " AND NOT EXISTS (SELECT 1 FROM session s WHERE s.id = gateway_session.session_id)",
                {"key": values["key"]},
            )
            tx.execute(
                "INSERT INTO gateway_session (key, session_id, created_at) VALUES (:key, :session_id, :now)"
                " ON CONFLICT (key) DO NOTHING",
                values,
            )
            found = tx.execute("SELECT session_id FROM gateway_session WHERE key = :key", {"key": values["key"]})
            return str(found[0][0])

        return await self._database.write(work)

    async def keep_answer(self, answer: GatewayAnswer) -> None:
        values: Params = {**msgspec.structs.asdict(answer), "created_at": self._clock()}

        def work(tx: Transaction) -> None:
            tx.execute(
                f"INSERT INTO gateway_answer ({_COLUMNS}) VALUES (:id, :session_id, :node_id, :client, :model, :usd,"  # noqa: S608  constants only
                " :receipt, :response, :created_at)",
                values,
            )
            tx.execute(
                "DELETE FROM gateway_answer WHERE id IN (SELECT id FROM gateway_answer ORDER BY created_at DESC, id"
                " LIMIT 100 OFFSET :most)",
                {"most": MAX_ANSWERS},
            )

        await self._database.write(work)

    async def answer(self, answer_id: str) -> GatewayAnswer | None:
        sql = f"SELECT {_COLUMNS} FROM gateway_answer WHERE id = :id"  # noqa: S608  constants only
        rows = await self._database.read(lambda tx: tx.execute(sql, {"id": plain_text(answer_id, "an id")}))
        return _answer(rows[0]) if rows else None

    async def delete_response(self, answer_id: str) -> bool:
        """Forget a whole answer; its place in the session stays. Return False if there was none."""
        sql = "UPDATE gateway_answer SET response = '' WHERE id = :id AND response <> '' RETURNING id"
        rows = await self._database.write(lambda tx: tx.execute(sql, {"id": plain_text(answer_id, "an id")}))
        return bool(rows)

    async def spent_usd(self, client: str, since: float) -> float:
        """Return what a client's answers cost since then, as far as prices are known."""
        sql = "SELECT COALESCE(SUM(usd), 0) FROM gateway_answer WHERE client = :client AND created_at >= :since"
        rows = await self._database.read(lambda tx: tx.execute(sql, {"client": client, "since": since}))
        return float(rows[0][0])

    async def secret(self) -> bytes:
        """Return the secret of this store, made the first time."""

        def work(tx: Transaction) -> str:
            tx.execute(
                "INSERT INTO gateway_secret (name, value) VALUES ('handles', :value) ON CONFLICT (name) DO NOTHING",
                {"value": secrets.token_hex(32)},
            )
            return str(tx.execute("SELECT value FROM gateway_secret WHERE name = 'handles'")[0][0])

        return bytes.fromhex(await self._database.write(work))


def _answer(row: Row) -> GatewayAnswer:
    return row_as(row, GatewayAnswer, "What is remembered of a gateway's answer")
