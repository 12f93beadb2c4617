"""Durable events: one sequence per session, without gaps, in order, whoever writes. On both databases."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from loom.errors import Conflict, ContentError, NotFound
from loom.store.batcher import Batcher
from loom.store.database import Database
from loom.store.events import Events
from loom.store.leases import Leases
from loom.store.sessions import Sessions


async def test_events_come_back_in_order_with_numbers_from_one(sessions: Sessions, events: Events):
    session = await sessions.create()
    assert await events.head(session.id) == 0
    assert await events.append(session.id, [("turn_started", b"{}"), ("said", '{"text":"ü\\u0000"}'.encode())]) == 2
    assert await events.append(session.id, [("turn_finished", b"[1,2]")]) == 3
    found = await events.after(session.id, 0)
    assert [(event.seq, event.type, event.data) for event in found] == [
        (1, "turn_started", b"{}"),
        (2, "said", '{"text":"ü\\u0000"}'.encode()),
        (3, "turn_finished", b"[1,2]"),
    ]
    assert [event.seq for event in await events.after(session.id, 1, limit=1)] == [2]
    assert await events.after(session.id, 3) == ()
    assert (await sessions.get(session.id)).last_seq == await events.head(session.id) == 3


async def test_the_events_since_the_last_start_are_found_by_type(sessions: Sessions, events: Events):
    session = await sessions.create()
    first = ["notice", "turn_failed", "turn_started", "notice", "text", "turn_finished"]
    second = ["notice", "turn_started", "text", "notice", "turn_failed", "notice"]
    await events.append(session.id, [(kind, b"{}") for kind in [*first, *second]])

    async def numbers(until: int, *types: str) -> list[int]:
        ends = ("turn_finished", "turn_failed")
        found = await events.since_last(session.id, "turn_started", types, ends=ends, until=until)
        return [event.seq for event in found]

    assert await numbers(2, "notice", "turn_failed") == [1, 2], "nothing has started yet"
    assert await numbers(6, "notice", "turn_finished") == [4, 6]
    assert await numbers(8, "notice", "turn_failed") == [7], "what came just before it belongs to it"
    assert await numbers(11, "notice", "turn_failed") == [7, 10, 11]
    assert await numbers(100, "notice", "turn_failed") == [7, 10, 11, 12]
    assert await numbers(100) == []


async def test_writing_no_events_takes_no_number(sessions: Sessions, events: Events):
    session = await sessions.create()
    assert await events.append(session.id, []) == 0
    assert await events.append(session.id, [("a", b"{}")]) == 1


async def test_each_session_has_its_own_sequence(sessions: Sessions, events: Events):
    one, two = await sessions.create(), await sessions.create()
    await events.append(one.id, [("a", b"1"), ("b", b"2")])
    await events.append(two.id, [("c", b"3")])
    assert [event.data for event in await events.after(one.id, 0)] == [b"1", b"2"]
    assert [(event.seq, event.data) for event in await events.after(two.id, 0)] == [(1, b"3")]


async def test_many_writers_leave_no_gap_and_keep_each_call_together(sessions: Sessions, events: Events):
    session = await sessions.create()

    async def writer(name: int) -> list[int]:
        return [await events.append(session.id, [(f"w{name}", str(turn).encode())] * 3) for turn in range(8)]

    lasts = await asyncio.gather(*(writer(name) for name in range(6)))
    found = await events.after(session.id, 0, limit=10_000)
    assert [event.seq for event in found] == list(range(1, 6 * 8 * 3 + 1))
    for name, numbers in enumerate(lasts):
        own = [event for event in found if event.type == f"w{name}"]
        assert [int(event.data) for event in own] == [turn for turn in range(8) for _ in range(3)]
        for last in numbers:
            assert {event.type for event in found[last - 3 : last]} == {f"w{name}"}


async def test_a_failing_append_takes_no_number(sessions: Sessions, events: Events, database: Database):
    session = await sessions.create()
    await events.append(session.id, [("a", b"1")])
    with pytest.raises(ContentError):
        await events.append(session.id, [("b\0", b"2")])

    def fails(tx: object) -> None:
        tx.execute("UPDATE session SET last_seq = last_seq + 1")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.write(fails)
    assert await events.append(session.id, [("c", b"3")]) == 2


async def test_what_many_sessions_write_in_one_moment_is_refused_for_one_alone(
    sessions: Sessions, events: Events, leases: Leases
):
    """More sessions than one statement takes; one of them is gone, one was taken over, one writes twice."""
    made = [await sessions.create() for _ in range(230)]
    taken = [lease for session in made if (lease := await leases.acquire(session.id, "me", 60)) is not None]
    gone, lost, twice = made[3], made[120], made[229]
    await sessions.delete(gone.id)
    assert await leases.acquire(lost.id, "me", 60) is not None

    async def write(number: int, words: str) -> int:
        rows = [("text", f'"{number} {word}"'.encode()) for word in words.split()]
        return await events.append(made[number].id, rows, fence=taken[number].fence)

    found = await asyncio.gather(
        *(write(number, "one two") for number in range(230)), write(229, "three"), return_exceptions=True
    )

    assert [type(each).__name__ for each in found if not isinstance(each, int)] == ["NotFound", "Conflict"]
    assert (type(found[3]), type(found[120])) == (NotFound, Conflict)
    assert (found[229], found[230]) == (2, 3)
    heads = await events.heads([session.id for session in made])
    assert heads == {session.id: 2 for session in made if session is not gone} | {lost.id: 0, twice.id: 3}
    for number in (0, 119, 228, 229):
        said = [event.data.decode() for event in await events.after(made[number].id, 0)]
        words = ["one", "two", "three"] if number == 229 else ["one", "two"]
        assert said == [f'"{number} {word}"' for word in words]


async def test_a_damaged_session_keeps_none_of_the_others_from_writing(
    sessions: Sessions, events: Events, database: Database
):
    made = [await sessions.create() for _ in range(5)]
    for session in made:
        await events.append(session.id, [("text", b'"before"')] * 2)
    damaged = made[2].id
    await database.write(lambda tx: tx.execute("UPDATE session SET last_seq = 0 WHERE id = :id", {"id": damaged}))

    writing = (events.append(session.id, [("text", b'"now"')]) for session in made)
    found = await asyncio.gather(*writing, return_exceptions=True)

    assert [found[at] for at in (0, 1, 3, 4)] == [3, 3, 3, 3]
    assert isinstance(found[2], Conflict)
    assert [event.data for event in await events.after(damaged, 0)] == [b'"before"', b'"before"']


async def test_who_stops_waiting_stops_nobody_else(sessions: Sessions, events: Events):
    first, second = [await sessions.create() for _ in range(2)]
    left = asyncio.create_task(events.append(first.id, [("text", b'"a"')]))
    stays = asyncio.create_task(events.append(second.id, [("text", b'"b"')]))
    await asyncio.sleep(0)
    left.cancel()

    assert await stays == 1
    with pytest.raises(asyncio.CancelledError):
        await left


def test_a_loop_that_ended_too_soon_holds_up_no_later_one():
    """As where a program runs one loop after another and leaves the first in a hurry."""

    async def double(numbers: Sequence[int]) -> list[int]:
        return [2 * number for number in numbers]

    async def leave() -> None:
        asked = asyncio.create_task(together.submit(1))
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    together = Batcher(double)
    asyncio.run(leave())

    assert asyncio.run(asyncio.wait_for(together.submit(21), 60)) == 42


async def test_order_is_by_number_whatever_the_clock_says(database: Database):
    times = iter([100.0, 50.0, 9000.0, 1.0])
    session = await Sessions(database, clock=lambda: next(times)).create()
    events = Events(database, clock=lambda: next(times))
    for name in "abc":
        await events.append(session.id, [(name, b"{}")])
    found = await events.after(session.id, 0)
    assert [event.type for event in found] == ["a", "b", "c"]


@pytest.mark.parametrize("data", [b"\xff", b'"a\0b"'])
async def test_what_is_no_text_is_no_event(sessions: Sessions, events: Events, data: bytes):
    session = await sessions.create()
    with pytest.raises(ContentError, match="An event must be JSON"):
        await events.append(session.id, [("a", data)])
    assert await events.head(session.id) == 0


async def test_numbers_beyond_all_events_are_answered_the_same_in_both_databases(sessions: Sessions, events: Events):
    session = await sessions.create()
    await events.append(session.id, [("a", b"{}")])
    assert await events.after(session.id, 2**70) == ()
    assert [event.seq for event in await events.after(session.id, -(2**70), limit=2**70)] == [1]
    with pytest.raises(ContentError, match="limit"):
        await events.after(session.id, 0, limit=-1)
