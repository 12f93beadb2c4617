"""Members: which accounts may use a session, and invitations to it."""

from __future__ import annotations

import secrets
import time
from typing import Final, Literal, TypeAlias

import msgspec

from loom.errors import NotFound
from loom.store.accounts import hash_secret
from loom.store.database import Database, Transaction, row_as
from loom.store.forest import Clock
from loom.store.session_rows import check_session

MemberRole: TypeAlias = Literal["owner", "user", "viewer"]
INVITATION_SECONDS: Final = 7 * 86_400.0
_JOIN: Final = "FROM member m JOIN session s ON s.key = m.session_key"
_PUT: Final = (
    "INSERT INTO member (session_key, account, role) VALUES (:key, :account, :role)"
    " ON CONFLICT (session_key, account) DO UPDATE SET role = :role"
)


class SessionMember(msgspec.Struct, frozen=True, array_like=True):
    """`account` is its id."""

    account: str
    name: str
    role: MemberRole


class Members:
    def __init__(self, database: Database, *, clock: Clock = time.time) -> None:
        self._database = database
        self._clock = clock

    async def put(self, session_id: str, account: str, role: MemberRole) -> None:
        def work(tx: Transaction) -> None:
            tx.execute(_PUT, {"key": check_session(tx, session_id)[0], "account": account, "role": role})

        await self._database.write(work)

    async def role_of(self, session_id: str, account: str) -> MemberRole | None:
        sql = f"SELECT m.role {_JOIN} WHERE s.id = :session AND m.account = :account"
        rows = await self._database.select(sql, {"session": session_id, "account": account})
        return row_as(rows[0], tuple[MemberRole], "A member of a session")[0] if rows else None

    async def sessions_of(self, account: str) -> frozenset[str]:
        rows = await self._database.select(f"SELECT s.id {_JOIN} WHERE m.account = :account", {"account": account})
        return frozenset(str(row[0]) for row in rows)

    async def list(self, session_id: str) -> tuple[SessionMember, ...]:
        sql = (
            "SELECT m.account, a.name, m.role FROM member m JOIN session s ON s.key = m.session_key"
            " JOIN account a ON a.id = m.account WHERE s.id = :session ORDER BY a.name"
        )
        rows = await self._database.select(sql, {"session": session_id})
        return tuple(row_as(row, SessionMember, "A member of a session") for row in rows)

    async def remove(self, session_id: str, account: str) -> None:
        def work(tx: Transaction) -> None:
            values = {"key": check_session(tx, session_id)[0], "account": account}
            tx.execute("DELETE FROM member WHERE session_key = :key AND account = :account", values)

        await self._database.write(work)

    async def invite(self, session_id: str, role: MemberRole) -> str:
        """Return a code that makes one account a member, once, within a week."""
        code = secrets.token_urlsafe(24)
        now = self._clock()
        sql = "INSERT INTO invitation (code_hash, session_key, role, expires_at) VALUES (:hash, :key, :role, :until)"

        def work(tx: Transaction) -> None:
            key = check_session(tx, session_id)[0]
            tx.execute("DELETE FROM invitation WHERE expires_at < :now", {"now": now})
            until = now + INVITATION_SECONDS
            tx.execute(sql, {"hash": hash_secret(code), "key": key, "role": role, "until": until})

        await self._database.write(work)
        return code

    async def accept(self, code: str, account: str) -> str:
        """Return the session that `account` is a member of from now on. Raises NotFound for a code that is used or old.
        A member that has more rights already keeps them."""
        now = self._clock()
        sql = "DELETE FROM invitation WHERE code_hash = :hash RETURNING session_key, role, expires_at"

        def work(tx: Transaction) -> str:
            rows = tx.execute(sql, {"hash": hash_secret(code)})
            if not rows or rows[0][2] < now:
                raise NotFound("This invitation was used already, or is too old.", hint="Ask for a new one.")
            key, role, _ = row_as(rows[0], tuple[int, MemberRole, float], "An invitation")
            values = {"key": key, "account": account}
            had = tx.execute("SELECT role FROM member WHERE session_key = :key AND account = :account", values)
            if not had or (had[0][0] == "viewer" and role == "user"):
                tx.execute(_PUT, {**values, "role": role})
            return str(tx.execute("SELECT id FROM session WHERE key = :key", {"key": key})[0][0])

        return await self._database.write(work)

    async def note_upload(self, account: str, digest: str) -> None:
        """Remember that an account uploaded a medium, so that it can use it in a message."""
        sql = "INSERT INTO media_owner (account, digest) VALUES (:account, :digest) ON CONFLICT DO NOTHING"
        await self._database.write(lambda tx: tx.execute(sql, {"account": account, "digest": digest}))

    async def may_see_media(self, account: str, digest: str) -> bool:
        """Return whether an account uploaded a medium, or is a member of a session that refers to it."""
        sql = (
            "SELECT 1 FROM media_owner WHERE account = :account AND digest = :digest"
            " UNION SELECT 1 FROM node_media n JOIN reachable r ON r.key = n.node_key WHERE n.digest = :digest"
        )
        return bool(await self._database.select(f"{_REACHABLE} {sql}", {"account": account, "digest": digest}))


# Every node of the sessions that an account is a member of.
_REACHABLE: Final = (
    "WITH RECURSIVE reachable (key, parent_key) AS ("
    " SELECT n.key, n.parent_key FROM node n WHERE n.key IN ("
    "  SELECT s.head_key FROM session s JOIN member m ON m.session_key = s.key WHERE m.account = :account"
    "  UNION SELECT t.node_key FROM tip t JOIN member m ON m.session_key = t.session_key WHERE m.account = :account)"
    " UNION SELECT n.key, n.parent_key FROM node n JOIN reachable r ON n.key = r.parent_key)"
)
