"""A SQLite file: create it, open it, run a transaction on it, and translate its errors."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import random
import re
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal, cast

from loom.errors import Conflict, Corrupt, ExtraMissing, Full, LoomError, ReadOnly, StoreError, Unreachable
from loom.store.database import NO_PARAMS, Params, Row
from loom.store.directories import make_folders
from loom.store.migrations import SELECT_APPLIED, apply_pending, known_migrations, pending
from loom.store.search_index import SQLITE_TABLES

WORDS: Final = {
    "key": "INTEGER PRIMARY KEY",
    "name": "TEXT",
    "clustered": " WITHOUT ROWID",
    "search_tables": SQLITE_TABLES,
}
BUSY_CODES: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}

CHECKED_AT_ONCE_BYTES: Final = 8 * 1024 * 1024
"""Up to this size a file is checked before it is opened, which takes some tens of milliseconds."""
_OLDEST_SQLITE: Final = (3, 35, 0)
_LEAST_BYTES: Final = 64 * 1024
_COPY_IT: Final = "Copy the folder to a writable place, and point Loom at the copy. Nothing was changed."
_LOCK_WORDS = re.compile(r"\s+FOR UPDATE\b")
_DATABASE_TIME: Final = "((julianday('now') - 2440587.5) * 86400.0)"
"""The machine's clock, to a millisecond: all processes that can use one file run on one machine."""
_UNDECODABLE: Final = "Could not decode to UTF-8"
_EVERYWHERE: Final = (
    *("foreign_keys = ON", "trusted_schema = OFF", "cell_size_check = ON"),
    *("temp_store = MEMORY", "cache_size = -2000"),
)
_WRITER: Final = (
    *("synchronous = FULL", "secure_delete = ON"),
    *("wal_autocheckpoint = 4000", "journal_size_limit = 16777216"),
)


class _Unreadable(sqlite3.DatabaseError):
    """The file is so damaged that SQLite's error message is not valid text."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    sqlite_errorname = "SQLITE_CORRUPT"


class SqliteTransaction:
    __slots__ = ("_connection", "_cursor")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()

    @property
    def dialect(self) -> Literal["sqlite", "postgres"]:
        return "sqlite"

    def execute(self, sql: str, params: Params = NO_PARAMS) -> list[Row]:
        try:
            return self._cursor.execute(_to_sqlite(sql), params).fetchall()
        except sqlite3.OperationalError as error:
            if not str(error).startswith(_UNDECODABLE):
                raise
        except UnicodeDecodeError:
            raise _Unreadable from None
        return self._execute_damaged(sql, params)

    def _execute_damaged(self, sql: str, params: Params) -> list[Row]:
        """Read text that is no longer UTF-8, so that the caller can name the damaged row."""
        self._connection.text_factory = functools.partial(str, encoding="utf-8", errors="surrogateescape")
        try:
            return self._cursor.execute(_to_sqlite(sql), params).fetchall()
        finally:
            self._connection.text_factory = str

    def executemany(self, sql: str, params: Sequence[Params]) -> int:
        return self._cursor.executemany(_to_sqlite(sql), params).rowcount

    def lock(self, name: str) -> None:
        """Do nothing: SQLite has one writing transaction at a time."""

    def continue_keys(self, table: str) -> None:
        """Do nothing: SQLite generates keys above all existing ones."""

    @property
    def connection(self) -> sqlite3.Connection:
        return self._connection

    def roll_back(self) -> None:
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # after a disk error SQLite has rolled back by itself
                self._cursor.execute("ROLLBACK")

    def close(self) -> None:
        """Close the cursor and the connection. A statement that failed half-way would keep the file open."""
        self._cursor.close()
        self._connection.close()


@functools.cache
def _to_sqlite(sql: str) -> str:
    """Translate a statement of the shared dialect for SQLite."""
    return _LOCK_WORDS.sub("", sql).replace("DATABASE_TIME", _DATABASE_TIME)


def store_label(path: Path | None) -> str:
    return "The store in memory" if path is None else path.name


def open_database_file(path: Path | None, busy_seconds: float) -> tuple[sqlite3.Connection, bool]:
    """Open or create a store, and bring its schema up to date. Return the connection, and whether the file is frozen:
    read without locks, because its folder is not writable. A file of another program is refused and stays unchanged."""
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise ExtraMissing(
            f"Loom needs SQLite 3.35 or newer; this Python has {sqlite3.sqlite_version}.",
            hint="Use a newer build of Python, or a PostgreSQL store.",
        )
    if path is not None:
        make_store_file(path)
    is_frozen = path is not None and _is_frozen(path)
    try:
        connection = connect(path, timeout=min(busy_seconds, 0.05), is_frozen=is_frozen)
    except sqlite3.Error as error:
        raise translate_error(error, path) from error
    except UnicodeDecodeError as error:  # SQLite's error message quotes a damaged schema
        raise corrupt(store_label(path)) from error
    tx = SqliteTransaction(connection)
    try:
        is_current = _look(tx, path)
        if not is_frozen:
            if path is not None and path.stat().st_size <= CHECKED_AT_ONCE_BYTES:
                retry_while_locked(busy_seconds, functools.partial(check_pages, tx, path))
            retry_while_locked(busy_seconds, functools.partial(_prepare, tx, path))
            if not is_current:
                _migrate(connection, tx, path, busy_seconds)
        elif not is_current:
            raise ReadOnly(
                f"{store_label(path)} was written by an older Loom and must be upgraded, but its folder is read-only.",
                hint=_COPY_IT,
            )
    except sqlite3.Error as error:
        tx.close()
        raise translate_error(error, path) from error
    except LoomError:
        tx.close()
        raise
    return connection, is_frozen


def check_pages(tx: SqliteTransaction, path: Path) -> None:
    """Raise `Corrupt` if pages of the file are damaged: a write could destroy what can still be saved."""
    found = tx.execute("PRAGMA quick_check(1)")
    if found != [("ok",)]:
        raise corrupt(store_label(path))


def connect(path: Path | None, *, timeout: float, is_frozen: bool = False) -> sqlite3.Connection:
    address = ":memory:" if path is None else path
    connection = sqlite3.connect(
        f"{Path(address).as_uri()}?mode=ro&immutable=1" if is_frozen else address,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        uri=is_frozen,
    )
    for pragma in _EVERYWHERE:
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _is_frozen(path: Path) -> bool:
    """Return whether SQLite can read the database only as an immutable file: its folder is read-only, and the index of
    the write-ahead log, which SQLite needs to read normally, does not exist. Raise `ReadOnly` if there is a log without
    its index, because the messages in it would be ignored."""
    if _has_access(path.parent, os.W_OK) or not _has_access(path, os.R_OK):
        return False
    log, index = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    if log.exists() and log.stat().st_size and not index.exists():
        raise ReadOnly(
            f"{store_label(path)} was not closed, and its folder is read-only: its last messages are in a log that"
            " SQLite can read only in a writable folder.",
            hint=_COPY_IT,
        )
    return not index.exists()


def _has_access(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _look(tx: SqliteTransaction, path: Path | None) -> bool:
    """Return whether the schema is up to date. Raise `Corrupt` for a database of another program and `Newer` for one of
    a newer Loom, before anything is written."""
    tables = {row[0] for row in tx.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "migration" in tables:
        return not pending(tx.execute(SELECT_APPLIED), known_migrations(), store_label(path))
    if tables:
        raise Corrupt(
            f"{store_label(path)} is the database of another program.",
            hint="Point Loom at another file. Nothing was changed.",
        )
    return False


def _prepare(tx: SqliteTransaction, path: Path | None) -> None:
    mode = tx.execute("PRAGMA journal_mode = WAL")[0][0]
    if path is not None and mode != "wal":
        raise Unreachable(
            f"{store_label(path)} is on a file system that does not support a write-ahead log.",
            hint="Put the store on a local disk.",
        )
    for pragma in _WRITER:
        tx.execute(f"PRAGMA {pragma}")


def _migrate(connection: sqlite3.Connection, tx: SqliteTransaction, path: Path | None, busy_seconds: float) -> None:
    retry_while_locked(busy_seconds, functools.partial(connection.execute, "BEGIN IMMEDIATE"))
    try:
        apply_pending(tx, WORDS, store_label(path))
        connection.execute("COMMIT")
    finally:
        tx.roll_back()


def retry_while_locked(seconds: float, attempt: Callable[[], object]) -> None:
    """Call `attempt` until the file is no longer locked, for at most `seconds`. The pauses are short and random, so
    that no process starves."""
    deadline = time.monotonic() + seconds
    nap = 0.0005
    while True:
        try:
            attempt()
        except sqlite3.OperationalError as error:
            if primary_code(error) not in BUSY_CODES or time.monotonic() > deadline:
                raise
        else:
            return
        time.sleep(nap * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret
        nap = min(nap * 2, 0.01)


def make_store_file(path: Path) -> None:
    """Create the file (mode 0600) and missing folders (0700), if it does not exist."""
    label = store_label(path)
    try:
        if path.is_dir():
            raise Unreachable(f"{label} is a folder.", hint="A store needs the name of a file.")
        if path.exists():
            return
        make_folders(path.parent)
        with contextlib.suppress(FileExistsError):  # another process has just created it
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise _typed_os(error, label) from error


def _typed_os(error: OSError, label: str) -> StoreError:
    if error.errno in {errno.EROFS, errno.EACCES, errno.EPERM}:
        return _read_only(label)
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return full(label)
    return Unreachable(f"{label} cannot be opened: {error.strerror}.", hint="Check the path of the store.")


def primary_code(error: BaseException) -> int:
    """Return SQLite's primary result code; 0 if the error is not from SQLite."""
    return cast("int", getattr(error, "sqlite_errorcode", 0)) & 0xFF


def translate_error(error: sqlite3.Error, path: Path | None) -> Exception:
    """Return the `LoomError` for a SQLite error; return `error` itself if only a bug in Loom can cause it."""
    label = store_label(path)
    match primary_code(error):
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return corrupt(label)
        case sqlite3.SQLITE_FULL:
            return full(label)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return _read_only(label)
        case sqlite3.SQLITE_CANTOPEN:
            if path is not None and not _has_access(path.parent, os.W_OK):
                return _read_only(label)
            return Unreachable(f"{label} cannot be opened.", hint="Check that the file exists and is readable.")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Unreachable(
                f"{label} is busy: another process has been writing for too long.",
                hint="Close the other Loom, or try again.",
            )
        case sqlite3.SQLITE_IOERR:
            if path is not None and has_no_space(path.parent):
                return full(label)
            return Unreachable(
                f"The disk of {label} reports an error ({error.sqlite_errorname}); this change was not stored.",
                hint="Check the disk. What was stored before is safe.",
            )
        case sqlite3.SQLITE_CONSTRAINT:
            return Conflict(f"{label} refused an inconsistent change ({error.sqlite_errorname}).")
        case sqlite3.SQLITE_ERROR if "no such module" in str(error):
            return ExtraMissing(
                "Loom needs SQLite with full-text search (FTS5), which this Python does not have.",
                hint="Use another build of Python, or a PostgreSQL store.",
            )
        case sqlite3.SQLITE_ERROR if "no such table" in str(error) or "no such column" in str(error):
            return corrupt(label)
        case _:
            return error


def has_no_space(folder: Path) -> bool:
    """Return whether the disk is full. SQLite reports an I/O error if its shared memory or log does not fit."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _LEAST_BYTES


def corrupt(label: str) -> Corrupt:
    return Corrupt(
        f"{label} is damaged, or is not a Loom database.",
        hint="Run `loom doctor --fix`: it copies everything readable to a new store, and keeps the damaged file.",
    )


def _read_only(label: str) -> ReadOnly:
    return ReadOnly(
        f"{label} cannot be written: the file or its folder is read-only for this user.",
        hint="Give the user write access, or point Loom at another store. Nothing was changed.",
    )


def full(label: str) -> Full:
    return Full(
        f"No space left on the disk of {label}; this change was not stored.",
        hint="Free some space and try again. What was stored before is safe.",
    )
