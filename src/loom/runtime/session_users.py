"""SessionUsers: the users who share a session, by name."""

from __future__ import annotations

from typing import Final

from loom.store.accounts import Accounts
from loom.store.session_members import EVERYONE, MemberAccess, SessionMembers

EVERYONE_NAME: Final = "everyone"


class SessionUsers:
    def __init__(self, accounts: Accounts, members: SessionMembers) -> None:
        self._accounts = accounts
        self.members = members

    async def list(self, session_id: str) -> dict[str, MemberAccess]:
        """Return the users of a session by name, with their access; `everyone` means all users."""
        names = {account.id: account.name for account in await self._accounts.list()} | {EVERYONE: EVERYONE_NAME}
        found = await self.members.list(session_id)
        return {names[member.account]: member.access for member in found if member.account in names}

    async def share(self, session_id: str, name: str, access: MemberAccess) -> None:
        """Give a user, or `everyone`, access to a session; raise `NotFound` for an unknown name or session."""
        await self.members.set(session_id, await self._account(name), access)

    async def unshare(self, session_id: str, name: str) -> frozenset[str]:
        """Remove the access of a user; return the ids of the accounts that had it by this name."""
        account = await self._account(name)
        await self.members.remove(session_id, account)
        if account != EVERYONE:
            return frozenset((account,))
        return frozenset(one.id for one in await self._accounts.list())

    async def _account(self, name: str) -> str:
        return EVERYONE if name == EVERYONE_NAME else (await self._accounts.get(name)).id
