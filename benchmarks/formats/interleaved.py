"""Times several ways to do the same work, all of them in every round, so that a busy machine hurts all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def medians(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds per call of each way, the median over the rounds."""
    for way in ways.values():
        way()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(taken) for name, taken in times.items()}


def table(title: str, seconds: dict[str, float], against: str, *, per: int = 1, unit: str = "µs") -> None:
    """One line a way: its time, and its ratio to `against`."""
    scale = {"µs": 1e6, "ms": 1e3}[unit]
    print(title)
    for name, taken in seconds.items():
        print(f"  {name:<34} {taken / per * scale:10.2f} {unit}   {taken / seconds[against]:6.2f}×")
