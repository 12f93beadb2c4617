"""UserCosts: the cost of each user's sessions today, and the daily limits."""

from __future__ import annotations

import time
from typing import Final

import msgspec

from loom.errors import BudgetSpent
from loom.store.database import Database, Row, Transaction, row_as

_LIMITS: Final = (
    "SELECT a.name, a.day_usd, COALESCE(p.usd, 0) FROM account a"
    " LEFT JOIN account_spending p ON p.account = a.id AND p.day = :day"
)
_OF_SESSION: Final = (
    f"{_LIMITS} WHERE a.id IN (SELECT m.account FROM session_member m JOIN session s ON s.key = m.session_key"  # noqa: S608  constants only
    " WHERE s.id = :session AND m.access = 'own')"
)
_OWNERS: Final = (
    "SELECT m.account FROM session_member m JOIN session s ON s.key = m.session_key JOIN account a ON a.id = m.account"
    " WHERE s.id = :session AND m.access = 'own'"
)
_ADD: Final = (
    "INSERT INTO account_spending (account, day, usd) VALUES (:account, :day, :usd)"
    " ON CONFLICT (account, day) DO UPDATE SET usd = account_spending.usd + excluded.usd"
)


class DayCost(msgspec.Struct, frozen=True, array_like=True):
    """What a user has spent today (`usd`), and the daily limit (`day_usd`); None means no limit."""

    name: str
    day_usd: float | None
    usd: float


class UserCosts:
    """The owners of a session pay for all its answers. Days are local days of this machine."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self) -> dict[str, DayCost]:
        """Return what each user has spent today, by name."""
        rows = await self._database.select(_LIMITS, {"day": self._day()})
        return {found.name: found for found in map(_day_cost, rows)}

    async def charge(self, session_id: str, usd: float) -> None:
        """Add the cost of an answer to what the owners of a session have spent."""
        if usd <= 0:
            return
        owners = await self._database.select(_OWNERS, {"session": session_id})
        if not owners:  # a session of the daemon's owner
            return
        rows = [{"account": owner, "day": self._day(), "usd": usd} for (owner,) in owners]

        def work(tx: Transaction) -> None:
            for row in rows:
                tx.execute(_ADD, row)

        await self._database.write(work)

    async def check_session(self, session_id: str) -> None:
        """Raise `BudgetSpent` if an owner of a session has nothing left today."""
        rows = await self._database.select(_OF_SESSION, {"day": self._day(), "session": session_id})
        for row in rows:
            _check(_day_cost(row))

    async def check_account(self, account: str) -> None:
        """Raise `BudgetSpent` if a user has nothing left today."""
        rows = await self._database.select(f"{_LIMITS} WHERE a.id = :account", {"day": self._day(), "account": account})
        for row in rows:
            _check(_day_cost(row))

    def _day(self) -> str:
        return time.strftime("%Y-%m-%d")


def _check(found: DayCost) -> None:
    if found.day_usd is not None and found.usd >= found.day_usd:
        raise BudgetSpent(
            f"The budget of {found.name} is exceeded: ${found.usd:.2f} of ${found.day_usd:.2f} today.",
            hint=f"It resets at midnight. An administrator can raise it: loom users budget {found.name} USD",
        )


def _day_cost(row: Row) -> DayCost:
    return row_as(row, DayCost, "The record of a user's spending")
