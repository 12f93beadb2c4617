"""Records of the gateway: the session of each conversation, its answers, uploaded files and the signing secret."""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import Final

import msgspec

from loom.errors import Conflict
from loom.store.database import Database, Params, Row, Transaction, Work, row_as
from loom.store.nodes import plain_text
from loom.store.session_rows import StoredSession

MAX_ANSWERS: Final = 20_000
"""Receipts and answers beyond this number are deleted, oldest first."""
ANSWER_KEY: Final = "answer"
"""The key of a receipt that holds the metadata of its answer: the model, the usage, the duration."""
_COLUMNS: Final = "id, session_id, node_id, client, model, usd, receipt, response, created_at, system_digest"
_FILE_COLUMNS: Final = "id, client, digest, name, media_type, size_bytes, purpose, created_at"


class GatewayAnswer(msgspec.Struct, frozen=True, array_like=True):
    """`usd` is None if the price is unknown; `response` is empty if the client cannot retrieve it again."""

    id: str
    session_id: str
    node_id: str
    client: str
    model: str
    usd: float | None
    receipt: str
    response: str
    created_at: float
    system_digest: str = ""
    """The digest of the request's system prompt; `GatewayRecords.system` returns the text."""


class GatewayFile(msgspec.Struct, frozen=True, array_like=True):
    """A file that a client uploaded; `digest` names its bytes in the media store."""

    id: str
    client: str
    digest: str
    name: str
    media_type: str
    size_bytes: int
    purpose: str
    created_at: float


class GatewayRecords:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._secret = b""

    async def session_of(self, key: str) -> str:
        """Return the session that continues a conversation; empty if there is none, or it was deleted."""
        sql = "SELECT g.session_id FROM gateway_session g JOIN session s ON s.id = g.session_id WHERE g.key = :key"
        rows = await self._database.select(sql, {"key": plain_text(key, "a key")})
        return str(rows[0][0]) if rows else ""

    async def begin_session(self, key: str, create: Work[StoredSession]) -> str:
        """Create the session of a conversation and return its id. Raise `Conflict` if another request did so first:
        then nothing is written."""
        values: Params = {"key": plain_text(key, "a key"), "now": time.time()}

        def work(tx: Transaction) -> str:
            tx.execute(
                "DELETE FROM gateway_session WHERE key = :key"
                " AND NOT EXISTS (SELECT 1 FROM session s WHERE s.id = gateway_session.session_id)",
                {"key": values["key"]},
            )
            session = create(tx).id
            written = tx.execute(
                "INSERT INTO gateway_session (key, session_id, created_at) VALUES (:key, :session_id, :now)"
                " ON CONFLICT (key) DO NOTHING RETURNING key",
                {**values, "session_id": session},
            )
            if not written:
                raise Conflict("Another request started this conversation at the same time.", hint="Try again.")
            return session

        return await self._database.write(work)

    async def keep_answer(self, answer: GatewayAnswer, *, system: str = "") -> None:
        """Store an answer, and the system prompt of its request."""
        digest = hashlib.sha256(system.encode("utf-8", "surrogatepass")).hexdigest() if system else ""
        values: Params = {**msgspec.structs.asdict(answer), "created_at": time.time(), "system_digest": digest}

        def work(tx: Transaction) -> None:
            if system:
                tx.execute(
                    "INSERT INTO gateway_system (digest, system) VALUES (:digest, :system)"
                    " ON CONFLICT (digest) DO NOTHING",
                    {"digest": digest, "system": plain_text(system, "a system prompt")},
                )
            tx.execute(
                f"INSERT INTO gateway_answer ({_COLUMNS}) VALUES (:id, :session_id, :node_id, :client, :model, :usd,"  # noqa: S608  constants only
                " :receipt, :response, :created_at, :system_digest)",
                values,
            )
            tx.execute(
                "DELETE FROM gateway_answer WHERE id IN (SELECT id FROM gateway_answer ORDER BY created_at DESC, id"
                " LIMIT 100 OFFSET :most)",
                {"most": MAX_ANSWERS},
            )
            tx.execute(
                "DELETE FROM gateway_system WHERE digest IN (SELECT s.digest FROM gateway_system s LEFT JOIN"
                " gateway_answer a ON a.system_digest = s.digest WHERE a.id IS NULL LIMIT 100)"
            )

        await self._database.write(work)

    async def system(self, digest: str) -> str:
        """Return a system prompt by the digest that an answer names; empty if there is none."""
        sql = "SELECT system FROM gateway_system WHERE digest = :digest"
        rows = await self._database.select(sql, {"digest": digest})
        return str(rows[0][0]) if rows else ""

    async def answer(self, answer_id: str) -> GatewayAnswer | None:
        sql = f"SELECT {_COLUMNS} FROM gateway_answer WHERE id = :id"  # noqa: S608  constants only
        rows = await self._database.select(sql, {"id": plain_text(answer_id, "an id")})
        return row_as(rows[0], GatewayAnswer, "The record of a gateway answer") if rows else None

    async def delete_response(self, answer_id: str) -> bool:
        """Delete a stored response; the message in the session stays. Return False if there was none."""
        sql = "UPDATE gateway_answer SET response = '' WHERE id = :id AND response <> '' RETURNING id"
        rows = await self._database.write(lambda tx: tx.execute(sql, {"id": plain_text(answer_id, "an id")}))
        return bool(rows)

    async def spent_usd(self, client: str, since: float) -> float:
        """Return the cost of a client's answers since a time; answers with an unknown price count as 0."""
        sql = "SELECT COALESCE(SUM(usd), 0) FROM gateway_answer WHERE client = :client AND created_at >= :since"
        rows = await self._database.select(sql, {"client": client, "since": since})
        return float(rows[0][0])

    async def session_clients(self) -> dict[str, str]:
        """Return the client of each session; sessions of the owner are left out."""
        sql = "SELECT DISTINCT session_id, client FROM gateway_answer WHERE client <> ''"
        rows = await self._database.select(sql)
        return {str(session): str(client) for session, client in rows}

    async def secret(self) -> bytes:
        """Return the secret of this store. It is created at the first call and never changes."""

        def work(tx: Transaction) -> str:
            tx.execute(
                "INSERT INTO gateway_secret (name, value) VALUES ('handles', :value) ON CONFLICT (name) DO NOTHING",
                {"value": secrets.token_hex(32)},
            )
            return str(tx.execute("SELECT value FROM gateway_secret WHERE name = 'handles'")[0][0])

        if not self._secret:
            self._secret = bytes.fromhex(await self._database.write(work))
        return self._secret

    # Files -----------------------------------------------------------------------------------------------------------

    async def keep_file(self, file: GatewayFile) -> None:
        sql = (
            f"INSERT INTO gateway_file ({_FILE_COLUMNS}) VALUES (:id, :client, :digest, :name, :media_type,"  # noqa: S608  constants only
            " :size_bytes, :purpose, :created_at)"
        )
        values: Params = msgspec.structs.asdict(file)
        await self._database.write(lambda tx: tx.execute(sql, values))

    async def file(self, client: str, file_id: str) -> GatewayFile | None:
        """Return a file that this client uploaded; None if there is none."""
        sql = f"SELECT {_FILE_COLUMNS} FROM gateway_file WHERE id = :id AND client = :client"  # noqa: S608  constants only
        values: Params = {"id": plain_text(file_id, "an id"), "client": client}
        rows = await self._database.select(sql, values)
        return _file(rows[0]) if rows else None

    async def files(self, client: str, *, limit: int, after: GatewayFile | None = None) -> tuple[GatewayFile, ...]:
        """Return up to `limit` files of a client, newest first, starting after the file `after`."""
        place = " AND (created_at < :at OR (created_at = :at AND id < :id))" if after is not None else ""
        sql = (
            f"SELECT {_FILE_COLUMNS} FROM gateway_file WHERE client = :client{place}"  # noqa: S608  constants only
            " ORDER BY created_at DESC, id DESC LIMIT :limit"
        )
        values: Params = {"client": client, "limit": limit}
        if after is not None:
            values = {**values, "at": after.created_at, "id": after.id}
        rows = await self._database.select(sql, values)
        return tuple(map(_file, rows))

    async def delete_file(self, client: str, file_id: str) -> bool:
        """Delete the record of a file; the next sweep deletes its bytes unless a message refers to them. Return False
        if there was none."""
        sql = "DELETE FROM gateway_file WHERE id = :id AND client = :client RETURNING id"
        values: Params = {"id": plain_text(file_id, "an id"), "client": client}
        return bool(await self._database.write(lambda tx: tx.execute(sql, values)))


def _file(row: Row) -> GatewayFile:
    return row_as(row, GatewayFile, "The record of an uploaded file")
