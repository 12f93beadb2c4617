"""Leases: one process at a time runs a session.

Acquiring a lease raises the session's fence number. Every write of a turn carries its fence and is refused once another
process has acquired the session, however late the old holder resumes. Expiry decides only whether another process may
acquire the session; the fence decides whether a process may write.

Expiry is computed and compared in SQL, by the database's clock. The clocks of the machines that share a database are
never compared, so that one that is wrong neither takes a lease from a live holder nor loses its own.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from loom.errors import Corrupt
from loom.store.batcher import Batcher
from loom.store.database import Database, Row, Transaction, row_as, rows_among
from loom.store.nodes import plain_text
from loom.store.process_identity import is_gone
from loom.store.session_rows import check_session_id, session_not_found

_log = logging.getLogger(__name__)

HANDED_OVER: Final = "handed-over"
"""The holder of a session whose process shut down cleanly in the middle of a turn."""
_TAKE: Final = (
    "UPDATE session SET fence = fence + 1, holder = :holder, held_until = DATABASE_TIME + :seconds"
    " WHERE id = :id AND (holder = '' OR held_until <= DATABASE_TIME OR holder = :gone) RETURNING fence"
)
_RENEW: Final = (
    "UPDATE session SET held_until = DATABASE_TIME + :seconds"
    " WHERE id = :id AND fence = :fence AND holder = :holder RETURNING fence"
)
_RELEASE: Final = (
    "UPDATE session SET holder = '', held_until = 0 WHERE id = :id AND fence = :fence AND holder = :holder"
)
_SELECT: Final = "SELECT holder, held_until, fence, held_until - DATABASE_TIME FROM session WHERE id = :id"
_LOCK: Final = f"{_SELECT} FOR UPDATE"
_LOOK: Final = (
    "SELECT s.id, s.holder, s.fence, EXISTS (SELECT 1 FROM request r WHERE r.session_key = s.key)"
    " FROM session s WHERE s.id"
)
_SELECT_HOLDER: Final = "SELECT id, holder, fence FROM session WHERE id"
_SELECT_HELD: Final = (
    "SELECT id, holder, held_until, held_until - DATABASE_TIME FROM session WHERE holder <> '' ORDER BY id"
)
# Cancel commands of older versions do not name the turn that they are for.
_DROP_CANCELS: Final = (
    "DELETE FROM request WHERE kind = 'cancel' AND data = '{}'"
    " AND session_key = (SELECT key FROM session WHERE id = :id)"
)


class Lease(msgspec.Struct, frozen=True):
    """`taken_over_from` names the previous holder if it never released the session: it died, or did not renew in time.
    Its turn may be unfinished. Empty if the session was free, or held by the same holder."""

    session_id: str
    holder: str
    fence: int
    seconds: float
    taken_over_from: str = ""


class LeaseState(msgspec.Struct, frozen=True):
    """`is_asked`: other processes have sent commands to the running turn."""

    is_ours: bool = False
    is_asked: bool = False


class LeaseCounters(msgspec.Struct):
    """Counts since the process started. `takeovers`: leases acquired from a holder that never released them. `lost`:
    leases of this process that another one has taken over."""

    takeovers: int = 0
    lost: int = 0


class _Record(msgspec.Struct, frozen=True, array_like=True):
    """The columns of `_SELECT`. `seconds_left` is negative once the lease has expired."""

    holder: str
    held_until: float
    fence: int
    seconds_left: float


class Leases:
    def __init__(self, database: Database, *, is_gone: Callable[[str], bool] = is_gone) -> None:
        self.counters: Final = LeaseCounters()
        self._database = database
        self._is_gone = is_gone
        self._renewing = Batcher(self._renew_all)
        self._looking = Batcher(self._look_all)
        self._ours: dict[tuple[str, str], Lease] = {}

    async def acquire(self, session_id: str, holder: str, seconds: float) -> Lease | None:
        """Acquire the lease of a session. Return None if another process holds it and is not known to be dead.

        A holder that has the lease already gets a new one with a higher fence. Pending cancel commands are dropped:
        they were sent to the previous turn.
        """
        check_session_id(session_id)
        plain_text(holder, "the name of a holder")

        def work(tx: Transaction) -> tuple[Lease, _Record] | None:
            before = _record(tx, session_id, _LOCK)
            gone = before.holder if before.holder == holder or self._is_dead(before.holder) else ""
            params = {"id": session_id, "holder": holder, "seconds": seconds, "gone": gone}
            taken = tx.execute(_TAKE, params)
            if not taken:
                return None
            tx.execute(_DROP_CANCELS, {"id": session_id})
            previous = "" if before.holder in (holder, HANDED_OVER) else before.holder
            return Lease(session_id, holder, int(taken[0][0]), seconds, previous), before

        found = await self._database.write(work)
        if found is None:
            return None
        lease, before = found
        self._ours[session_id, holder] = lease
        if lease.taken_over_from:
            self._note_takeover(lease, before)
        return lease

    async def renew(self, lease: Lease) -> bool:
        """Extend a lease. Return False if it was lost. An expired lease that no other process acquired is not lost."""
        return await self._renewing.submit(lease)

    async def read_state(self, lease: Lease) -> LeaseState:
        """Return the state of a lease without renewing it."""
        return await self._looking.submit(lease)

    async def release(self, lease: Lease) -> None:
        """Give a lease back. Do nothing if it was lost before."""

        def work(tx: Transaction) -> None:
            tx.execute(_RELEASE, _params(lease))

        await self._database.write(work, repeatable=True)
        self._drop_ours(lease)

    def note_released(self, lease: Lease) -> None:
        """Record that a commit of the session released this lease."""
        self._drop_ours(lease)

    async def holder(self, session_id: str) -> str:
        """Return the name of the live holder of a session; empty if there is none."""
        check_session_id(session_id)
        found = await self._database.read(lambda tx: _record(tx, session_id, _SELECT))
        return found.holder if found.seconds_left > 0 and not self._is_dead(found.holder) else ""

    async def list_abandoned(self) -> tuple[str, ...]:
        """Return the ids of sessions whose holder never released them and is dead or has not renewed in time.

        A session whose record is damaged is left out (`loom doctor` reports it).
        """
        rows = await self._database.read(lambda tx: tx.execute(_SELECT_HELD))
        found: list[str] = []
        for row in rows:
            with contextlib.suppress(Corrupt):
                session_id, holder, _, seconds_left = row_as(
                    row, tuple[str, str, float, float], "The lease of a session"
                )
                if seconds_left <= 0 or self._is_dead(holder):
                    found.append(session_id)
        return tuple(found)

    def _is_dead(self, holder: str) -> bool:
        return bool(holder) and self._is_gone(holder)

    async def _renew_all(self, leases: Sequence[Lease]) -> list[bool]:
        def work(tx: Transaction) -> tuple[list[bool], list[Row]]:
            # A fixed order, so that two processes cannot deadlock on each other's rows.
            renewed = {
                lease: bool(tx.execute(_RENEW, {**_params(lease), "seconds": lease.seconds}))
                for lease in sorted(leases, key=lambda lease: lease.session_id)
            }
            lost = [lease.session_id for lease in leases if not renewed[lease]]
            return [renewed[lease] for lease in leases], rows_among(tx, _SELECT_HOLDER, lost)

        renewed, rows = await self._database.write(work, repeatable=True)
        holders = {session_id: (holder, fence) for session_id, holder, fence in rows}
        for lease, is_ours in zip(leases, renewed, strict=True):
            if not is_ours:
                self._note_loss(lease, *holders.get(lease.session_id, (None, 0)))
        return renewed

    async def _look_all(self, leases: Sequence[Lease]) -> list[LeaseState]:
        ids = [lease.session_id for lease in leases]
        rows = await self._database.read(lambda tx: rows_among(tx, _LOOK, ids))
        found = {row[0]: row[1:] for row in rows}
        states: list[LeaseState] = []
        for lease in leases:
            holder, fence, is_asked = found.get(lease.session_id, (None, 0, False))
            state = LeaseState(is_ours=(holder, fence) == (lease.holder, lease.fence), is_asked=bool(is_asked))
            if not state.is_ours:
                self._note_loss(lease, holder, fence)
            states.append(state)
        return states

    def _note_takeover(self, lease: Lease, before: _Record) -> None:
        self.counters.takeovers += 1
        if before.seconds_left > 0:
            why = "its process has ended"
        else:
            why = f"its lease had expired {-before.seconds_left:.1f} s ago"
        _log.warning(
            "session %s was taken over from %s by %s: %s", lease.session_id, lease.taken_over_from, lease.holder, why
        )

    def _note_loss(self, lease: Lease, holder: object, fence: object) -> None:
        """Log and count a lost lease once. A lease is not lost if `holder` is None, because the session was deleted, or
        if `fence` is unchanged, because a commit of this process has just released it."""
        if self._drop_ours(lease) and holder is not None and fence != lease.fence:
            self.counters.lost += 1
            _log.warning(
                "the lease of session %s (fence %d) was lost by %s to %s",
                *(lease.session_id, lease.fence, lease.holder, holder or "a process that has released it since"),
            )

    def _drop_ours(self, lease: Lease) -> bool:
        """Drop a lease from those of this process. Return False if it was not there: released, lost or replaced."""
        key = (lease.session_id, lease.holder)
        newest = self._ours.get(key)
        if newest is None or newest.fence != lease.fence:
            return False
        del self._ours[key]
        return True


def _params(lease: Lease) -> dict[str, object]:
    return {"id": lease.session_id, "fence": lease.fence, "holder": lease.holder}


def _record(tx: Transaction, session_id: str, select: str) -> _Record:
    rows = tx.execute(select, {"id": session_id})
    if not rows:
        raise session_not_found()
    return row_as(rows[0], _Record, f"The record of session {session_id}")
