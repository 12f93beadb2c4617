"""Accept 200 hostile images at once; measure the memory of the process and stalls of its event loop.

    python -m benchmarks.formats.hostile [COUNT]

Half are WebP files of a few bytes that take a gigabyte to decode, half are JPEG files that take seconds. Target: this
process grows by less than 200 MB, and its event loop stalls for less than 100 ms. The deadline of an image is two
seconds here, so that the run ends.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
import time
from pathlib import Path

from PIL import Image

from loom.errors import MediaError
from loom.formats import inspect
from loom.formats.facts import IntakeLimits
from loom.formats.worker import WorkerPool

LIMITS = IntakeLimits(deadline_seconds=2.0)
SIDE = 7_990
TICK_SECONDS = 0.01


def expanding_webp() -> bytes:
    file = io.BytesIO()
    Image.new("RGBA", (SIDE, SIDE), (10, 200, 30, 128)).save(file, "WEBP", lossless=True, quality=0, method=0)
    return file.getvalue()


def slow_jpeg() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE), (200, 80, 40)).save(file, "JPEG", quality=10, progressive=True)
    data = file.getvalue()
    at = data.rindex(b"\xff\xda")
    return data[:-2] + data[at:-2] * (31 - data.count(b"\xff\xda")) + b"\xff\xd9"


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


async def watch(lags: list[float], sizes: list[int]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(TICK_SECONDS)
        lags.append(time.perf_counter() - began - TICK_SECONDS)
        sizes.append(resident_bytes())


async def accept(pool: WorkerPool, data: bytes) -> str:
    try:
        await pool.run(inspect, data, "hostile", LIMITS)
    except MediaError as error:
        return type(error).__name__
    return "accepted"


async def run(count: int) -> None:
    images = [expanding_webp(), slow_jpeg()]
    pool = WorkerPool()
    lags: list[float] = []
    sizes: list[int] = []
    before = resident_bytes()
    began = time.monotonic()
    watching = asyncio.create_task(watch(lags, sizes))
    outcomes = await asyncio.gather(*(accept(pool, images[at % 2]) for at in range(count)))
    watching.cancel()
    pool.close()
    lags.sort()
    print(f"{count} images of {', '.join(f'{len(data):,}' for data in images)} bytes")
    print(f"  outcomes            { ({name: outcomes.count(name) for name in sorted(set(outcomes))}) }")
    print(f"  seconds             {time.monotonic() - began:.1f}")
    print(f"  memory of parent    +{(max(sizes) - before) / 1e6:.1f} MB   (target: under 200)")
    print(f"  event loop late by  {lags[-1] * 1000:.1f} ms at most, {lags[len(lags) // 2] * 1000:.2f} ms at the median")


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
