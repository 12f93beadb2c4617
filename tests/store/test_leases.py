"""Leases: one process at a time runs a session, and one that lost it cannot write, however late it wakes up."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from loom.content.messages import assistant, user
from loom.errors import Conflict, NotFound
from loom.session import SessionChange
from loom.store.commands import Commands
from loom.store.database import Database, open_database
from loom.store.events import Events
from loom.store.forest import Forest
from loom.store.journal import Journal
from loom.store.leases import Leases
from loom.store.process_identity import ProcessIdentity, is_gone
from loom.store.sessions import Sessions

RUNNER = Path(__file__).with_name("holder.py")


async def test_a_session_has_one_holder_at_a_time_and_the_fence_grows(leases: Leases, sessions: Sessions) -> None:
    session = await sessions.create()
    assert await leases.holder(session.id) == ""
    first = await leases.acquire(session.id, "a", 60)
    assert first is not None
    assert await leases.acquire(session.id, "b", 60) is None
    anew = await leases.acquire(session.id, "a", 60)
    assert anew is not None
    assert anew.fence > first.fence
    assert not await leases.renew(first)
    first = anew
    assert await leases.holder(session.id) == "a"
    await leases.release(first)
    second = await leases.acquire(session.id, "b", 60)
    assert second is not None
    assert second.fence > first.fence
    await leases.release(first)
    assert await leases.holder(session.id) == "b"
    assert not await leases.renew(first)
    assert await leases.renew(second)
    assert ((await leases.read_state(first)).is_ours, (await leases.read_state(second)).is_ours) == (False, True)


async def test_a_lease_runs_out_but_stays_ours_while_nobody_wants_it(leases: Leases, sessions: Sessions) -> None:
    session = await sessions.create()
    lease = await leases.acquire(session.id, "a", -1)
    assert lease is not None
    assert await leases.holder(session.id) == ""
    assert await leases.list_abandoned() == (session.id,)
    longer = msgspec.structs.replace(lease, seconds=60)
    assert await leases.renew(longer)
    assert await leases.list_abandoned() == ()
    assert await leases.acquire(session.id, "b", 60) is None
    assert await leases.renew(lease)
    other = await leases.acquire(session.id, "b", 60)
    assert other is not None
    assert not await leases.renew(lease)


async def test_many_leases_are_looked_after_in_one_moment(leases: Leases, sessions: Sessions) -> None:
    made = [await sessions.create() for _ in range(12)]
    first = [await leases.acquire(session.id, "me", 60) for session in made]
    held = [lease for lease in first if lease is not None]
    assert await leases.acquire(made[5].id, "me", 60) is not None
    await sessions.delete(made[7].id)

    renewed = await asyncio.gather(*map(leases.renew, held))
    seen = await asyncio.gather(*map(leases.read_state, held))

    expected = [number not in (5, 7) for number in range(12)]
    assert renewed == expected
    assert [found.is_ours for found in seen] == expected


async def test_of_many_who_want_a_session_one_gets_it(leases: Leases, sessions: Sessions) -> None:
    session = await sessions.create()
    taken = await asyncio.gather(*(leases.acquire(session.id, f"h{number}", 60) for number in range(12)))
    assert sum(lease is not None for lease in taken) == 1


async def test_every_write_of_an_old_holder_is_refused_and_changes_nothing(
    leases: Leases, sessions: Sessions, events: Events, forest: Forest
) -> None:
    session = await sessions.create()
    old = await leases.acquire(session.id, "old", -1)
    new = await leases.acquire(session.id, "new", 60)
    assert old is not None
    assert new is not None
    (said,) = await sessions.append_to_head(session.id, [user("new")], fence=new.fence)
    late = [
        sessions.append_to_head(session.id, [user("late")], fence=old.fence),
        sessions.move_head(session.id, said.id, session.root_id, fence=old.fence),
        sessions.update(session.id, settings={"late": True}, fence=old.fence),
        events.append(session.id, [("text", b"{}")], fence=old.fence),
    ]
    for writing in late:
        with pytest.raises(Conflict, match="taken over"):
            await writing
    found = await sessions.get(session.id)
    assert (found.head_id, found.settings, found.last_seq) == (said.id, {}, 0)
    await leases.release(new)
    for fence in (old.fence, new.fence):
        with pytest.raises(Conflict):
            await events.append(session.id, [("text", b"{}")], fence=fence)
    assert await events.append(session.id, [("text", b"{}")]) == 1


async def test_while_a_turn_runs_nobody_else_moves_the_head(leases: Leases, sessions: Sessions) -> None:
    session = await sessions.create()
    lease = await leases.acquire(session.id, "a", 60)
    assert lease is not None
    with pytest.raises(Conflict, match="running"):
        await sessions.append_to_head(session.id, [user("in between")])
    with pytest.raises(Conflict, match="running"):
        await sessions.move_head(session.id, session.head_id, session.root_id)
    (said,) = await sessions.append_to_head(session.id, [user("mine")], fence=lease.fence)
    await sessions.update(session.id, title="a title can be changed at any time")
    await sessions.append_branch(session.id, said.id, [assistant("aside")])
    await leases.release(lease)
    await sessions.append_to_head(session.id, [user("now")])


async def test_a_deleted_session_has_no_lease(leases: Leases, sessions: Sessions) -> None:
    session = await sessions.create()
    lease = await leases.acquire(session.id, "a", 60)
    assert lease is not None
    await sessions.delete(session.id)
    assert not await leases.renew(lease)
    assert not (await leases.read_state(lease)).is_ours
    await leases.release(lease)
    with pytest.raises(NotFound):
        await leases.acquire(session.id, "a", 60)
    with pytest.raises(NotFound):
        await leases.holder("nonsense")


# Requests ------------------------------------------------------------------------------------------------------------


async def test_what_is_asked_of_a_turn_is_taken_once_in_order_by_its_holder(
    database: Database, leases: Leases, sessions: Sessions
) -> None:
    requests = Commands(database)
    session = await sessions.create()
    lease = await leases.acquire(session.id, "a", 60)
    assert lease is not None
    assert await requests.take(session.id, fence=lease.fence) == ()
    await requests.put(session.id, "answer", {"approval": "x", "answer": "once"})
    await requests.put(session.id, "cancel")
    with pytest.raises(Conflict):
        await requests.take(session.id, fence=lease.fence + 1)
    asked = await requests.take(session.id, fence=lease.fence)
    assert [(found.kind, found.data) for found in asked] == [
        ("answer", {"approval": "x", "answer": "once"}),
        ("cancel", {}),
    ]
    assert await requests.take(session.id, fence=lease.fence) == ()
    with pytest.raises(NotFound):
        await requests.put("0" * 26, "cancel")


async def test_a_wish_to_stop_ends_with_the_turn_that_it_was_meant_for(
    database: Database, leases: Leases, sessions: Sessions
) -> None:
    requests = Commands(database)
    session = await sessions.create()
    await requests.put(session.id, "cancel")
    await requests.put(session.id, "answer", {"approval": "x"})
    lease = await leases.acquire(session.id, "a", 60)
    assert lease is not None
    assert [found.kind for found in await requests.take(session.id, fence=lease.fence)] == ["answer"]


# Processes -----------------------------------------------------------------------------------------------------------


def test_a_holder_of_this_process_is_there_until_it_is_closed() -> None:
    holder = ProcessIdentity()
    assert not is_gone(holder.name)
    holder.close()
    assert is_gone(holder.name)


def test_a_holder_whose_process_ended_is_gone_and_one_that_nobody_can_judge_is_not() -> None:
    code = (
        "import os; from loom.store.process_identity import ProcessIdentity;"
        " print(ProcessIdentity().name, flush=True); os.read(0, 1)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    name = process.stdout.readline().strip()
    assert not is_gone(name)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(name), "dead, and not yet buried by its parent"
    process.communicate()
    assert is_gone(name)
    place, _, rest = name.partition("/")
    for unknown in (f"another-machine/{rest}", "b", "", "a/b/c/d", f"{place}/x/y/z"):
        assert not is_gone(unknown)


async def test_two_processes_never_write_in_one_turn(url: str) -> None:
    """Each takes the session over from the other in the middle of its work, again and again."""
    database = await open_database(url)
    sessions, forest = Sessions(database), Forest(database)
    session = await sessions.create()
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, str(RUNNER), url, session.id, name, stdout=asyncio.subprocess.PIPE
        )
        for name in ("a", "b", "c")
    ]
    outputs = [(await process.communicate())[0].decode().split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    written = {word for output in outputs for word in output if not word.startswith("lost")}
    nodes = await forest.path((await sessions.get(session.id)).head_id)
    messages = [node.message.text for node in nodes if node.message is not None]
    assert set(messages) == written
    turns = [text.rpartition(".")[0] for text in messages]
    assert len({turn for at, turn in enumerate(turns) if at == 0 or turns[at - 1] != turn}) == len(set(turns))
    assert any("lost" in output for output in outputs), "nobody was ever overtaken: this test shows nothing"
    for turn in set(turns):
        steps = [int(text.rpartition(".")[2]) for text in messages if text.startswith(f"{turn}.")]
        assert steps == list(range(len(steps)))
    await database.close()


async def test_one_damaged_lease_keeps_no_other_session_from_being_looked_after(tmp_path: Path) -> None:
    database = await open_database(str(tmp_path / "loom.db"))
    sessions, leases = Sessions(database), Leases(database)
    damaged, left = await sessions.create(), await sessions.create()
    for session in (damaged, left):
        assert await leases.acquire(session.id, "gone", -5) is not None
    await database.write(
        lambda tx: tx.execute("UPDATE session SET held_until = 'zz' WHERE id = :id", {"id": damaged.id})
    )
    assert await leases.list_abandoned() == (left.id,)
    await sessions.repair(damaged.id)
    assert await leases.acquire(damaged.id, "me", -5) is not None
    assert set(await leases.list_abandoned()) == {damaged.id, left.id}
    await database.close()


async def test_a_damaged_request_is_left_out_and_told(
    leases: Leases, sessions: Sessions, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    session, requests = await sessions.create(), Commands(database)
    lease = await leases.acquire(session.id, "me", 60)
    assert lease is not None
    for number in range(3):
        await requests.put(session.id, "answer", {"number": number})
    await database.write(lambda tx: tx.execute("""UPDATE request SET data = '{x' WHERE data = '{"number":1}'"""))
    taken = await requests.take(session.id, fence=lease.fence)
    assert [asked.data["number"] for asked in taken] == [0, 2]
    assert session.id in caplog.text
    assert await requests.take(session.id, fence=lease.fence) == ()


async def test_a_lease_that_its_own_holder_released_is_not_counted_as_lost(
    database: Database, leases: Leases, sessions: Sessions
) -> None:
    """A turn's last commit releases the lease; a heartbeat may look before that is noted."""
    session = await sessions.create()
    lease = await leases.acquire(session.id, "me", 60)
    assert lease is not None
    await Journal(database).commit(session.id, SessionChange(lease="release-if-idle"), fence=lease.fence)
    assert not (await leases.read_state(lease)).is_ours
    again = await leases.acquire(session.id, "me", 60)
    assert again is not None
    await Journal(database).commit(session.id, SessionChange(lease="hand-over"), fence=again.fence)
    assert not await leases.renew(again)
    assert leases.counters.lost == 0
    assert await leases.acquire(session.id, "other", 60) is not None
    assert not await leases.renew(again)
    assert leases.counters.lost == 0, "it had been handed over before"
