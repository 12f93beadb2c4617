"""What can happen to a file: damage, strangers, a full disk, no right to write. Typed errors, nothing overwritten."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import resource
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from frozen import read_only
from loom.content.blocks import ImageBlock
from loom.content.media import Media, digest_of
from loom.content.messages import user
from loom.errors import Corrupt, Full, LoomError, NotFound, ReadOnly, StoreError, Unreachable
from loom.store.database import Database, open_database
from loom.store.forest import Forest
from loom.store.sessions import Sessions

IS_ROOT = os.geteuid() == 0


@contextlib.asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Database]:
    database = await open_database(str(path))
    try:
        yield database
    finally:
        await database.close()


async def filled(path: Path, sessions: int = 3, messages: int = 20) -> list[str]:
    """A store with some sessions in it; gives their ids."""
    async with opened(path) as database:
        ids: list[str] = []
        for number in range(sessions):
            session = await Sessions(database).create(system=f"system {number}")
            said = [user(f"session {number}, message {at}: " + "many words " * 30) for at in range(messages)]
            await Sessions(database).append_to_head(session.id, said)
            ids.append(session.id)
    return ids


def advice_of(error: BaseException) -> str:
    """Every one of these says what to do, and none gives away where the files lie."""
    assert isinstance(error, LoomError)
    assert error.hint
    assert "/" not in str(error)
    assert "0x" not in str(error)
    return str(error)


async def test_a_file_that_is_no_database_is_corrupt_and_stays_as_it_is(tmp_path: Path):
    for name, data in {
        "text.db": b"Dear diary, " * 500,
        "zip.db": b"PK\x03\x04" + bytes(5000),
        "header.db": b"SQLite format 3\0" + os.urandom(8000),
        "short.db": b"SQLite format 3\0",
    }.items():
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(Corrupt) as caught:
            await open_database(str(path))
        assert "loom doctor" in advice_of(caught.value)
        assert name in str(caught.value)
        assert path.read_bytes() == data


async def test_the_database_of_another_program_is_left_alone(tmp_path: Path):
    path = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
        other.commit()
    before = path.read_bytes()
    with pytest.raises(Corrupt, match="another program"):
        await open_database(str(path))
    assert path.read_bytes() == before
    assert {entry.name for entry in os.scandir(tmp_path)} == {"other.db", "other.db-lock"}


async def test_a_truncated_file_is_corrupt_and_stays_as_it_is(tmp_path: Path):
    path = tmp_path / "loom.db"
    await filled(path)
    whole = path.read_bytes()
    for size in (len(whole) // 2, len(whole) - 4096, 4096, 5000, 100):
        path.write_bytes(whole[:size])
        with pytest.raises(Corrupt) as caught:
            await open_database(str(path))
        assert "loom doctor" in advice_of(caught.value)
        assert path.read_bytes() == whole[:size]


async def test_an_empty_file_becomes_a_store(tmp_path: Path):
    path = tmp_path / "loom.db"
    path.write_bytes(b"")
    assert len(await filled(path, sessions=1)) == 1


async def test_a_folder_is_no_store(tmp_path: Path):
    with pytest.raises(Unreachable, match="is a folder"):
        await open_database(str(tmp_path))


async def test_a_path_through_a_file_cannot_be_opened(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError) as caught:
        await open_database(str(tmp_path / "file" / "loom.db"))
    assert advice_of(caught.value)


async def test_two_hundred_flipped_bits_never_pass_for_what_was_written(tmp_path: Path):
    """Every bit of what was said is covered by a hash: its session fails with a typed error, and no other does. Any
    other bit (half of the file is empty) leaves each session exactly as it was, or fails in the same way; titles and
    notes, which have no hash, are not what was said."""
    path, dice = tmp_path / "loom.db", random.Random(6)
    ids = await filled(path)
    whole = path.read_bytes()
    async with opened(path) as database:
        wanted = await load_all(database, ids)
        texts = {row[0] for row in await database.read(lambda tx: tx.execute("SELECT message FROM node"))}
    assert not any(isinstance(said, LoomError) for said in wanted)
    hashed = [
        at for text in texts for found in re.finditer(re.escape(text.encode()), whole) for at in range(*found.span())
    ]
    for at in (*dice.sample(hashed, 100), *(dice.randrange(100, len(whole)) for _ in range(100))):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << dice.randrange(8)
        path.write_bytes(damaged)
        found = await load_damaged(path, ids)
        broken = [said for said in found if isinstance(said, LoomError)]
        assert all(advice_of(error) for error in broken)
        assert all(said == whole_said or said in broken for said, whole_said in zip(found, wanted, strict=True))
        assert len(broken) == 1 or at not in hashed


async def load_damaged(path: Path, ids: list[str]) -> list[object]:
    """What each session says, or its typed error; the checks of the whole store fail in no other way either."""
    try:
        async with opened(path) as database:
            found = await load_all(database, ids)
            checks = await asyncio.gather(Forest(database).verify(), database.check(), return_exceptions=True)
    except LoomError as error:
        return [error] * len(ids)
    assert all(isinstance(check, LoomError) or not isinstance(check, BaseException) for check in checks)
    return found


async def load_all(database: Database, ids: list[str]) -> list[object]:
    return [await load(database, session_id) for session_id in ids]


async def load(database: Database, session_id: str) -> object:
    try:
        path = await Forest(database).path((await Sessions(database).get(session_id)).head_id)
    except LoomError as error:
        return error
    return [(node.id, node.system, node.message) for node in path]


async def test_text_that_is_no_longer_utf8_is_corrupt_and_named(tmp_path: Path):
    path = tmp_path / "loom.db"
    hurt, sound = await filled(path, sessions=2, messages=3)
    path.write_bytes(path.read_bytes().replace(b"session 0, message 1", b"session 0, m\xff\xfe\xfdage 1"))
    async with opened(path) as database:
        forest, sessions = Forest(database), Sessions(database)
        (problem,) = (await forest.verify()).problems
        assert problem.what == "hash"
        with pytest.raises(Corrupt, match=problem.node_id):
            await forest.path((await sessions.get(hurt)).head_id)
        assert len(await forest.path((await sessions.get(sound)).head_id)) == 4


async def test_a_missing_table_is_corrupt(tmp_path: Path):
    path = tmp_path / "loom.db"
    (session_id, *_) = await filled(path)
    with contextlib.closing(sqlite3.connect(path)) as vandal:
        vandal.execute("DROP TABLE event")
        vandal.execute("DROP TABLE tip")
        vandal.commit()
    async with opened(path) as database:
        with pytest.raises(Corrupt, match="loom doctor"):
            await Sessions(database).tips(session_id)
        assert len(await Sessions(database).list()) == 3


# A full disk


@contextlib.contextmanager
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of three megabytes. Root mounts one; for others SQLite's own limit on the file stands in."""
    folder = tmp_path / "small"
    folder.mkdir()
    if IS_ROOT:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        if IS_ROOT:
            subprocess.run(["umount", "-l", str(folder)], check=True)


async def test_a_full_disk_is_said_and_survived(tmp_path: Path):
    with small_disk(tmp_path) as folder:
        async with opened(folder / "loom.db") as database:
            if not IS_ROOT:
                await database.write(lambda tx: tx.execute("PRAGMA max_page_count = 300"))
            await until_full_and_after(database, folder)


if IS_ROOT:  # nobody else has a disk of his own to fill

    @pytest.mark.parametrize("exists", [True, False], ids=["there", "new"])
    async def test_a_disk_without_a_byte_left_is_full_when_the_store_is_opened(tmp_path: Path, exists: bool):
        with small_disk(tmp_path) as folder:
            if exists:
                await filled(folder / "loom.db")
            with contextlib.suppress(OSError):
                (folder / "filler").write_bytes(bytes(4_000_000))
            with pytest.raises(Full) as caught:
                await open_database(str(folder / "loom.db"))
            assert "Free some space" in advice_of(caught.value)
            (folder / "filler").unlink()
            async with opened(folder / "loom.db") as database:
                assert await database.check() == ()


if IS_ROOT:

    async def test_a_session_that_is_deleted_on_a_full_disk_is_gone_and_says_what_it_frees(tmp_path: Path):
        picture = ImageBlock(Media(digest=digest_of(b"1"), media_type="image/png", size_bytes=1))
        with small_disk(tmp_path) as folder:
            async with opened(folder / "loom.db") as database:
                sessions = Sessions(database)
                large, small = await sessions.create(), await sessions.create()
                for number in range(40):
                    await sessions.append_to_head(large.id, [user(f"{number} " + os.urandom(10_000).hex())])
                await sessions.append_to_head(small.id, [user("x", picture)])
                found = os.statvfs(folder)
                left = found.f_bavail * found.f_frsize - 200_000  # enough to delete, not to empty the log into the file
                (folder / "filler").write_bytes(bytes(left))
                assert await sessions.delete(small.id) == (picture.media.digest,)
                with pytest.raises(NotFound):
                    await sessions.get(small.id)


async def until_full_and_after(database: Database, folder: Path) -> None:
    sessions, forest = Sessions(database), Forest(database)
    session = await sessions.create()
    kept: list[str] = []
    refused: list[BaseException] = []
    while not refused:
        said = [user(f"{len(kept)}.{number} " + "x" * 3000) for number in range(4)]
        results = await asyncio.gather(
            *(sessions.append_to_head(session.id, [message]) for message in said), return_exceptions=True
        )
        kept += [result[0].id for result in results if isinstance(result, tuple)]
        refused = [result for result in results if isinstance(result, BaseException)]
    assert {type(error) for error in refused} == {Full}
    assert "Free some space" in advice_of(refused[0])
    path = await forest.path((await sessions.get(session.id)).head_id)
    assert [node.id for node in path[1:]] == kept
    assert (await forest.verify()).problems == ()
    assert await database.check() == ()
    if IS_ROOT:
        await asyncio.to_thread(subprocess.run, ["mount", "-o", "remount,size=12m", str(folder)], check=True)
    else:
        await database.write(lambda tx: tx.execute("PRAGMA max_page_count = 100000"))
    (after,) = await sessions.append_to_head(session.id, [user("there is room again")])
    assert after.depth == len(kept) + 1


async def test_a_disk_error_while_writing_is_said_and_nothing_is_half_written(tmp_path: Path):
    """The file may not grow any more (a limit of the process), which SQLite sees as a failing disk."""
    async with opened(tmp_path / "loom.db") as database:
        sessions, forest = Sessions(database), Forest(database)
        session = await sessions.create()
        await sessions.append_to_head(session.id, [user("before")])
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = (tmp_path / "loom.db-wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, limits[1]))
        try:
            results = await asyncio.gather(
                *(sessions.append_to_head(session.id, [user(f"{n}" + "x" * 30_000)]) for n in range(5)),
                return_exceptions=True,
            )
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert {type(result) for result in results} == {Unreachable}
        assert "disk" in advice_of(results[0])
        (after,) = await sessions.append_to_head(session.id, [user("after")])
        assert [node.message for node in await forest.path(after.id)] == [None, user("before"), user("after")]
        assert await database.check() == ()


# No right to write


@contextlib.contextmanager
def ordinary_user() -> Iterator[Path]:
    """A folder, and this process without root's rights: permissions bind it, whoever runs the tests."""
    folder = Path(tempfile.mkdtemp(prefix="loom-readonly-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        if IS_ROOT:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


async def test_a_folder_that_may_not_be_written_is_read_only():
    with ordinary_user() as folder:
        if IS_ROOT:
            os.seteuid(65534)
        else:
            folder.chmod(0o555)
        for path in (folder / "loom.db", folder / "deep" / "er" / "loom.db"):
            with pytest.raises(ReadOnly) as caught:
                await open_database(str(path))
            assert "write access" in advice_of(caught.value)
        assert list(os.scandir(folder)) == []


async def reads_and_refuses(path: Path, session_id: str) -> None:
    """Everything that only reads works; whoever writes is told why not."""
    async with opened(path) as database:
        sessions, forest = Sessions(database), Forest(database)
        assert len(await sessions.list()) == 3
        assert len(await forest.path((await sessions.get(session_id)).head_id)) == 21
        assert (await forest.verify()).problems == ()
        assert await database.check() == ()
        with pytest.raises(ReadOnly) as caught:
            await sessions.append_to_head(session_id, [user("no")])
        assert "write access" in advice_of(caught.value)


async def test_a_store_in_a_folder_that_may_not_be_written_can_be_read(tmp_path: Path):
    path = tmp_path / "loom.db"
    (session_id, *_) = await filled(path)
    before = path.read_bytes()
    with read_only(tmp_path):
        await reads_and_refuses(path, session_id)
        assert {entry.name for entry in os.scandir(tmp_path)} == {"loom.db", "loom.db-lock"}
        assert path.read_bytes() == before


async def test_a_store_that_is_in_use_can_be_read_where_it_may_not_be_written(tmp_path: Path):
    path = tmp_path / "loom.db"
    await filled(path, sessions=2)
    async with opened(path) as database:
        sessions = Sessions(database)
        last = await sessions.create()
        await sessions.append_to_head(last.id, [user(f"in the log {number}") for number in range(20)])
        with read_only(tmp_path):
            await reads_and_refuses(path, last.id)


async def test_a_store_that_was_not_closed_is_not_read_without_its_last_messages(tmp_path: Path):
    path, copy = tmp_path / "loom.db", tmp_path / "copy"
    copy.mkdir()
    await filled(path)
    async with opened(path) as database:
        await Sessions(database).create()
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", copy)
    with read_only(copy):
        with pytest.raises(ReadOnly, match="last messages") as caught:
            await open_database(str(copy / "loom.db"))
        assert "Copy the folder" in advice_of(caught.value)
    async with opened(copy / "loom.db") as database:
        assert len(await Sessions(database).list()) == 4


async def test_an_older_store_in_a_folder_that_may_not_be_written_is_read_only_and_unchanged(tmp_path: Path):
    path = tmp_path / "loom.db"
    await filled(path)
    with contextlib.closing(sqlite3.connect(path)) as older:
        older.execute("DELETE FROM migration WHERE version >= 117")
        older.execute("DROP TABLE repeated_answer")
        older.execute("DROP TABLE account_spending")
        older.execute("ALTER TABLE account DROP COLUMN day_usd")
        older.execute("ALTER TABLE queued DROP COLUMN paused")
        older.commit()
    before = path.read_bytes()
    with read_only(tmp_path):
        with pytest.raises(ReadOnly, match="older Loom") as caught:
            await open_database(str(path))
        assert "Copy the folder" in advice_of(caught.value)
        assert path.read_bytes() == before
    async with opened(path) as database:
        assert len(await Sessions(database).list()) == 3


async def test_a_file_that_may_only_be_read_can_be_read():
    with ordinary_user() as folder:
        (session_id, *_) = await filled(folder / "loom.db")
        (folder / "loom.db").chmod(0o444)
        folder.chmod(0o777)
        if IS_ROOT:
            os.seteuid(65534)
        async with opened(folder / "loom.db") as database:
            path = await Forest(database).path((await Sessions(database).get(session_id)).head_id)
            assert len(path) == 21
            with pytest.raises(ReadOnly) as caught:
                await Sessions(database).append_to_head(session_id, [user("no")])
            assert advice_of(caught.value)


async def test_a_folder_that_may_not_be_entered_says_so():
    with ordinary_user() as folder:
        await filled(folder / "inner" / "loom.db")
        (folder / "inner").chmod(0o000)
        if IS_ROOT:
            os.seteuid(65534)
        with pytest.raises(StoreError) as caught:
            await open_database(str(folder / "inner" / "loom.db"))
        assert advice_of(caught.value)
        if IS_ROOT:
            os.seteuid(0)
        (folder / "inner").chmod(0o700)
