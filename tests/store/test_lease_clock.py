"""Leases go by the database's clock: a machine whose own clock is wrong neither steals nor loses one."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import pytest

from loom.store.database import Database, Transaction, open_database
from loom.store.leases import Lease, Leases
from loom.store.sessions import Sessions

SKEWED = Path(__file__).with_name("skewed_process.py")
SKEWS = (-60.0, 60.0, 86_400.0)


async def _start(*arguments: object) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, str(SKEWED), *map(str, arguments)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


async def _expire(database: Database, session_id: str, *, seconds_ago: float) -> None:
    """Let the lease of a session have run out so long ago, by the clock of the database."""

    def work(tx: Transaction) -> None:
        values = {"ago": seconds_ago, "id": session_id}
        tx.execute("UPDATE session SET held_until = DATABASE_TIME - :ago WHERE id = :id", values)

    await database.write(work)


@pytest.mark.parametrize("skew", SKEWS)
async def test_a_process_whose_clock_is_wrong_steals_no_lease(url: str, skew: float) -> None:
    database = await open_database(url)
    session = await Sessions(database).create()
    leases = Leases(database)
    lease = await leases.acquire(session.id, "owner", 30)
    assert lease is not None
    process = await _start(url, session.id, skew, "probe")
    output = (await process.communicate())[0].decode().splitlines()
    assert output == ["holder owner", "abandoned 0", "append refused", "take False"]
    assert await leases.renew(lease)
    await database.close()


@pytest.mark.parametrize("skew", SKEWS)
async def test_a_process_whose_clock_is_wrong_loses_no_lease(url: str, skew: float) -> None:
    database = await open_database(url)
    session = await Sessions(database).create()
    leases = Leases(database)
    process = await _start(url, session.id, skew, "hold", 30)
    assert process.stdout
    assert (await process.stdout.readline()).decode() == "held\n"
    assert await leases.holder(session.id) == "skewed"
    assert await leases.list_abandoned() == ()
    assert await leases.acquire(session.id, "thief", 30) is None
    output = (await process.communicate(b"\n"))[0].decode().splitlines()
    assert output == ["renewed True", "appended"]
    await database.close()


@pytest.mark.parametrize("skew", SKEWS)
async def test_a_lease_of_a_process_whose_clock_is_wrong_still_expires(url: str, skew: float) -> None:
    database = await open_database(url)
    session = await Sessions(database).create()
    leases = Leases(database)
    process = await _start(url, session.id, skew, "hold", 0)
    assert process.stdout
    assert (await process.stdout.readline()).decode() == "held\n"
    assert await leases.holder(session.id) == ""
    assert await leases.list_abandoned() == (session.id,)
    lease = await leases.acquire(session.id, "heir", 30)
    assert lease is not None
    assert lease.taken_over_from == "skewed"
    process.kill()
    await process.communicate()
    await database.close()


async def test_a_takeover_is_reported_logged_once_and_counted(
    database: Database, sessions: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="loom.store.leases")
    old, new = Leases(database), Leases(database)
    session = await sessions.create()
    lost = await _taken(old, session.id, "old")
    assert lost.taken_over_from == ""
    await _expire(database, session.id, seconds_ago=40)

    taken = await _taken(new, session.id, "new")

    assert taken.taken_over_from == "old"
    (record,) = caplog.records
    for part in (session.id, "from old", "by new", "expired 40"):
        assert part in record.getMessage()
    assert (new.counters.takeovers, new.counters.lost) == (1, 0)

    caplog.clear()
    for _ in range(3):
        assert not await old.renew(lost)
        assert not (await old.read_state(lost)).is_ours
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    for part in (session.id, "lost by old", "to new"):
        assert part in record.getMessage()
    assert (old.counters.takeovers, old.counters.lost) == (0, 1)


async def test_a_lease_of_a_process_that_has_ended_is_taken_over_before_it_expires(
    database: Database, sessions: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    session = await sessions.create()
    await _taken(Leases(database), session.id, "dead")
    leases = Leases(database, is_gone=lambda name: name == "dead")
    taken = await _taken(leases, session.id, "me")
    assert taken.taken_over_from == "dead"
    assert "process has ended" in caplog.text
    assert leases.counters.takeovers == 1


async def test_ordinary_use_of_a_lease_is_no_takeover_and_no_loss(
    leases: Leases, sessions: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    session = await sessions.create()
    first = await _taken(leases, session.id, "a")
    again = await _taken(leases, session.id, "a")
    assert not await leases.renew(first), "it was replaced by the same holder's next lease"
    assert await leases.renew(again)
    await leases.release(again)
    assert not await leases.renew(again)
    other = await _taken(leases, session.id, "b")
    await sessions.delete(session.id)
    assert not await leases.renew(other)
    assert (leases.counters.takeovers, leases.counters.lost) == (0, 0)
    assert caplog.records == []


async def _taken(leases: Leases, session_id: str, holder: str) -> Lease:
    lease = await leases.acquire(session_id, holder, 30)
    assert lease is not None
    return lease
