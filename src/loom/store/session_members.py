"""SessionMembers: which users may use which sessions, and which bytes each user has uploaded."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from loom.store.database import Database, Transaction, row_as
from loom.store.session_rows import check_session

MemberAccess: TypeAlias = Literal["view", "edit", "own"]
EVERYONE: Final = "*"
_WIDEST_FIRST: Final[tuple[MemberAccess, ...]] = ("own", "edit", "view")
_RECORD: Final = "The record of a session's members"
_UPSERT: Final = (
    "INSERT INTO session_member (session_key, account, access) VALUES (:key, :account, :access)"
    " ON CONFLICT (session_key, account) DO UPDATE SET access = excluded.access"
)
_SELECT_ACCESS: Final = (
    "SELECT m.account, m.access FROM session_member m JOIN session s ON s.key = m.session_key"
    " WHERE s.id = :id AND m.account IN (:account, '*')"
)
_SELECT_SESSIONS: Final = (
    "SELECT s.id FROM session_member m JOIN session s ON s.key = m.session_key WHERE m.account IN (:account, '*')"
    " ORDER BY s.updated_at DESC"
)
_SELECT_MEMBERS: Final = "SELECT account, access FROM session_member WHERE session_key = :key ORDER BY account"
_NOTE_MEDIA: Final = (
    "INSERT INTO account_media (account, digest) VALUES (:account, :digest) ON CONFLICT (account, digest) DO NOTHING"
)


class SessionMember(msgspec.Struct, frozen=True, array_like=True):
    """`account` is the id of a user's account, or `EVERYONE`."""

    account: str
    access: MemberAccess


class SessionMembers:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def set(self, session_id: str, account: str, access: MemberAccess) -> None:
        """Give a user this access to a session. Raise `NotFound` if there is no such session."""

        def work(tx: Transaction) -> None:
            key, _ = check_session(tx, session_id)
            tx.execute(_UPSERT, {"key": key, "account": account, "access": access})

        await self._database.write(work)

    async def remove(self, session_id: str, account: str) -> None:
        def work(tx: Transaction) -> None:
            key, _ = check_session(tx, session_id)
            tx.execute(
                "DELETE FROM session_member WHERE session_key = :key AND account = :account",
                {"key": key, "account": account},
            )

        await self._database.write(work)

    async def copy_owners(self, session_id: str, to: str) -> None:
        """Add the owners of `session_id` to the owners of the session `to`."""

        def work(tx: Transaction) -> None:
            source, _ = check_session(tx, session_id)
            target, _ = check_session(tx, to)
            for row in tx.execute(_SELECT_MEMBERS, {"key": source}):
                member = row_as(row, SessionMember, _RECORD)
                if member.access == "own":
                    tx.execute(_UPSERT, {"key": target, "account": member.account, "access": "own"})

        await self._database.write(work)

    async def list(self, session_id: str) -> tuple[SessionMember, ...]:
        """Return the members of a session. Raise `NotFound` if there is no such session."""

        def work(tx: Transaction) -> tuple[SessionMember, ...]:
            key, _ = check_session(tx, session_id)
            rows = tx.execute(_SELECT_MEMBERS, {"key": key})
            return tuple(row_as(row, SessionMember, _RECORD) for row in rows)

        return await self._database.read(work)

    async def access(self, session_id: str, account: str) -> MemberAccess | None:
        """Return the widest access that a user has to a session; None if the user has none or the session does not
        exist."""
        rows = await self._database.select(_SELECT_ACCESS, {"id": session_id, "account": account})
        found = {row_as(row, SessionMember, _RECORD).access for row in rows}
        return next((access for access in _WIDEST_FIRST if access in found), None)

    async def sessions(self, account: str) -> tuple[str, ...]:
        """Return the ids of the sessions that a user may read, newest first."""
        rows = await self._database.select(_SELECT_SESSIONS, {"account": account})
        return tuple(dict.fromkeys(str(row[0]) for row in rows))

    async def note_media(self, account: str, digest: str) -> None:
        """Record that a user has uploaded these bytes."""
        await self._database.write(lambda tx: tx.execute(_NOTE_MEDIA, {"account": account, "digest": digest}))

    async def has_media(self, account: str, digest: str) -> bool:
        """Return whether a user has uploaded these bytes."""
        values = {"account": account, "digest": digest}
        return bool(
            await self._database.select(
                "SELECT 1 FROM account_media WHERE account = :account AND digest = :digest", values
            )
        )
