"""Backups: taken while the store is in use, consistent, with media, incremental; and put back."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from cli.loom_command import COMMAND, Loom, Terminal
from flow.traced import failing
from loom.content.blocks import DocumentBlock
from loom.content.media import Media
from loom.content.messages import assistant, media_of, user
from loom.errors import Conflict, Corrupt, NotFound
from loom.store.backup import MANIFEST, back_up, restore_file, restore_media, restore_rows
from loom.store.database import Database, open_database
from loom.store.events import Events
from loom.store.forest import Forest
from loom.store.media import MediaStore, open_media
from loom.store.sessions import Sessions
from loom.store.store_lock import exclude_store
from patience import PATIENCE_SECONDS
from postgres_server import PostgresServer
from store.damaged_stores import make_world


async def say(sessions: Sessions, media: MediaStore, session_id: str, number: int) -> None:
    data = f"%PDF-1.7 document {session_id} {number}".encode() * 50
    digest = await media.put(data)
    document = DocumentBlock(Media(digest=digest, media_type="application/pdf", size_bytes=len(data), name="a.pdf"))
    await sessions.append_to_head(session_id, [user(f"question {number}", document), assistant(f"answer {number}")])


async def check_consistent(database: Database, media: MediaStore) -> int:
    """Every session reads to its end, and every medium that it names is there; return how many messages there are."""
    sessions, forest = Sessions(database), Forest(database)
    assert await database.check() == ()
    assert (await forest.verify(exists=media.exists)).problems == ()
    count = 0
    for session in await sessions.list(limit=1000):
        for node in await forest.path(session.head_id):
            count += node.message is not None
            for medium in media_of(node.message) if node.message is not None else ():
                assert len(await media.load(medium.digest)) == medium.size_bytes
    return count


async def rows_of(database: Database) -> dict[str, list[tuple[object, ...]]]:
    found = {}
    for table in ("node", "node_media", "session", "tip", "event", "queued", "queued_media", "learned", "upload"):
        rows = await database.read(lambda tx, table=table: tx.execute(f"SELECT * FROM {table} ORDER BY 1, 2"))
        found[table] = [tuple(row) for row in rows]
    return found


async def test_a_backup_taken_under_load_is_consistent_and_the_next_one_copies_only_what_is_new(
    url: str, tmp_path: Path
) -> None:
    database, media = await open_database(url), open_media(tmp_path / "media")
    sessions = Sessions(database)
    made = [await sessions.create(title=f"session {number}") for number in range(4)]
    for session in made:
        await say(sessions, media, session.id, 0)
    stop = asyncio.Event()

    async def speak(session_id: str) -> int:
        number = 1
        while not stop.is_set():
            await say(sessions, media, session_id, number)
            number += 1
        return number

    speaking = [asyncio.create_task(speak(session.id)) for session in made]
    folder = tmp_path / "backup"
    seen_messages = 0
    for number in range(4):
        report = await back_up(database, media, folder)
        assert report.missing_media == ()
        assert (number == 0) == (report.unchanged_media == 0)
        copy = await open_database(str(folder / "loom.db"))
        messages = await check_consistent(copy, open_media(folder / "media"))
        await copy.close()
        assert messages == report.messages >= seen_messages
        assert messages % 2 == 0, "half of a change is in it"
        seen_messages = messages
    stop.set()
    said = await asyncio.gather(*speaking)

    last = await back_up(database, media, folder)
    assert last.messages == 2 * sum(said)
    again = await back_up(database, media, folder)
    assert (again.copied_media, again.copied_bytes, again.unchanged_media) == (0, 0, sum(said))
    await database.close()


@pytest.mark.parametrize("target", ["sqlite", "postgres"])
async def test_what_is_restored_is_what_was_saved_on_either_database(
    tmp_path: Path, target: str, postgres: PostgresServer
) -> None:
    world = await make_world(tmp_path)
    database, media = await open_database(str(world.file)), open_media(tmp_path / "media")
    before = await rows_of(database)
    await back_up(database, media, tmp_path / "backup")
    await database.close()

    if target == "sqlite":
        new = tmp_path / "new" / "loom.db"
        assert restore_file(tmp_path / "backup", new) is None
        restored = await open_database(str(new))
    else:
        restored = await open_database(postgres.empty_database())
        await restore_rows(tmp_path / "backup", restored)
    new_media = open_media(tmp_path / "new-media")
    report = await restore_media(tmp_path / "backup", new_media)

    assert await rows_of(restored) == before
    assert report.missing_media == ()
    assert await check_consistent(restored, new_media) > 0
    session = await Sessions(restored).create(title="goes on")
    await Sessions(restored).append_to_head(session.id, [user("new keys are free")])
    await Events(restored).append(session.id, [("x", b"{}")])
    if target == "postgres":  # and back again
        second = tmp_path / "second"
        await back_up(restored, new_media, second)
        copy = await open_database(str(second / "loom.db"))
        assert await rows_of(copy) == await rows_of(restored)
        await copy.close()
        with pytest.raises(Conflict, match="contains conversations"):
            await restore_rows(tmp_path / "backup", restored)
    await restored.close()


async def test_a_store_with_conversations_is_replaced_only_when_told_to_and_kept(tmp_path: Path) -> None:
    database, media = await open_database(str(tmp_path / "loom.db")), open_media(tmp_path / "media")
    sessions = Sessions(database)
    old = await sessions.create(title="old")
    await back_up(database, media, tmp_path / "backup")
    new = await sessions.create(title="new")
    await database.close()

    with pytest.raises(Conflict, match="--replace"):
        restore_file(tmp_path / "backup", tmp_path / "loom.db")
    aside = restore_file(tmp_path / "backup", tmp_path / "loom.db", replace=True)

    assert aside is not None
    for file, expected in ((tmp_path / "loom.db", {old.id}), (aside, {old.id, new.id})):
        found = await open_database(str(file))
        assert {session.id for session in await Sessions(found).list()} == expected
        await found.close()


async def test_a_damaged_backup_is_refused_and_a_failed_one_leaves_the_older(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    database, media = await open_database(str(world.file)), open_media(tmp_path / "media")
    folder = tmp_path / "backup"
    await back_up(database, media, folder)
    sound = (folder / "loom.db").read_bytes()

    class Failing:
        async def snapshot(self, file: Path) -> None:
            await asyncio.to_thread(file.write_bytes, sound[:40_000] + bytes(8192) + sound[48_192:])

    with pytest.raises(Corrupt):
        await back_up(Failing(), media, folder)  # type: ignore[arg-type]
    assert (folder / "loom.db").read_bytes() == sound

    (folder / "loom.db").write_bytes(sound[:40_000] + bytes(8192) + sound[48_192:])
    with pytest.raises(Corrupt):
        restore_file(folder, tmp_path / "elsewhere.db")
    assert not (tmp_path / "elsewhere.db").exists()
    (folder / MANIFEST).unlink()
    with pytest.raises(NotFound, match="No backup found"):
        restore_file(folder, tmp_path / "elsewhere.db")
    await database.close()


async def test_media_that_are_missing_or_damaged_are_named_and_the_rest_is_saved(tmp_path: Path) -> None:
    world = await make_world(tmp_path)
    database, media = await open_database(str(world.file)), open_media(tmp_path / "media")
    stored = sorted([found.digest async for found in media.listing()])
    await media.delete(stored[0])
    damaged = tmp_path / "media" / "media" / stored[1][7:9] / stored[1][9:]
    damaged.chmod(0o600)
    damaged.write_bytes(b"other bytes")
    report = await back_up(database, media, tmp_path / "backup")
    assert report.missing_media == tuple(stored[:2])
    assert report.copied_media == len(stored) - 2
    await database.close()


# On the command line --------------------------------------------------------------------------------------------------


def test_backup_and_restore_on_the_command_line(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    assert loom("one").code == loom("-c", "two").code == 0
    saved = loom("backup", "../saved")
    assert (saved.code, "1 session, 4 messages" in saved.out) == (0, True), saved
    assert loom("backup", "../saved", "--json").rows[0]["copied_media"] == 0
    assert loom("-c", "three").code == 0

    refused = loom("restore", "../saved")
    assert (refused.code, "--replace" in refused.err) == (1, True)
    restored = loom("restore", "../saved", "--replace")
    assert (restored.code, "kept as loom.db.replaced-" in restored.out) == (0, True), restored
    assert len(loom("log", "--json").rows) == 4
    assert loom("restore", "..").code == 1


@pytest.mark.parametrize("way", ["page", "header", "cut"])
def test_the_doctor_saves_what_is_left_of_a_damaged_store(tmp_path: Path, way: str) -> None:
    loom = Loom(tmp_path)
    for number in range(8):
        assert loom(f"message {number}").code == 0
    file = loom.home / "loom.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (events,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'event'").fetchone()
    data = bytearray(file.read_bytes())
    match way:
        case "page":
            data[(events - 1) * 4096 : events * 4096] = b"\x77" * 4096
        case "header":
            data[:16] = b"x" * 16
        case _:
            del data[-4096:]
    file.write_bytes(data)
    refused = loom("-c", "again")
    assert refused.code != 0
    assert "loom doctor --fix" in refused.err
    (found,) = [row for row in loom("doctor", "--json").rows if row["name"] == "store"]
    assert (found["state"], "loom doctor --fix" in found["fix"]) == ("problem", True)

    mended = [row for row in loom("doctor", "--fix", "--json").rows if row["name"] == "store"]

    assert mended[0]["state"] == "warning"
    assert "8 sessions, 16 messages" in mended[0]["text"]
    assert mended[-1]["state"] == "ok"
    kept = [path for path in loom.home.glob("loom.db.damaged-*") if not path.name.endswith(("-wal", "-shm"))]
    assert len(kept) == 1, "with its log beside it, where it had one"
    assert loom("-c", "again").code == 0
    assert len(loom("sessions", "--json").rows) == 8


@pytest.mark.parametrize("command", [("restore", "copy", "--replace"), ("restore", "copy")])
def test_a_store_that_an_open_chat_writes_is_not_replaced(tmp_path: Path, command: tuple[str, ...]):
    loom = Loom(tmp_path)
    assert loom("kept words").code == 0
    assert loom("backup", "copy").code == 0
    with Terminal(loom, "chat", "-R", LOOM_PLAIN="1") as chat:
        chat.wait_for("› ")
        chat.type("!echo begun\r")
        chat.wait_for("begun")
        chat.wait_for("› ")
        refused = loom(*command)
        assert refused.code == 1
        assert f"in use by the process {chat.pid}" in refused.err
        assert "try again" in refused.err
        assert not list(loom.home.rglob("*.replaced-*"))
        chat.kill()
    assert loom("restore", "copy", "--replace").code == 0
    assert [row["title"] for row in loom("sessions", "--json").rows] == ["kept words"]


async def test_a_store_is_opened_once_it_was_replaced_and_names_only_who_has_it_open(tmp_path: Path):
    file = tmp_path / "loom.db"
    first, second = await open_database(str(file)), await open_database(str(file))
    await first.close()
    with pytest.raises(Conflict, match=f"in use by the process {os.getpid()}"), exclude_store(file):
        pass
    await second.close()
    with exclude_store(file):
        with pytest.raises(Conflict, match=f"being replaced by the process {os.getpid()}"):
            await open_database(str(file), busy_seconds=0.0)
        opening = asyncio.create_task(open_database(str(file), busy_seconds=PATIENCE_SECONDS))
        await asyncio.sleep(0)
    await (await opening).close()


@pytest.mark.parametrize("error", ["ENOLCK", "EOPNOTSUPP"])
def test_a_store_on_a_drive_without_locks_opens_but_is_not_replaced(tmp_path: Path, error: str):
    loom = Loom(tmp_path)
    assert loom("kept words").code == 0
    assert loom("backup", "copy").code == 0

    def run_without_locks(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*failing("flock", error, "1+", tmp_path / "trace"), *COMMAND, *arguments]
        return subprocess.run(command, cwd=loom.folder, env=loom.environ, capture_output=True, text=True, check=False)

    asked = run_without_locks("more words")
    assert (asked.returncode, asked.stdout != "") == (0, True), asked.stderr
    refused = run_without_locks("restore", "copy", "--replace")
    assert refused.returncode == 2  # a problem of the configuration
    assert "The data folder cannot be locked" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert len(loom("sessions", "--json").rows) == 2
