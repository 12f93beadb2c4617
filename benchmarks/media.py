"""The media store and the cache of derived bytes: `python -m benchmarks.media`.

A 1.3 MB picture is put (synced to disk), put again, loaded and streamed; a derived form of it is looked up for the
first and the second time. Beside it stands what the disk itself needs for a write with the same two syncs.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from loom.content.recipes import Low
from loom.formats.facts import Rendered
from loom.store.derived import DerivedCache
from loom.store.media import MediaStore, open_media

PICTURE_BYTES = 1_300_000
DERIVED_BYTES = 120_000
ROUNDS = 60

T = TypeVar("T")


async def main() -> None:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # not /tmp, which may live in memory
        root = Path(folder)
        media = open_media(root / "data")
        for number in range(256):  # as in a store that has been used for a while
            for top in ("media", "derived"):
                (root / "data" / top / f"{number:02x}").mkdir(mode=0o700, parents=True)
        pictures = [os.urandom(PICTURE_BYTES) for _ in range(ROUNDS)]
        raw = await _each(pictures, lambda data: asyncio.to_thread(_write_synced, root, data))
        put = await _each(pictures, media.put)
        again = await _each(pictures, media.put)
        digests = [await media.put(data) for data in pictures]
        load = await _each(digests, media.load)
        opened = await _each(digests, _opened(media))
        streamed = await _each(digests, _streamed(media))

        rendered = Rendered(data=os.urandom(DERIVED_BYTES), media_type="image/png", width=512, height=288)
        writer = DerivedCache(media.place)
        derive = await _each(digests, lambda digest: writer.put(digest, Low(), rendered))
        cache = DerivedCache(open_media(root / "data").place)
        first = await _each(digests, lambda digest: cache.get(digest, Low()))
        second = await _each(digests, lambda digest: cache.get(digest, Low()))

    print(f"1.3 MB picture, median and worst of {ROUNDS}, ms")
    for name, times in {
        "plain write, fsync file and directory": raw,
        "put": put,
        "put again (refreshed, not written)": again,
        "load (hash checked)": load,
        "open, already checked": opened,
        "stream in blocks": streamed,
        "derived: put 120 kB": derive,
        "derived: first lookup (bytes checked)": first,
        "derived: second lookup": second,
    }.items():
        print(f"  {name:<40}{statistics.median(times):>9.3f}{max(times):>9.3f}")


async def _each(things: list[T], do: Callable[[T], Awaitable[object]]) -> list[float]:
    times: list[float] = []
    for thing in things:
        started = time.perf_counter()
        await do(thing)
        times.append((time.perf_counter() - started) * 1000)
    return times


def _write_synced(folder: Path, data: bytes) -> None:
    with (folder / os.urandom(8).hex()).open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    directory = os.open(folder, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def _opened(media: MediaStore) -> Callable[[str], Awaitable[None]]:
    async def open_and_close(digest: str) -> None:
        file = await media.open_local(digest)
        assert file is not None
        file.close()

    return open_and_close


def _streamed(media: MediaStore) -> Callable[[str], Awaitable[None]]:
    async def read(digest: str) -> None:
        async for _ in media.read_blocks(digest):
            pass

    return read


if __name__ == "__main__":
    asyncio.run(main())
