"""Database: where rows last. One SQL text for SQLite (the default, embedded) and PostgreSQL.

Work is a plain function of a transaction. It runs in a thread, from start to end or not at all, and may run again
after a lost race, so it touches nothing but its transaction:

    def work(tx: Transaction) -> int:
        rows = tx.execute("SELECT key FROM session WHERE id = :id FOR UPDATE", {"id": session_id})
        ...

    key = await database.write(work)

The shared dialect is what both understand (`:name` parameters, ON CONFLICT, RETURNING, recursive WITH) and two words
more: `FOR UPDATE` locks rows on PostgreSQL and is left out on SQLite, where a writer is alone; `DATABASE_TIME` is the
time by the database's own clock, in seconds since 1970, which is the same for every machine that uses it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from loom.errors import ConfigError, ContentError, Corrupt

Row: TypeAlias = tuple[Any, ...]
Params: TypeAlias = Mapping[str, object]
T = TypeVar("T")

NO_PARAMS: Final[Params] = {}
MAX_NUMBER: Final = 2**63 - 1
"""The largest number that a column holds."""
MEMORY: Final = ":memory:"
_MOST_VALUES: Final = 512
_MOST_ROWS: Final = 64
NOT_CARRIED: Final = "work raised StopIteration, which a future cannot carry"


class Transaction(Protocol):
    """What work is given. All of it is committed, or none."""

    @property
    def dialect(self) -> Literal["sqlite", "postgres"]:
        """Whose SQL it is, where the two differ too much for one text."""
        ...

    def execute(self, sql: str, params: Params = NO_PARAMS) -> list[Row]: ...

    def executemany(self, sql: str, params: Sequence[Params]) -> None:
        """The same statement for many rows; it returns nothing."""
        ...

    def lock(self, name: str) -> None:
        """Be the only transaction in the whole store that holds this name, until the end."""
        ...

    def continue_keys(self, table: str) -> None:
        """Hand out keys above those that were inserted with rows."""
        ...


Work: TypeAlias = Callable[[Transaction], T]


class Database(Protocol):
    @property
    def label(self) -> str:
        """What errors call it: a file name or a host, never a password."""
        ...

    async def write(self, work: Work[T], *, repeatable: bool = False) -> T:
        """Run work and return once what it wrote would survive a crash. With `repeatable`, doing it twice is the same
        as once, so that it is also tried again where a lost connection hides whether it was committed."""
        ...

    async def read(self, work: Work[T]) -> T:
        """Run work on one consistent view. It must not write."""
        ...

    async def read_aside(self, work: Work[T]) -> T:
        """The same for work that may take long: one at a time, and no other reading waits for it."""
        ...

    async def select(self, sql: str, params: Params = NO_PARAMS) -> list[Row]:
        """Return one statement that reads, which needs no transaction."""
        ...

    async def scrub(self) -> None:
        """Leave no trace of deleted rows in the files that this process can reach."""
        ...

    async def check(self) -> tuple[str, ...]:
        """Return what is wrong with the database itself, in words; empty when it is sound."""
        ...

    async def check_writable(self) -> None:
        """Write a row, as cheap as a write can be; raise what a real one would (`Full`, `ReadOnly`, `Corrupt`,
        `Unreachable`). For a readiness probe, every few seconds."""
        ...

    async def snapshot(self, file: Path) -> None:
        """Write a copy as of one moment to a new SQLite file, while others go on reading and writing."""
        ...

    async def close(self) -> None:
        """Finish what is queued, then let go."""
        ...


_may_wait: ContextVar[Callable[[], bool] | None] = ContextVar("may_wait", default=None)


@contextmanager
def wait_for_database(may_wait: Callable[[], bool]) -> Generator[None]:
    """Inside, and in tasks that are started inside, work is tried again while the database cannot be reached and
    `may_wait()` is true. The exception is a commit that may have happened: only its writer can find out."""
    token = _may_wait.set(may_wait)
    try:
        yield
    finally:
        _may_wait.reset(token)


def is_waiting_allowed() -> bool:
    """Return whether the current task waits for a database that cannot be reached."""
    may_wait = _may_wait.get()
    return may_wait is not None and may_wait()


_PROBE: Final = (
    "INSERT INTO search_state (name, value) VALUES ('probe', CAST(DATABASE_TIME AS BIGINT))"
    " ON CONFLICT (name) DO UPDATE SET value = CAST(DATABASE_TIME AS BIGINT)"
)


def write_probe(tx: Transaction) -> None:
    """The work of `check_writable`. It changes a row that nothing reads."""
    tx.execute(_PROBE)


def row_as(row: Row, shape: type[T], what: str) -> T:
    """Return the row as a value. Damage can change the type of a column, too: then it is `Corrupt`, and says what it
    was."""
    try:
        return msgspec.convert(row, shape)
    except (msgspec.ValidationError, UnicodeError):
        raise Corrupt(f"{what} is damaged.", hint="Run `loom doctor`; the rest can still be read.") from None


def checked_limit(limit: int) -> int:
    """Return how many rows are wanted. Less than none means all of them to SQLite, and nothing to PostgreSQL."""
    if limit < 0:
        raise ContentError(f"a limit is 0 or more, not {limit}")
    return min(limit, MAX_NUMBER)


def rows_among(tx: Transaction, select: str, values: Sequence[str]) -> list[Row]:
    """Return the rows of a statement that ends with the column which is one of these values."""
    rows: list[Row] = []
    for first in range(0, len(values), _MOST_VALUES):
        part = values[first : first + _MOST_VALUES]
        # A value that is named twice is found once; so only a few lengths of statements have to be prepared and kept.
        count = 1 << (len(part) - 1).bit_length()
        params = {f"v{at}": value for at, value in enumerate([*part, *[part[-1]] * (count - len(part))])}
        rows += tx.execute(f"{select} IN ({', '.join(f':{name}' for name in params)})", params)
    return rows


def execute_rows(tx: Transaction, statement: str, rows: Sequence[Params]) -> list[Row]:
    """Return a statement with `{}` for the rows of a VALUES list. They have the same names, and go in pieces of 64, 32,
    16 …, so that only a few statements have to be prepared and kept."""
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

        return await asyncio.to_thread(PostgresDatabase.open, url, busy_seconds=busy_seconds)
    from loom.store.sqlite import SqliteDatabase

    return await asyncio.to_thread(SqliteDatabase.open, sqlite_path(url), busy_seconds=busy_seconds)


def sqlite_path(url: str) -> Path | None:
    """Return the file to open, or None for memory."""
    if url in {MEMORY, f"sqlite://{MEMORY}"}:
        return None
    if "://" not in url:
        if not url or "\0" in url:
            raise ConfigError("a store needs a path or an address", key="store")
        return Path(url).expanduser().absolute()
    parts = urlsplit(url)
    if parts.scheme != "sqlite" or parts.netloc or len(parts.path) < 2 or parts.query or parts.fragment:
        raise ConfigError(
            f"{parts.scheme}: is not a store that Loom can open",
            key="store",
            hint="Give a path, sqlite:///absolute/path or postgresql://user@host/name.",
        )
    path = unquote(parts.path)
    if "\0" in path:
        raise ConfigError("a store needs a path or an address", key="store")
    return Path("/" + path.lstrip("/"))
