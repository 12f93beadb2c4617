"""Logins: browsers that are signed in. Each has a random secret that only the browser holds."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from typing import Final

import msgspec

from loom.content.blocks import clean_text
from loom.store.accounts import hash_secret
from loom.store.database import Database, Row, Transaction, row_as

LOGIN_SECONDS: Final = 30 * 86_400.0
"""A browser that was not used for this long has to sign in again."""
SEEN_SECONDS: Final = 60.0
"""The last use is recorded with this precision."""
MAX_LOGINS: Final = 100
"""The most logins of one account; the least recently used ones are signed out."""
_SELECT: Final = "SELECT id, account, proof, address, agent, created_at, seen_at FROM login"


class BrowserLogin(msgspec.Struct, frozen=True, array_like=True):
    """`account` is empty for the owner. `address` and `agent` are those of the browser when it signed in."""

    id: str
    account: str
    proof: str
    address: str
    agent: str
    created_at: float
    seen_at: float


class Logins:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(self, account: str, *, address: str, agent: str, password: str = "") -> tuple[BrowserLogin, str]:
        """Create a login; return it and its secret. With `password`, the login is valid only while that is the
        password."""
        secret = secrets.token_urlsafe(32)
        now = time.time()
        proof = _password_hash(secret, password) if password else ""
        made = BrowserLogin(
            secrets.token_hex(8), account, proof, clean_text(address)[:100], clean_text(agent)[:300], now, now
        )
        sql = (
            "INSERT INTO login (id, secret_hash, account, proof, address, agent, created_at, seen_at)"
            " VALUES (:id, :hash, :account, :proof, :address, :agent, :created_at, :seen_at)"
        )

        def work(tx: Transaction) -> None:
            tx.execute("DELETE FROM login WHERE seen_at < :old", {"old": now - LOGIN_SECONDS})
            rows = tx.execute("SELECT id FROM login WHERE account = :a ORDER BY seen_at DESC", {"a": account})
            tx.executemany("DELETE FROM login WHERE id = :id", [{"id": row[0]} for row in rows[MAX_LOGINS - 1 :]])
            tx.execute(sql, {**msgspec.structs.asdict(made), "hash": hash_secret(secret)})

        await self._database.write(work)
        return made, secret

    async def find(self, secret: str, *, password: str) -> BrowserLogin | None:
        """Return the login with this secret and record its use; None if there is none or it is no longer valid."""
        rows = await self._database.select(f"{_SELECT} WHERE secret_hash = :hash", {"hash": hash_secret(secret)})
        found = _login(rows[0]) if rows else None
        now = time.time()
        if found is None or now - found.seen_at > LOGIN_SECONDS:
            return None
        if found.proof and not (password and hmac.compare_digest(found.proof, _password_hash(secret, password))):
            return None
        if abs(now - found.seen_at) > SEEN_SECONDS:
            values = {"now": now, "id": found.id}
            await self._database.write(lambda tx: tx.execute("UPDATE login SET seen_at = :now WHERE id = :id", values))
        return found

    async def list(self) -> tuple[BrowserLogin, ...]:
        """Return the logins that have not expired, most recently used first."""
        sql = f"{_SELECT} WHERE seen_at >= :old ORDER BY seen_at DESC, id"
        rows = await self._database.select(sql, {"old": time.time() - LOGIN_SECONDS})
        return tuple(_login(row) for row in rows)

    async def close(self, login_id: str) -> bool:
        """Sign out one browser. Return False if there is no such login."""
        sql = "DELETE FROM login WHERE id = :id RETURNING id"
        return bool(await self._database.write(lambda tx: tx.execute(sql, {"id": login_id})))

    async def close_all(self, account: str) -> None:
        """Sign out every browser of an account."""
        sql = "DELETE FROM login WHERE account = :account"
        await self._database.write(lambda tx: tx.execute(sql, {"account": account}))


def _login(row: Row) -> BrowserLogin:
    return row_as(row, BrowserLogin, "The record of a login")


def _password_hash(secret: str, password: str) -> str:
    """Return a keyed hash of the password. Without the secret, which only the browser has, it cannot be used to guess
    the password."""
    return hmac.new(secret.encode(), password.encode(), hashlib.sha256).hexdigest()
