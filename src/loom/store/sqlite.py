"""SqliteDatabase: one writer thread with group commit, and a few reader threads that never wait for it.

Durability costs one disk sync per commit, so the writer takes all queued work, runs it in one transaction, commits
once, and only then returns the results: concurrent writers share one sync. If a unit of work fails, the transaction is
rolled back and the work before it runs again, so that work may run more than once.

Several processes may use one file: a transaction starts by waiting for the write lock.

A damaged file is not written, because that could destroy what can still be saved. A small file is checked before it is
opened, a large one in the background; once damage is found, writes are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from loom.errors import Corrupt, Unreachable
from loom.store.database import NO_PARAMS, NOT_CARRIED, Params, Row, T, Transaction, Work, write_probe
from loom.store.search_index import compact_index
from loom.store.sqlite_file import (
    BUSY_CODES,
    CHECKED_AT_ONCE_BYTES,
    SqliteTransaction,
    check_pages,
    connect,
    corrupt,
    full,
    has_no_space,
    make_store_file,
    open_database_file,
    primary_code,
    retry_while_locked,
    store_label,
    translate_error,
)
from loom.store.store_lock import StoreLock, share_store

_log = logging.getLogger(__name__)

_DAMAGE_CODES: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_STEPS_BETWEEN_LOOKS: Final = 100_000
"""The number of SQLite's virtual machine instructions after which a running check looks whether to stop."""
_READERS: Final = 3
_BATCH_JOBS: Final = 256
_BATCH_SECONDS: Final = 0.02


class _QueuedWork:
    """Queued work for the writer or a reader, and its result. `alone`: run it outside a transaction."""

    __slots__ = ("alone", "error", "future", "loop", "result", "work")

    def __init__(self, work: Work[Any], *, alone: bool = False) -> None:
        self.work = work
        self.alone = alone
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None

    @property
    def is_database_fault(self) -> bool:
        """Whether the work failed because of the database, not because of what it does."""
        cause = None if self.error is None else self.error.__cause__
        return isinstance(self.error, sqlite3.Error) or isinstance(cause, sqlite3.Error)


class _BatchLost(sqlite3.OperationalError):
    """Work that had succeeded failed with a database error when it ran again, for example because the disk is full."""


class SqliteDatabase:
    """Create it with `open_database`, which selects the backend."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path | None,
        busy_seconds: float,
        *,
        is_frozen: bool = False,
        lock: StoreLock | None = None,
    ) -> None:
        self._path = path
        self._lock = lock
        self._is_frozen = is_frozen
        self._busy_seconds = busy_seconds
        self._connection = connection
        self._transaction = SqliteTransaction(connection)
        self._queue: queue.SimpleQueue[_QueuedWork | None] = queue.SimpleQueue()
        self._closed = False
        self._is_damaged = False
        self._checker: threading.Thread | None = None
        self._door = threading.Lock()
        self._reads: queue.SimpleQueue[_QueuedWork | None] = queue.SimpleQueue()
        self._reads_aside: queue.SimpleQueue[_QueuedWork | None] = queue.SimpleQueue()
        self._reader_aside: threading.Thread | None = None
        self._readers: list[threading.Thread] = []
        self._idle_readers = 0
        self._open: list[SqliteTransaction] = [self._transaction]
        self._writer = threading.Thread(target=self._serve, name="loom-store-writer", daemon=True)
        self._writer.start()

    @classmethod
    def open(cls, path: Path | None, *, busy_seconds: float) -> SqliteDatabase:
        lock = None
        if path is not None:
            make_store_file(path)
            lock = share_store(path, busy_seconds)
        try:
            connection, is_frozen = open_database_file(path, busy_seconds)
        except BaseException:
            if lock is not None:
                lock.close()
            raise
        database = cls(connection, path, busy_seconds, is_frozen=is_frozen, lock=lock)
        if path is not None and not is_frozen and path.stat().st_size > CHECKED_AT_ONCE_BYTES:
            thread = threading.Thread(target=database._check, args=(path,), name="loom-store-checker", daemon=True)
            database._checker = thread
            thread.start()
        return database

    @property
    def label(self) -> str:
        return store_label(self._path)

    async def write(self, work: Work[T], *, repeatable: bool = False) -> T:
        if self._is_damaged:
            raise corrupt(self.label)
        return await self._submit(_QueuedWork(work))

    async def read(self, work: Work[T]) -> T:
        return await self._ask_reader(_QueuedWork(work))

    async def read_aside(self, work: Work[T]) -> T:
        job = _QueuedWork(work)
        if self._path is None:
            return await self._submit(job)
        with self._door:
            self._refuse_when_closed()
            self._reads_aside.put(job)
            if self._reader_aside is None:
                self._reader_aside = threading.Thread(
                    target=self._serve_reads, args=(self._reads_aside.get,), name="loom-store-aside", daemon=True
                )
                self._reader_aside.start()
        return await job.future

    async def select(self, sql: str, params: Params = NO_PARAMS) -> list[Row]:
        def work(tx: Transaction) -> list[Row]:
            return tx.execute(sql, params)

        return await self._ask_reader(_QueuedWork(work, alone=self._path is not None))

    async def _ask_reader(self, job: _QueuedWork) -> Any:
        if self._path is None:
            return await self._submit(job)
        with self._door:
            self._refuse_when_closed()
            self._reads.put(job)
            if self._idle_readers:
                self._idle_readers -= 1
            elif len(self._readers) < _READERS:  # a long read must not delay this one
                reader = threading.Thread(
                    target=self._serve_reads, args=(self._next_read,), name="loom-store-reader", daemon=True
                )
                self._readers.append(reader)
                reader.start()
        return await job.future

    async def scrub(self) -> None:
        def truncate_log(tx: Transaction) -> None:
            compact_index(tx)
            tx.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        await self._submit(_QueuedWork(truncate_log, alone=True))

    async def check(self) -> tuple[str, ...]:
        def inspect(tx: Transaction) -> tuple[str, ...]:
            words = [row[0] for row in tx.execute("PRAGMA integrity_check") if row[0] != "ok"]
            broken = tx.execute("PRAGMA foreign_key_check")
            words += [f"row {row} of {table} refers to a missing {parent}" for table, row, parent, _ in broken]
            return tuple(words)

        return await self.read(inspect)

    async def check_writable(self) -> None:
        await self.write(write_probe)
        if self._path is not None and await asyncio.to_thread(has_no_space, self._path.parent):
            raise full(self.label)  # this row reused space in the log; a larger one would not fit

    async def snapshot(self, file: Path) -> None:
        if self._path is None:
            await self._submit(_QueuedWork(lambda _: _copy(self._connection, file), alone=True))
        else:
            await asyncio.to_thread(self._copy_file, file)

    def _copy_file(self, file: Path) -> None:
        """Copy the database in one step, which gives a consistent copy; a reader does not block the writer."""
        try:
            source = connect(self._path, timeout=self._busy_seconds, is_frozen=self._is_frozen)
            with contextlib.closing(source):
                _copy(source, file)
        except sqlite3.Error as error:
            raise self._translate_error(error) from error

    async def close(self) -> None:
        with self._door:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
            for _ in self._readers:
                self._reads.put(None)
            self._reads_aside.put(None)
        await asyncio.to_thread(self._finish)

    def _finish(self) -> None:
        if self._checker is not None:
            self._checker.join()
        self._writer.join()
        for reader in (*self._readers, *([self._reader_aside] if self._reader_aside else [])):
            reader.join()
        for transaction in self._open:
            transaction.close()
        if self._lock is not None:
            self._lock.close()

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise Unreachable(f"{self.label} is closed.", hint="Open the store again.")

    async def _submit(self, job: _QueuedWork) -> Any:
        with self._door:
            self._refuse_when_closed()
            self._queue.put(job)
        return await job.future

    # Damage

    def _check(self, path: Path) -> None:
        try:
            tx = SqliteTransaction(connection := connect(path, timeout=self._busy_seconds))
            connection.set_progress_handler(lambda: int(self._closed), _STEPS_BETWEEN_LOOKS)
            try:
                check_pages(tx, path)
            finally:
                tx.close()
        except Corrupt:
            self._note_damage()
        except sqlite3.Error as error:
            if primary_code(error) in _DAMAGE_CODES:
                self._note_damage()
            elif not self._closed:
                _log.warning("%s could not be checked for damage: %s", self.label, error)

    def _note_damage(self) -> None:
        if not self._is_damaged:
            self._is_damaged = True
            _log.error("%s is damaged; writes are refused. Run `loom doctor --fix`.", self.label)

    # Readers

    def _serve_reads(self, take: Callable[[], _QueuedWork | None]) -> None:
        reader: SqliteTransaction | None = None
        while (job := take()) is not None:
            try:
                reader = reader or self._reader()
                self._read(reader, job)
            except BaseException as error:  # noqa: BLE001 - passed on to the caller; the reader thread must continue
                job.error = self._translate_error(error)
            _answer([job])

    def _next_read(self) -> _QueuedWork | None:
        with self._door:
            try:
                return self._reads.get_nowait()
            except queue.Empty:
                self._idle_readers += 1
        return self._reads.get()

    def _reader(self) -> SqliteTransaction:
        """Open a read-only connection for the current thread."""
        reader = SqliteTransaction(connect(self._path, timeout=self._busy_seconds, is_frozen=self._is_frozen))
        self._open.append(reader)
        reader.execute("PRAGMA query_only = ON")
        return reader

    def _read(self, reader: SqliteTransaction, job: _QueuedWork) -> None:
        """Run a job in its own transaction, so that it sees everything committed before."""
        if job.alone:
            job.result = job.work(reader)
            return
        reader.execute("BEGIN")
        try:
            job.result = job.work(reader)
        finally:
            reader.roll_back()

    # The writer thread

    def _serve(self) -> None:
        carried: _QueuedWork | None = None
        while (job := carried or self._queue.get()) is not None:
            carried = None
            if job.alone:
                self._runs(job)
                _answer([job])
                continue
            carried, stop = self._run_batch(job)
            if stop:
                return

    def _run_batch(self, first: _QueuedWork) -> tuple[_QueuedWork | None, bool]:
        """Run `first` and queued jobs in one transaction. Return a job that must run outside it, and whether the
        database was closed."""
        batch = [first]
        carried: _QueuedWork | None = None
        stop = False
        try:
            self._begin()
            is_whole = self._runs(first)
            until = time.monotonic() + _BATCH_SECONDS
            while is_whole and len(batch) < _BATCH_JOBS and time.monotonic() < until:
                try:
                    job = self._queue.get_nowait()
                except queue.Empty:
                    break
                if job is None or job.alone:
                    carried, stop = job, job is None
                    break
                batch.append(job)
                is_whole = self._runs(job)
            if not is_whole:
                self._transaction.roll_back()
                self._run_again(batch[:-1])
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._give_up(batch, error)
        _answer(batch)
        return carried, stop

    def _runs(self, job: _QueuedWork) -> bool:
        """Run a job and return whether it succeeded. There is no savepoint for each job, because nearly all succeed."""
        try:
            job.result = job.work(self._transaction)
        except BaseException as error:  # noqa: BLE001 - passed on to the caller; the writer thread must continue
            job.error = self._translate_error(error)
            return False
        return True

    def _run_again(self, batch: Sequence[_QueuedWork]) -> None:
        """Run the jobs before a failed one again. If another one fails now, because another process has written in the
        meantime, only its own caller gets that error, and the rest runs again without it."""
        left = list(batch)
        while (failed := self._first_to_fail(left)) is not None:
            if failed.is_database_fault:
                raise _BatchLost from failed.error
            self._transaction.roll_back()
            left.remove(failed)

    def _first_to_fail(self, jobs: Sequence[_QueuedWork]) -> _QueuedWork | None:
        for job in jobs:
            if not self._connection.in_transaction:
                self._begin()
            if not self._runs(job):
                return job
        return None

    def _begin(self) -> None:
        retry_while_locked(self._busy_seconds, functools.partial(self._connection.execute, "BEGIN IMMEDIATE"))

    def _give_up(self, batch: list[_QueuedWork], error: sqlite3.Error) -> None:
        """Fail all jobs of a batch that could not be committed; if the file is locked, also those still queued."""
        self._transaction.roll_back()
        cause = (error.__cause__ if isinstance(error, _BatchLost) else None) or error
        if primary_code(error) in BUSY_CODES:
            for _ in range(self._queue.qsize()):
                waiting = self._queue.get_nowait()
                if waiting is None or waiting.alone:
                    self._queue.put(waiting)
                else:
                    batch.append(waiting)
        for job in batch:
            job.error = job.error or self._translate_error(cause)

    def _translate_error(self, error: BaseException) -> BaseException:
        if isinstance(error, StopIteration):
            return RuntimeError(NOT_CARRIED)
        if not isinstance(error, sqlite3.Error):
            return error
        if primary_code(error) in _DAMAGE_CODES:
            self._note_damage()
        translated = translate_error(error, self._path)
        translated.__cause__ = error
        return translated


def _copy(source: sqlite3.Connection, file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as target:
        file.chmod(0o600)
        source.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")  # one file, readable in a folder without write permission


def _answer(jobs: Iterable[_QueuedWork]) -> None:
    """Pass results to the event loops that wait for them, with one wake-up for each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_QueuedWork]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, answered in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed, so nothing waits for the results
            loop.call_soon_threadsafe(_settle, answered)


def _settle(jobs: list[_QueuedWork]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
