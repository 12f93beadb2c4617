"""F1, F2: kill -9 at any point of a turn. What was accepted is there once and answered or closed; nothing ran twice."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import httpx2
import pytest

from daemon.asking import api_of
from daemon.running import daemon, until_true
from loom.client import RemoteSession
from loom.content.messages import Message
from loom.events import Event, NoticeRaised, TextDelta, TurnFailed, TurnFinished, TurnStarted
from patience import PATIENCE_SECONDS

SETTINGS = {"LOOM_APPROVAL__RULES": '[{"tool": "run_command", "action": "allow"}]'}


def said(number: int) -> str:
    """A turn of about a second: it thinks, runs a command that leaves a mark, and talks."""
    command = f'{{"command": "echo {number} >> marks"}}'
    return f"message {number}\n!slow 300tps\n!think 50ms\n!tool run_command {command}\n!tokens 100"


async def idle(session: RemoteSession) -> None:
    async def is_idle() -> bool:
        return (await session.info()).state == "idle"

    await until_true(is_idle)


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


@pytest.mark.parametrize("after_crash", ["continue", "stop"])
async def test_every_part_of_an_answer_names_its_model_after_a_kill(tmp_path: Path, after_crash: str) -> None:
    with daemon(tmp_path / "home", {"LOOM_TURN__AFTER_CRASH": after_crash}) as house:
        async with house.client() as client:
            session = await client.session()
            words = ""
            async for event in session.stream("!slow 30tps\n!tokens 30"):
                if isinstance(event, TextDelta) and not words:
                    words = event.text
                    house.kill()
                    await asyncio.to_thread(house.start)
            with api_of(house) as api:
                messages = api.get(f"/v1/sessions/{session.id}/messages").json()["messages"]
            answers = [message for message in messages if message["role"] == "assistant"]
            assert answers[0]["blocks"][0]["text"].startswith(words)
            assert {message["model"] for message in answers} == {"loom/spark"}


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


async def test_tokens_that_are_paid_twice_after_a_kill_are_shown_and_counted(tmp_path: Path) -> None:
    with daemon(tmp_path / "home") as house:
        async with house.client() as client:
            session = await client.session()
            notices: list[str] = []
            kills = 0
            async for event in session.stream("!slow 30tps\n!tokens 60"):
                if isinstance(event, NoticeRaised) and event.code == "turn.continued":
                    notices.append(event.text)
                if isinstance(event, TextDelta) and kills == len(notices) < 2:
                    kills += 1
                    house.kill()
                    await asyncio.to_thread(house.start)
            async with httpx2.AsyncClient(base_url=house.url) as http:
                text = (await http.get("/v1/metrics", headers={"authorization": f"Bearer {house.token}"})).text
    first, second = notices
    assert re.fullmatch(r"Continued after a restart\. About [\d,]+ tokens are billed twice\.", first)
    assert re.fullmatch(
        r"Continued after a restart\. About [\d,]+ tokens are billed twice, [\d,]+ in this turn\.", second
    )
    assert "loom_turns_continued 1\n" in text, "the process counts what it has done itself"
    (counted,) = re.findall(r"^loom_tokens_paid_twice (\d+)$", text, re.MULTILINE)
    assert int(counted) > 0
