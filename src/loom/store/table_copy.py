"""Table copy: copy all rows of a store, in pages, between databases of either kind."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from loom.store.database import Row, Transaction
from loom.store.sqlite_file import SqliteTransaction, open_database_file

PAGE_ROWS: Final = 2000
_NOT_COPIED: Final = ("migration",)


class StoredTable(msgspec.Struct, frozen=True):
    """A table, its columns, and the columns of its primary key in order."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    has_own_key: bool
    """Whether the database generates the key."""


def stored_tables(connection: sqlite3.Connection) -> tuple[StoredTable, ...]:
    """Return the tables of a store, each after the tables that it refers to. Tables that are derived from others are
    left out."""
    sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE %' ORDER BY rowid"
    found: list[StoredTable] = []
    for (name,) in connection.execute(sql).fetchall():
        columns = connection.execute(f"PRAGMA table_info({name})").fetchall()
        key = sorted((column for column in columns if column[5]), key=lambda column: column[5])
        is_derived = name in _NOT_COPIED or name.startswith(("sqlite_", "search_"))
        if key and not is_derived:
            found.append(
                StoredTable(
                    name,
                    tuple(column[1] for column in columns),
                    tuple(column[1] for column in key),
                    has_own_key=key[0][2] == "INTEGER" and len(key) == 1,
                )
            )
    return tuple(found)


def pages(tx: Transaction, table: StoredTable) -> Iterator[list[Row]]:
    """Yield all rows of a table in the order of its key, in pages."""
    columns, key = ", ".join(table.columns), ", ".join(table.key)
    places = [table.columns.index(column) for column in table.key]
    after = ", ".join(f":k{at}" for at in range(len(places)))
    select = f"SELECT {columns} FROM {table.name}"  # noqa: S608  names of our own schema
    order = f"ORDER BY {key} LIMIT :limit"
    rows = tx.execute(f"{select} {order}", {"limit": PAGE_ROWS})
    while rows:
        yield rows
        last = {f"k{at}": rows[-1][place] for at, place in enumerate(places)}
        rows = tx.execute(f"{select} WHERE ({key}) > ({after}) {order}", {"limit": PAGE_ROWS, **last})


def insert(tx: Transaction, table: StoredTable, rows: Sequence[Row]) -> None:
    columns = ", ".join(table.columns)
    values = ", ".join(f":{column}" for column in table.columns)
    sql = f"INSERT INTO {table.name} ({columns}) VALUES ({values})"  # noqa: S608  names of our own schema
    tx.executemany(sql, [dict(zip(table.columns, row, strict=True)) for row in rows])


def copy_to_file(tx: Transaction, file: Path) -> None:
    """Copy everything that a transaction sees to a new SQLite store."""
    connection, _ = open_database_file(file, 15.0)
    target = SqliteTransaction(connection)
    with contextlib.closing(target):
        connection.execute("PRAGMA foreign_keys = OFF")
        for table in stored_tables(connection):
            for rows in pages(tx, table):
                connection.execute("BEGIN")
                insert(target, table, rows)
                connection.execute("COMMIT")
