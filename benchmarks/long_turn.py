"""Run a turn of 300 steps with 100 images whose process is killed thirty times: it must end with the same tree.

`python -m benchmarks.long_turn [--steps 300] [--pictures 100] [--deaths 30] [--seed 1]`
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from flow.long_turner import random_lengths, run_long_turn


async def compare(folder: Path, steps: int, pictures: int, deaths: int, seed: int) -> None:
    began = time.monotonic()
    calm = await run_long_turn(folder / "calm", steps=steps, pictures=pictures)
    middle = time.monotonic()
    print(f"undisturbed: {steps} steps, {calm.pictures} images, {calm.nodes} nodes, {middle - began:.0f} s", flush=True)
    lengths = random_lengths(calm.points, deaths, seed)
    killed = await run_long_turn(folder / "killed", steps=steps, pictures=pictures, lengths=lengths)
    seconds = time.monotonic() - middle
    verdict = "the same" if killed.head == calm.head else "DIFFERENT"
    print(f"killed {killed.deaths} times: {killed.pictures} images, {killed.nodes} nodes, {seconds:.0f} s,", end=" ")
    print(f"{killed.requests - calm.requests} more requests; the tree is {verdict}")
    if killed.head != calm.head:
        sys.exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("steps", 300), ("pictures", 100), ("deaths", 30), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(compare(Path(folder), options.steps, options.pictures, options.deaths, options.seed))


if __name__ == "__main__":
    main()
