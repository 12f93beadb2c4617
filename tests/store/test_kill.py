"""kill -9 at any moment: what was acknowledged is there, and everything that is there is whole."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from loom.content.media import digest_of
from loom.store.database import open_database
from loom.store.events import Events
from loom.store.forest import Forest
from loom.store.media import open_media
from loom.store.sessions import Sessions

APPENDER = Path(__file__).with_name("appender.py")


def kill_again_and_again(*command: str, kills: int, seed: int) -> Iterator[list[str]]:
    """What the children acknowledged, word by word, before each of them was killed at a random moment."""
    dice = random.Random(seed)
    full = [sys.executable, str(APPENDER), *command]
    with subprocess.Popen(full, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as zygote:
        assert zygote.stdin
        assert zygote.stdout
        for life in range(kills):
            zygote.stdin.write(f"{seed}-{life}\n")
            zygote.stdin.flush()
            born, pid = zygote.stdout.readline().split()
            assert born == "born"
            for _ in range(dice.choice((0, 0, 1, 2, 4, 8))):
                yield zygote.stdout.readline().split()[1:]
            time.sleep(dice.uniform(0, 0.02))  # the random moment; nothing is waited for
            os.kill(int(pid), signal.SIGKILL)
            while (line := zygote.stdout.readline().split())[0] == "ack":
                yield line[1:]
            assert line == ["gone", str(int(signal.SIGKILL))], line
        zygote.stdin.close()


class Acknowledged:
    """What an appender said was safe: nodes with the digest each refers to, and the last event."""

    def __init__(self, lines: Iterable[list[str]]) -> None:
        self.nodes: dict[str, str] = {}
        self.last_seq = 0
        for node_id, digest, seq in lines:
            self.nodes[node_id] = digest
            self.last_seq = max(self.last_seq, int(seq))


async def check_all(url: str, media_folder: Path, session_id: str, seen: Acknowledged) -> int:
    """Every acknowledgement was kept; gives the number of messages in the session."""
    database = await open_database(url)
    forest, sessions, events, media = Forest(database), Sessions(database), Events(database), open_media(media_folder)
    assert await database.check() == ()
    report = await forest.verify(exists=media.exists)
    assert report.problems == ()
    path = [node.id for node in await forest.path((await sessions.get(session_id)).head_id)]
    assert report.nodes == len(path)
    assert set(seen.nodes) <= set(path)
    for digest in seen.nodes.values():
        assert digest_of(await media.load(digest)) == digest
    stored = await events.after(session_id, 0, limit=1_000_000)
    assert [event.seq for event in stored] == list(range(1, len(stored) + 1))
    assert seen.last_seq <= len(stored)
    assert {f'"{node}"'.encode() for node in seen.nodes} <= {event.data for event in stored}
    await database.close()
    return len(path) - 1


async def kill_appenders(folder: Path, *, kills: int, seed: int) -> tuple[int, int]:
    """Kill, then check everything; gives how many messages were acknowledged, and how many are there."""
    url, media = str(folder / "loom.db"), folder / "media"
    database = await open_database(url)
    session = await Sessions(database).create(system="kill test")
    await database.close()
    command = ("zygote", url, str(media), session.id)
    seen = Acknowledged(kill_again_and_again(*command, kills=kills, seed=seed))
    return len(seen.nodes), await check_all(url, media, session.id, seen)


async def test_whatever_was_acknowledged_survives_two_hundred_kills(tmp_path: Path):
    acknowledged, there = await kill_appenders(tmp_path, kills=200, seed=20260101)
    assert 200 < acknowledged <= there


async def test_a_store_whose_making_was_killed_is_made_whole_by_the_next_who_opens_it(tmp_path: Path):
    lines = kill_again_and_again("nursery", str(tmp_path), kills=15, seed=7)
    acknowledged = {Path(url) for (url,) in lines}
    found = await asyncio.to_thread(lambda: sorted(tmp_path.rglob("*.db")))
    assert acknowledged <= set(found)
    for path in found:
        database = await open_database(str(path))
        assert await Sessions(database).list() == ()
        assert await database.check() == ()
        await database.close()
