"""Hostile pictures cost their worker, and never the process that lets them in."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from formats import hostile_images
from formats.made_images import IMAGE_TYPES, sample
from loom.content.recipes import Fit
from loom.errors import TooLarge
from loom.formats import inspect, render
from loom.formats.facts import IntakeLimits
from loom.formats.image import IMAGE_WORKER
from loom.formats.image.describe_pixels import describe
from loom.formats.worker import WorkerPool

MANY = """
import asyncio, json, os, sys
from pathlib import Path
from loom.errors import MediaError
from loom.formats import inspect
from loom.formats.facts import IntakeLimits
from loom.formats.worker import WorkerPool

pictures = [Path(name).read_bytes() for name in sys.argv[1:]]
pool = WorkerPool()
limits = IntakeLimits(deadline_seconds=1.0)

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

async def admit(data):
    try:
        await pool.run(inspect, data, "hostile", limits)
        return "let in"
    except MediaError as error:
        return error.code

async def main():
    before, most, ticks = resident(), 0, 0
    jobs = asyncio.gather(*(admit(data) for data in pictures * 5))
    while not jobs.done():
        await asyncio.sleep(0.01)
        most, ticks = max(most, resident()), ticks + 1
    print(json.dumps({"outcomes": jobs.result(), "grown": most - before, "ticks": ticks}))
    pool.close()

asyncio.run(main())
"""


def test_many_hostile_pictures_at_once_cost_their_parent_neither_memory_nor_its_event_loop(tmp_path: Path) -> None:
    files = []
    for name, data in (("a.webp", hostile_images.expanding_webp()), ("b.jpg", hostile_images.slow_jpeg())):
        (tmp_path / name).write_bytes(data)
        files.append(str(tmp_path / name))

    done = subprocess.run([sys.executable, "-c", MANY, *files], capture_output=True, check=False, text=True)

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert set(seen["outcomes"]) <= {"let in", TooLarge.code}
    assert TooLarge.code in seen["outcomes"]
    assert seen["grown"] < 100_000_000
    assert seen["ticks"] > 20, "the event loop went on while the pictures were decoded"


@pytest.mark.parametrize("name", sorted(IMAGE_TYPES))
def test_no_picture_is_decoded_in_the_process_that_lets_it_in(name: str) -> None:
    program = (
        "import sys\n"
        "from loom.content.recipes import Fit, Low\n"
        "from loom.formats import inspect, render\n"
        "from loom.formats.image.describe_pixels import describe\n"
        "data = sys.stdin.buffer.read()\n"
        "media = inspect(data, sys.argv[1]).media\n"
        "render(data, media, Fit(max_side_px=32)); render(data, media, Low(side_px=16)); describe(data)\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('PIL', 'pillow_heif')])"
    )

    done = subprocess.run([sys.executable, "-c", program, name], input=sample(name), capture_output=True, check=True)

    assert done.stdout.decode().strip() == "[]"
    assert done.stderr == b""


def test_a_picture_past_its_deadline_is_too_large_and_its_worker_is_ended() -> None:
    pool = WorkerPool()
    with pool.use():
        with pytest.raises(TooLarge, match=r"slow\.jpg takes longer than 0\.2 s"):
            inspect(hostile_images.slow_jpeg(), "slow.jpg", IntakeLimits(deadline_seconds=0.2))
        assert pool.pids(IMAGE_WORKER) == ()
        assert inspect(sample("rgb.png"), "rgb.png").media.width == 96
    pool.close()


def test_a_picture_beyond_the_memory_of_a_worker_is_too_large() -> None:
    limits = IntakeLimits(worker_memory_bytes=200_000_000)

    with pytest.raises(TooLarge, match="memory"):
        inspect(hostile_images.expanding_webp(), "large.webp", limits)


def test_a_worker_gives_back_what_a_large_picture_took() -> None:
    pool = WorkerPool()
    with pool.use():
        inspect(hostile_images.expanding_webp(5_000), "large.webp")
        inspect(sample("rgb.png"), "rgb.png")
        (pid,) = pool.pids(IMAGE_WORKER)
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    pool.close()

    assert resident < 150_000_000


def test_two_pools_share_no_worker_and_a_closed_one_reads_nothing_more() -> None:
    first, second = WorkerPool(), WorkerPool()
    with first.use():
        inspect(sample("rgb.png"))
    with second.use():
        inspect(sample("rgb.png"))
    assert not set(first.pids()) & set(second.pids())

    first.close()

    assert first.pids() == ()
    assert len(second.pids()) == 1
    with first.use(), pytest.raises(Exception, match="shut down"):
        inspect(sample("rgb.png"))
    second.close()


async def test_threads_and_tasks_of_a_pool_use_that_pool() -> None:
    pool = WorkerPool()
    with pool.use():
        await asyncio.gather(
            asyncio.to_thread(inspect, sample("rgb.png")), pool.run(inspect, sample("baseline.jpg"), "a.jpg")
        )
    await pool.run(describe, sample("rgb.png"))

    assert 1 <= len(pool.pids(IMAGE_WORKER)) <= IMAGE_WORKER.size
    pool.close()


def test_large_documents_and_results_pass_by_descriptor_unharmed() -> None:
    data = sample("rgb.png")
    at = data.index(b"IEND") - 4
    padding = b"tEXt" + b"k\0" + b"x" * 3_000_000
    padded = data[:at] + (len(padding) - 4).to_bytes(4, "big") + padding + b"\0\0\0\0" + data[at:]
    media = inspect(padded, "padded.png").media

    assert render(padded, media, Fit()).data == render(data, inspect(data).media, Fit()).data
    assert describe(padded) == describe(data)
