"""Databases and tables (SQLite, Parquet, large JSON): a description first, then the rows, one page at a time."""

from __future__ import annotations

import io
import math
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, cast, overload

import msgspec

from loom.errors import ExtraMissing, Unreadable
from loom.formats.documents.messages import ReadContext, ReadDocument
from loom.formats.office import text_marks
from loom.formats.text import decode_text

ROWS_PER_PAGE: Final = 200
_MAX_CELL_CHARS: Final = 500
_MAX_TABLES: Final = 500
_MAX_COLUMNS: Final = 200
_SAMPLED_RECORDS: Final = 1_000
_MAX_SCHEMA_CHARS: Final = 4_000


class LazyPages(Sequence[str]):
    """A sequence of pages that are created when they are read."""

    def __init__(self, count: int, page: Any) -> None:
        self._count = count
        self._page = page

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self._page(number) for number in range(*index.indices(self._count))]
        return self._page(index)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        return f"[{len(value)} bytes]"
    text = value if isinstance(value, str) else str(value)
    return text_marks.cell(text if len(text) <= _MAX_CELL_CHARS else f"{text[:_MAX_CELL_CHARS]}…")


# SQLite -------------------------------------------------------------------------------------------------------------


def read_sqlite(data: bytes, _context: ReadContext) -> ReadDocument:
    database = sqlite3.connect(":memory:")
    try:
        database.deserialize(data)
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA query_only = ON")
        found = database.execute(
            "SELECT type, name, sql FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
            " ORDER BY type, name"
        ).fetchmany(_MAX_TABLES)
        tables = [(str(name), _row_count(database, str(name))) for kind, name, _ in found if kind == "table"]
    except sqlite3.Error as error:
        raise Unreadable(f"is a damaged database ({error})") from None
    lines = [f"[SQLite database: {_count(len(tables), 'table')}]"]
    for kind, name, sql in found:
        rows = dict(tables).get(str(name))
        lines += [
            f"## {kind} {name}" + (f" ({_count(rows, 'row')})" if rows is not None else ""),
            str(sql or "")[:_MAX_SCHEMA_CHARS],
        ]
    places = [(name, start) for name, rows in tables for start in range(0, max(rows or 0, 1), ROWS_PER_PAGE) if rows]
    names = dict(tables)

    def page(number: int) -> str:
        if number == 0:
            return "\n".join(lines)
        name, start = places[number - 1]
        return _table_rows(database, name, start, names[name] or 0)

    return ReadDocument(sections=LazyPages(1 + len(places), page), is_paged=True)


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def _row_count(database: sqlite3.Connection, table: str) -> int | None:
    try:
        return int(database.execute(f"SELECT count(*) FROM {_quote_name(table)}").fetchone()[0])  # noqa: S608 - quoted
    except sqlite3.Error:  # a virtual table whose module is not available
        return None


def _table_rows(database: sqlite3.Connection, table: str, start: int, total: int) -> str:
    head = f"[table {table}, rows {start + 1:,}–{min(start + ROWS_PER_PAGE, total):,} of {total:,}]"
    try:
        database.text_factory = _decode_text
        found = database.execute(
            f"SELECT * FROM {_quote_name(table)} LIMIT {ROWS_PER_PAGE} OFFSET {start}"  # noqa: S608 - quoted
        )
        names = [str(column[0]) for column in found.description][:_MAX_COLUMNS]
        rows = [[_cell(value) for value in row[:_MAX_COLUMNS]] for row in found.fetchall()]
    except sqlite3.Error as error:
        return f"{head}\n[cannot be read: {error}]"
    return "\n".join([head, *text_marks.table([names, *rows])])


def _decode_text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# Parquet ------------------------------------------------------------------------------------------------------------


def require_pyarrow() -> None:
    if find_spec("pyarrow") is None:
        raise ExtraMissing(
            "Reading Parquet files needs pyarrow.", hint='Install it: pip install "loom-runtime[tables]"'
        )


def read_parquet(data: bytes, _context: ReadContext) -> ReadDocument:
    pa: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    pa.set_cpu_count(1)
    failures: tuple[type[Exception], ...] = (pa.ArrowException, OSError, ValueError)
    try:
        file: Any = parquet.ParquetFile(io.BytesIO(data))
    except failures as error:
        raise Unreadable(f"is a damaged Parquet file ({str(error)[:200]})") from None
    schema = file.schema_arrow
    total = int(file.metadata.num_rows)
    lines = [f"[Parquet table: {total:,} rows, {len(schema.names)} columns]"]
    lines += [f"- {field.name}: {field.type}" for field in list(schema)[:_MAX_COLUMNS]]

    def page(number: int) -> str:
        if number == 0:
            return "\n".join(lines)
        return _parquet_rows(file, (number - 1) * ROWS_PER_PAGE, total)

    return ReadDocument(sections=LazyPages(1 + math.ceil(total / ROWS_PER_PAGE), page), is_paged=True)


def _parquet_rows(file: Any, start: int, total: int) -> str:
    end = min(start + ROWS_PER_PAGE, total)
    names = list(file.schema_arrow.names)[:_MAX_COLUMNS]
    rows: list[list[str]] = []
    at = 0
    for group in range(file.metadata.num_row_groups):
        size = int(file.metadata.row_group(group).num_rows)
        if at + size > start and at < end:
            part = file.read_row_group(group, columns=names).slice(max(0, start - at), end - max(start, at))
            rows += [[_cell(row.get(name)) for name in names] for row in part.to_pylist()]
        at += size
    return "\n".join([f"[rows {start + 1:,}–{end:,} of {total:,}]", *text_marks.table([names, *rows])])


# JSON ---------------------------------------------------------------------------------------------------------------


def read_json(data: bytes, context: ReadContext) -> ReadDocument:
    """Read large JSON: its structure, and its records (the longest list in it), one page at a time."""
    text, _, notices = decode_text(data, context.name)
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unreadable(f"is damaged JSON ({error})") from None
    path, records = _records(found)
    lines = [f"[JSON: {_shape(found)}]"]
    if records:
        lines.append(f"[{len(records):,} records{f' at {path}' if path else ''}]")
        lines += _describe_keys(records)
    else:
        lines.append(msgspec.json.encode(found).decode()[: context.limits.max_text_bytes])
    return _record_pages(lines, records, notices)


def read_json_lines(data: bytes, context: ReadContext) -> ReadDocument:
    text, _, notices = decode_text(data, context.name)
    records: list[Any] = []
    bad = 0
    decode = msgspec.json.Decoder().decode
    for line in text.splitlines():
        if line.strip():
            try:
                records.append(decode(line))
            except msgspec.DecodeError:
                bad += 1
                records.append({"[not JSON]": line[:_MAX_CELL_CHARS]})
    if bad:
        notices = (*notices, f"{bad} of its lines are not JSON.")
    lines = [f"[JSON lines: {len(records):,} records]", *_describe_keys(records)]
    return _record_pages(lines, records, notices)


def _record_pages(lines: list[str], records: list[Any], notices: tuple[str, ...]) -> ReadDocument:
    columns = list(_columns(records))[:_MAX_COLUMNS]

    def page(number: int) -> str:
        if number == 0:
            return "\n".join(lines)
        start = (number - 1) * ROWS_PER_PAGE
        part = records[start : start + ROWS_PER_PAGE]
        head = f"[records {start + 1:,}–{start + len(part):,} of {len(records):,}]"
        if columns and all(isinstance(record, dict) for record in part):
            rows = [[_json_cell(record.get(name)) if name in record else "" for name in columns] for record in part]
            return "\n".join([head, *text_marks.table([columns, *rows])])
        return "\n".join([head, *(_json_cell(record) for record in part)])

    count = -(-len(records) // ROWS_PER_PAGE)
    return ReadDocument(sections=LazyPages(1 + count, page), is_paged=True, notices=notices)


def _json_cell(value: Any) -> str:
    if isinstance(value, str) or value is None:
        return _cell(value)
    return _cell(msgspec.json.encode(value).decode())


def _records(found: Any) -> tuple[str, list[Any]]:
    """Return the list at the top level, or the longest list in the object at the top level, with its key."""
    if isinstance(found, list):
        return "", cast("list[Any]", found)
    best: tuple[str, list[Any]] = ("", [])
    if isinstance(found, dict):
        for name, value in cast("dict[str, Any]", found).items():
            if isinstance(value, list) and len(cast("list[Any]", value)) > len(best[1]):
                best = (name, cast("list[Any]", value))
    return best


def _shape(found: Any) -> str:
    if isinstance(found, dict):
        names = list(cast("dict[str, Any]", found))
        return f"an object with {len(names)} keys: {', '.join(map(str, names[:30]))}"
    return f"a list of {len(cast('list[Any]', found)):,}" if isinstance(found, list) else "one value"


def _columns(records: list[Any]) -> Iterator[str]:
    seen: dict[str, None] = {}
    for record in records[:_SAMPLED_RECORDS]:
        if isinstance(record, dict):
            seen |= dict.fromkeys(map(str, cast("dict[str, Any]", record)))
    yield from seen


def _describe_keys(records: list[Any]) -> list[str]:
    """Return every key with its types and its frequency in the first records."""
    kinds: dict[str, Counter[str]] = {}
    sample = records[:_SAMPLED_RECORDS]
    for record in sample:
        if isinstance(record, dict):
            for name, value in cast("dict[str, object]", record).items():
                kinds.setdefault(str(name), Counter())[_KIND_NAMES.get(type(value), "object")] += 1
    lines: list[str] = []
    for name, counts in list(kinds.items())[:_MAX_COLUMNS]:
        there = sum(counts.values())
        share = "" if there == len(sample) else f", in {there / len(sample):.0%} of the records"
        lines.append(f"- {name}: {' or '.join(kind for kind, _ in counts.most_common())}{share}")
    return lines


_KIND_NAMES: Final[dict[type, str]] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    type(None): "null",
    list: "list",
    dict: "object",
}
