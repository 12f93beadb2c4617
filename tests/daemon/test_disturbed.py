"""Daemons that are killed, stopped, lose their database or have a wrong clock: turns end by themselves, and nothing is
lost or repeated. `python -m benchmarks.kills` does the same for longer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.disturbance import (
    killing,
    one_on_sqlite,
    pausing,
    run_disturbed,
    stopping,
    surroundings,
    two_on_postgres,
    unsettling,
)
from daemon.forked import Nursery, nursery
from daemon.running import until
from daemon.test_kills import idle
from loom.content.messages import text_of
from patience import PATIENCE_SECONDS
from postgres_server import PostgresServer, postgres_server

KILLS = 60
pytestmark = pytest.mark.xdist_group("disturbed daemons")


@pytest.fixture(scope="module")
def nest() -> Iterator[Nursery]:
    with nursery() as found:
        yield found


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as found:
        yield found


async def test_one_daemon_that_is_killed_sixty_times_loses_and_repeats_nothing(tmp_path: Path, nest: Nursery) -> None:
    with one_on_sqlite(tmp_path, nest) as daemons:
        outcome = await run_disturbed(daemons, tmp_path, killing(daemons, (0.0, 0.3)), times=KILLS, seed=1)
    assert outcome.continued > KILLS // 4


async def test_two_daemons_of_which_one_is_killed_sixty_times_lose_and_repeat_nothing(
    tmp_path: Path, nest: Nursery, server: PostgresServer
) -> None:
    with two_on_postgres(tmp_path, nest, server) as daemons:
        outcome = await run_disturbed(daemons, tmp_path, killing(daemons, (0.0, 0.2)), times=KILLS, seed=2)
    assert outcome.continued > KILLS // 6


async def test_two_daemons_that_are_deployed_again_and_again_hand_their_turns_over(
    tmp_path: Path, nest: Nursery, server: PostgresServer
) -> None:
    with two_on_postgres(tmp_path, nest, server) as daemons:
        outcome = await run_disturbed(daemons, tmp_path, stopping(daemons, (0.1, 0.6)), times=8, seed=3)
    assert outcome.closed == 0, "a process that stops in good order is no death"
    assert outcome.asked_again == 0, "turns are handed over between two steps"


async def test_a_database_that_is_away_for_less_than_a_lease_ends_no_turn(
    tmp_path: Path, nest: Nursery, server: PostgresServer
) -> None:
    with two_on_postgres(tmp_path, nest, server) as daemons:
        away = pausing(server.stop, server.start, (0.3, 0.8), 2.0)
        outcome = await run_disturbed(daemons, tmp_path, away, times=2, seed=4)
    assert (outcome.continued, outcome.closed) == (0, 0)


async def test_daemons_that_are_killed_while_their_bucket_and_their_bus_hang_or_are_away_lose_nothing(
    tmp_path: Path, nest: Nursery, server: PostgresServer
) -> None:
    async with surroundings(tmp_path) as around:
        with two_on_postgres(tmp_path, nest, server, settings=around.settings) as daemons:
            disturb = unsettling(daemons, around, (0.1, 0.8))
            outcome = await run_disturbed(daemons, tmp_path, disturb, times=8, seed=6)
    assert outcome.messages > 0


async def test_a_daemon_whose_clock_is_a_minute_ahead_takes_nothing_from_a_live_one(
    tmp_path: Path, nest: Nursery, server: PostgresServer
) -> None:
    with two_on_postgres(tmp_path, nest, server, skew_seconds=60) as daemons:
        first = daemons[:1]
        outcome = await run_disturbed(daemons, tmp_path, killing(first, (0.2, 0.6)), times=6, seed=5)
        ahead = daemons[1].log()
    assert outcome.messages > 0
    assert "its lease had expired" not in ahead, "only dead processes lose their sessions"


async def test_what_a_killed_daemon_s_command_left_is_ended_before_the_model_reads_that_it_was_cut_off(
    tmp_path: Path, nest: Nursery
) -> None:
    ticks = tmp_path / "ticks"
    with one_on_sqlite(tmp_path, nest) as (daemon,):
        async with daemon.client() as client:
            session = await client.session(workspace=str(tmp_path))
            await session.post(
                '!tool run_command {"command": "while true; do echo tick >> ticks; sleep 0.05; done", "timeout": 100}'
            )
            await until(ticks.exists, PATIENCE_SECONDS)
        await asyncio.to_thread(daemon.kill)
        left = ticks.stat().st_size
        await until(lambda: ticks.stat().st_size > left, PATIENCE_SECONDS)
        await asyncio.to_thread(daemon.start)
        async with daemon.client() as client:
            session = await client.session(session.id)
            await idle(session)
            ended = ticks.stat().st_size
            (result,) = [result for message in await session.path() for result in message.results]
            assert result.is_error and "Interrupted" in text_of(result)
            await asyncio.sleep(0.5)
            assert ticks.stat().st_size == ended
