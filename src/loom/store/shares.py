"""Shares: links to read a conversation without signing in. The link contains a secret; the store holds its hash."""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import Final

import msgspec

from loom.errors import NotFound
from loom.store.database import Database, Row, row_as

_COLUMNS: Final = "SELECT id, session_id, node, created_at, expires_at FROM share"


class Share(msgspec.Struct, frozen=True, array_like=True):
    """`node` is the last message at the time of sharing. `expires_at` is 0 for a link that does not expire."""

    id: str
    session_id: str
    node: str
    created_at: float
    expires_at: float


class Shares:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, session_id: str, node: str, *, days: float = 0) -> tuple[Share, str]:
        """Create a share; return it and its secret. Only a hash of the secret is stored. With `days` 0, the link does
        not expire."""
        now = time.time()
        secret = secrets.token_urlsafe(32)
        share = Share(secrets.token_hex(8), session_id, node, now, now + days * 86_400 if days else 0.0)
        sql = (
            "INSERT INTO share (id, secret_hash, session_id, node, created_at, expires_at)"
            " VALUES (:id, :secret_hash, :session_id, :node, :created_at, :expires_at)"
        )
        values = {**msgspec.structs.asdict(share), "secret_hash": _hash(secret)}
        await self._database.write(lambda tx: tx.execute(sql, values))
        return share, secret

    async def find(self, secret: str) -> Share:
        """Return the share with this secret. Raise `NotFound` if there is none or it has expired."""
        rows = await self._database.select(f"{_COLUMNS} WHERE secret_hash = :hash", {"hash": _hash(secret)})
        share = _share(rows[0]) if rows else None
        if share is None or (share.expires_at and share.expires_at < time.time()):
            raise NotFound("This link does not exist, or has expired.", hint="Ask for a new one.")
        return share

    async def list(self, session_id: str) -> tuple[Share, ...]:
        """Return the links of a session, newest first."""
        sql = f"{_COLUMNS} WHERE session_id = :session ORDER BY created_at DESC, id"
        return tuple(_share(row) for row in await self._database.select(sql, {"session": session_id}))

    async def delete(self, session_id: str, share_id: str) -> None:
        sql = "DELETE FROM share WHERE session_id = :session AND id = :id RETURNING id"
        if not await self._database.write(lambda tx: tx.execute(sql, {"session": session_id, "id": share_id})):
            raise NotFound("Link not found.", hint="List them: `loom sessions share SESSION --list`.")


def _share(row: Row) -> Share:
    return row_as(row, Share, "The record of a link")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
