"""A large library: `python -m benchmarks.library_size [--messages N]`.

Makes a store of a million messages in a thousand sessions and one session of 2,000 messages (rows with true ids, not
written by Loom, which would take an hour), indexes it, and measures what a person waits for in the page: searching,
listing, opening a conversation, the inspector (a plan for one model) and the model switcher (a plan for three).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.search import QUERIES, text_of
from loom.content.codec import encode_stored
from loom.content.messages import assistant, user
from loom.runtime import Runtime
from loom.store.database import Database, Transaction
from loom.store.nodes import insert_root, node_id_of
from loom.store.search_index import SearchIndex
from loom.store.session_rows import new_session_id

SESSIONS = 1_000
LONG = 2_000
ROUNDS = 5
TARGETS_MS = {"search": 100, "inspect": 300, "plan": 300}
MODELS = ("anthropic/claude-opus-5", "openai/gpt-5.5", "loom/spark")
_INSERT = (
    "INSERT INTO node (key, id, parent_key, root_key, depth, role, message, source, meta, tags, bookmark, created_at)"
    " VALUES (:key, :id, :parent, :root, :depth, :role, :message, :source, '{}', '[]', '', 0)"
)
_SESSION = (
    "INSERT INTO session (id, title, head_key, model, workspace, overrides, watermark, quarantine, settings, archived,"
    " last_seq, rev, created_at, updated_at, head_digits) VALUES (:id, :title, :head, 'loom/spark', '', '{}', '{}',"
    " '{}', '{}', 0, 0, 1, :now, :now, :digits)"
)


async def fill(database: Database, count: int, length: int, first: int) -> str:
    """Write `count` messages in sessions of `length`; return the id of the last session."""
    chance = random.Random(first)
    vocabulary = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 10))) for _ in range(30_000)]
    root = await database.write(lambda tx: insert_root(tx, "", 0.0))
    session_id = ""
    for begin in range(first, first + count, length):
        rows: list[dict[str, object]] = []
        parent_key, parent_id = root.key, root.id
        for depth in range(1, length + 1):
            key = begin + depth
            role = user if depth % 2 else assistant
            message = role(text_of(key, chance, vocabulary))
            stored = encode_stored(message)
            node_id = node_id_of(parent_id, stored)
            rows.append(
                {
                    "key": key,
                    "id": node_id,
                    "parent": parent_key,
                    "root": root.key,
                    "depth": depth,
                    "role": message.role,
                    "message": stored,
                    "source": "user" if depth % 2 else "model",
                }
            )
            parent_key, parent_id = key, node_id
        session_id = new_session_id(float(begin))
        session = {
            "id": session_id,
            "title": f"conversation {begin}",
            "head": parent_key,
            "now": float(begin),
            "digits": parent_id.removeprefix("node:sha256:")[:16],
        }

        def write(tx: Transaction, rows: list[dict[str, object]] = rows, session: dict[str, object] = session) -> None:
            tx.executemany(_INSERT, rows)
            tx.execute(_SESSION, session)

        await database.write(write)
    return session_id


async def milliseconds(work: Callable[[], Awaitable[object]]) -> list[float]:
    times: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        await work()
        times.append((time.perf_counter() - began) * 1000)
    return times


async def measure(runtime: Runtime, count: int) -> bool:
    database, library = runtime.stores.database, runtime.library
    began = time.perf_counter()
    typical = await fill(database, count, count // SESSIONS, 1_000)
    long = await fill(database, LONG, LONG, count + 10_000)
    print(f"{count:,} messages in {SESSIONS:,} sessions made in {time.perf_counter() - began:.0f} s", flush=True)
    began = time.perf_counter()
    await SearchIndex(database).catch_up()
    print(f"indexed in {time.perf_counter() - began:.0f} s", flush=True)
    typical_session, long_session = await library.open(typical), await library.open(long)
    deeds: dict[str, Callable[[], Awaitable[object]]] = {
        **{f"search: {what}": (lambda words=words: library.search(words)) for what, words in QUERIES.items()},
        "list: 50 sessions": lambda: library.sessions(limit=50),
        "list: one folder": lambda: library.sessions(folder="Work"),
        f"open: {count // SESSIONS:,} messages": typical_session.history,
        f"open: {LONG:,} messages": long_session.history,
        f"tree: {LONG:,} messages": long_session.tree,
        f"inspect: {LONG:,} messages, one model": lambda: long_session.plan_table(MODELS[:1]),
        f"plan: {LONG:,} messages, three models": lambda: long_session.plan_table(MODELS),
    }
    is_good = True
    for what, work in deeds.items():
        times = await milliseconds(work)
        target = TARGETS_MS.get(what.partition(":")[0])
        is_good = is_good and (target is None or statistics.median(times) <= target)
        limit = f"  (target {target} ms)" if target else ""
        print(f"  {what:<40} {statistics.median(times):8.1f} ms, first {times[0]:8.1f} ms{limit}", flush=True)
    return is_good


async def main() -> bool:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    count = parser.parse_args().messages
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LOOM_HOME"] = str(Path(folder) / "home")
        async with Runtime.open() as runtime:
            return await measure(runtime, count)


if __name__ == "__main__":
    raise SystemExit(0 if asyncio.run(main()) else 1)
