"""A turn of very many steps whose process is killed again and again.

    long_turner.py FOLDER SESSION STEPS PICTURES     for each number on stdin, fork a child that begins or continues the
                                                     turn and ends itself with SIGKILL at that point; 0 lets it finish

The model makes one call a step and talks only at the end, and every call can be repeated, so a disturbed turn must end
with the very same nodes as an undisturbed one.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import NamedTuple

from flow.turner import MODEL, Fuse, config_of, say
from loom.agent.services import TurnLimits
from loom.config import load_config
from loom.content.blocks import ToolCall
from loom.content.messages import media_of
from loom.events import DecoderEvent, StepStarted, TurnFailed, TurnFinished, decode_event
from loom.prompt import Prompt, ShownResult
from loom.runtime import Runtime
from loom.testing import events_of, sample_png
from loom.tools.base import Tool, tool

TESTS = Path(__file__).resolve().parents[1]
QUESTION = "go through all of it"


class Walker:
    """Answers by what it is shown: the call after the last one, and a word when all are done."""

    def __init__(self, fuse: Fuse, steps: int) -> None:
        self._fuse = fuse
        self._steps = steps

    async def stream(self, prompt: Prompt) -> AsyncIterator[DecoderEvent]:
        results = [block for message in prompt.messages for block in message.blocks if isinstance(block, ShownResult)]
        number = int(results[-1].call_id.removeprefix("call-")) + 1 if results else 1
        is_last = number == self._steps
        answer = "I have seen it all." if is_last else ToolCall(f"call-{number}", "turn_page", {"number": number})
        for event in events_of(answer):
            if not is_last:  # words that were seen would be a message of their own
                self._fuse.point()
            await asyncio.sleep(0)
            yield event


def page_tool(fuse: Fuse, steps: int, pictures: int) -> Tool:
    @tool(reads_only=True)
    async def turn_page(number: int) -> list[str | bytes]:
        """Return a page; some have a picture."""
        fuse.point()
        await asyncio.sleep(0)
        fuse.point()
        calls = steps - 1
        has_picture = number * pictures // calls != (number - 1) * pictures // calls
        return [f"page {number}", *([sample_png(40 + number % 60, 30 + number // 60)] if has_picture else [])]

    return turn_page


async def walk(folder: Path, session_id: str, length: int, steps: int, pictures: int) -> None:
    fuse = Fuse(length)
    async with Runtime.open(
        config_of(folder),
        providers={"anthropic": Walker(fuse, steps)},
        tools=[page_tool(fuse, steps, pictures)],
        limits=TurnLimits(steps=steps + 1),
    ) as runtime:
        runtime.stores.database.write = fuse.around(runtime.stores.database.write)
        runtime.stores.media.put = fuse.around(runtime.stores.media.put)
        session = await runtime.session(session_id)
        events = session.resume() if await session.path() else session.stream(QUESTION)
        async with events as found:
            async for event in found:
                if isinstance(event, TurnFinished | TurnFailed):
                    say("ended", event.type)
        say("points", fuse.passed)


def fork_lives(folder: str, session_id: str, steps: str, pictures: str) -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            asyncio.run(walk(Path(folder), session_id, int(line), int(steps), int(pictures)))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        say("gone", status)


class LongTurn(NamedTuple):
    """How a long turn ended."""

    head: str
    nodes: int
    pictures: int
    requests: int
    deaths: int
    points: int


async def run_long_turn(
    folder: Path,
    *,
    steps: int,
    pictures: int,
    lengths: list[int] | None = None,
    settings: Mapping[str, str] | None = None,
) -> LongTurn:
    """Run a turn whose process dies after each of `lengths` points, and check that it ends by itself."""
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    config = load_config(cwd=folder, environ={**(settings or {}), "LOOM_HOME": str(folder)})
    async with Runtime.open(config) as runtime:
        # The workspace and the instructions in it are part of the tree; so is the system prompt.
        session_id = (await runtime.session(model=MODEL, workspace=str(folder))).id
    command = [sys.executable, __file__, str(folder), session_id, str(steps), str(pictures)]
    environ = {"PYTHONPATH": str(TESTS), **(settings or {})}
    deaths, points = await asyncio.to_thread(_live, command, environ, [*(lengths or ()), 0])
    async with Runtime.open(config) as runtime:
        session = await runtime.stores.sessions.get(session_id)
        assert "running" not in session.settings
        assert (await runtime.stores.forest.verify(exists=runtime.stores.media.exists)).problems == ()
        nodes = await runtime.stores.forest.path(session.head_id)
        events = [
            decode_event(event.data) for event in await runtime.stores.events.after(session_id, 0, limit=1_000_000)
        ]
        assert [type(event) for event in events if isinstance(event, TurnFinished | TurnFailed)] == [TurnFinished]
        requests = sum(isinstance(event, StepStarted) for event in events)
    seen = {media.digest for node in nodes if node.message is not None for media in media_of(node.message)}
    return LongTurn(session.head_id, len(nodes), len(seen), requests, deaths, points)


def _live(command: list[str], environ: Mapping[str, str], lengths: list[int]) -> tuple[int, int]:
    """Let one child after the other live; return how many were killed, and the points that the last one passed."""
    deaths = points = 0
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdin
        assert process.stdout
        for length in lengths:
            process.stdin.write(f"{length}\n")
            process.stdin.flush()
            while (line := process.stdout.readline().split())[0] != "gone":
                if line[0] == "points":
                    points = int(line[1])
            deaths += int(line[1]) == signal.SIGKILL
    return deaths, points


def random_lengths(points: int, deaths: int, seed: int) -> list[int]:
    """Lives of different lengths that together do not reach the end of the turn."""
    chance = random.Random(seed)
    shares = [chance.uniform(0.4, 1.6) for _ in range(deaths)]
    return [max(8, int(points * 0.85 * share / sum(shares))) for share in shares]


if __name__ == "__main__":
    fork_lives(*sys.argv[1:])
