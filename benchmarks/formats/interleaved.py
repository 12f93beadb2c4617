"""Helpers that time several ways to do the same work, all in every round, so that other load slows all equally."""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def timings(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each way in each round, after a first call that does not count."""
    for way in ways.values():
        way()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - began)
    return times


def medians(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median of the seconds of each way over the rounds."""
    return {name: statistics.median(taken) for name, taken in timings(ways, rounds).items()}


def table(title: str, seconds: dict[str, float], against: str, *, per: int = 1, unit: str = "µs") -> None:
    """Print one line per way: its time divided by `per`, and its ratio to `against`."""
    scale = {"µs": 1e6, "ms": 1e3}[unit]
    print(title)
    for name, taken in seconds.items():
        print(f"  {name:<34} {taken / per * scale:10.2f} {unit}   {taken / seconds[against]:6.2f}×")


def processes() -> Iterator[int]:
    """Yield this process, its workers and their children."""
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        yield pid
        for file in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):  # the process has ended meanwhile
                waiting.extend(map(int, file.read_text().split()))


def processor_seconds() -> float:
    """Return the CPU time of this process and its workers, running and ended. It depends little on other load."""
    return time.process_time() + worker_seconds()


def worker_seconds() -> float:
    """Return the CPU time of the workers alone: reading it takes this process a millisecond, which must not count."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = ended.ru_utime + ended.ru_stime
    for pid in processes():
        if pid != os.getpid():
            with suppress(OSError):  # as above
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += sum(map(int, fields[11:15])) / _TICKS
    return total
