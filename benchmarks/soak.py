"""F11: two hundred sessions with continuous turns: `python -m benchmarks.soak --minutes 60`.

A provider inside the daemon sends 20 words a second to each of them; every word is the number of the session and the
time at which it was sent. So the client knows the latency of every word (through the turn, the disk and the event
stream) and whether it belongs to its session. Also measured: memory and open files of the daemon on the way, turns that
failed, and what its log says.
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
from benchmarks.daemon import UNLIMITED, files_of, held_mb, icon, percentile
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
"""Not all words come at the same moment."""
TURNS_OF_A_SESSION = 10
MARKS = 20
WARM = 4
"""Marks before memory counts."""
_ASKED = re.compile(r"I am session (\d+)\.")


# The daemon ----------------------------------------------------------------------------------------------------------


class Talker:
    """A clock for all: what the words cost is the daemon's work, not the provider's."""

    name = "talker"
    capabilities = loom.Capabilities(accepts=("image/png",))

    def __init__(self) -> None:
        self._moments = [asyncio.Event() for _ in range(GROUPS)]
        self._clock: asyncio.Task[None] | None = None

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str]:
        self._clock = self._clock or asyncio.create_task(self._tick())
        number = _ASKED.findall(str(prompt.messages[-1]))[-1]
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


def serve_talker() -> None:
    """The daemon's own command, with one provider more."""
    loom.register_provider(Talker())
    serve.main()


# The client ----------------------------------------------------------------------------------------------------------


class Soak:
    def __init__(self, client: Client, seconds: float) -> None:
        self._client = client
        self._until = time.monotonic() + seconds
        self.late_ms: list[float] = []
        """Of the words since the last mark."""
        self.p95_ms: list[float] = []
        self.all_ms: Counter[int] = Counter()
        self.words = 0
        self.turns = 0
        self.failed = 0
        self.strange = 0
        """Words of another session."""

    async def talk(self, number: int) -> None:
        await asyncio.sleep(number * WORDS / PER_SECOND / SESSIONS)
        picture = await self._client.upload(icon(number))
        while time.monotonic() < self._until:
            session = await self._client.session(model="talker")
            async with contextlib.aclosing(session.events(0)) as events:
                for turn in range(TURNS_OF_A_SESSION):
                    if time.monotonic() > self._until:
                        return
                    await session.post(f"I am session {number}.", *(picture if turn == 0 else ()))
                    while not isinstance(event := (await anext(events))[1], TurnFinished | TurnFailed):
                        if isinstance(event, TextDelta):
                            self._heard(event.text, number)
                    self.turns += 1
                    if isinstance(event, TurnFailed):
                        self.failed += 1
                        print(f"      {event.text}")

    def _heard(self, text: str, number: int) -> None:
        now = time.time() * 1000
        for word in text.split():
            whose, at = word.split(":")
            self.late_ms.append(now - int(at))
            self.all_ms[round(now - int(at))] += 1
            self.words += 1
            self.strange += int(whose) != number

    async def watch(self, house: DaemonProcess, minutes: float) -> tuple[list[float], list[int]]:
        held: list[float] = []
        files: list[int] = []
        for part in range(1, MARKS + 1):
            await asyncio.sleep(minutes * 60 / MARKS)
            late, self.late_ms = self.late_ms, []
            held.append(held_mb(house.pid))
            files.append(files_of(house.pid))
            self.p95_ms.append(percentile(late, 0.95))
            print(
                f"      {minutes * part / MARKS:5.1f} min: {held[-1]:6.1f} MB, {files[-1]} files, {self.turns:,} turns,"
                f" words late: median {percentile(late, 0.5):.0f} ms, p95 {self.p95_ms[-1]:.0f} ms,"
                f" worst {max(late):.0f} ms",
                flush=True,
            )
        return held, files


def used_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def soak(folder: Path, minutes: float) -> None:
    with running(folder / "soak", UNLIMITED, module="benchmarks.soak") as house:
        async with house.client() as client:
            made = Soak(client, minutes * 60)
            print(f"    {SESSIONS} sessions with a picture each, {PER_SECOND} words a second, {minutes:g} minutes")
            (held, files), *_ = await asyncio.gather(
                made.watch(house, minutes), *(made.talk(number) for number in range(SESSIONS))
            )
            seconds = used_seconds(house.pid)
        is_quiet = "Traceback" not in house.log()
    print(f"    {made.turns:,} turns, {made.words:,} words, failed: {made.failed}, of another session: {made.strange}")
    print(f"    the daemon's own time: {seconds / made.words * 1e6:.0f} µs a word, turns included")
    early = itertools.accumulate(made.all_ms[late] for late in sorted(made.all_ms))
    p95 = next(late for late, count in zip(sorted(made.all_ms), early, strict=True) if count >= 0.95 * made.words)
    print(f"    words late, all of them: p95 {p95} ms")
    print(f"    p95 by part: median {percentile(made.p95_ms, 0.5):.0f} ms, worst {max(made.p95_ms):.0f} ms")
    hours = minutes / 60 * (MARKS - WARM) / MARKS
    growth = (held[-1] / held[WARM - 1] - 1) * 100 / hours
    print(
        f"    memory after the first {minutes * WARM / MARKS:.0f} minutes: {growth:+.1f} % an hour;"
        f" files {files[WARM - 1]} → {files[-1]}; the log is quiet: {is_quiet}"
    )


def main() -> None:
    if "--port" in sys.argv:
        serve_talker()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=3.0)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        asyncio.run(soak(Path(name), parser.parse_args().minutes))


if __name__ == "__main__":
    main()
