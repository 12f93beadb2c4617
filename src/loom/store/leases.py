"""Leases: a session is run by one process at a time.

Whoever takes a lease gets a fence number higher than any before. Every write of a turn carries it and is refused once
somebody else has taken the session over, however late the old holder wakes up: an expired clock only decides who may
try, never who may write.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from loom.errors import Corrupt
from loom.store.database import Database, Transaction, rows_among, shaped
from loom.store.forest import Clock
from loom.store.holders import is_gone
from loom.store.nodes import plain_text
from loom.store.session_rows import check_session_id, no_session
from loom.store.together import Together

_TAKE: Final = (
    "UPDATE session SET fence = fence + 1, holder = :holder, held_until = :until"
    " WHERE id = :id AND (holder = '' OR held_until <= :now OR holder = :gone) RETURNING fence"
)
_RENEW: Final = (
    "UPDATE session SET held_until = :until WHERE id = :id AND fence = :fence AND holder = :holder RETURNING fence"
)
_RELEASE: Final = (
    "UPDATE session SET holder = '', held_until = 0 WHERE id = :id AND fence = :fence AND holder = :holder"
)
_SELECT: Final = "SELECT holder, held_until, fence FROM session WHERE id = :id"
_LOOK: Final = (
    "SELECT s.id, s.holder, s.fence, EXISTS (SELECT 1 FROM request r WHERE r.session_key = s.key)"
    " FROM session s WHERE s.id"
)
_SELECT_HELD: Final = "SELECT id, holder, held_until FROM session WHERE holder <> '' ORDER BY id"
_DROP_CANCELS: Final = (
    "DELETE FROM request WHERE kind = 'cancel' AND session_key = (SELECT key FROM session WHERE id = :id)"
)


class Lease(msgspec.Struct, frozen=True):
    session_id: str
    holder: str
    fence: int
    seconds: float


class Held(msgspec.Struct, frozen=True):
    """`is_asked`: other processes want something of the turn that runs."""

    is_ours: bool = False
    is_asked: bool = False


class Leases:
    def __init__(
        self, database: Database, *, clock: Clock = time.time, is_gone: Callable[[str], bool] = is_gone
    ) -> None:
        self._database = database
        self._clock = clock
        self._is_gone = is_gone
        self._renewing = Together(self._renew_all)
        self._looking = Together(self._look_all)

    async def take(self, session_id: str, holder: str, seconds: float) -> Lease | None:
        """None where somebody else holds it and is not known to be gone; who holds it already gets it anew, with a
        higher fence. A wish to stop was meant for the turn before, not for the one that begins now."""
        check_session_id(session_id)
        plain_text(holder, "the name of a holder")

        def work(tx: Transaction) -> Lease | None:
            current, _, _ = _held(tx, session_id)
            gone = current if current == holder or (current and self._is_gone(current)) else ""
            now = self._clock()
            params = {"id": session_id, "holder": holder, "until": now + seconds, "now": now, "gone": gone}
            taken = tx.execute(_TAKE, params)
            if not taken:
                return None
            tx.execute(_DROP_CANCELS, {"id": session_id})
            return Lease(session_id, holder, int(taken[0][0]), seconds)

        return await self._database.write(work)

    async def renew(self, lease: Lease) -> bool:
        """False where it was lost; one that has expired and that nobody wanted meanwhile is still ours."""
        return await self._renewing.ask(lease)

    async def look(self, lease: Lease) -> Held:
        """How it stands, without renewing it."""
        return await self._looking.ask(lease)

    async def _renew_all(self, leases: Sequence[Lease]) -> list[bool]:
        def work(tx: Transaction) -> list[bool]:
            now = self._clock()
            # Whoever locks rows in one order never waits in a circle.
            renewed = {
                lease: bool(tx.execute(_RENEW, {**_params(lease), "until": now + lease.seconds}))
                for lease in sorted(leases, key=lambda lease: lease.session_id)
            }
            return [renewed[lease] for lease in leases]

        return await self._database.write(work)

    async def _look_all(self, leases: Sequence[Lease]) -> list[Held]:
        def work(tx: Transaction) -> list[Held]:
            found = {row[0]: row[1:] for row in rows_among(tx, _LOOK, [lease.session_id for lease in leases])}
            return [_seen(lease, *found.get(lease.session_id, ("", 0, False))) for lease in leases]

        return await self._database.read(work)

    async def release(self, lease: Lease) -> None:
        """Nothing happens where it was lost before."""

        def work(tx: Transaction) -> None:
            tx.execute(_RELEASE, _params(lease))

        await self._database.write(work)

    async def holder(self, session_id: str) -> str:
        """Who runs the session now; empty where nobody does."""
        check_session_id(session_id)

        def work(tx: Transaction) -> tuple[str, float, int]:
            return _held(tx, session_id)

        found, until, _ = await self._database.read(work)
        return found if found and until > self._clock() and not self._is_gone(found) else ""

    async def abandoned(self) -> tuple[str, ...]:
        """The sessions whose holder never let go and is gone, or has not been heard of for too long: somebody should
        look after their turns. One whose record is damaged keeps none of the others waiting (`loom doctor` tells)."""
        rows = await self._database.read(lambda tx: tx.execute(_SELECT_HELD))
        now = self._clock()
        left: list[str] = []
        for row in rows:
            with contextlib.suppress(Corrupt):
                session_id, holder, until = shaped(row, tuple[str, str, float], "The lease of a session")
                if until <= now or self._is_gone(holder):
                    left.append(session_id)
        return tuple(left)


def _seen(lease: Lease, holder: object, fence: object, asked: object) -> Held:
    is_ours = (holder, fence) == (lease.holder, lease.fence)
    return Held(is_ours=is_ours, is_asked=bool(asked))


def _params(lease: Lease) -> dict[str, object]:
    return {"id": lease.session_id, "fence": lease.fence, "holder": lease.holder}


def _held(tx: Transaction, session_id: str) -> tuple[str, float, int]:
    rows = tx.execute(_SELECT, {"id": session_id})
    if not rows:
        raise no_session()
    return shaped(rows[0], tuple[str, float, int], f"The record of session {session_id}")
