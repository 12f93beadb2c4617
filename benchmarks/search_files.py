"""Compare `search_files` with ripgrep and git grep on 50,000 files, as ratios to ripgrep.

python -m benchmarks.search_files [FILES]

Measured on a busy machine: with ripgrep 1.2 times its processor time, without it 2.6 to 2.9 times.
"""

from __future__ import annotations

import asyncio
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from loom.formats.facts import IntakeLimits
from loom.tools import ripgrep
from loom.tools.builtin import builtin_tools

ROUNDS = 3
PATTERNS = ("needle_", r"needle_\d+ = compute", r"n\w+_\d+ = c", "absent_from_all_of_them")
WORDS = ["alpha", "beta", "return", "import", "class", "def", "self", "value", "index", "result", "error", "config"]


class Context:
    """The part of a tool's context that `search_files` uses."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.limits = IntakeLimits()

    @property
    def reads_all(self) -> bool:
        return True

    def may_read(self, *places: Path) -> bool:
        return True


def write_files(folder: Path, files: int) -> None:
    """Write source-like files of some kilobytes, a hundred per folder; one in a thousand contains a match."""
    chance = random.Random(1)
    for number in range(files):
        place = folder / f"d{number // 100}" / ("sub" if number % 2 else "")
        place.mkdir(parents=True, exist_ok=True)
        lines = [" ".join(chance.choices(WORDS, k=chance.randint(3, 12))) for _ in range(chance.randint(20, 200))]
        if number % 977 == 0:
            lines.append(f"needle_{number} = compute(needle)")
        (place / f"f{number}.{'py' if number % 3 else 'txt'}").write_text("\n".join(lines) + "\n")


def run_program(command: list[str], folder: Path) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        await asyncio.to_thread(subprocess.run, command, cwd=folder, capture_output=True, check=False)

    return run


def run_search_files(folder: Path, pattern: str, program: str | None) -> Callable[[], Awaitable[None]]:
    tool = builtin_tools()["search_files"]

    async def run() -> None:
        ripgrep.ripgrep_program = lambda: program
        await tool.run(Context(folder), {"pattern": pattern})  # type: ignore[arg-type]

    return run


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


async def measure(folder: Path, pattern: str) -> dict[str, tuple[float, float]]:
    """Return the best wall and CPU seconds of interleaved rounds, with the files in the page cache. On a busy machine
    compare the CPU seconds."""
    rg = shutil.which("rg")
    ways = {
        **({"ripgrep": run_program([rg, "-n", pattern], folder)} if rg else {}),
        "git grep": run_program(["git", "grep", "--no-index", "-nP", pattern], folder),
        **({"search_files with ripgrep": run_search_files(folder, pattern, rg)} if rg else {}),
        "search_files without": run_search_files(folder, pattern, None),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, run in ways.items():
            began, used = time.perf_counter(), cpu_seconds()
            await run()
            times[name].append((time.perf_counter() - began, cpu_seconds() - used))
    return {name: (min(wall for wall, _ in found), min(cpu for _, cpu in found)) for name, found in times.items()}


async def main() -> None:
    files = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_files(folder, files)
        await run_search_files(folder, "warm", None)()
        for pattern in PATTERNS:
            found = await measure(folder, pattern)
            wall, cpu = found.get("ripgrep") or found["git grep"]
            print(f"{pattern}  ({files:,} files)")
            for name, (seconds, used) in found.items():
                print(f"  {name:28}{seconds:>8.2f} s{seconds / wall:>6.1f}×{used:>8.2f} s CPU{used / cpu:>6.1f}×")


if __name__ == "__main__":
    asyncio.run(main())
