"""Accounts: people who use one daemon, each with a key and a role.

The owner of the data folder needs no account. A key is shown once, when it is made; the store holds its hash.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
import time
from typing import Final, Literal, TypeAlias

import msgspec

from loom.errors import ConfigError, Conflict, NotFound
from loom.store.database import Database, Row, Transaction, row_as

AccountRole: TypeAlias = Literal["admin", "user", "viewer"]
KEY_PREFIX: Final = "loom_"
OWNER_NAME: Final = "owner"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SELECT: Final = "SELECT id, name, role, created_at, day_usd FROM account"

_REMOVE: Final = (
    "DELETE FROM session_member WHERE account = :id",
    "DELETE FROM account_media WHERE account = :id",
    "DELETE FROM account_spending WHERE account = :id",
    "DELETE FROM login WHERE account = :id",
    "DELETE FROM account WHERE id = :id",
)


class Account(msgspec.Struct, frozen=True, array_like=True):
    """A user of the daemon. An `admin` may do everything, a `user` everything except manage the daemon, a `viewer` may
    only read. `day_usd` limits what the user's sessions may cost in a day; None means no limit."""

    id: str
    name: str
    role: AccountRole
    created_at: float
    day_usd: float | None = None


def hash_secret(secret: str) -> str:
    """Return the hash under which a random secret is stored. The secret has 256 bits, so a fast hash is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class Accounts:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, name: str, role: AccountRole) -> tuple[Account, str]:
        """Create an account; return it and its key. Raise `ConfigError` if `name` is not valid, `Conflict` if it is
        taken."""
        if _NAME.fullmatch(name) is None or name == OWNER_NAME:
            raise ConfigError(
                f"{name[:80]!r} cannot be the name of a user.", hint="Use lower-case letters, digits and . _ -"
            )
        key = KEY_PREFIX + secrets.token_urlsafe(32)
        made = Account(secrets.token_hex(8), name, role, time.time())
        sql = (
            "INSERT INTO account (id, name, role, key_hash, created_at)"
            " VALUES (:id, :name, :role, :key_hash, :created_at)"
        )

        def work(tx: Transaction) -> None:
            if tx.execute("SELECT 1 FROM account WHERE name = :name", {"name": name}):
                raise Conflict(f"User {name} already exists.", hint="Choose another name.")
            values = {"id": made.id, "name": name, "role": role, "created_at": made.created_at}
            tx.execute(sql, {**values, "key_hash": hash_secret(key)})

        await self._database.write(work)
        return made, key

    async def list(self) -> tuple[Account, ...]:
        rows = await self._database.select(f"{_SELECT} ORDER BY name")
        return tuple(_account(row) for row in rows)

    async def get(self, name: str) -> Account:
        """Raise `NotFound` if there is no user of this name."""
        rows = await self._database.select(f"{_SELECT} WHERE name = :name", {"name": name})
        if not rows:
            raise NotFound(f"User {name[:80]} not found.", hint="List them: `loom users list`.")
        return _account(rows[0])

    async def by_key(self, key: str) -> Account | None:
        if not key.startswith(KEY_PREFIX):
            return None
        rows = await self._database.select(f"{_SELECT} WHERE key_hash = :hash", {"hash": hash_secret(key)})
        return _account(rows[0]) if rows else None

    async def by_id(self, account_id: str) -> Account | None:
        rows = await self._database.select(f"{_SELECT} WHERE id = :id", {"id": account_id})
        return _account(rows[0]) if rows else None

    async def set_role(self, name: str, role: AccountRole) -> Account:
        found = await self.get(name)
        values = {"id": found.id, "role": role}
        await self._database.write(lambda tx: tx.execute("UPDATE account SET role = :role WHERE id = :id", values))
        return msgspec.structs.replace(found, role=role)

    async def set_budget(self, name: str, day_usd: float | None) -> Account:
        """Limit what the sessions of a user may cost in a day; None removes the limit. Raise `NotFound` if there is no
        such user."""
        found = await self.get(name)
        if day_usd is not None and not 0 <= day_usd < math.inf:
            raise ConfigError(f"{day_usd} cannot be a budget.", hint="Use an amount in US dollars per day, or none.")
        values = {"id": found.id, "usd": day_usd}
        await self._database.write(lambda tx: tx.execute("UPDATE account SET day_usd = :usd WHERE id = :id", values))
        return msgspec.structs.replace(found, day_usd=day_usd)

    async def new_key(self, name: str) -> str:
        """Replace the key of a user and return the new one. Sign out every browser that used the old key."""
        found = await self.get(name)
        key = KEY_PREFIX + secrets.token_urlsafe(32)

        def work(tx: Transaction) -> None:
            tx.execute("UPDATE account SET key_hash = :hash WHERE id = :id", {"hash": hash_secret(key), "id": found.id})
            tx.execute("DELETE FROM login WHERE account = :id", {"id": found.id})

        await self._database.write(work)
        return key

    async def remove(self, name: str) -> Account:
        """Remove an account, its logins and its access to sessions. The sessions themselves stay."""
        found = await self.get(name)

        def work(tx: Transaction) -> None:
            for statement in _REMOVE:
                tx.execute(statement, {"id": found.id})

        await self._database.write(work)
        return found


def _account(row: Row) -> Account:
    return row_as(row, Account, "The record of a user")
