"""kill -9 of a process that works through a queue: what was acknowledged is said once, what was asked can still be
answered, nothing runs twice."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from pathlib import Path

from flow.turner import EFFECTS, MODEL
from flow.worker import EFFECTS as ASKED_EFFECTS
from flow.worker import mark
from loom.config import load_config
from loom.content.messages import broken_pairs, text_of
from loom.events import ApprovalAnswered, TurnFailed, TurnFinished, TurnStarted, decode_event
from loom.runtime import Runtime
from loom.testing import ScriptedProvider

WORKER = Path(__file__).with_name("worker.py")
TESTS = WORKER.parent.parent
KILLS = 25


def started(mode: str, folder: Path, session_id: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WORKER), mode, str(folder), session_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(TESTS)},
    )


def lived(process: subprocess.Popen[str], length: int) -> list[list[str]]:
    assert process.stdin
    assert process.stdout
    process.stdin.write(f"{length}\n")
    process.stdin.flush()
    lines: list[list[str]] = []
    while (line := process.stdout.readline().split())[0] != "gone":
        lines.append(line)
    assert line[1] == str(0 if length == 0 else int(signal.SIGKILL)), line
    return lines


def killed(folder: Path, session_id: str, seed: int) -> list[str]:
    """Kill at seeded points; gives the messages that were acknowledged."""
    with started("zygote", folder, session_id) as process:
        lines = lived(process, 0)
        count = int(lines[-1][1])
        for point in random.Random(seed).sample(range(1, count + 1), KILLS):
            lines += lived(process, point)
        assert process.stdin
        process.stdin.close()
    return [line[1].replace("_", " ") for line in lines if line[0] == "posted"]


async def test_every_message_that_was_acknowledged_is_said_exactly_once(tmp_path: Path) -> None:
    """F1, F17."""
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)})
    async with Runtime.open(config) as runtime:
        session_id = (await runtime.session(model=MODEL)).id
    posted = await asyncio.to_thread(killed, tmp_path, session_id, 20261116)
    async with Runtime.open(config, providers={"anthropic": ScriptedProvider(["back"] * 100)}) as runtime:
        session = await runtime.session(session_id)
        async for _ in session.work():
            pass
        assert await session.queue() == ()
        path = await session.path()
        said = [text.partition("\n")[0] for message in path if message.role == "user" for text in [message.text]]
        assert len(said) == len(set(said))
        assert set(posted) <= set(said)
        assert [text for text in said if text in set(posted)] == posted, "in the order in which they were posted"
        assert broken_pairs(path) == ()
        marks = (tmp_path / EFFECTS).read_text().split()
        assert len(marks) == len(set(marks))
        assert await runtime.stores.database.check() == ()
        assert (await runtime.stores.forest.verify(exists=runtime.stores.media.exists)).problems == ()
        stored = await runtime.stores.events.after(session_id, 0, limit=100_000)
        assert [event.seq for event in stored] == list(range(1, len(stored) + 1))
        events = [decode_event(event.data) for event in stored]
        open_turns = {event.turn for event in events if isinstance(event, TurnStarted)}
        ended = {event.turn for event in events if isinstance(event, TurnFinished | TurnFailed)}
        assert open_turns <= ended


async def test_an_approval_that_was_open_when_the_process_was_killed_is_answered_later_and_the_tool_runs_once(
    tmp_path: Path,
) -> None:
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)})
    async with Runtime.open(config) as runtime:
        session_id = (await runtime.session(model=MODEL)).id
    for life in range(3):
        with await asyncio.to_thread(started, "ask", tmp_path, session_id) as process:
            assert process.stdout
            word, approval = (await asyncio.to_thread(process.stdout.readline)).split()
            assert word == "asked"
            process.kill()
        if life == 0:
            first = approval
        assert approval == first, "the same question, however often it is asked"
    async with Runtime.open(
        config, providers={"anthropic": ScriptedProvider(["It is there."] + ["Nothing more."] * 5)}, tools=[mark]
    ) as runtime:
        assert await runtime.stores.leases.list_abandoned() == (session_id,)
        session = await runtime.session(session_id)
        assert [event.approval for event in await session.approvals()] == [first]
        await session.answer(first, "once")
        events = [event async for event in session.work()]
        assert [event.answer for event in events if isinstance(event, ApprovalAnswered)] == ["once"]
        assert (tmp_path / ASKED_EFFECTS).read_text() == "x"
        path = await session.path()
        assert [text_of(result) for message in path for result in message.results] == ["left"]
        assert path[3].text == "It is there."
        assert [message.text for message in path if message.role == "user"] == [
            "leave a mark",
            "what now?",
            *["leave a mark", "what now?"] * 2,
        ]
        stored = [decode_event(event.data) for event in await runtime.stores.events.after(session_id, 0, limit=10_000)]
        begun = [event.turn for event in stored if isinstance(event, TurnStarted)]
        assert begun == [event.turn for event in stored if isinstance(event, TurnFinished)]
        assert not any(isinstance(event, TurnFailed) for event in stored)
