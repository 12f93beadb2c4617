"""Measure the media store and the cache of derived bytes: `python -m benchmarks.media`.

A 1.3 MB image is put (synced to disk), put again, loaded and streamed; a derived form of it is looked up for the
first and the second time. Each round also measures a lower bound: writing the same bytes to a temporary file, sync,
rename, and sync of the directory.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from loom.content.recipes import Low
from loom.formats.facts import Rendered
from loom.store.derived import DerivedCache
from loom.store.media import MediaStore, open_media

IMAGE_BYTES = 1_300_000
DERIVED_BYTES = 120_000
ROUNDS = 60
LOWER_BOUND = "lower bound: write, sync, rename, sync"

Way = Callable[[int], Awaitable[object]]


async def main() -> None:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # not /tmp, which may be in memory
        root = Path(folder)
        media = open_media(root / "data")
        rounds = random_images(ROUNDS)
        digests: list[str] = []

        async def put(number: int) -> None:
            digests.append(await media.put(rounds[number]))

        rendered = Rendered(data=os.urandom(DERIVED_BYTES), media_type="image/png", width=512, height=288)
        writer = DerivedCache(media.place)
        reader = DerivedCache(open_media(root / "data").place)
        found = await time_interleaved(
            {
                LOWER_BOUND: durable_write(root / "bound", random_images(ROUNDS)),
                "put": put,
                "put again (refreshed, not written)": lambda number: media.put(rounds[number]),
                "load (hash checked)": lambda number: media.load(digests[number]),
                "open, already checked": lambda number: _open_and_close(media, digests[number]),
                "stream in blocks": lambda number: _read_all(media, digests[number]),
                "derived: put 120 KB": lambda number: writer.put(digests[number], Low(), rendered),
                "derived: first lookup (bytes checked)": lambda number: reader.get(digests[number], Low()),
                "derived: second lookup": lambda number: reader.get(digests[number], Low()),
            },
            ROUNDS,
        )
    print(f"1.3 MB image in a store that is empty at first; {ROUNDS} rounds")
    show(found, LOWER_BOUND)


def random_images(count: int) -> list[bytes]:
    """Return `count` random byte strings, each of another size, as images are."""
    return [os.urandom(IMAGE_BYTES + number) for number in range(count)]


def durable_write(folder: Path, data: list[bytes]) -> Way:
    """Return the least work that stores bytes durably and atomically under a name."""
    folder.mkdir()

    async def write(number: int) -> None:
        descriptor = os.open(folder / "tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(descriptor, data[number])
        os.fsync(descriptor)
        os.close(descriptor)
        (folder / "tmp").rename(folder / str(number))
        directory = os.open(folder, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)

    return write


async def time_interleaved(ways: dict[str, Way], rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of each way in each round; all run in every round: a busy disk slows all equally."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name, way in ways.items():
            started = time.perf_counter()
            await way(number)
            found[name].append((time.perf_counter() - started) * 1000)
    return found


def show(found: dict[str, list[float]], against: str) -> None:
    """Print one line per way. The ratio to `against` is computed in each round; printed is its median."""
    print(f"    {'ms':<42}{'median':>10}{'best':>10}{'ratio':>10}")
    for name, times in found.items():
        ratio = statistics.median(time / base for time, base in zip(times, found[against], strict=True))
        print(f"    {name:<42}{statistics.median(times):>10.3f}{min(times):>10.3f}{ratio:>9.2f}×")


async def _open_and_close(media: MediaStore, digest: str) -> None:
    file = await media.open_local(digest)
    assert file is not None
    file.close()


async def _read_all(media: MediaStore, digest: str) -> None:
    async for _ in media.read_blocks(digest):
        pass


if __name__ == "__main__":
    asyncio.run(main())
