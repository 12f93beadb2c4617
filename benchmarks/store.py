"""P5 and P6: measure the database: `python -m benchmarks.store`.

P5: append a message to sessions of 10 to 10,000 messages and load their paths; append with a new image; bytes per
turn; the same conversation stored in the usual ways. Disks and machines are noisy, so a lower bound (the syncs that
durability needs, without Loom) runs in every round, and the ratio to it is printed next to the milliseconds.
P6: rows per second with 16 producers, each row durable before the next, compared with aiosqlite and plain sqlite3 in
one interleaved run; then a single producer, with `synchronous = NORMAL` as the others use it.

`--kills 1000` only runs the kill test of the test suite for longer.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import hashlib
import itertools
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiosqlite
import msgspec

from benchmarks.media import Way, durable_write, random_images, show, time_interleaved
from loom.content.blocks import ImageBlock
from loom.content.codec import encode_message
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

PEER_TABLES = (
    "CREATE TABLE session (id INTEGER PRIMARY KEY, head INTEGER)",
    "CREATE TABLE node (key INTEGER PRIMARY KEY, id TEXT UNIQUE, parent INTEGER, data TEXT)",
    "CREATE INDEX node_parent ON node (parent)",
)
LENGTHS = (10, 80, 100, 1_000, 10_000)
ROUNDS_WITH_IMAGE = 40
PEER_ROUNDS = 5

LOWER_BOUND = "lower bound: the same syncs, without Loom"
MESSAGE = "Loom: message appended, head moved"
PEER = "aiosqlite: one row (WAL, FULL)"
MESSAGE_PEER = "aiosqlite: message appended, head moved"

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


async def time_calls(do: Callable[[], Awaitable[object]], times: int) -> list[float]:
    """Return the milliseconds of each call. The time to free the result of `do` does not count."""
    found: list[float] = []
    for _ in range(times):
        started = time.perf_counter()
        result = await do()
        found.append((time.perf_counter() - started) * 1000)
        del result
    return found


def raw_commit(path: Path) -> Way:
    """Return the lower bound of an append: one row of the same text and one sync."""
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", TABLE):
        connection.execute(statement)
    text = encode_message(turn(0)[0]).decode()

    async def commit(number: int) -> None:
        connection.execute(INSERT, {"producer": number, "data": text})

    return commit


async def growth(folder: Path) -> None:
    database = await open_database(str(folder / "history.db"))
    sessions, forest = Sessions(database), Forest(database)
    ids: dict[int, str] = {}
    for length in LENGTHS:
        ids[length] = (await sessions.create(system=f"length {length}")).id
        for start in range(0, length, 1000):
            messages = [message for number in range(start, min(start + 1000, length), 2) for message in turn(number)]
            await sessions.append_to_head(ids[length], messages, meta=META)
    heads = {length: (await sessions.get(ids[length])).head_id for length in LENGTHS}
    ways: dict[str, Way] = {LOWER_BOUND: raw_commit(folder / "bound.db")}
    for length in LENGTHS:
        ways[str(length)] = lambda _, at=ids[length]: sessions.append_to_head(at, turn(0)[:1])
    appended = await time_interleaved(ways, 60)
    bound_ms = statistics.median(appended[LOWER_BOUND])
    print(f"P5  append one message (durable; a raw commit takes {bound_ms:.3f} ms); load the whole path")
    print(f"    {'messages':>10}{'append ms':>12}{'ratio':>8}{'load ms':>12}{'best':>10}{'µs / message':>15}")
    for length in LENGTHS:
        append = appended[str(length)]
        ratio = statistics.median(own / raw for own, raw in zip(append, appended[LOWER_BOUND], strict=True))
        load = await time_calls(lambda at=heads[length]: forest.path(at), 40 if length < 5000 else 8)
        middle = statistics.median(load)
        print(
            f"    {length:>10,}{statistics.median(append):>12.3f}{ratio:>7.2f}×"
            f"{middle:>12.3f}{min(load):>10.3f}{min(load) / length * 1000:>15.1f}"
        )
    await database.close()


async def append_images(folder: Path) -> None:
    """Append messages with new images. In a store that is empty at first, nearly every image needs a new directory,
    which is one more sync; in a store in use none does."""
    database = await open_database(str(folder / "images.db"))
    sessions = Sessions(database)
    session = await sessions.create(system="images")
    sync_twice = durable_write(folder / "bound", random_images(ROUNDS_WITH_IMAGE))
    commit = raw_commit(folder / "bound-images.db")
    for number in range(256):
        (folder / "used" / "media" / f"{number:02x}").mkdir(parents=True)

    async def write_bare(number: int) -> None:
        await sync_twice(number)
        await commit(number)

    def append_by_loom(store: str) -> Way:
        media, images = open_media(folder / store), random_images(ROUNDS_WITH_IMAGE)

        async def append(number: int) -> None:
            await media.put(images[number])
            await sessions.append_to_head(session.id, turn(number)[:1])

        return append

    print("\n    append a message with a new image of 1.3 MB")
    ways = {
        LOWER_BOUND: write_bare,
        "Loom, in a store in use": append_by_loom("used"),
        "Loom, in a store that is empty at first": append_by_loom("empty"),
    }
    show(await time_interleaved(ways, ROUNDS_WITH_IMAGE), LOWER_BOUND)
    await database.close()


async def bytes_per_turn(folder: Path) -> None:
    path = folder / "size.db"
    database = await open_database(str(path))
    sessions = Sessions(database)
    empty = path.stat().st_size
    session = await sessions.create()
    for number in range(1000):
        await sessions.append_to_head(session.id, turn(number), meta=META)
    await database.close()
    print(f"\n    stored per turn, without images: {(path.stat().st_size - empty) / 1000:,.0f} bytes")


def turn_as_json(number: int, image: bytes) -> str:
    """Return a turn with its image inside, as JSON."""
    messages = [encode_message(message).decode() for message in turn(number)]
    return f'{{"said":[{",".join(messages)}],"picture":"{base64.b64encode(image).decode()}"}}'


async def other_layouts(folder: Path) -> None:
    """Compare 40 turns with an image each with the usual layouts: one JSON document that is rewritten each time, and a
    row per turn, both with the images inside as base64."""
    turns = 40
    shots = random_images(turns + PEER_ROUNDS)
    database = await open_database(str(folder / "loom-layout.db"))
    sessions, forest, media = Sessions(database), Forest(database), open_media(folder / "loom-layout")
    session = await sessions.create(system="W")
    document = sqlite3.connect(folder / "document.db", isolation_level=None)
    by_row = sqlite3.connect(folder / "rows.db", isolation_level=None)
    for connection in (document, by_row):
        for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", TABLE):
            connection.execute(statement)

    async def append_by_loom(number: int) -> None:
        await media.put(shots[number])
        await sessions.append_to_head(session.id, turn(number), meta=META)

    async def append_row(number: int) -> None:
        by_row.execute(INSERT, {"producer": number, "data": turn_as_json(number, shots[number])})

    kept: list[object] = []

    async def append_document(number: int) -> None:
        kept.append(msgspec.json.decode(turn_as_json(number, shots[number])))
        text = msgspec.json.encode(kept).decode()
        document.execute("INSERT OR REPLACE INTO bench (key, producer, data) VALUES (1, 0, :data)", {"data": text})

    async def load_by_loom(_: int) -> None:
        await forest.path((await sessions.get(session.id)).head_id)

    async def load_rows(_: int) -> None:
        for (text,) in by_row.execute("SELECT data FROM bench ORDER BY key"):
            msgspec.json.decode(text)

    async def load_document(_: int) -> None:
        msgspec.json.decode(document.execute("SELECT data FROM bench").fetchone()[0])

    for number in range(turns - 1):
        kept.append(msgspec.json.decode(turn_as_json(number, shots[number])))
        await append_by_loom(number)
        await append_row(number)
    await append_document(turns - 1)
    await append_by_loom(turns - 1)
    await append_row(turns - 1)
    ways: dict[str, tuple[Way, Way, str]] = {
        "Loom": (load_by_loom, append_by_loom, "loom-layout.db"),
        "a row for each turn, images inside": (load_rows, append_row, "rows.db"),
        "one JSON document, images inside": (load_document, append_document, "document.db"),
    }
    loads = await time_interleaved({name: way[0] for name, way in ways.items()}, PEER_ROUNDS)
    appends = await time_interleaved(
        {name: lambda number, do=way[1]: do(turns + number) for name, way in ways.items()}, PEER_ROUNDS
    )
    await database.close()
    document.close()
    by_row.close()
    print(f"\n    {turns} turns with an image each, by layout{'database MB':>27}{'load ms':>10}{'append ms':>11}")
    for name, (_, _, file) in ways.items():
        size = (folder / file).stat().st_size / 1e6
        load, append = statistics.median(loads[name]), statistics.median(appends[name])
        print(f"    {name:<51}{size:>16.1f}{load:>10.2f}{append:>11.2f}")


async def produce(append: Append) -> float:
    """Return the rows per second of all producers together."""

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


def aiosqlite_row(connection: aiosqlite.Connection, lock: asyncio.Lock | None) -> Append:
    """Return an append of one row. Without `lock`, producers commit each other's rows; a failure undoes them all."""

    async def append(name: int) -> None:
        async with lock or contextlib.nullcontext():
            await connection.execute(INSERT, {"producer": name, "data": ROW})
            await connection.commit()

    return append


def aiosqlite_message(connection: aiosqlite.Connection, text: str) -> Append:
    """Return an append of a message with the same statements as Loom's, in aiosqlite."""
    lock = asyncio.Lock()
    numbers = itertools.count()

    async def append(name: int) -> None:
        async with lock:
            await connection.execute("BEGIN IMMEDIATE")
            rows = await connection.execute_fetchall("SELECT head FROM session WHERE id = ?", (name,))
            head = next(iter(rows))[0]
            rows = await connection.execute_fetchall("SELECT id FROM node WHERE key = ?", (head,))
            parent = next(iter(rows), ("",))[0]
            node = hashlib.sha256(f"{parent}\n{next(numbers)}\n{text}".encode()).hexdigest()
            added = await connection.execute("INSERT INTO node (id, parent, data) VALUES (?, ?, ?)", (node, head, text))
            await connection.execute("UPDATE session SET head = ? WHERE id = ?", (added.lastrowid, name))
            await connection.commit()

    return append


def plain_row(connection: sqlite3.Connection) -> Append:
    lock = asyncio.Lock()

    def insert(name: int) -> None:
        connection.execute(INSERT, {"producer": name, "data": ROW})
        connection.commit()

    async def append(name: int) -> None:
        async with lock:
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
    for statement in PEER_TABLES:
        await peer.execute(statement)
    await peer.executemany("INSERT INTO session VALUES (?, 0)", [(name,) for name in range(PRODUCERS)])
    await peer.commit()
    plain = sqlite3.connect(folder / "plain.db", check_same_thread=False)
    plain.execute(TABLE)
    ways: dict[str, Append] = {
        "Loom: one row": loom_row(database),
        "Loom: one event": lambda name: events.append(ids[name], [("said", ROW.encode())]),
        MESSAGE: lambda name: sessions.append_to_head(ids[name], [message]),
        PEER: aiosqlite_row(peer, asyncio.Lock()),
        MESSAGE_PEER: aiosqlite_message(peer, encode_message(message).decode()),
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
        print(f"    {name:<46}{middle:>10,.0f}{middle / base:>8.1f}×")
    same = statistics.median(own / other for own, other in zip(found[MESSAGE], found[MESSAGE_PEER], strict=True))
    print(f"    a message, relative to the same statements in aiosqlite: {same:.1f}×")
    await database.close()
    await peer.close()
    plain.close()


async def single_producer(folder: Path) -> None:
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

        async def insert_raw() -> None:
            raw.execute(INSERT, {"producer": 0, "data": ROW})

        print("\n    a single producer, synchronous = NORMAL, each append awaited")
        ways: dict[str, Way] = {
            "sqlite3 in the same thread: one row": lambda _: insert_raw(),
            "Loom: empty transaction (round trip)": lambda _: database.write(lambda _: None),
            "Loom: one row": lambda _: row(0),
            MESSAGE: lambda _: sessions.append_to_head(session.id, [message]),
        }
        show(await time_interleaved(ways, 2000), "sqlite3 in the same thread: one row")
    await database.close()


async def kill(folder: Path, kills: int) -> None:
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "store"))
    from test_kill import kill_appenders

    started = time.perf_counter()
    acknowledged, stored = await kill_appenders(folder, kills=kills, seed=int(started))
    seconds = time.perf_counter() - started
    print(f"{kills} kills in {seconds:.0f} s: {acknowledged:,} messages acknowledged, {stored:,} stored, none lost")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=0, help="only run the kill test, with this many kills")
    kills = parser.parse_args().kills
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:  # not /tmp, which may be in memory
        folder = Path(name)
        if kills:
            asyncio.run(kill(folder, kills))
            return
        for part in (growth, append_images, bytes_per_turn, other_layouts):
            asyncio.run(part(folder))
        asyncio.run(rates(folder))
        asyncio.run(single_producer(folder))


if __name__ == "__main__":
    main()
