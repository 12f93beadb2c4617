"""Measure search in a million messages: `python -m benchmarks.search [--messages N] [--postgres]`.

Inserts the rows directly (writing them through Loom would take an hour), indexes them, and measures searches for a word
in one message, in a thousand, in nearly all; for two words, for prefixes of words, for an absent word; then the time to
list sessions, alone and while four searches run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from loom.content.codec import encode_stored
from loom.content.messages import user
from loom.store.database import Database, Transaction, open_database
from loom.store.nodes import insert_root
from loom.store.search import search_messages
from loom.store.search_index import update_index
from loom.store.session_rows import new_session_id
from loom.store.sessions import Sessions
from postgres_server import postgres_server

LENGTH = 500
"""Messages per conversation."""
ROUNDS = 7
TARGET_MS = 100
QUERIES = {
    "in one message": "needle",
    "in a thousand": "hundredth",
    "in nearly all": "common",
    "two words": "frequent hundredth",
    "two frequent words": "common frequent",
    "prefix of a word": "hundr",
    "prefix of a frequent word": "commo",
    "nowhere": "unheard",
}
_INSERT = (
    "INSERT INTO node (key, id, parent_key, root_key, depth, role, message, source, meta, tags, bookmark, created_at)"
    " VALUES (:key, :id, :parent, :root, :depth, 'user', :message, 'user', '{}', '[]', '', 0)"
)
_SESSION = (
    "INSERT INTO session (id, title, head_key, model, workspace, overrides, watermark, quarantine, settings, archived,"
    " last_seq, rev, created_at, updated_at, head_digits) VALUES (:id, :title, :head, '', '', '{}', '{}', '{}', '{}',"
    " 0, 0, 1, :now, :now, :digits)"
)


def text_of(number: int, chance: random.Random, vocabulary: list[str]) -> str:
    words = chance.choices(vocabulary, k=25)
    words += ["common"] if number % 10 else []
    words += ["frequent"] if number % 3 == 0 else []
    words += ["hundredth"] if number % 1000 == 0 else []
    words += ["needle"] if number == 4321 else []
    return " ".join(words)


async def fill(database: Database, count: int) -> None:
    chance = random.Random(1)
    vocabulary = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 10))) for _ in range(30_000)]
    root = await database.write(lambda tx: insert_root(tx, "", 0.0))

    def add_conversation(first: int) -> None:
        rows, parent = [], root.key
        for depth in range(1, LENGTH + 1):
            key = first + depth
            message = encode_stored(user(text_of(key, chance, vocabulary)))
            rows.append(
                {"key": key, "id": f"node:sha256:{key:064x}", "parent": parent, "root": root.key, "depth": depth}
                | {"message": message}
            )
            parent = key
        now = float(first)
        session = {"id": new_session_id(now), "title": f"conversation {first}", "head": parent, "now": now}
        pending.append((rows, session | {"digits": f"{parent:064x}"[:16]}))

    pending: list[tuple[list[dict[str, object]], dict[str, object]]] = []

    def write(tx: Transaction) -> None:
        for rows, session in pending:
            tx.executemany(_INSERT, rows)
            tx.execute(_SESSION, session)

    for number, first in enumerate(range(1000, 1000 + count, LENGTH), 1):
        add_conversation(first)
        if number % 20 == 0 or first + LENGTH >= 1000 + count:
            await database.write(write)
            pending.clear()


async def milliseconds(work: object, rounds: int = ROUNDS) -> list[float]:
    times: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        await work()  # type: ignore[operator]
        times.append((time.perf_counter() - began) * 1000)
    return times


async def measure(database: Database, count: int) -> bool:
    began = time.perf_counter()
    await fill(database, count)
    print(f"{count:,} messages created in {time.perf_counter() - began:.0f} s")
    began = time.perf_counter()
    await update_index(database)
    print(f"indexed in {time.perf_counter() - began:.0f} s")
    if not database.label.endswith(".db"):
        await database.write(lambda tx: tx.execute("ANALYZE"))
    search, sessions = partial(search_messages, database), Sessions(database)
    is_good = True
    for what, words in QUERIES.items():
        found = await search(words)
        times = await milliseconds(lambda words=words: search(words))
        is_good = is_good and statistics.median(times) <= TARGET_MS
        print(f"  {what:<28} {len(found):>3} found  {statistics.median(times):7.1f} ms (slowest {max(times):.1f})")
    alone = await milliseconds(sessions.list, 20)
    running = [asyncio.create_task(milliseconds(lambda: search("common frequent"), 10)) for _ in range(4)]
    busy = await milliseconds(sessions.list, 20)
    await asyncio.gather(*running)
    print(f"  listing: {statistics.median(alone):.1f} ms alone, {statistics.median(busy):.1f} ms during four searches")
    return is_good


@contextlib.asynccontextmanager
async def open_store(*, in_postgres: bool) -> AsyncIterator[Database]:
    with contextlib.ExitStack() as stack:
        if in_postgres:
            url = stack.enter_context(postgres_server()).empty_database()
        else:
            url = str(Path(stack.enter_context(tempfile.TemporaryDirectory()), "loom.db"))
        database = await open_database(url)
        try:
            yield database
        finally:
            await database.close()


async def main() -> bool:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--postgres", action="store_true")
    options = parser.parse_args()
    async with open_store(in_postgres=options.postgres) as database:
        return await measure(database, options.messages)


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main()) else 1)
