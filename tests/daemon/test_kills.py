"""F1, F2: kill -9 at any point of a turn. What was accepted is there once and answered or closed; nothing ran twice."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import time
from pathlib import Path

from daemon.running import DaemonProcess, daemon
from loom.client import RemoteSession
from loom.content.blocks import ImageBlock
from loom.content.media import digest_of
from loom.content.messages import Message, broken_pairs
from loom.events import Event, NoticeRaised, TextDelta, TurnFailed, TurnFinished, TurnStarted
from loom.session import Queued
from loom.testing import sample_png
from patience import PATIENCE_SECONDS

ROUNDS = 5
SETTINGS = {"LOOM_APPROVAL__RULES": '[{"tool": "run_command", "action": "allow"}]'}


def said(number: int) -> str:
    """A turn of about a second: it thinks, runs a command that leaves a mark, and talks."""
    command = f'{{"command": "echo {number} >> marks"}}'
    return f"message {number}\n!slow 300tps\n!think 50ms\n!tool run_command {command}\n!tokens 100"


async def idle(session: RemoteSession) -> None:
    for _ in range(3_000):
        if (await session.info()).state == "idle":
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the session is still busy")


async def all_events(session: RemoteSession, after: int = 0) -> list[Event]:
    """Those that follow this number; words that were written in pieces may come as one."""
    last = (await session.info()).last_seq
    found: list[Event] = []
    if last <= after:
        return found
    async for seq, event in session.events(after):
        found.append(event)
        if seq == last:
            break
    return found


def check_path(path: tuple[Message, ...], accepted: list[int]) -> None:
    """Every accepted message once, in order, with the bytes of its picture; every call answered."""
    asked = [message for message in path if message.role == "user"]
    numbers = [int(message.text.split()[1]) for message in asked]
    assert numbers == sorted(set(numbers))
    assert set(accepted) <= set(numbers)
    for message, number in zip(asked, numbers, strict=True):
        (picture,) = [block for block in message.blocks if isinstance(block, ImageBlock)]
        assert picture.media.digest == digest_of(sample_png(20, 10 + number))
    assert broken_pairs(path) == ()


def check_marks(workspace: Path, path: tuple[Message, ...]) -> None:
    marks = (workspace / "marks").read_text().split() if (workspace / "marks").exists() else []
    assert len(marks) == len(set(marks))
    results = [result for message in path for result in message.results]
    assert len([result for result in results if not result.is_error]) <= len(marks)


def check_turns(events: list[Event]) -> None:
    begun = [event.turn for event in events if isinstance(event, TurnStarted)]
    ended = [event.turn for event in events if isinstance(event, TurnFinished | TurnFailed)]
    twice = {turn for turn in ended if ended.count(turn) > 1}
    assert not twice, [
        event for event in events if isinstance(event, TurnFinished | TurnFailed) and event.turn in twice
    ]
    assert set(begun) <= set(ended)
    assert {event.code for event in events if isinstance(event, TurnFailed)} <= {"turn.interrupted"}


async def said_until_killed(house: DaemonProcess, session: RemoteSession, number: int, after_seconds: float) -> bool:
    """Whether the message was accepted before the daemon died. Every second time the clock begins when it was, so that
    turns are cut, too, and not only requests."""
    posting = asyncio.create_task(session.post(said(number), sample_png(20, 10 + number), key=str(number)))
    if number % 2 == 0:
        await posting
    await asyncio.sleep(after_seconds)
    house.kill()
    (answer,) = await asyncio.gather(posting, return_exceptions=True)
    return isinstance(answer, Queued)


async def test_a_daemon_that_is_killed_again_and_again_loses_nothing_that_it_accepted(tmp_path: Path) -> None:
    accepted, slowest = await lives(tmp_path, ROUNDS, 20261116)
    assert accepted > ROUNDS // 2
    assert slowest < 20


async def lives(folder: Path, rounds: int, seed: int) -> tuple[int, float]:
    """Kill a daemon so often, and check; gives how many messages it had accepted and the slowest start."""
    chance = random.Random(seed)
    workspace = folder / "workspace"
    workspace.mkdir()
    accepted: list[int] = []
    slowest = 0.0
    with daemon(folder / "home", SETTINGS) as house:
        async with house.client() as client:
            session_id = (await client.session(workspace=str(workspace))).id
        for number in range(rounds):
            async with house.client(patience_seconds=0.2) as client:
                session = await client.session(session_id)
                if await said_until_killed(house, session, number, chance.uniform(0.05, 1.2)):
                    accepted.append(number)
            began = time.monotonic()
            await asyncio.to_thread(house.start)
            slowest = max(slowest, time.monotonic() - began)
        async with house.client() as client:
            session = await client.session(session_id)
            for _ in range(2):
                await session.post(said(rounds), sample_png(20, 10 + rounds), key=str(rounds))
            await idle(session)
            path = await session.path()
            check_path(path, [*accepted, rounds])
            check_marks(workspace, path)
            check_turns(await all_events(session))
        assert house.stop() in (0, -15)
        assert "Traceback" not in house.log()
    with contextlib.closing(sqlite3.connect(folder / "home" / "loom.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
    return len(accepted), slowest


async def test_a_caller_watches_the_answer_continue_after_the_daemon_was_killed(tmp_path: Path) -> None:
    with daemon(tmp_path / "home") as house:
        async with house.client() as client:
            session = await client.session()
            seen: list[Event] = []
            async for event in session.stream("!slow 30tps\n!tokens 30"):
                seen.append(event)
                if isinstance(event, TurnStarted):
                    house.kill()
                    await asyncio.to_thread(house.start)
            assert isinstance(seen[-1], TurnFinished)
            assert any(event.code == "turn.continued" for event in seen if isinstance(event, NoticeRaised))
            words = "".join(event.text for event in seen if isinstance(event, TextDelta))
            path = await session.path()
            assert "".join(message.text for message in path if message.role == "assistant") == words
            assert (await session.send("!echo back")).text.endswith("back")


async def test_a_daemon_that_is_told_to_stop_finishes_its_turns_and_leaves_the_rest_for_later(tmp_path: Path) -> None:
    with daemon(tmp_path / "home") as house:
        async with house.client() as client:
            sessions = [await client.session() for _ in range(20)]
            for session in sessions:
                await session.post("!slow 60tps\n!tokens 60")
                await session.post("!echo after the restart")
            began = time.monotonic()
            await asyncio.to_thread(house.stop)
            assert time.monotonic() - began < PATIENCE_SECONDS
            await asyncio.to_thread(house.start)
            for session in sessions:
                await idle(session)
                path = await session.path()
                assert [message.role for message in path] == ["user", "assistant"] * 2
                assert path[-1].text == "after the restart"
                events = await all_events(session)
                check_turns(events)
                assert not [event for event in events if isinstance(event, TurnFailed)]
        assert "Traceback" not in house.log()
