"""P5 and P6, the database: `python -m benchmarks.store`.

P5: append a message to sessions of 10 to 10,000 messages, load paths, bytes per turn.
P6: rows per second with 16 producers, each row durable before the next, beside aiosqlite and plain sqlite3 in one
interleaved run; then one producer alone, with `synchronous = NORMAL` as its peers have it.

`--kills 1000` runs the kill test of the suite for longer.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiosqlite

from loom.content.blocks import ImageBlock
from loom.content.media import Media
from loom.content.messages import Message, assistant, user
from loom.store.database import Database, Transaction, open_database
from loom.store.events import Events
from loom.store.forest import Forest
from loom.store.media import open_media
from loom.store.sessions import Sessions
from loom.store.sqlite import SqliteDatabase

PRODUCERS = 16
ROWS_EACH = 60
ROUNDS = 5
ROW = '{"text":"' + "a row of two hundred bytes " * 7 + '"}'
TABLE = "CREATE TABLE IF NOT EXISTS bench (key INTEGER PRIMARY KEY, producer INTEGER, data TEXT)"
INSERT = "INSERT INTO bench (producer, data) VALUES (:producer, :data)"

PEER = "aiosqlite: one row (WAL, FULL)"

Append = Callable[[int], Awaitable[object]]


def turn(number: int) -> list[Message]:
    shot = Media(
        digest=f"sha256:{number:064x}",
        media_type="image/png",
        size_bytes=1_300_000,
        width=1920,
        height=1080,
        name=f"shot-{number}.png",
    )
    question = user(f"Turn {number}: what has changed on this page since the last one? " * 3, ImageBlock(shot))
    return [question, assistant(f"Turn {number}: the button moved and its label is new. " * 10)]


META = {"provider": "anthropic", "model": "claude", "usage": {"input": 1200, "output": 300}, "stop": "end"}


async def timed(do: Callable[[], Awaitable[object]], times: int) -> float:
    """The median, in milliseconds."""
    found: list[float] = []
    for _ in range(times):
        started = time.perf_counter()
        await do()
        found.append((time.perf_counter() - started) * 1000)
    return statistics.median(found)


async def history(folder: Path) -> None:
    database = await open_database(str(folder / "history.db"))
    sessions, forest, media = Sessions(database), Forest(database), open_media(folder / "media")
    print("P5  append one message (durable), by the length of the session; load the whole path; ms")
    print(f"    {'messages':>10}{'append':>10}{'load':>10}")
    for length in (10, 40, 100, 1_000, 10_000):
        session = await sessions.create(system=f"length {length}")
        for start in range(0, length, 1000):
            said = [message for number in range(start, min(start + 1000, length), 2) for message in turn(number)]
            await sessions.append_to_head(session.id, said, meta=META)
        head = (await sessions.get(session.id)).head_id
        load = await timed(lambda at=head: forest.path(at), 40 if length < 5000 else 5)
        append = await timed(lambda at=session.id: sessions.append_to_head(at, turn(0)[:1]), 60)
        print(f"    {length:>10,}{append:>10.3f}{load:>10.3f}")

    session = await sessions.create(system="pictures")

    async def with_picture() -> None:
        await media.put(os.urandom(1_300_000))
        await sessions.append_to_head(session.id, turn(0)[:1])

    print(f"    append with a new picture of 1.3 MB {await timed(with_picture, 40):.3f} ms")
    await database.close()
    await bytes_per_turn(folder)


async def bytes_per_turn(folder: Path) -> None:
    path = folder / "size.db"
    database = await open_database(str(path))
    sessions = Sessions(database)
    empty = path.stat().st_size
    session = await sessions.create()
    for number in range(1000):
        await sessions.append_to_head(session.id, turn(number), meta=META)
    await database.close()
    print(f"    stored per turn, pictures aside: {(path.stat().st_size - empty) / 1000:,.0f} bytes")


async def produce(append: Append) -> float:
    """Rows per second of all producers together."""

    async def producer(name: int) -> None:
        for _ in range(ROWS_EACH):
            await append(name)

    started = time.perf_counter()
    await asyncio.gather(*(producer(name) for name in range(PRODUCERS)))
    return PRODUCERS * ROWS_EACH / (time.perf_counter() - started)


def loom_row(database: Database) -> Append:
    def insert(name: int) -> Callable[[Transaction], object]:
        return lambda tx: tx.execute(INSERT, {"producer": name, "data": ROW})

    return lambda name: database.write(insert(name))


def aiosqlite_row(connection: aiosqlite.Connection, turn_taking: asyncio.Lock | None) -> Append:
    """Without a lock around a transaction, producers commit each other's rows, and a failure undoes them all."""

    async def append(name: int) -> None:
        async with turn_taking or contextlib.nullcontext():
            await connection.execute(INSERT, {"producer": name, "data": ROW})
            await connection.commit()

    return append


def plain_row(connection: sqlite3.Connection) -> Append:
    turn_taking = asyncio.Lock()

    def insert(name: int) -> None:
        connection.execute(INSERT, {"producer": name, "data": ROW})
        connection.commit()

    async def append(name: int) -> None:
        async with turn_taking:
            await asyncio.to_thread(insert, name)

    return append


async def rates(folder: Path) -> None:
    database = await open_database(str(folder / "loom.db"))
    await database.write(lambda tx: tx.execute(TABLE))
    sessions, events = Sessions(database), Events(database)
    ids = [(await sessions.create(system=f"producer {name}")).id for name in range(PRODUCERS)]
    message = user("A message of two hundred bytes or so. " * 5)
    peer = await aiosqlite.connect(folder / "aiosqlite.db")
    for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", TABLE):
        await peer.execute(statement)
    plain = sqlite3.connect(folder / "plain.db", check_same_thread=False)
    plain.execute(TABLE)
    ways: dict[str, Append] = {
        "Loom: one row": loom_row(database),
        "Loom: one event": lambda name: events.append(ids[name], [("said", ROW.encode())]),
        "Loom: message appended, head moved": lambda name: sessions.append_to_head(ids[name], [message]),
        PEER: aiosqlite_row(peer, asyncio.Lock()),
        "aiosqlite: one row, not isolated": aiosqlite_row(peer, None),
        "sqlite3 in threads: one row (defaults)": plain_row(plain),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, append in ways.items():
            found[name].append(await produce(append))
    base = statistics.median(found[PEER])
    print(f"\nP6  {PRODUCERS} producers, every row durable before the next; rows per second, median of {ROUNDS}")
    for name, rows in found.items():
        middle = statistics.median(rows)
        print(f"    {name:<42}{middle:>10,.0f}{middle / base:>8.1f}×")
    await database.close()
    await peer.close()
    plain.close()


async def alone(folder: Path) -> None:
    database = await open_database(str(folder / "alone.db"))
    assert isinstance(database, SqliteDatabase)
    with contextlib.closing(sqlite3.connect(folder / "raw.db", isolation_level=None)) as raw:
        for connection in (database._connection, raw):  # noqa: SLF001 - users get FULL; only this comparison needs NORMAL
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
        raw.execute(TABLE)
        await database.write(lambda tx: tx.execute(TABLE))
        sessions = Sessions(database)
        session = await sessions.create()
        message = user("A message of two hundred bytes or so. " * 5)
        row = loom_row(database)

        async def plainly() -> None:
            raw.execute(INSERT, {"producer": 0, "data": ROW})

        print("\n    one producer alone, synchronous = NORMAL, ms for each awaited append")
        print(f"    {'sqlite3 in the same thread: one row':<42}{await timed(plainly, 2000):>10.3f}")
        print(f"    {'Loom: one row':<42}{await timed(lambda: row(0), 2000):>10.3f}")
        appended = await timed(lambda: sessions.append_to_head(session.id, [message]), 2000)
        print(f"    {'Loom: message appended, head moved':<42}{appended:>10.3f}")
    await database.close()


async def kill(folder: Path, kills: int) -> None:
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "store"))
    from test_kill import kill_appenders

    started = time.perf_counter()
    acknowledged, there = await kill_appenders(folder, kills=kills, seed=int(started))
    seconds = time.perf_counter() - started
    print(f"{kills} kills in {seconds:.0f} s: {acknowledged:,} messages acknowledged, {there:,} there, none lost")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=0, help="only kill an appender this often, and check")
    kills = parser.parse_args().kills
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:  # not /tmp, which may live in memory
        folder = Path(name)
        if kills:
            asyncio.run(kill(folder, kills))
            return
        asyncio.run(history(folder))
        asyncio.run(rates(folder))
        asyncio.run(alone(folder))


if __name__ == "__main__":
    main()
