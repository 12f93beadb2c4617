"""A damaged store is not written, and every message that was not hit is saved in a new one."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from loom.errors import Corrupt, LoomError, StoreError
from loom.store.database import open_database
from loom.store.forest import Forest
from loom.store.salvage import NOTE, RECOVERED, SalvageReport, salvage
from loom.store.sessions import Sessions
from loom.store.sqlite_pages import SqlitePages
from store.damaged_stores import WAYS, World, damage, make_world, may_be_lost

NOTE_BEGINS = NOTE.partition("{")[0]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    import asyncio

    return asyncio.run(make_world(tmp_path_factory.mktemp("world")))


def saved_messages(file: Path) -> set[str]:
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute("SELECT message FROM node WHERE depth > 0").fetchall()
    return {text for (text,) in rows if NOTE_BEGINS not in text}


async def check_sound(file: Path) -> None:
    """A store as any other: nothing is wrong with it, every session can be read to its end and goes on."""
    database = await open_database(str(file))
    sessions, forest = Sessions(database), Forest(database)
    assert await database.check() == ()
    assert (await forest.verify()).problems == ()
    for session in await sessions.list(archived=None, limit=1000):
        assert session.damage == ""
        await forest.path(session.head_id)
        for tip in await sessions.tips(session.id):
            assert await sessions.keeps(session.id, tip)
    await database.close()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("way", WAYS)
async def test_every_message_that_was_not_hit_is_saved(world: World, tmp_path: Path, way: str, seed: int) -> None:
    chance = random.Random(f"{way} {seed}")
    file, target = tmp_path / "damaged.db", tmp_path / "saved.db"
    hit = damage(world, file, way, chance)
    before = file.read_bytes()

    report = salvage(file, target)

    saved = saved_messages(target)
    everything = set(world.messages.values())
    assert saved <= everything, "a message was saved that nobody wrote"
    assert everything - saved <= may_be_lost(world, hit)
    assert report.messages == len(saved)
    assert file.read_bytes() == before, "the damaged file was changed"
    await check_sound(target)


async def test_a_sound_store_is_saved_whole(world: World, tmp_path: Path) -> None:
    target = tmp_path / "saved.db"

    report = salvage(world.file, target)

    def tables(file: Path) -> dict[str, list[tuple[object, ...]]]:
        wanted = ("node", "node_media", "tip", "event", "queued", "queued_media", "upload", "learned", "media_text")
        with closing(sqlite3.connect(file)) as connection:
            found = {table: connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in wanted}
            columns = "key, id, title, head_key, head_digits, settings, last_seq, rev, updated_at, fence"
            found["session"] = connection.execute(f"SELECT {columns} FROM session ORDER BY key").fetchall()
        return found

    assert tables(target) == tables(world.file)
    assert report == SalvageReport(
        sessions=report.sessions, messages=len(world.messages), rows={**report.rows}, damaged_rows=0, damaged_pages=0
    )
    assert report.rows["event"] > 0


async def test_what_stands_only_in_the_log_is_saved(world: World, tmp_path: Path) -> None:
    """Killed before a checkpoint: the newest messages are not in the file itself."""
    file, target = tmp_path / "loom.db", tmp_path / "saved.db"
    database = await open_database(str(file))
    sessions = Sessions(database)
    session = await sessions.create(title="mine")
    from loom.content.messages import user

    await sessions.append_to_head(session.id, [user(f"number {number}") for number in range(50)])
    copy = tmp_path / "copy.db"
    for suffix in ("", "-wal"):
        copy.with_name(copy.name + suffix).write_bytes(file.with_name(file.name + suffix).read_bytes())
    await database.close()
    assert len(copy.read_bytes()) < len(copy.with_name("copy.db-wal").read_bytes())

    assert salvage(copy, target).messages == 50
    await check_sound(target)


async def test_a_lost_message_becomes_a_note_and_what_followed_it_stays(world: World, tmp_path: Path) -> None:
    file, target = tmp_path / "damaged.db", tmp_path / "saved.db"
    file.write_bytes(world.file.read_bytes())
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE node SET message = replace(message, 'q 0 2', 'Q 0 2') WHERE message LIKE '%q 0 2%'")
        connection.commit()

    report = salvage(file, target)

    assert (report.messages, report.notes) == (len(world.messages) - 1, 1)
    await check_sound(target)


async def test_a_message_whose_id_alone_is_damaged_is_saved(world: World, tmp_path: Path) -> None:
    file, target = tmp_path / "damaged.db", tmp_path / "saved.db"
    file.write_bytes(world.file.read_bytes())
    with closing(sqlite3.connect(file)) as connection:
        sql = (
            "UPDATE node SET id = substr(id, 1, 70) || 'abcdef' WHERE message LIKE '%q 0 2%' OR message LIKE '%branch%'"
        )
        assert connection.execute(sql).rowcount > 2
        connection.commit()

    report = salvage(file, target)

    assert (report.messages, report.notes, report.damaged_rows) == (len(world.messages), 0, 0)
    await check_sound(target)


@pytest.mark.parametrize("is_in_index", [False, True])
async def test_a_beginning_whose_id_alone_is_damaged_loses_no_message(
    world: World, tmp_path: Path, is_in_index: bool
) -> None:
    """The system prompt is the first row of a conversation; the first messages are checked against its id."""
    file, target = tmp_path / "damaged.db", tmp_path / "saved.db"
    data = bytearray(world.file.read_bytes())
    with closing(sqlite3.connect(world.file)) as connection:
        ids = [row[0].encode() for row in connection.execute("SELECT id FROM node WHERE depth = 0")]
    places = [at for node_id in ids for at in _places(data, node_id)]
    assert len(places) == 2 * len(ids), "each id stands in its row and in an index"
    for at in places[:: 1 if is_in_index else 2]:
        data[at + 10] ^= 1
    file.write_bytes(data)

    report = salvage(file, target)

    assert (report.messages, report.notes) == (len(world.messages), 0)
    await check_sound(target)


def _places(data: bytearray, text: bytes) -> list[int]:
    found, at = [], data.find(text)
    while at >= 0:
        found.append(at)
        at = data.find(text, at + 1)
    return found


async def test_a_lost_message_whose_id_has_a_wrong_bit_takes_no_other_with_it(world: World, tmp_path: Path) -> None:
    """The message itself cannot be read; the index still has its id, but for one bit."""
    file, target = tmp_path / "damaged.db", tmp_path / "saved.db"
    data = bytearray(world.file.read_bytes())
    with closing(sqlite3.connect(world.file)) as connection:
        sql = "SELECT id FROM node WHERE message LIKE '%\"a 3 2 %'"
        ((node_id,),) = connection.execute(sql).fetchall()
    for at in _places(data, node_id.encode()):
        data[at + 30] ^= 1
    (text,) = _places(data, b'"text":"a 3 2 ')
    data[text : text + 8] = b"\xff" * 8
    file.write_bytes(data)

    report = salvage(file, target)

    assert (report.messages, report.notes) == (len(world.messages) - 1, 1)
    await check_sound(target)


@pytest.mark.parametrize("table", ["node", "session", "queued"])
async def test_a_table_whose_root_was_mixed_up_with_that_of_the_search_is_saved(
    world: World, tmp_path: Path, table: str
) -> None:
    file, target = tmp_path / "damaged.db", tmp_path / "saved.db"
    data = bytearray(world.file.read_bytes())
    with closing(sqlite3.connect(world.file)) as connection:
        roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_master").fetchall())
        counts = [connection.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] for name in ("session", "queued")]
    one, other = (slice((roots[name] - 1) * 4096, roots[name] * 4096) for name in (table, "search_node_content"))
    data[one], data[other] = data[other], data[one]
    file.write_bytes(data)

    report = salvage(file, target)

    assert (report.messages, report.notes) == (len(world.messages), 0)
    assert [report.sessions, report.rows["queued"]] == counts
    await check_sound(target)


def test_rows_that_are_older_than_a_column_are_saved(world: World, tmp_path: Path) -> None:
    file, target = tmp_path / "damaged.db", tmp_path / "saved.db"
    file.write_bytes(world.file.read_bytes())
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("ALTER TABLE account DROP COLUMN day_usd")
        connection.execute("INSERT INTO account VALUES ('id1', 'ada', 'user', 'hash', 1.0)")
        connection.execute("ALTER TABLE account ADD COLUMN day_usd DOUBLE PRECISION")
        connection.commit()

    assert salvage(file, target).rows["account"] == 1


async def test_conversations_whose_record_is_lost_are_recovered(world: World, tmp_path: Path) -> None:
    file, target = tmp_path / "damaged.db", tmp_path / "saved.db"
    file.write_bytes(world.file.read_bytes())
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("DELETE FROM session")
        connection.commit()

    report = salvage(file, target)

    assert report.sessions == 0
    assert report.recovered_sessions > 0
    assert saved_messages(target) == set(world.messages.values())
    database = await open_database(str(target))
    found = await Sessions(database).list(limit=100)
    assert all(session.title.startswith(RECOVERED) for session in found)
    await database.close()
    await check_sound(target)


async def test_what_is_no_store_of_ours_is_refused_and_nothing_stays(tmp_path: Path) -> None:
    for number, data in enumerate((b"", b"this is no database" * 1000, bytes(100_000))):
        file, target = tmp_path / f"{number}.db", tmp_path / f"saved{number}.db"
        file.write_bytes(data)
        with pytest.raises(Corrupt, match="contains no data of a Loom store"):
            salvage(file, target)
        assert not target.exists()
    (tmp_path / "there.db").touch()
    with pytest.raises(StoreError, match="already exists"):
        salvage(tmp_path / "1.db", tmp_path / "there.db")


# A damaged store is not written ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("way", WAYS)
async def test_a_store_that_sqlite_calls_damaged_is_never_opened(
    world: World, tmp_path: Path, way: str, seed: int
) -> None:
    file = tmp_path / "damaged.db"
    damage(world, file, way, random.Random(f"open {way} {seed}"))
    if _is_sound(file):
        return  # the damage is in a text: such a store is served, and the message is shown as damaged
    before = file.read_bytes()
    with pytest.raises(LoomError) as caught:
        await open_database(str(file))
    assert isinstance(caught.value, Corrupt)
    assert "loom doctor --fix" in str(caught.value)
    assert file.read_bytes() == before


def _is_sound(file: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            return connection.execute("PRAGMA quick_check(1)").fetchall() == [("ok",)]
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return False


async def test_a_large_store_is_checked_in_the_background_and_then_not_written(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from loom.store import sqlite, sqlite_file

    for module in (sqlite, sqlite_file):
        monkeypatch.setattr(module, "CHECKED_AT_ONCE_BYTES", 0)
    file = tmp_path / "damaged.db"
    data = bytearray(world.file.read_bytes())
    pages = SqlitePages(world.file)
    last = max(number for number in range(1, pages.count + 1) if pages.scan(number).records)
    data[(last - 1) * 4096 : last * 4096] = b"\xff" * 4096
    file.write_bytes(data)
    database = await open_database(str(file))
    assert isinstance(database, sqlite.SqliteDatabase)
    assert database._checker is not None
    database._checker.join()
    with pytest.raises(Corrupt, match="doctor --fix"):
        await Sessions(database).create()
    assert "writes are refused" in caplog.text
    await database.close()
