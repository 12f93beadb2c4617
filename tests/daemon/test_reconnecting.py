"""F13: connections that are lost again and again, and a daemon that goes away in mid-stream: nothing is missed."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from daemon.asking import api_of
from daemon.raw import check_whole
from daemon.running import DaemonProcess, daemon, javascript
from loom.client import RemoteSession
from loom.content.media import digest_of
from loom.events import TextDelta
from patience import PATIENCE_SECONDS


async def test_who_watches_through_lost_connections_and_restarts_has_every_event_once(tmp_path: Path) -> None:
    assert await watched_through(tmp_path, drops=10, restarts=1, seconds=PATIENCE_SECONDS) > 10


async def watched_through(folder: Path, *, drops: int, restarts: int, seconds: float) -> int:
    """The official client watches a session, loses its connection so often, and the daemon is killed so often in the
    middle of a turn. Gives how many events there were, all of which it has seen."""
    with daemon(folder / "home") as house:
        async with house.client() as client:
            session = await client.session()
        watcher = javascript("watch.cjs", house.url, house.token, session.id, "both", str(drops), "restarts")
        watching = asyncio.create_task(asyncio.to_thread(watcher.communicate, timeout=seconds))
        try:
            await _talked(house, session.id, restarts, watching)
            out, err = await watching
        finally:
            watcher.kill()
        assert watcher.returncode == 0, err
        found = msgspec.json.decode(out)
        assert (found["problems"], found["lost"]) == ([], drops)
        await asyncio.to_thread(_check_pictures, house, found["seen"])
        house.kill()
        stored = _stored(house)
        check_whole(stored, found["seen"])
        return len(stored)


async def _talked(house: DaemonProcess, session_id: str, restarts: int, watching: asyncio.Task[Any]) -> None:
    for _ in range(restarts):
        async with house.client() as client:
            session = await client.session(session_id)
            await session.post("!image bars 3 5 8\n!slow 200tps\n!tokens 200")
            await _spoken(session, (await session.info()).last_seq)
            house.kill()
            await asyncio.to_thread(house.start)
    async with house.client() as client:
        session = await client.session(session_id)
        while not watching.done():
            await session.send("!slow 200tps\n!tokens 200")


async def _spoken(session: RemoteSession, after: int) -> None:
    async for _, event in session.events(after):
        if isinstance(event, TextDelta):
            return


def _stored(house: DaemonProcess) -> list[tuple[int, str, str]]:
    with closing(sqlite3.connect(house.home / "loom.db")) as database:
        return database.execute("SELECT seq, type, data FROM event ORDER BY seq").fetchall()


def _check_pictures(house: DaemonProcess, seen: list[dict[str, Any]]) -> None:
    pictures = [one["data"] for one in seen if one["type"] == "image"]
    assert pictures
    with api_of(house) as api:
        for picture in pictures:
            assert digest_of(api.get(picture["url"]).content) == picture["image_id"]
