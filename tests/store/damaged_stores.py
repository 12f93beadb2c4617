"""Stores with conversations of every shape, ways to damage their files, and what may be lost by it."""

from __future__ import annotations

import random
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from loom.content.blocks import ImageBlock
from loom.content.media import Media
from loom.content.messages import assistant, user
from loom.store.database import open_database
from loom.store.events import Events
from loom.store.leases import Leases
from loom.store.media import open_media
from loom.store.queue import MessageQueue
from loom.store.sessions import Sessions
from loom.store.sqlite_pages import SqlitePages

SESSIONS = 12


class World(NamedTuple):
    """A sound store. `pages_of` says on which pages of its file each message lies."""

    file: Path
    messages: dict[int, str]
    pages_of: dict[int, set[int]]


async def make_world(folder: Path) -> World:
    file = folder / "loom.db"
    database = await open_database(str(file))
    sessions, events, leases, queue = Sessions(database), Events(database), Leases(database), MessageQueue(database)
    media = open_media(folder / "media")
    chance = random.Random(7)
    for number in range(SESSIONS):
        session = await sessions.create(system=f"system {number % 3}", title=f"title {number}")
        said = []
        for turn in range(12):
            words = " ".join(chance.choices(("alpha", "beta", "gamma", "delta"), k=chance.choice((5, 40, 300, 2500))))
            data = f"picture {number} {turn}".encode()
            digest = await media.put(data)
            picture = ImageBlock(
                Media(digest=digest, media_type="image/png", size_bytes=len(data), name="a.png", width=1, height=1)
            )
            said += await sessions.append_to_head(
                session.id, [user(f"q {number} {turn}", picture), assistant(f"a {number} {turn} {words}")]
            )
            await events.append(session.id, [("turn.started", b'{"n":1}'), ("turn.finished", b"{}")])
        head = said[-1].id
        await sessions.move_head(session.id, head, said[5].id)
        await sessions.append_to_head(session.id, [user(f"branch {number}")])
        if number % 3 == 0:
            await sessions.fork(session.id)
            await leases.acquire(session.id, "somebody", 60)
            await queue.put(session.id, f"k{number}", user(f"waiting {number}"))
    await database.close()
    return World(file, _messages(file), _pages_of(file))


def _messages(file: Path) -> dict[int, str]:
    with closing(sqlite3.connect(file)) as connection:
        return dict(connection.execute("SELECT key, message FROM node WHERE depth > 0").fetchall())


class _Watched(SqlitePages):
    seen: set[int]

    def page(self, number: int) -> bytes:
        self.seen.add(number)
        return super().page(number)


def _pages_of(file: Path) -> dict[int, set[int]]:
    _Watched.seen = set()
    pages = _Watched(file)
    found: dict[int, set[int]] = {}
    for number in range(1, pages.count + 1):
        page = pages.page(number)
        if page[100 if number == 1 else 0] != 0x0D:
            continue
        start = 100 if number == 1 else 0
        for at in range(int.from_bytes(page[start + 3 : start + 5], "big")):
            pointer = start + 8 + 2 * at
            pages.seen = {number}
            cell = int.from_bytes(page[pointer : pointer + 2], "big")
            record = pages._cell(number, page, cell, 0x0D)
            if len(record.values) == 12 and str(record.values[1]).startswith("node:"):
                assert record.rowid is not None
                found[record.rowid] = set(pages.seen)
    return found


WAYS = ("flip", "zero", "garbage", "truncate", "header", "swap", "many-flips", "empty-middle", "log")


def _damaged_log(world: World, target: Path, chance: random.Random) -> bytes:
    """Copy the store while its last changes stand in its log alone; return that log, damaged."""
    with tempfile.TemporaryDirectory() as folder:
        open_copy = Path(folder) / "open.db"
        shutil.copy(world.file, open_copy)
        with closing(sqlite3.connect(open_copy, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            for number in range(8):
                connection.execute("UPDATE node SET bookmark = ? WHERE key % 8 = ?", (f"bookmark {number}", number))
            shutil.copy(open_copy, target)
            data = bytearray(open_copy.with_name("open.db-wal").read_bytes())
    for _ in range(chance.choice((1, 5, 50))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    match chance.randrange(3):
        case 0:
            del data[chance.randrange(len(data)) :]
        case 1:
            start = chance.randrange(len(data))
            data[start : start + 4096] = chance.randbytes(len(data[start : start + 4096]))
        case _:
            pass
    return bytes(data)


def damage(world: World, target: Path, way: str, chance: random.Random) -> set[int]:
    """Copy the store and damage the copy; return the pages that were hit."""
    log = target.with_name(target.name + "-wal")
    log.unlink(missing_ok=True)
    if way == "log":
        log.write_bytes(_damaged_log(world, target, chance))
        return set()  # what is wrong in a log does not count, and the file below it is whole
    shutil.copy(world.file, target)
    data = bytearray(target.read_bytes())
    size = 4096
    count = len(data) // size
    hit: set[int] = set()

    def at(page: int) -> slice:
        hit.add(page)
        return slice((page - 1) * size, page * size)

    match way:
        case "flip" | "many-flips":
            for _ in range(1 if way == "flip" else 60):
                place = chance.randrange(len(data))
                hit.add(place // size + 1)
                data[place] ^= 1 << chance.randrange(8)
        case "zero":
            data[at(chance.randint(1, count))] = bytes(size)
        case "garbage":
            for _ in range(3):
                data[at(chance.randint(1, count))] = chance.randbytes(size)
        case "truncate":
            left = chance.randint(1, count - 1)
            cut = left * size + chance.randrange(size)
            hit.update(range(left + 1, count + 1))
            del data[cut:]
        case "header":
            hit.add(1)
            data[:100] = chance.randbytes(100)
        case "swap":
            one, two = chance.sample(range(2, count + 1), 2)
            first, second = at(one), at(two)
            data[first], data[second] = data[second], data[first]
        case _:
            first = chance.randint(2, count - 4)
            for page in range(first, first + 4):
                data[at(page)] = bytes(size)
    target.write_bytes(data)
    return hit


def may_be_lost(world: World, hit: set[int]) -> set[str]:
    return {world.messages[key] for key, pages in world.pages_of.items() if pages & hit and key in world.messages}
