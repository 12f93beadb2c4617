"""Two daemons on one PostgreSQL, one Redis and one bucket: either serves any session, and takes over from the other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest

from daemon.running import DaemonProcess, RedisServer, redis_server
from daemon.test_kills import SETTINGS, all_events, check_marks, check_turns, idle, said
from loom.client import Client, RemoteSession
from loom.content.messages import broken_pairs
from loom.errors import NotFound
from loom.events import ApprovalRequested, Event, MessageStored, TextDelta, TurnFailed, TurnFinished
from loom.testing import sample_png
from patience import PATIENCE_SECONDS
from postgres_server import postgres_server
from s3_server import moto_server, new_bucket

pytestmark = pytest.mark.xdist_group("two daemons")  # they share what they stand on


class House:
    """Two daemons and what they stand on."""

    def __init__(self, folder: Path, redis: RedisServer, settings: dict[str, str]) -> None:
        self.redis = redis
        self.a = DaemonProcess(folder / "a", settings)
        self.b = DaemonProcess(folder / "b", settings)
        self.workspace = folder / "workspace"
        self.workspace.mkdir()


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with two_daemons(tmp_path_factory.mktemp("two")) as found:
        yield found


@contextlib.contextmanager
def two_daemons(folder: Path) -> Iterator[House]:
    with postgres_server() as postgres, moto_server() as s3, redis_server(folder) as redis:
        settings = {
            "LOOM_STORE__URL": postgres.empty_database(),
            "LOOM_MEDIA__URL": new_bucket(s3),
            "LOOM_BUS__URL": redis.url,
            **SETTINGS,
        }
        found = House(folder, redis, settings)
        found.a.start()
        found.b.start()
        try:
            yield found
        finally:
            found.a.kill()
            found.b.kill()


@contextlib.asynccontextmanager
async def both(house: House) -> AsyncGenerator[tuple[Client, Client]]:
    async with house.a.client() as a, house.b.client() as b:
        yield a, b


async def until_end(session: RemoteSession, after: int = 0) -> list[Event]:
    seen: list[Event] = []
    async for _, event in session.events(after):
        seen.append(event)
        if isinstance(event, TurnFinished | TurnFailed):
            return seen
    raise AssertionError


async def approval_of(session: RemoteSession) -> ApprovalRequested:
    async for _, event in session.events():
        if isinstance(event, ApprovalRequested):
            return event
    raise AssertionError


async def test_a_turn_that_began_on_one_is_watched_on_the_other_as_it_happens(house: House) -> None:
    async with both(house) as (a, b):
        session = await a.session()
        watched = asyncio.create_task(until_end(await b.session(session.id)))
        events = [event async for event in session.stream("!slow 60tps\n!tokens 60", sample_png(60, 40))]
        seen = await asyncio.wait_for(watched, PATIENCE_SECONDS)
        assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "".join(
            event.text for event in events if isinstance(event, TextDelta)
        )
        assert len([event for event in seen if isinstance(event, TextDelta)]) > 5
        assert isinstance(seen[-1], TurnFinished)
        digest = next(iter((await session.path())[0].blocks[1:])).media.digest
        kept = await b._link.ask("GET", f"/v1/media/{digest}")
        assert kept[:4] == b"\x89PNG"


async def test_an_approval_is_answered_and_a_turn_cancelled_on_the_other(house: House) -> None:
    async with both(house) as (a, b):
        here = await a.session(workspace=str(house.workspace))
        there = await b.session(here.id)
        await here.post('!tool write_file {"path": "answered", "content": "yes"}')
        request = await asyncio.wait_for(approval_of(there), PATIENCE_SECONDS)
        assert (await there.info()).state == "waiting"
        await there.answer(request.approval, "once")
        await idle(there)
        assert (house.workspace / "answered").exists()

        running = asyncio.create_task(_events(here, "!slow 10tps\n!tokens 500"))
        await asyncio.wait_for(_begun(there), PATIENCE_SECONDS)
        began = time.monotonic()
        await there.cancel()
        events = await asyncio.wait_for(running, PATIENCE_SECONDS)
        assert isinstance(events[-1], TurnFailed) and events[-1].code == "turn.cancelled"
        assert time.monotonic() - began < PATIENCE_SECONDS


async def _events(session: RemoteSession, text: str) -> list[Event]:
    return [event async for event in session.stream(text)]


async def _begun(session: RemoteSession) -> None:
    last = (await session.info()).last_seq
    async for _, event in session.events(last):
        if isinstance(event, TextDelta):
            return


async def test_messages_to_both_at_once_are_answered_one_after_the_other(house: House) -> None:
    async with both(house) as (a, b):
        here = await a.session()
        there = await b.session(here.id)
        said = [(here if number % 2 else there).post(f"!echo {number}", key=str(number)) for number in range(10)]
        twice = [(there if number % 2 else here).post(f"!echo {number}", key=str(number)) for number in range(10)]
        posted = await asyncio.gather(*said, *twice)
        assert len({queued.id for queued in posted}) == 10
        await idle(here)
        path = await there.path()
        assert [message.role for message in path] == ["user", "assistant"] * 10
        assert [f"!echo {message.text}" for message in path[1::2]] == [message.text for message in path[::2]]
        check_turns(await all_events(there))


async def woken(house: House, rounds: int) -> None:
    """Stop one in the middle of a turn, as a machine that hangs does, until the other has taken the session over; then
    let it go on: it must not write any more. (Takes as long as a lease: `benchmarks.daemon --kills` does it.)"""
    async with house.b.client() as b:
        for number in range(rounds):
            workspace = house.workspace / f"paused-{number}"
            workspace.mkdir()
            session = await b.session(workspace=str(workspace))
            async with house.a.client() as a:
                await (await a.session(session.id)).post(said(number), sample_png(20, 10 + number))
                await asyncio.wait_for(_said(session, number), PATIENCE_SECONDS)
            os.kill(house.a.pid, signal.SIGSTOP)
            await asyncio.wait_for(_ended(session), 40)
            before = (await session.info()).last_seq
            os.kill(house.a.pid, signal.SIGCONT)
            await session.send("!echo after all")
            await asyncio.sleep(3)
            check_turns(await all_events(session))
            later = await all_events(session, before)
            assert [type(event) for event in later].count(TurnFinished) == 1
            path = await session.path()
            check_marks(workspace, path)
            assert broken_pairs(path) == ()


async def _ended(session: RemoteSession) -> None:
    async for _, event in session.events():
        if isinstance(event, TurnFinished | TurnFailed):
            return


async def _said(session: RemoteSession, number: int) -> None:
    async for _, event in session.events():
        if isinstance(event, MessageStored) and event.message.text == said(number):
            return


async def test_without_the_bus_everything_goes_on_a_little_later(house: House) -> None:
    async with both(house) as (a, b):
        session = await a.session()
        house.redis.stop()
        try:
            watched = asyncio.create_task(until_end(await b.session(session.id)))
            await session.send("!slow 60tps\n!tokens 40")
            assert isinstance((await asyncio.wait_for(watched, PATIENCE_SECONDS))[-1], TurnFinished)
        finally:
            house.redis.start()
        last = (await session.info()).last_seq
        there = await b.session(session.id)
        watched = asyncio.create_task(until_end(there, last))
        await session.send("!echo again")
        assert isinstance((await asyncio.wait_for(watched, PATIENCE_SECONDS))[-1], TurnFinished)
        await there.delete()
        with pytest.raises(NotFound):
            await session.info()
