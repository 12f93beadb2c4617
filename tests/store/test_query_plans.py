"""With the statistics of a large library (`ANALYZE`), SQLite still walks paths by key.

For a recursive step that filters only on the joined table, SQLite builds a Bloom filter of that whole table first: a
conversation then opens in 300 ms instead of 1 ms at a million messages.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import sqlite3
from pathlib import Path

import pytest

import loom.store
from loom.store.database import open_database

_ROWS = 1_000_000
_STATISTICS = (("sqlite_autoindex_node_1", f"{_ROWS} 1"), ("node_parent", f"{_ROWS} 1"))


class _AnyValue(dict[str, object]):
    def __missing__(self, name: str) -> object:
        return 1


def _recursive_statements() -> dict[str, str]:
    """Every constant of the store that walks the forest."""
    found: dict[str, str] = {}
    for module in pkgutil.iter_modules(loom.store.__path__, "loom.store."):
        for name, value in vars(importlib.import_module(module.name)).items():
            is_walk = isinstance(value, str) and value.startswith("WITH RECURSIVE")
            if is_walk and not (value.endswith(") ") or "{column}" in value):  # those are parts of other statements
                found[f"{module.name}.{name}"] = value.replace("{0}", "(1)").replace("{1}", "(1)")
    return found


STATEMENTS = _recursive_statements()


def test_all_statements_are_found() -> None:
    assert len(STATEMENTS) >= 9


@pytest.mark.parametrize("name", sorted(STATEMENTS))
async def test_no_statement_reads_every_message(name: str, tmp_path: Path) -> None:
    path = tmp_path / "loom.db"
    await (await open_database(str(path))).close()
    with contextlib.closing(sqlite3.connect(path)) as file, file:
        file.execute("ANALYZE")
        file.execute("DELETE FROM sqlite_stat1 WHERE tbl = 'node'")
        file.executemany("INSERT INTO sqlite_stat1 VALUES ('node', ?, ?)", _STATISTICS)
    with contextlib.closing(sqlite3.connect(path)) as file:  # statistics are read when a file is opened
        steps = [row[3] for row in file.execute("EXPLAIN QUERY PLAN " + STATEMENTS[name], _AnyValue())]
    assert steps
    assert not [step for step in steps if "BLOOM" in step or step in ("SCAN n", "SCAN p", "SCAN c", "SCAN node")]
