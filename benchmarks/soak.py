"""F11: run two hundred sessions with continuous turns: `python -m benchmarks.soak --minutes 60`.

A provider inside the daemon sends 20 words a second to each session; every word is the number of the session and the
time at which it was sent. So the client can measure the latency of every word (through the turn, the disk and the event
stream) and check that it belongs to its session. Also measured: memory and open files of the daemon over time, failed
turns, and errors in the log.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path

import loom
from benchmarks.daemon import UNLIMITED, files_of, icon, percentile, resident_mb
from loom.client import Client
from loom.daemon import serve
from loom.events import TextDelta, TurnFailed, TurnFinished
from loom.prompt import Prompt

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from daemon.running import DaemonProcess
from daemon.running import daemon as running

SESSIONS = 200
WORDS = 300
PER_SECOND = 20
GROUPS = 10
"""Groups of sessions whose words are sent at different times."""
TURNS_OF_A_SESSION = 10
MARKS = 20
WARM = 4
"""Marks before the growth of memory is measured."""
_SESSION_NUMBER = re.compile(r"I am session (\d+)\.")


# The daemon ----------------------------------------------------------------------------------------------------------


class ClockProvider:
    """A provider with one clock for all sessions, so that nearly all of the cost per word is that of the daemon."""

    name = "clock"
    capabilities = loom.Capabilities(accepts=("image/png",))

    def __init__(self) -> None:
        self._moments = [asyncio.Event() for _ in range(GROUPS)]
        self._clock: asyncio.Task[None] | None = None

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str]:
        self._clock = self._clock or asyncio.create_task(self._tick())
        number = _SESSION_NUMBER.findall(str(prompt.messages[-1]))[-1]
        group = int(number) % GROUPS
        for _ in range(WORDS):
            await self._moments[group].wait()
            yield f"{number}:{time.time() * 1000:.0f} "

    async def _tick(self) -> None:
        due = time.monotonic()
        for group in itertools.cycle(range(GROUPS)):
            due += 1 / PER_SECOND / GROUPS
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            moment, self._moments[group] = self._moments[group], asyncio.Event()
            moment.set()


def serve_with_provider() -> None:
    """Run the command of the daemon with an additional provider."""
    loom.register_provider(ClockProvider())
    serve.main()


# The client ----------------------------------------------------------------------------------------------------------


class Soak:
    """The client: runs the sessions until the time is over, and collects the figures."""

    def __init__(self, client: Client, seconds: float) -> None:
        self._client = client
        self._until = time.monotonic() + seconds
        self.latencies_ms: list[float] = []
        """Latencies of the words since the last mark."""
        self.p95_ms: list[float] = []
        self.all_ms: Counter[int] = Counter()
        self.words = 0
        self.turns = 0
        self.failed = 0
        self.misdirected = 0
        """Words that belong to another session."""

    async def run_session(self, number: int) -> None:
        await asyncio.sleep(number * WORDS / PER_SECOND / SESSIONS)
        image = await self._client.upload(icon(number))
        while time.monotonic() < self._until:
            session = await self._client.session(model="clock")
            async with contextlib.aclosing(session.events(0)) as events:
                for turn in range(TURNS_OF_A_SESSION):
                    if time.monotonic() > self._until:
                        return
                    await session.post(f"I am session {number}.", *(image if turn == 0 else ()))
                    while not isinstance(event := (await anext(events))[1], TurnFinished | TurnFailed):
                        if isinstance(event, TextDelta):
                            self._record(event.text, number)
                    self.turns += 1
                    if isinstance(event, TurnFailed):
                        self.failed += 1
                        print(f"      {event.text}")

    def _record(self, text: str, number: int) -> None:
        now = time.time() * 1000
        for word in text.split():
            sender, at = word.split(":")
            self.latencies_ms.append(now - int(at))
            self.all_ms[round(now - int(at))] += 1
            self.words += 1
            self.misdirected += int(sender) != number

    async def watch(self, house: DaemonProcess, minutes: float) -> tuple[list[float], list[int]]:
        memory_mb: list[float] = []
        files: list[int] = []
        for part in range(1, MARKS + 1):
            await asyncio.sleep(minutes * 60 / MARKS)
            late, self.latencies_ms = self.latencies_ms, []
            memory_mb.append(resident_mb(house.pid))
            files.append(files_of(house.pid))
            self.p95_ms.append(percentile(late, 0.95))
            print(
                f"      {minutes * part / MARKS:5.1f} min: {memory_mb[-1]:6.1f} MB, {files[-1]} open files,"
                f" {self.turns:,} turns, latency of words: median {percentile(late, 0.5):.0f} ms,"
                f" p95 {self.p95_ms[-1]:.0f} ms,"
                f" worst {max(late):.0f} ms",
                flush=True,
            )
        return memory_mb, files


def used_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def soak(folder: Path, minutes: float) -> None:
    with running(folder / "soak", UNLIMITED, module="benchmarks.soak") as house:
        async with house.client() as client:
            result = Soak(client, minutes * 60)
            print(f"    {SESSIONS} sessions with an image each, {PER_SECOND} words a second, {minutes:g} minutes")
            (memory_mb, files), *_ = await asyncio.gather(
                result.watch(house, minutes), *(result.run_session(number) for number in range(SESSIONS))
            )
            seconds = used_seconds(house.pid)
        is_quiet = "Traceback" not in house.log()
    print(
        f"    {result.turns:,} turns, {result.words:,} words, failed: {result.failed},"
        f" words of another session: {result.misdirected}"
    )
    print(f"    CPU time of the daemon: {seconds / result.words * 1e6:.0f} µs per word, turns included")
    early = itertools.accumulate(result.all_ms[late] for late in sorted(result.all_ms))
    p95 = next(late for late, count in zip(sorted(result.all_ms), early, strict=True) if count >= 0.95 * result.words)
    print(f"    latency of all words: p95 {p95} ms")
    print(f"    p95 per interval: median {percentile(result.p95_ms, 0.5):.0f} ms, worst {max(result.p95_ms):.0f} ms")
    hours = minutes / 60 * (MARKS - WARM) / MARKS
    growth = (memory_mb[-1] / memory_mb[WARM - 1] - 1) * 100 / hours
    print(
        f"    memory after the first {minutes * WARM / MARKS:.0f} minutes: {growth:+.1f} % an hour;"
        f" open files {files[WARM - 1]} → {files[-1]}; no errors in the log: {is_quiet}"
    )


def main() -> None:
    if "--port" in sys.argv:
        serve_with_provider()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3.0)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        asyncio.run(soak(Path(name), parser.parse_args().minutes))


if __name__ == "__main__":
    main()
