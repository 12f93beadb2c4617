"""The two databases behind one protocol: transactions, group commit, migrations, several processes."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from loom.content.messages import user
from loom.errors import ConfigError, Conflict, Corrupt, ExtraMissing, Newer, StoreError, Unreachable
from loom.store.database import Database, Row, Transaction, Work, open_database
from loom.store.events import Events
from loom.store.forest import Forest
from loom.store.migrations import known_migrations
from loom.store.sessions import Sessions
from patience import PATIENCE_SECONDS
from postgres_server import PostgresServer, postgres_server

APPENDER = Path(__file__).with_name("appender.py")
TABLE = "CREATE TABLE IF NOT EXISTS note (number INTEGER PRIMARY KEY, text TEXT)"
NOTE = "INSERT INTO note (number) VALUES (:number)"
COUNT = "SELECT COUNT(*) FROM note"


async def open_notes(url: str, **options: float) -> Database:
    """A store with a table to play with."""
    database = await open_database(url, **options)
    await database.write(lambda tx: tx.execute(TABLE))
    return database


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    database = await open_notes(url)
    yield database
    await database.close()


async def test_a_long_read_holds_up_no_other(database: Database):
    begun, released = threading.Event(), threading.Event()

    def long(tx: Transaction) -> int:
        begun.set()
        assert released.wait(PATIENCE_SECONDS)
        return len(tx.execute(COUNT))

    await notes(database)
    reading = asyncio.create_task(database.read(long))
    await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
    try:
        for _ in range(3):
            assert await asyncio.wait_for(notes(database), PATIENCE_SECONDS) == 0
    finally:
        released.set()
    assert await reading == 1


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def note(number: int) -> Work[list[Row]]:
    return lambda tx: tx.execute(NOTE, {"number": number})


async def notes(database: Database) -> int:
    return (await database.read(lambda tx: tx.execute(COUNT)))[0][0]


async def test_work_gives_back_its_result_and_its_rows_last(url: str):
    database = await open_notes(url)

    def work(tx: Transaction) -> str:
        tx.execute(NOTE, {"number": 100})
        assert tx.execute(COUNT) == [(1,)]
        return "done"

    assert await database.write(work) == "done"
    await database.close()
    again = await open_notes(url)
    assert await notes(again) == 1
    await again.close()


async def test_work_that_fails_leaves_nothing_behind(database: Database):
    def work(tx: Transaction) -> None:
        tx.execute(NOTE, {"number": 100})
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        await database.write(work)
    assert await notes(database) == 0


async def test_work_that_fails_in_an_odd_way_does_not_stop_the_others(database: Database):
    def ends(tx: Transaction) -> None:
        next(iter(()))

    results = await asyncio.gather(*(database.write(work) for work in (note(1), ends, note(2))), return_exceptions=True)
    assert [isinstance(result, BaseException) for result in results] == [False, True, False]
    with pytest.raises(RuntimeError):
        await database.read(ends)
    assert await notes(database) == 2


async def test_one_failure_among_many_is_only_its_callers(database: Database):
    results = await asyncio.gather(
        *(database.write(note(100 + number // 2)) for number in range(100)), return_exceptions=True
    )
    assert sum(isinstance(result, Conflict) for result in results) == 50
    assert sum(isinstance(result, BaseException) for result in results) == 50
    assert await notes(database) == 50


async def test_what_one_wrote_the_next_reader_sees(database: Database):
    for number in range(30):
        await database.write(note(100 + number))
        assert await notes(database) == number + 1


async def test_a_reader_sees_one_moment(database: Database):
    entered, written = threading.Event(), threading.Event()

    def work(tx: Transaction) -> tuple[int, int]:
        before = tx.execute(COUNT)[0][0]
        entered.set()
        assert written.wait(30)
        return before, tx.execute(COUNT)[0][0]

    reading = asyncio.create_task(database.read(work))
    await asyncio.to_thread(entered.wait, 30)
    await database.write(note(100))
    written.set()
    assert await reading == (0, 0)


async def test_a_cancelled_caller_harms_nobody(database: Database):
    started, go = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        started.set()
        assert go.wait(30)
        tx.execute(NOTE, {"number": 100})

    task = asyncio.create_task(database.write(slow))
    await asyncio.to_thread(started.wait, 30)
    task.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    await database.write(note(101))
    assert await notes(database) in {1, 2}


async def test_closing_finishes_what_is_queued(url: str):
    database = await open_notes(url)
    writes = [asyncio.create_task(database.write(note(100 + number))) for number in range(200)]
    await asyncio.sleep(0)
    await asyncio.gather(database.close(), database.close())
    await asyncio.gather(*writes)
    for attempt in (database.write(note(1)), database.read(lambda tx: None)):
        with pytest.raises(Unreachable, match="closed"):
            await attempt
    again = await open_notes(url)
    assert await notes(again) == 200
    await again.close()


def test_several_event_loops_may_share_a_database(url: str):
    database = asyncio.run(open_notes(url))

    def loop_of_its_own(first: int) -> None:
        async def writes() -> None:
            await asyncio.gather(*(database.write(note(first + number)) for number in range(20)))

        asyncio.run(writes())

    threads = [threading.Thread(target=loop_of_its_own, args=(1000 * number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asyncio.run(notes(database)) == 80
    asyncio.run(database.close())


async def test_a_store_in_memory_works_like_any_other():
    for url in (":memory:", "sqlite://:memory:"):
        database = await open_database(url)
        sessions, forest = Sessions(database), Forest(database)
        session = await sessions.create(system="x")
        await asyncio.gather(*(sessions.append_to_head(session.id, [user(str(number))]) for number in range(20)))
        assert len(await forest.path((await sessions.get(session.id)).head_id)) == 21
        assert await database.check() == ()
        await database.close()


async def test_addresses_of_files_are_understood(tmp_path: Path):
    for url in (f"sqlite://{tmp_path}/a%20b.db", f"sqlite:///{tmp_path}/c.db", str(tmp_path / "d.db")):
        await (await open_database(url)).close()
    assert names_in(tmp_path) == {name + end for name in ("a b.db", "c.db", "d.db") for end in ("", "-lock")}
    for wrong in ("", "mysql://x/y", "sqlite://", "sqlite:///", "sqlite://host/x.db", "sqlite:///x.db?mode=ro", "a\0b"):
        with pytest.raises(ConfigError, match="store"):
            await open_database(wrong)


async def test_files_and_folders_are_for_their_owner_alone(tmp_path: Path):
    database = await open_notes(str(tmp_path / "a" / "b" / "loom.db"))
    await database.write(note(100))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a").rglob("*")}
    assert modes == {"b": 0o700, "loom.db": 0o600, "loom.db-wal": 0o600, "loom.db-shm": 0o600, "loom.db-lock": 0o600}
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    await database.close()


async def test_a_commit_is_a_group_and_costs_one_sync(tmp_path: Path):
    """While the writer is busy others queue up; they are committed together, in order."""
    database = await open_notes(str(tmp_path / "loom.db"))
    started, go = threading.Event(), threading.Event()

    def holds_the_writer(tx: Transaction) -> None:
        started.set()
        assert go.wait(30)

    first = asyncio.create_task(database.write(holds_the_writer))
    await asyncio.to_thread(started.wait, 30)
    frames_before = (tmp_path / "loom.db-wal").stat().st_size
    rest = [asyncio.create_task(database.write(note(100 + number))) for number in range(100)]
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(first, *rest)
    # A page goes into the log once for each commit that touched it: a hundred commits would log a hundred pages.
    pages = ((tmp_path / "loom.db-wal").stat().st_size - frames_before) / 4120
    assert pages < 20
    await database.close()


async def test_when_the_commit_fails_everybody_in_the_group_is_told(tmp_path: Path):
    database = await open_notes(str(tmp_path / "loom.db"))
    started, go = threading.Event(), threading.Event()

    def breaks_the_commit(tx: Transaction) -> None:
        started.set()
        assert go.wait(30)
        tx.execute("PRAGMA defer_foreign_keys = ON")
        tx.execute("INSERT INTO tip (session_key, node_key) VALUES (777, 777)")

    first = asyncio.create_task(database.write(breaks_the_commit))
    await asyncio.to_thread(started.wait, 30)
    rest = [asyncio.create_task(database.write(note(100 + number))) for number in range(5)]
    await asyncio.sleep(0)
    go.set()
    results = await asyncio.gather(first, *rest, return_exceptions=True)
    assert [type(result) for result in results] == [Conflict] * 6
    assert await notes(database) == 0
    await database.write(note(200))
    assert await notes(database) == 1
    await database.close()


async def test_what_is_refused_when_it_is_run_again_concerns_nobody_else(tmp_path: Path):
    """Between the two runs another process may have written: then a comparison that held fails."""
    database = await open_notes(str(tmp_path / "loom.db"))
    started, go = threading.Event(), threading.Event()
    runs: list[int] = []

    def opens_the_group(tx: Transaction) -> None:
        started.set()
        assert go.wait(30)

    def overtaken(tx: Transaction) -> None:
        runs.append(len(runs))
        if len(runs) > 1:
            raise Conflict("it has moved on")
        tx.execute(NOTE, {"number": 300})

    def fails(tx: Transaction) -> None:
        raise ZeroDivisionError

    first = asyncio.create_task(database.write(opens_the_group))
    await asyncio.to_thread(started.wait, 30)
    works = (note(100), overtaken, note(101), fails, note(102))
    rest = [asyncio.create_task(database.write(work)) for work in works]
    await asyncio.sleep(0)
    go.set()
    results = await asyncio.gather(first, *rest, return_exceptions=True)
    kinds = [type(result) for result in results if isinstance(result, BaseException)]
    assert kinds == [Conflict, ZeroDivisionError]
    assert (len(runs), await notes(database)) == (2, 3)
    await database.close()


async def test_a_file_that_others_hold_for_too_long_is_busy_for_all_who_wait(tmp_path: Path):
    database = await open_notes(str(tmp_path / "loom.db"), busy_seconds=0.2)
    other = sqlite3.connect(tmp_path / "loom.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    results = await asyncio.gather(*(database.write(note(100 + n)) for n in range(20)), return_exceptions=True)
    assert {type(result) for result in results} == {Unreachable}
    assert "busy" in str(results[0])
    assert await notes(database) == 0
    other.execute("ROLLBACK")
    other.close()
    await database.write(note(300))
    assert await notes(database) == 1
    await database.close()


async def test_deleted_words_leave_no_trace_in_the_files(tmp_path: Path):
    database = await open_database(str(tmp_path / "loom.db"))
    sessions = Sessions(database)
    kept, gone = await sessions.create(title="kept"), await sessions.create(title="goneTitle")
    await sessions.append_to_head(kept.id, [user("we keep this sentence")])
    await sessions.append_to_head(gone.id, [user("the password is xyzzy " + "and more " * 2000), user("xyzzy again")])
    await Events(database).append(gone.id, [("said", b'"xyzzy in an event"')])
    await sessions.delete(gone.id)
    left = b"".join((tmp_path / name).read_bytes() for name in names_in(tmp_path))
    assert b"xyzzy" not in left
    assert b"goneTitle" not in left
    assert b"we keep this sentence" in left
    await database.close()


# Migrations


def everything_in(url: str) -> object:
    """The bytes of a file; the rows of a server's tables, its time of change included."""
    if "://" not in url:
        return Path(url).read_bytes()
    with psycopg.connect(url) as connection:
        tables: list[LiteralString] = ["migration", "session", "node", "tip"]
        return [connection.execute(f"SELECT xmin, * FROM loom.{table}").fetchall() for table in tables]


async def test_a_new_store_records_every_migration_with_its_checksum(database: Database):
    rows = await database.read(lambda tx: tx.execute("SELECT version, name, checksum FROM migration ORDER BY version"))
    assert rows == [(known.version, known.name, known.checksum) for known in known_migrations()]
    assert rows[0][:2] == (1, "initial")
    assert re.fullmatch("[0-9a-f]{64}", rows[0][2])


async def test_opening_again_changes_nothing(tmp_path: Path):
    await (await open_database(str(tmp_path / "loom.db"))).close()
    before = (tmp_path / "loom.db").read_bytes()
    await (await open_database(str(tmp_path / "loom.db"))).close()
    assert (tmp_path / "loom.db").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("INSERT INTO migration VALUES (9999, 'tomorrow', 'x', 0)", Newer),
        ("UPDATE migration SET checksum = 'edited'", Corrupt),
    ],
)
async def test_a_store_with_another_history_is_refused_untouched(url: str, change: str, error: type[StoreError]):
    database = await open_database(url)
    session = await Sessions(database).create()
    await database.write(lambda tx: tx.execute(change))
    await database.close()
    before = await asyncio.to_thread(everything_in, url)
    assert session.id in str(before)
    with pytest.raises(error, match="Nothing was changed"):
        await open_database(url)
    assert await asyncio.to_thread(everything_in, url) == before


async def test_many_who_open_a_new_store_at_once_all_get_it(url: str):
    databases = await asyncio.gather(*(open_database(url) for _ in range(6)))
    await databases[0].write(lambda tx: tx.execute(TABLE))
    for number, database in enumerate(databases):
        await database.write(note(100 + number))
    assert await notes(databases[0]) == 6
    for database in databases:
        await database.close()


# Several processes


async def test_processes_that_append_at_once_lose_nothing_and_copy_nothing(url: str):
    database = await open_database(url)
    sessions, forest, events = Sessions(database), Forest(database), Events(database)
    common = await sessions.create()
    commands = [[sys.executable, APPENDER, "crowd", url, common.id, f"p{number}", "40"] for number in range(3)]
    crowd = [await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE) for command in commands]
    said = await asyncio.gather(*(process.communicate() for process in crowd))
    assert [process.returncode for process in crowd] == [0, 0, 0]
    acknowledged = [line.split() for out, _ in said for line in out.decode().splitlines()]
    assert len(acknowledged) == 120
    report = await forest.verify()
    assert report.problems == ()
    # 120 posts, 120 messages of their own, 40 that all three wrote once between them, and two roots.
    assert report.nodes == 120 + 120 + 40 + 2
    path = {node.id for node in await forest.path((await sessions.get(common.id)).head_id)}
    assert len(path) == 121
    assert {words[2] for words in acknowledged} < path
    assert len({words[1] for words in acknowledged}) == 40
    assert sorted(int(words[3]) for words in acknowledged) == list(range(1, 121))
    assert [event.seq for event in await events.after(common.id, 0)] == list(range(1, 121))
    assert len(await sessions.list()) == 4
    assert await database.check() == ()
    await database.close()


# PostgreSQL alone


async def test_a_server_that_goes_away_is_unreachable_and_found_again(tmp_path: Path):
    with postgres_server() as server:
        database = await open_notes(server.empty_database())
        await database.write(note(100))
        server.stop()
        with pytest.raises(Unreachable, match="does not respond"):
            await database.write(note(101))
        with pytest.raises(Unreachable):
            await notes(database)
        server.start()
        await asyncio.gather(*(database.write(note(200 + number)) for number in range(20)))
        assert await notes(database) == 21
        await database.close()


async def test_a_connection_that_dies_at_work_is_unreachable_and_nothing_is_stored(postgres: PostgresServer):
    database = await open_notes(postgres.empty_database())

    def work(tx: Transaction) -> None:
        tx.execute(NOTE, {"number": 100})
        tx.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(Unreachable):
        await database.write(work)
    assert await notes(database) == 0
    await database.close()


async def test_an_idle_connection_that_died_is_replaced_without_a_word(postgres: PostgresServer):
    url = postgres.empty_database()
    database = await open_notes(url)
    await asyncio.gather(*(notes(database) for _ in range(8)))
    with psycopg.connect(url) as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    assert await asyncio.gather(*(notes(database) for _ in range(8))) == [0] * 8
    await database.close()


async def test_deadlocks_are_run_again(postgres: PostgresServer):
    database = await open_notes(postgres.empty_database())
    await database.write(note(100))
    await database.write(note(200))
    meet = threading.Barrier(2, timeout=30)
    tries: list[int] = []

    def crossing(first: int, second: int) -> Work[None]:
        def work(tx: Transaction) -> None:
            tries.append(first)
            tx.execute("UPDATE note SET text = 'x' WHERE number = :number", {"number": first})
            if len(tries) <= 2:
                meet.wait()
            tx.execute("UPDATE note SET text = 'y' WHERE number = :number", {"number": second})

        return work

    await asyncio.gather(database.write(crossing(100, 200)), database.write(crossing(200, 100)))
    assert len(tries) == 3
    await database.close()


async def test_wrong_addresses_say_what_is_wrong_and_never_the_password(postgres: PostgresServer):
    nowhere = "postgresql://loom:s3cr3t@127.0.0.1:1/x"
    missing = postgres.url("no_such_database").replace("tester@", "tester:s3cr3t@")
    nonsense = "postgresql://loom:s3cr3t@host/x?nonsense=1"
    errors = await asyncio.gather(*(open_database(url) for url in (nowhere, missing, nonsense)), return_exceptions=True)
    assert [type(error) for error in errors] == [Unreachable, Unreachable, ConfigError]
    assert "does not exist" in str(errors[1])
    assert not any("s3cr3t" in str(error) for error in errors)


async def test_a_database_that_does_not_speak_utf8_is_refused(postgres: PostgresServer):
    with pytest.raises(StoreError, match=r"LATIN1.*encoding=UTF8"):
        await open_database(postgres.latin1())


async def test_loom_keeps_to_its_own_schema(postgres: PostgresServer):
    url = postgres.empty_database()
    with psycopg.connect(url) as other:
        other.execute("CREATE TABLE session (mine TEXT)")
    database = await open_database(url)
    await Sessions(database).create()
    await database.close()
    with psycopg.connect(url) as other:
        assert other.execute("SELECT * FROM session").fetchall() == []
        assert other.execute("SELECT COUNT(*) FROM loom.session").fetchall() == [(1,)]


def test_without_psycopg_the_error_says_what_to_install(tmp_path: Path):
    script = (
        "import sys, asyncio; sys.modules['psycopg'] = None\n"
        "from loom.store.database import open_database\n"
        "asyncio.run(open_database('postgresql://x/y'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "ExtraMissing" in done.stderr
    assert "pip install 'loom-runtime[postgres]'" in done.stderr
    assert ExtraMissing.code == "extra.missing"


def test_opening_a_sqlite_store_loads_no_heavy_package(tmp_path: Path):
    script = (
        "import sys, asyncio\n"
        "from loom.store.database import open_database\n"
        f"asyncio.run(open_database({str(tmp_path / 'x.db')!r}))\n"
        "print([name for name in ('psycopg', 'PIL', 'obstore', 'importlib.resources') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    shutil.rmtree(tmp_path)
