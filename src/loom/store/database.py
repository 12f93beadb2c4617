"""Database: one interface and one SQL dialect for SQLite (the default, embedded) and PostgreSQL.

A unit of work is a function of a transaction. It runs in a thread, is committed entirely or not at all, and may run
again after a conflict. It must therefore have no effect outside its transaction:

    def work(tx: Transaction) -> int:
        rows = tx.execute("SELECT key FROM session WHERE id = :id FOR UPDATE", {"id": session_id})
        ...

    key = await database.write(work)

The dialect is what both databases understand (`:name` parameters, ON CONFLICT, RETURNING, recursive WITH) plus two
additions. `FOR UPDATE` locks rows on PostgreSQL and is removed for SQLite, which has one writer at a time.
`DATABASE_TIME` is the database's clock in seconds since 1970, and so the same for every machine that uses it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from loom.errors import ConfigError, ContentError, Corrupt
from loom.struct_types import convert

Row: TypeAlias = tuple[Any, ...]
Params: TypeAlias = Mapping[str, object]
T = TypeVar("T")

NO_PARAMS: Final[Params] = {}
MAX_NUMBER: Final = 2**63 - 1
"""The largest integer that a column holds."""
MEMORY: Final = ":memory:"
_MOST_VALUES: Final = 512
_MOST_ROWS: Final = 64
NOT_CARRIED: Final = "work raised StopIteration, which a future cannot carry"


class Transaction(Protocol):
    """The transaction that a unit of work runs in. It is committed entirely or not at all."""

    @property
    def dialect(self) -> Literal["sqlite", "postgres"]:
        """The database behind the transaction, for statements that cannot be written once for both."""
        ...

    def execute(self, sql: str, params: Params = NO_PARAMS) -> list[Row]: ...

    def executemany(self, sql: str, params: Sequence[Params]) -> int:
        """Execute a statement once for each item of `params`. Return the number of rows that were changed."""
        ...

    def lock(self, name: str) -> None:
        """Take the exclusive lock `name`, store-wide, until the transaction ends."""
        ...

    def continue_keys(self, table: str) -> None:
        """Make the next generated key of `table` higher than every key that was inserted explicitly."""
        ...


Work: TypeAlias = Callable[[Transaction], T]


class Database(Protocol):
    @property
    def label(self) -> str:
        """The name of the database in error messages: a file name or a host, never a password."""
        ...

    async def write(self, work: Work[T], *, repeatable: bool = False) -> T:
        """Run `work` in a transaction; return its result once the commit is durable. Set `repeatable` if running
        `work` twice has the same effect as once: it is then also retried after a connection was lost during the
        commit."""
        ...

    async def read(self, work: Work[T]) -> T:
        """Run `work`, which must not write, on one consistent view."""
        ...

    async def read_aside(self, work: Work[T]) -> T:
        """Run long reading `work` on a separate connection, one at a time, so that it delays no other read."""
        ...

    async def select(self, sql: str, params: Params = NO_PARAMS) -> list[Row]:
        """Execute one reading statement and return its rows."""
        ...

    async def scrub(self) -> None:
        """Overwrite deleted rows in the database files, as far as this process has access to them."""
        ...

    async def check(self) -> tuple[str, ...]:
        """Check the integrity of the database; return a description of each problem."""
        ...

    async def check_writable(self) -> None:
        """Write one small row; raise the error that a real write would raise (`Full`, `ReadOnly`, `Corrupt`,
        `Unreachable`). Cheap enough for a readiness probe every few seconds."""
        ...

    async def snapshot(self, file: Path) -> None:
        """Write a consistent copy to the new SQLite file `file`. Other readers and writers are not blocked."""
        ...

    async def close(self) -> None:
        """Finish queued work, then close the connections."""
        ...


class _WaitPermission:
    def __init__(self, may_wait: Callable[[], bool]) -> None:
        self.may_wait: Callable[[], bool] | None = may_wait


_waiting: ContextVar[_WaitPermission | None] = ContextVar("waiting", default=None)


@contextmanager
def wait_for_database(may_wait: Callable[[], bool]) -> Generator[None]:
    """Within this context, and in tasks started in it, retry work while the database is unreachable and `may_wait()`
    returns True. Work is not retried after a commit whose outcome is unknown: its caller has to find out."""
    waiting = _WaitPermission(may_wait)
    token = _waiting.set(waiting)
    try:
        yield
    finally:
        _waiting.reset(token)
        waiting.may_wait = None  # timers keep a copy of the context, and `may_wait` the session and its messages


def is_waiting_allowed() -> bool:
    """Return whether the current task may wait for an unreachable database."""
    waiting = _waiting.get()
    return waiting is not None and waiting.may_wait is not None and waiting.may_wait()


_PROBE: Final = (
    "INSERT INTO search_state (name, value) VALUES ('probe', CAST(DATABASE_TIME AS BIGINT))"
    " ON CONFLICT (name) DO UPDATE SET value = CAST(DATABASE_TIME AS BIGINT)"
)


def write_probe(tx: Transaction) -> None:
    """Do the work of `Database.check_writable`: update a row that nothing reads."""
    tx.execute(_PROBE)


def row_as(row: Row, shape: type[T], what: str) -> T:
    """Convert a row to `shape`. Raise `Corrupt`, with `what` in its message, if damage changed the type of a column."""
    try:
        return convert(row, shape)
    except (msgspec.ValidationError, UnicodeError):
        raise Corrupt(f"{what} is damaged.", hint="Run `loom doctor`; the rest can still be read.") from None


def checked_limit(limit: int) -> int:
    """Return `limit` as an SQL LIMIT. Raise `ContentError` if it is negative: SQLite would return all rows, PostgreSQL
    would fail."""
    if limit < 0:
        raise ContentError(f"A limit must be 0 or more, not {limit}")
    return min(limit, MAX_NUMBER)


def rows_among(tx: Transaction, select: str, values: Sequence[str]) -> list[Row]:
    """Return the rows whose last named column is one of `values`; `select` ends with that column ("… WHERE id")."""
    rows: list[Row] = []
    for first in range(0, len(values), _MOST_VALUES):
        part = values[first : first + _MOST_VALUES]
        # Repeat the last value up to a power of two: few distinct statements, so the database can cache them.
        count = 1 << (len(part) - 1).bit_length()
        params = {f"v{at}": value for at, value in enumerate([*part, *[part[-1]] * (count - len(part))])}
        rows += tx.execute(f"{select} IN ({', '.join(f':{name}' for name in params)})", params)
    return rows


def execute_rows(tx: Transaction, statement: str, rows: Sequence[Params]) -> list[Row]:
    """Execute `statement`, in which `{}` stands for a VALUES list, and return what it returns. All `rows` have the same
    names. They are sent in batches of 64, 32, 16 …: few distinct statements, so the database can cache them."""
    found: list[Row] = []
    first = 0
    while first < len(rows):
        count = min(_MOST_ROWS, 1 << (len(rows) - first).bit_length() - 1)
        part = rows[first : first + count]
        first += count
        params = {f"{name}_{at}": value for at, row in enumerate(part) for name, value in row.items()}
        listed = ", ".join(f"({', '.join(f':{name}_{at}' for name in row)})" for at, row in enumerate(part))
        found += tx.execute(statement.format(listed), params)
    return found


async def open_database(url: str, *, busy_seconds: float = 15.0) -> Database:
    """Open a store and bring its schema up to date.

    `url` is a path, `sqlite:///absolute/path`, `:memory:` (also `sqlite://:memory:`) or `postgresql://…`.
    `busy_seconds` is how long a write waits for another process before it gives up.
    """
    if url.startswith(("postgresql://", "postgres://")):
        from loom.store.postgres import PostgresDatabase

        return await _open_in_thread(partial(PostgresDatabase.open, url, busy_seconds=busy_seconds))
    from loom.store.sqlite import SqliteDatabase

    return await _open_in_thread(partial(SqliteDatabase.open, sqlite_path(url), busy_seconds=busy_seconds))


async def _open_in_thread(open_: Callable[[], Database]) -> Database:
    """Open a store in a thread. If this is cancelled, wait for the thread and close what it has opened."""
    opening = asyncio.create_task(asyncio.to_thread(open_))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        await asyncio.wait([opening])
        if opening.exception() is None:
            await opening.result().close()
        raise


def sqlite_path(url: str) -> Path | None:
    """Return the file of a SQLite URL or path; None for an in-memory store. Raise `ConfigError` for other URLs."""
    if url in {MEMORY, f"sqlite://{MEMORY}"}:
        return None
    if "://" not in url:
        if not url or "\0" in url:
            raise ConfigError("A store needs a path or a URL", key="store")
        return Path(url).expanduser().absolute()
    parts = urlsplit(url)
    if parts.scheme != "sqlite" or parts.netloc or len(parts.path) < 2 or parts.query or parts.fragment:
        raise ConfigError(
            f"Loom cannot open a store with a {parts.scheme}: URL",
            key="store",
            hint="Use a path, sqlite:///absolute/path or postgresql://user@host/name.",
        )
    path = unquote(parts.path)
    if "\0" in path:
        raise ConfigError("A store needs a path or a URL", key="store")
    return Path("/" + path.lstrip("/"))
