"""Sessions that are worked on while daemons are killed, stopped or lose their database, and what must hold afterwards:

every turn ends by itself, no call that may not be repeated runs twice, nothing acknowledged and no word that a watcher
saw is lost, and a kill costs a turn at most one request.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec

from daemon.forked import ForkedDaemon, Nursery
from daemon.running import redis_server
from loom.client import RemoteSession
from loom.content.blocks import TextBlock
from loom.content.media import digest_of
from loom.content.messages import Message, broken_pairs, media_of
from loom.errors import LoomError, Unreachable
from loom.events import (
    Event,
    NoticeRaised,
    StepFinished,
    StepStarted,
    TextDelta,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from loom.testing import sample_png
from postgres_server import PostgresServer
from s3_server import moto_server, new_bucket
from tcp_proxy import TcpProxy, proxy_to

RULES: Final = {"LOOM_APPROVAL__RULES": '[{"tool": "run_command", "action": "allow"}]', "LOOM_SANDBOX__MODE": "off"}
Disturb: TypeAlias = Callable[[random.Random], Awaitable[None]]
PROGRESS_SECONDS: Final = 5.0
SETTLED_SECONDS: Final = 240.0
"""How long a turn may take to end by itself, disturbed again and again, on a machine that does other things."""
MESSAGES: Final = 25
"""Of one conversation."""
T = TypeVar("T")


class Outcome(msgspec.Struct, kw_only=True):
    """What a disturbed run has seen; the checks have passed where it is returned."""

    disturbances: int = 0
    messages: int = 0
    continued: int = 0
    """How often a turn was taken up by another process."""
    closed: int = 0
    """Turns that were closed because three processes had ended during one step."""
    asked: int = 0
    asked_again: int = 0
    """Requests whose answer was cut off, so that the model was asked once more."""
    words: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.disturbances} disturbances in {self.seconds:.0f} s:"
            f" {self.messages} messages, all answered or closed;"
            f" {self.continued} continuations, {self.closed} closed after three deaths; {self.asked} requests,"
            f" {self.asked_again} of them cut off and paid again; {self.words} words seen, none lost; no call ran twice"
        )


def script(number: int) -> str:
    """A turn of about half a second: it thinks, runs a command that leaves a mark, and talks."""
    command = f'{{"command": "echo {number} >> marks"}}'
    return f"message {number}\n!slow 300tps\n!think 20ms\n!tool run_command {command}\n!tokens 60"


def pictures(number: int) -> list[bytes]:
    """Every fifth message has one: the process that decodes it takes longer to start than a daemon lives here."""
    return [sample_png(20, 10 + number % 40)] if number % 5 == 0 else []


class Progress:
    """What all watchers together have seen so far, so that turns are disturbed however slow the machine is."""

    def __init__(self) -> None:
        self.events = 0


class Conversation:
    """One session: messages are posted to any daemon until one accepts them, and its events are watched on any."""

    def __init__(
        self,
        daemons: Sequence[ForkedDaemon],
        session_id: str,
        workspace: Path,
        chance: random.Random,
        progress: Progress,
    ) -> None:
        self.id = session_id
        self.workspace = workspace
        self.accepted: list[int] = []
        self.seen: list[str] = []
        self._daemons = daemons
        self._chance = chance
        self._progress = progress

    @asynccontextmanager
    async def at_any(self) -> AsyncGenerator[RemoteSession]:
        async with self._chance.choice(self._daemons).client(patience_seconds=0.0) as client:
            yield await client.session(self.id)

    async def post(self, number: int) -> None:
        """A message counts as accepted with the first answer; the key makes all tries one message."""

        async def post() -> None:
            async with self.at_any() as session:
                await session.post(script(number), *pictures(number), key=str(number))

        await _at_last(post)
        self.accepted.append(number)

    async def talk(self, is_over: Callable[[], bool]) -> None:
        """Post messages one after the other; every turn ends by itself."""
        for number in range(MESSAGES):
            if is_over():
                return
            await self.post(number)
            async with asyncio.timeout(SETTLED_SECONDS):
                await self._wait_until_idle()

    async def _wait_until_idle(self) -> None:
        async def is_idle() -> bool:
            async with self.at_any() as session:
                return (await session.info()).state == "idle"

        while not await _at_last(is_idle):  # noqa: ASYNC110  another process decides
            await asyncio.sleep(0.05)

    async def watch(self) -> None:
        """Follow the events, wherever they can be followed."""
        after = 0
        while True:
            with contextlib.suppress(LoomError, OSError):
                async with self.at_any() as session:
                    async for seq, event in session.events(after):
                        if isinstance(event, TextDelta):
                            self.seen.append(event.text)
                        self._progress.events += 1
                        after = seq
            await asyncio.sleep(0.05)

    async def events(self) -> list[Event]:
        found: list[Event] = []
        async with self.at_any() as session:
            last = (await session.info()).last_seq
            async for seq, event in session.events(0):
                found.append(event)
                if seq == last:
                    return found
        raise Unreachable("the daemon ended")

    async def path(self) -> tuple[Message, ...]:
        async with self.at_any() as session:
            return await session.path()

    async def check(self, outcome: Outcome) -> None:
        events, path = await _at_last(self.events), await _at_last(self.path)
        questions = [message for message in path if message.role == "user"]
        numbers = [int(message.text.split()[1]) for message in questions]
        for message, number in zip(questions, numbers, strict=True):
            assert [media.digest for media in media_of(message)] == [digest_of(it) for it in pictures(number)]
        assert numbers == sorted(set(numbers)), "every message once, in order"
        assert set(self.accepted) <= set(numbers), "what was acknowledged is there"
        assert broken_pairs(path) == ()
        marks = self.workspace / "marks"
        left = marks.read_text().split() if marks.exists() else []
        assert len(left) == len(set(left)), "no call ran twice"
        results = [result for message in path for result in message.results]
        assert sum(not result.is_error for result in results) <= len(left)
        begun = [event.turn for event in events if isinstance(event, TurnStarted)]
        ended = [event for event in events if isinstance(event, TurnFinished | TurnFailed)]
        assert sorted(begun) == sorted(event.turn for event in ended), "every turn ends, once"
        failed = [event for event in ended if isinstance(event, TurnFailed)]
        assert {event.code for event in failed} <= {"turn.interrupted"}, failed
        answers = [block for message in path if message.role == "assistant" for block in message.blocks]
        said = "".join(block.text for block in answers if isinstance(block, TextBlock))
        seen = "".join(self.seen)
        logged = "".join(event.text for event in events if isinstance(event, TextDelta))
        _check_prefix(logged, said, "the log holds", "stored is")
        _check_prefix(seen, logged, "a watcher saw", "the log holds")
        steps = sum(isinstance(event, StepStarted) for event in events)
        whole = sum(isinstance(event, StepFinished) for event in events)
        continued = sum(event.code == "turn.continued" for event in events if isinstance(event, NoticeRaised))
        assert steps - whole <= continued + len(failed), "a kill costs a turn at most one request"
        outcome.messages += len(numbers)
        outcome.continued += continued
        outcome.closed += len(failed)
        outcome.asked += steps
        outcome.asked_again += steps - whole
        outcome.words += len(seen.split())


async def _at_last(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until a daemon answers."""
    while True:
        with contextlib.suppress(LoomError, OSError):
            return await ask()
        await asyncio.sleep(0.05)


def _check_prefix(found: str, whole: str, what: str, other: str) -> None:
    same = next((at for at, (one, two) in enumerate(zip(found, whole, strict=False)) if one != two), len(found))
    around = slice(max(0, same - 60), same + 60)
    assert whole.startswith(found), f"{what} …{found[around]}…, and {other} …{whole[around]}…"


async def run_disturbed(
    daemons: Sequence[ForkedDaemon],
    folder: Path,
    disturb: Disturb,
    *,
    times: int,
    seed: int,
    sessions: int = 3,
    report: Callable[[int], None] = lambda _: None,
) -> Outcome:
    """Let `sessions` at a time talk while `disturb` is called `times` times. Each is checked when it has ended."""
    chance = random.Random(seed)
    began = time.monotonic()
    outcome, progress, over = Outcome(disturbances=times), Progress(), asyncio.Event()
    seats: list[asyncio.Task[None]] = []
    async with asyncio.TaskGroup() as group:  # where a check fails, the run ends at once
        for number in range(sessions):
            own = random.Random(chance.random())
            seat = _hold_conversations(daemons, folder / f"seat-{number}", own, progress, over, outcome)
            seats.append(group.create_task(seat))
        for done in range(times):
            await _wait_for_progress(progress)
            await disturb(chance)
            report(done + 1)
        over.set()
    outcome.seconds = time.monotonic() - began
    return outcome


async def _hold_conversations(
    daemons: Sequence[ForkedDaemon],
    folder: Path,
    chance: random.Random,
    progress: Progress,
    over: asyncio.Event,
    outcome: Outcome,
) -> None:
    """One session after the other, so that a long run does not drag ever longer conversations along."""
    number = 0
    while not number or not over.is_set():
        workspace = folder / f"workspace-{number}"
        workspace.mkdir(parents=True)

        async def create(workspace: Path = workspace) -> str:
            async with chance.choice(daemons).client(patience_seconds=0.0) as client:
                return (await client.session(workspace=str(workspace))).id

        talk = Conversation(daemons, await _at_last(create), workspace, chance, progress)
        watching = asyncio.create_task(talk.watch())
        try:
            await talk.talk(over.is_set)
        finally:
            watching.cancel()
            await asyncio.wait([watching])
        await talk.check(outcome)
        number += 1


async def _wait_for_progress(progress: Progress) -> None:
    """Until watchers have seen something new. Where that takes long, all turns may stand still, which must be disturbed
    as well."""
    before = progress.events
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PROGRESS_SECONDS):
            while progress.events == before:  # noqa: ASYNC110  other tasks decide
                await asyncio.sleep(0.02)


@contextlib.contextmanager
def one_on_sqlite(folder: Path, nest: Nursery) -> Iterator[list[ForkedDaemon]]:
    with _started([ForkedDaemon(nest, folder / "home", RULES)]) as daemons:
        yield daemons
    with contextlib.closing(sqlite3.connect(folder / "home" / "loom.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []


@contextlib.contextmanager
def two_on_postgres(
    folder: Path,
    nest: Nursery,
    server: PostgresServer,
    *,
    skew_seconds: float = 0.0,
    engine: str = "builtin",
    settings: Mapping[str, str] | None = None,
) -> Iterator[list[ForkedDaemon]]:
    """Two daemons that share a database and a media folder; the clock of the second is ahead."""
    shared = {
        "LOOM_STORE__URL": server.empty_database(),
        "LOOM_MEDIA__URL": str(folder / "media"),
        "LOOM_TURN__ENGINE": engine,
    }
    shared |= settings or {}
    first = ForkedDaemon(nest, folder / "a", {**RULES, **shared})
    second = ForkedDaemon(nest, folder / "b", {**RULES, **shared}, skew_seconds=skew_seconds)
    with _started([first, second]) as daemons:
        yield daemons


@contextlib.contextmanager
def _started(daemons: list[ForkedDaemon]) -> Iterator[list[ForkedDaemon]]:
    try:
        for daemon in daemons:
            daemon.start()
        yield daemons
        for daemon in daemons:
            assert "ERROR loom" not in daemon.log(), daemon.log()[-3000:]
    finally:
        for daemon in daemons:
            daemon.kill()


class Surroundings(msgspec.Struct, frozen=True):
    """What two daemons stand on besides their database: a bucket and a Redis, each behind a door."""

    bucket: TcpProxy
    redis: TcpProxy
    settings: Mapping[str, str]


@asynccontextmanager
async def surroundings(folder: Path) -> AsyncGenerator[Surroundings]:
    with moto_server() as endpoint, redis_server(folder) as redis:
        port = urlsplit(endpoint).port
        assert port is not None
        async with proxy_to(port) as bucket, proxy_to(redis.port) as bus:
            media = await asyncio.to_thread(new_bucket, f"http://127.0.0.1:{bucket.port}")
            settings = {
                "LOOM_MEDIA__URL": media,
                "LOOM_MEDIA__TIMEOUT_SECONDS": "1",
                "LOOM_BUS__URL": f"redis://127.0.0.1:{bus.port}/0",
            }
            yield Surroundings(bucket, bus, settings)


def unsettling(daemons: Sequence[ForkedDaemon], around: Surroundings, seconds: tuple[float, float]) -> Disturb:
    """The bucket, the bus or both hang or are away for a moment, and mostly one daemon is killed meanwhile."""

    async def disturb(chance: random.Random) -> None:
        doors = chance.choice(([around.bucket], [around.redis], [around.bucket, around.redis]))
        for door in doors:
            door.turn(chance.choice(("hangs", "shut")))
        await asyncio.sleep(chance.uniform(*seconds))
        if chance.random() < 0.75:
            victim = chance.choice(daemons)
            await asyncio.to_thread(victim.kill)
            await asyncio.to_thread(victim.start)
        await asyncio.sleep(chance.uniform(*seconds))
        for door in doors:
            door.turn("open")
        await asyncio.sleep(chance.uniform(*seconds))

    return disturb


def killing(daemons: Sequence[ForkedDaemon], seconds: tuple[float, float]) -> Disturb:
    """kill -9 of one daemon after a random time, and start it again."""

    async def disturb(chance: random.Random) -> None:
        await asyncio.sleep(chance.uniform(*seconds))
        victim = chance.choice(daemons)
        await asyncio.to_thread(victim.kill)
        await asyncio.to_thread(victim.start)

    return disturb


def stopping(daemons: Sequence[ForkedDaemon], seconds: tuple[float, float]) -> Disturb:
    """SIGTERM to one daemon after a random time, and start it again when it has ended."""

    async def disturb(chance: random.Random) -> None:
        await asyncio.sleep(chance.uniform(*seconds))
        victim = chance.choice(daemons)
        await asyncio.to_thread(victim.stop)
        await asyncio.to_thread(victim.start)

    return disturb


def pausing(
    stop: Callable[[], None], start: Callable[[], None], seconds: tuple[float, float], away_seconds: float
) -> Disturb:
    """Take a server that the daemons stand on away after a random time, and bring it back."""

    async def disturb(chance: random.Random) -> None:
        await asyncio.sleep(chance.uniform(*seconds))
        await asyncio.to_thread(stop)
        await asyncio.sleep(away_seconds)
        await asyncio.to_thread(start)

    return disturb
