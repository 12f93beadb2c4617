"""Times in a video: which ones show most of it, and how a time is written. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

_LEAST_GAP_SECONDS: Final = 0.5


def choose_times(duration_seconds: float, scenes: Sequence[float], count: int) -> list[float]:
    """Return up to `count` times that show most of a video; `scenes` are the seconds at which its scenes begin.

    Each scene contributes the frame in its middle, the longest scenes first; the remaining times fill the widest gaps.
    """
    if count < 1 or duration_seconds <= 0:
        return [0.0] if count > 0 else []
    cuts = [0.0, *sorted({cut for cut in scenes if 0 < cut < duration_seconds}), duration_seconds]
    spans = sorted(pairwise(cuts), key=lambda span: span[0] - span[1])
    times = sorted((start + end) / 2 for start, end in spans[:count])
    while len(times) < count:
        borders = [0.0, *times, duration_seconds]
        gap, start = max((end - start, start) for start, end in pairwise(borders))
        if gap < _LEAST_GAP_SECONDS:
            break
        times = sorted([*times, start + gap / 2])
    return [round(at, 3) for at in times]


def time_label(seconds: float) -> str:
    """Return a time as players show it: `0:07`, `12:30`, `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def parse_time(text: str) -> float:
    """Return the seconds of `90`, `1:30` or `0:01:30.5`; raise `ValueError` for anything else."""
    parts = text.strip().split(":")
    if not 1 <= len(parts) <= 3 or not all(part.isdecimal() for part in parts[:-1]):
        raise ValueError(f"a time is written 1:30 or 90, not {text[:40]!r}")
    last = float(parts[-1])
    if not 0 <= last < 1e7:
        raise ValueError(f"a time is written 1:30 or 90, not {text[:40]!r}")
    seconds = 0.0
    for part in parts[:-1]:
        seconds = seconds * 60 + int(part)
    return seconds * 60 + last if len(parts) > 1 else last
