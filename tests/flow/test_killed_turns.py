"""kill -9 in the middle of a turn: what a face was told is there, nothing ran twice, and the session goes on."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from flow.judge import problems
from flow.turner import EFFECTS, MODEL
from loom.compile.policy import DetachedMessage
from loom.compile.request import RequestInput
from loom.config import Config, load_config
from loom.content.media import digest_of
from loom.content.messages import Message, broken_pairs, media_of, text_of
from loom.events import TurnFailed, TurnFinished, decode_event
from loom.runtime import Runtime
from loom.testing import ScriptedProvider

TURNER = Path(__file__).with_name("turner.py")
TESTS = TURNER.parent.parent
KILLS = 60
EVERY_WIRE = (
    "anthropic/claude-opus-5",
    "openai-chat/gpt-5.5",
    "openai/gpt-5.5",
    "gemini/gemini-4-argon",
    "ollama/gemma3",
    "deepseek/deepseek-v4-pro",
    "mistral/mistral-medium-latest",
)


class Lives:
    """Children that are killed, and what each had told before."""

    def __init__(self, folder: Path, session_id: str, settings: Mapping[str, str]) -> None:
        command = [sys.executable, str(TURNER), "zygote", str(folder), session_id]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(TESTS), **settings},
        )

    def live(self, length: int) -> Iterator[list[str]]:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{length}\n")
        self.process.stdin.flush()
        while (line := self.process.stdout.readline().split())[0] != "gone":
            yield line
        assert line[1] == str(0 if length == 0 else int(signal.SIGKILL)), line

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


def config_of(folder: Path, settings: Mapping[str, str]) -> Config:
    return load_config(cwd=folder, environ={**settings, "LOOM_HOME": str(folder)})


async def opened(folder: Path, settings: Mapping[str, str]) -> str:
    async with Runtime.open(config_of(folder, settings)) as runtime:
        return (await runtime.session(model=MODEL)).id


class Seen(NamedTuple):
    """What watchers have seen, and how often the model was asked."""

    nodes: frozenset[str]
    words: frozenset[str]
    requests: int


def killed(folder: Path, session_id: str, kills: int, seed: int, settings: Mapping[str, str]) -> Seen:
    """Kill at so many points of turns."""
    lives = Lives(folder, session_id, settings)
    first = list(lives.live(0))
    (count,) = [int(line[1]) for line in first if line[0] == "points"]
    points = random.Random(seed).choices(range(1, count + 1), k=kills)
    lines = [*first, *(line for point in points for line in lives.live(point))]
    lives.end()
    nodes = frozenset(line[1] for line in lines if line[0] == "stored")
    words = frozenset(word for line in lines if line[0] == "word" for word in line[1:])
    return Seen(nodes, words, sum(line[0] == "asked" for line in lines))


async def test_sixty_kills_lose_nothing_that_was_told_and_run_nothing_twice(tmp_path: Path) -> None:
    await check_kills(tmp_path, KILLS, 20260214)


async def check_kills(folder: Path, kills: int, seed: int, settings: Mapping[str, str] | None = None) -> None:
    """Kill a process so often at random points of its turns, and check what the next one finds."""
    settings = settings or {}
    session_id = await opened(folder, settings)
    seen = await asyncio.to_thread(killed, folder, session_id, kills, seed, settings)
    providers = {"anthropic": ScriptedProvider(["I am back."] * 9)}
    async with Runtime.open(config_of(folder, settings), providers=providers) as runtime:
        session = await runtime.session(session_id)
        assert (await session.send("are you there?")).text == "I am back."
        assert await runtime.stores.database.check() == ()
        assert (await runtime.stores.forest.verify(exists=runtime.stores.media.exists)).problems == ()
        nodes = await runtime.stores.forest.path((await runtime.stores.sessions.get(session_id)).head_id)
        assert seen.nodes <= {node.id for node in nodes}
        path = await session.path()
        assert broken_pairs(path) == ()
        answers = [message for message in path if message.role == "assistant"]
        assert seen.words <= {word for message in answers for word in message.text.split()}
        assert seen.requests <= len(answers) + kills, "a kill costs at most one request"
        for digest in {media.digest for message in path for media in media_of(message)}:
            assert digest_of(await runtime.stores.media.load(digest)) == digest
        check_effects(folder, path)
        check_interruptions(path, kills // 12)
        await check_every_turn_was_ended(runtime, session_id)
        await check_every_wire(runtime, path)


def check_effects(folder: Path, path: tuple[Message, ...]) -> None:
    """Every call ran at most once; one whose result is there ran."""
    marks = (folder / EFFECTS).read_text().split()
    assert len(marks) == len(set(marks))
    calls = [call.id for message in path for call in message.calls]
    assert len(calls) == len(set(calls))
    assert set(marks) <= set(calls)
    for message in path:
        for result in message.results:
            assert result.is_error or result.call_id in marks


def check_interruptions(path: tuple[Message, ...], at_least: int) -> None:
    """Calls that were cut off are answered as such, and some were cut off in the middle."""
    results = [result for message in path for result in message.results]
    cut = [result for result in results if result.is_error]
    assert len(cut) >= at_least
    assert all("interrupted" in text_of(result).lower() or "no tool" in text_of(result) for result in cut)
    assert len(results) - len(cut) >= at_least


async def check_every_turn_was_ended(runtime: Runtime, session_id: str) -> None:
    """A face that reads the events later sees no turn that runs for ever."""
    stored = await runtime.stores.events.after(session_id, 0, limit=100_000)
    assert [event.seq for event in stored] == list(range(1, len(stored) + 1))
    begun = [event.data for event in stored if event.type == "turn_started"]
    ended = [decode_event(event.data) for event in stored if event.type in ("turn_finished", "turn_failed")]
    codes = [event.code for event in ended if isinstance(event, TurnFailed)]
    assert set(codes) <= {"turn.interrupted"}, "closed only where three processes ended during the same step"
    assert len(begun) == len(ended)
    assert isinstance(ended[-1], TurnFinished)


async def check_every_wire(runtime: Runtime, path: tuple[Message, ...]) -> None:
    placed = [DetachedMessage(str(at), message) for at, message in enumerate(path)]
    for reference in EVERY_WIRE:
        model = runtime.models.resolve(reference)
        prepared = await runtime.settler.settle(RequestInput(path=tuple(placed), model=model), "preview")
        assert problems(prepared) == [], reference
