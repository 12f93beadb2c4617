"""Facts for a readiness probe: whether media and rows could be stored now, tried and not guessed."""

from __future__ import annotations

import os
import resource
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loom.errors import BlobsUnavailable, Corrupt, Full, ReadOnly, StoreError, Unreachable
from loom.store.database import Database, open_database
from loom.store.media import open_media
from loom.store.sqlite import SqliteDatabase
from postgres_server import PostgresServer
from s3_server import address, odd_server
from store.test_media_faults import MOUNTS, plain_folder, small_disk

AWAY = pytest.mark.parametrize("kind", ["closed", "silent"])


async def test_a_store_that_works_is_ready_however_often_it_is_asked(database: Database, tmp_path: Path) -> None:
    media = open_media(tmp_path / "media")
    before = await database.read(lambda tx: tx.execute("SELECT COUNT(*) FROM search_state"))
    for _ in range(50):
        await database.check_writable()
        await media.check()
    after = await database.read(lambda tx: tx.execute("SELECT COUNT(*) FROM search_state"))
    assert after[0][0] - before[0][0] <= 1, "the probe leaves more and more behind"
    assert [found async for found in media.listing()] == []
    assert [file for file in _files(tmp_path / "media") if file != "lock"] == []


def _files(folder: Path) -> list[str]:
    return [file.name for file in folder.rglob("*") if stat.S_ISREG(file.lstat().st_mode)]


async def test_a_bucket_that_answers_is_ready_and_one_that_refuses_is_not() -> None:
    with odd_server() as (world, url):
        media = open_media(url)
        await media.check()
        world.refuse = {"GET": (403, "AccessDenied")}
        with pytest.raises(BlobsUnavailable, match="denies read access"):
            await media.check()
        world.refuse = {"GET": (404, "NoSuchBucket")}
        with pytest.raises(BlobsUnavailable, match="does not exist"):
            await media.check()
        world.refuse = {}
        await media.check()
        assert world.objects == {}


@AWAY
async def test_a_bucket_that_is_away_is_not_ready(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = address(f"http://127.0.0.1:{server.getsockname()[1]}", "away")
        if kind == "closed":
            server.close()
        with pytest.raises(BlobsUnavailable):
            await open_media(url, timeout_seconds=0.5).check()


async def test_a_full_disk_is_not_ready_until_there_is_space_again(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk) if MOUNTS else plain_folder(disk):
        media = open_media(disk / "media")
        database = await open_database(str(disk / "loom.db"))
        await media.check()
        await database.check_writable()
        with _no_room(disk):
            with pytest.raises(Full):
                await media.check()
            with pytest.raises(Full):
                await database.check_writable()
        await media.check()
        await database.check_writable()
        await database.close()


@contextmanager
def _no_room(disk: Path) -> Iterator[None]:
    """Fill the disk, or, where none can be mounted, allow no file to grow beyond some bytes."""
    if not MOUNTS:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        return
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as opened:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    opened.write(bytes(size))
            except OSError:
                continue
    try:
        yield
    finally:
        filler.unlink()


async def test_a_damaged_store_is_not_ready(tmp_path: Path) -> None:
    database = await open_database(str(tmp_path / "loom.db"))
    assert isinstance(database, SqliteDatabase)
    database._note_damage()
    with pytest.raises(Corrupt, match="doctor --fix"):
        await database.check_writable()
    await database.close()


async def test_a_store_that_may_only_be_read_is_not_ready(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    database = await open_database(str(folder / "loom.db"))
    await database.close()
    with pytest.raises(Unreachable):
        await database.check_writable()
    if os.geteuid() == 0:
        return  # for whom nothing is read-only
    folder.chmod(0o500)
    try:
        frozen = await open_database(str(folder / "loom.db"))
        with pytest.raises(ReadOnly):
            await frozen.check_writable()
        await frozen.close()
    finally:
        folder.chmod(0o700)


async def test_a_server_that_went_away_is_not_ready(postgres: PostgresServer) -> None:
    database = await open_database(postgres.empty_database())
    await database.check_writable()
    postgres.stop()
    try:
        with pytest.raises(StoreError):
            await database.check_writable()
    finally:
        postgres.start()
    await database.check_writable()
    await database.close()
