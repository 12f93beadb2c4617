"""Test salvage and backup many times: `python -m benchmarks.salvage [--count N] [--rounds N]`.

Damages 1,000 copies of a store in nine ways, recovers each, and checks that every undamaged message is there, that no
other message is there, and that the new store is sound; prints how many messages were lost and the time per store.
Then takes 200 backups of a store while four sessions write to it, and checks each backup.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from loom.content.messages import assistant, user
from loom.errors import Corrupt
from loom.store.backup import back_up
from loom.store.database import open_database
from loom.store.forest import Forest
from loom.store.media import open_media
from loom.store.salvage import NOTE, salvage
from loom.store.sessions import Sessions
from store.damaged_stores import WAYS, World, damage, make_world, may_be_lost

NOTE_BEGINS = NOTE.partition("{")[0]


def saved_messages(file: Path) -> set[str]:
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute("SELECT message FROM node WHERE depth > 0").fetchall()
    return {text for (text,) in rows if NOTE_BEGINS not in text}


async def is_sound(file: Path) -> bool:
    database = await open_database(str(file))
    try:
        return await database.check() == () and (await Forest(database).verify()).problems == ()
    finally:
        await database.close()


async def salvage_many(world: World, folder: Path, count: int) -> bool:
    everything = set(world.messages.values())
    lost: Counter[str] = Counter()
    hit_messages: Counter[str] = Counter()
    failures: list[str] = []
    seconds: list[float] = []
    nothing_left = 0
    for number in range(count):
        way = WAYS[number % len(WAYS)]
        file, target = folder / "damaged.db", folder / "saved.db"
        for suffix in ("", "-wal", "-shm"):
            target.with_name(target.name + suffix).unlink(missing_ok=True)
        hit = damage(world, file, way, random.Random(f"{way} {number}"))
        began = time.perf_counter()
        try:
            salvage(file, target)
        except Corrupt:  # truncated so much that nothing is left
            nothing_left += 1
        seconds.append(time.perf_counter() - began)
        saved, may = saved_messages(target) if target.exists() else set[str](), may_be_lost(world, hit)
        is_good = saved <= everything and everything - saved <= may
        if not is_good or (target.exists() and not await is_sound(target)):
            failures.append(f"{way} {number}")
            print(
                f"  failed: {way} {number}, lost outside of damaged pages: {sorted(everything - saved - may)[:5]}",
                flush=True,
            )
        lost[way] += len(everything - saved)
        hit_messages[way] += len(may)
    print(f"{count} damaged stores of {len(everything)} messages: {len(failures)} failures {failures[:10]}")
    print(f"  {nothing_left} without any message left;", end=" ")
    print(f"median {statistics.median(seconds) * 1000:.0f} ms (slowest {max(seconds) * 1000:.0f} ms)")
    for way in WAYS:
        print(f"  {way:<13} lost {lost[way]:>6} of {hit_messages[way]:>6} messages on damaged pages")
    return not failures


async def back_up_many(folder: Path, rounds: int) -> bool:
    database, media = await open_database(str(folder / "loom.db")), open_media(folder / "media")
    sessions = Sessions(database)
    stop = asyncio.Event()
    written = 0

    async def write_messages(number: int) -> None:
        nonlocal written
        session = await sessions.create(title=f"session {number}")
        while not stop.is_set():
            await media.put(f"{number} {written}".encode())
            await sessions.append_to_head(session.id, [user(f"question {written}"), assistant("answer " * 20)])
            written += 2
            if written % 2000 == 0:
                session = await sessions.create()

    writing = [asyncio.create_task(write_messages(number)) for number in range(4)]
    failures, seconds, before = 0, list[float](), 0
    for _ in range(rounds):
        began = time.perf_counter()
        report = await back_up(database, media, folder / "backup")
        seconds.append(time.perf_counter() - began)
        copy = folder / "backup" / "loom.db"
        failures += not await is_sound(copy) or report.messages % 2 != 0 or report.messages < before
        before = report.messages
    stop.set()
    await asyncio.gather(*writing)
    await database.close()
    print(f"{rounds} backups while {written} messages were written: {failures} failures;", end=" ")
    print(f"median {statistics.median(seconds) * 1000:.0f} ms (slowest {max(seconds) * 1000:.0f} ms)")
    return not failures


async def main() -> bool:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "world").mkdir()
        world = await make_world(folder / "world")
        is_good = await salvage_many(world, folder, options.count)
    with tempfile.TemporaryDirectory() as name:
        return await back_up_many(Path(name), options.rounds) and is_good


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main()) else 1)
