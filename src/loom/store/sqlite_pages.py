"""Read the pages of a SQLite file without SQLite, to save rows from a database that SQLite refuses to open.

Every page is read, even if no other page refers to it, and each row is parsed independently, so that damage costs only
the rows that it hit. Committed pages of the write-ahead log replace those of the file. The format is described at
https://www.sqlite.org/fileformat.html.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

SqliteValue: TypeAlias = int | float | str | bytes | None

MAGIC: Final = b"SQLite format 3\0"
_USUAL_PAGE_BYTES: Final = 4096
_PAGE_SIZES: Final = (4096, 1024, 2048, 8192, 16384, 32768, 65536, 512)
_TABLE_LEAF, _TABLE_INTERIOR, _INDEX_LEAF, _INDEX_INTERIOR = 0x0D, 0x05, 0x0A, 0x02
_KINDS: Final = {_TABLE_LEAF, _TABLE_INTERIOR, _INDEX_LEAF, _INDEX_INTERIOR}
_HEADER_BYTES: Final = 100
_MAX_PAYLOAD_BYTES: Final = 1 << 30
_INTEGER_BYTES: Final = (0, 1, 2, 3, 4, 6, 8)
_WAL_HEADER: Final = struct.Struct(">8I")
_FRAME_HEADER: Final = struct.Struct(">6I")
_WAL_MAGIC: Final = 0x377F0682


class BadPage(Exception):
    """These bytes are not a valid cell, record or page."""


class SqliteRecord(NamedTuple):
    """`rowid` is None in an index and in a table without row ids."""

    page: int
    rowid: int | None
    values: tuple[SqliteValue, ...]


class PageScan(NamedTuple):
    records: list[SqliteRecord]
    unreadable_cells: int


class SqlitePages:
    """All pages of a file and of its write-ahead log."""

    def __init__(self, path: Path) -> None:
        self._data = path.read_bytes()
        log = path.with_name(path.name + "-wal")
        wal = log.read_bytes() if log.exists() else b""
        self.page_bytes, reserved_bytes = _geometry(self._data, wal)
        self._usable = self.page_bytes - reserved_bytes
        self._newer = dict(_committed_pages(wal, self.page_bytes))
        self.overflow: Final = set[int]()
        """Overflow pages of the rows read so far."""
        in_file = -(-len(self._data) // self.page_bytes)
        self.count: Final = max([in_file, *self._newer])

    def page(self, number: int) -> bytes:
        """Return a page; if the file ends within it, the rest is zeros."""
        newer = self._newer.get(number)
        if newer is not None:
            return newer
        start = (number - 1) * self.page_bytes
        return self._data[start : start + self.page_bytes].ljust(self.page_bytes, b"\0")

    def scan(self, number: int) -> PageScan:
        """Return every readable row of a page, and the number of unreadable ones."""
        page = self.page(number)
        start = _HEADER_BYTES if number == 1 else 0
        kind = page[start]
        if kind not in (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR):
            return PageScan([], 0)
        pointers = start + (12 if kind == _INDEX_INTERIOR else 8)
        (count,) = struct.unpack_from(">H", page, start + 3)
        if pointers + 2 * count > self._usable:
            count = (self._usable - pointers) // 2
        found: list[SqliteRecord] = []
        bad = 0
        for at in struct.unpack_from(f">{count}H", page, pointers):
            try:
                found.append(self._cell(number, page, at, kind))
            except (BadPage, IndexError, struct.error, UnicodeDecodeError):
                bad += 1
        return PageScan(found, bad)

    def carve(self, number: int, column_counts: frozenset[int]) -> Iterator[SqliteRecord]:
        """Yield table rows that start at any offset of a page, for pages whose cell pointers cannot be trusted. A row
        must have a row id and one of `column_counts` columns."""
        page = self.page(number)
        for at in range(self._usable - 4) if page.count(0) < len(page) else ():
            try:
                record = self._cell(number, page, at, _TABLE_LEAF)
            except (BadPage, IndexError, struct.error, UnicodeDecodeError):
                continue
            if len(record.values) in column_counts and record.values[0] is None and (record.rowid or 0) > 0:
                yield record

    def is_tree_page(self, number: int) -> bool:
        return self.page(number)[_HEADER_BYTES if number == 1 else 0] in _KINDS

    def tree(self, root: int) -> Iterator[int]:
        """Yield the page numbers of a table or index, as far as they can be reached from its root."""
        waiting, seen = [root], set[int]()
        while waiting:
            number = waiting.pop()
            if number in seen or not 1 <= number <= self.count:
                continue
            seen.add(number)
            yield number
            page = self.page(number)
            start = _HEADER_BYTES if number == 1 else 0
            if page[start] not in (_TABLE_INTERIOR, _INDEX_INTERIOR):
                continue
            count, right = struct.unpack_from(">H3xI", page, start + 3)
            waiting.append(right)
            count = min(count, (self._usable - start - 12) // 2)
            cells = struct.unpack_from(f">{count}H", page, start + 12)
            waiting += [struct.unpack_from(">I", page, at)[0] for at in cells if at + 4 <= self._usable]

    def _cell(self, number: int, page: bytes, at: int, kind: int) -> SqliteRecord:
        if not 8 <= at < self._usable:
            raise BadPage
        at += 4 if kind == _INDEX_INTERIOR else 0
        payload_bytes, at = _varint(page, at)
        rowid: int | None = None
        if kind == _TABLE_LEAF:
            rowid, at = _varint(page, at)
            rowid -= (rowid >> 63) << 64  # two's complement
        if not 2 <= payload_bytes <= min(_MAX_PAYLOAD_BYTES, self.count * self.page_bytes):
            raise BadPage
        payload, overflow = self._payload(page, at, payload_bytes, kind)
        record = SqliteRecord(number, rowid, _record(payload))
        self.overflow.update(overflow)
        return record

    def _payload(self, page: bytes, at: int, payload_bytes: int, kind: int) -> tuple[bytes, set[int]]:
        usable = self._usable
        most = usable - 35 if kind == _TABLE_LEAF else (usable - 12) * 64 // 255 - 23
        if payload_bytes <= most:
            if at + payload_bytes > usable:
                raise BadPage
            return page[at : at + payload_bytes], set()
        least = (usable - 12) * 32 // 255 - 23
        local = least + (payload_bytes - least) % (usable - 4)
        local = local if local <= most else least
        if at + local + 4 > usable:
            raise BadPage
        parts = [page[at : at + local]]
        _check_header(parts[0])  # before reading many overflow pages of an invalid record
        left = payload_bytes - local
        (following,) = struct.unpack_from(">I", page, at + local)
        seen = set[int]()
        while left > 0:
            if not 1 < following <= self.count or following in seen:
                raise BadPage
            seen.add(following)
            overflow = self.page(following)
            parts.append(overflow[4 : 4 + min(left, usable - 4)])
            left -= usable - 4
            (following,) = struct.unpack_from(">I", overflow, 0)
        return b"".join(parts), seen


def _geometry(data: bytes, wal: bytes) -> tuple[int, int]:
    """Return the size of a page and the number of reserved bytes at its end. If the header is damaged, guess the size
    with which most pages start with a valid type byte."""
    (stated,) = struct.unpack_from(">H", data, 16) if len(data) >= _HEADER_BYTES else (0,)
    stated = 65536 if stated == 1 else stated
    if data.startswith(MAGIC) and stated in _PAGE_SIZES:
        return stated, data[20] if data[20] <= stated - 480 else 0
    if len(wal) >= _WAL_HEADER.size and _WAL_HEADER.unpack_from(wal)[2] in _PAGE_SIZES:
        return _WAL_HEADER.unpack_from(wal)[2], 0
    likely: dict[int, int] = {}
    for size in _PAGE_SIZES:
        starts = data[size::size]
        likely[size] = sum(starts.count(kind) for kind in _KINDS) * size
    best = max(_PAGE_SIZES, key=lambda size: likely[size])
    return (best if likely[best] > likely[_USUAL_PAGE_BYTES] * 1.5 else _USUAL_PAGE_BYTES), 0


def _committed_pages(wal: bytes, page_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield the pages of all complete transactions in a write-ahead log, oldest first."""
    if len(wal) < _WAL_HEADER.size:
        return
    magic, _, size, _, salt1, salt2, *sums = _WAL_HEADER.unpack_from(wal)
    order = ">" if magic & 1 else "<"
    if magic & ~1 != _WAL_MAGIC or size != page_bytes or _checksum(wal[:24], order, 0, 0) != tuple(sums):
        return
    first, second = sums
    pending: list[tuple[int, bytes]] = []
    for start in range(
        _WAL_HEADER.size, len(wal) - _FRAME_HEADER.size - page_bytes + 1, _FRAME_HEADER.size + page_bytes
    ):
        number, commit, *rest = _FRAME_HEADER.unpack_from(wal, start)
        page = wal[start + _FRAME_HEADER.size : start + _FRAME_HEADER.size + page_bytes]
        first, second = _checksum(wal[start : start + 8] + page, order, first, second)
        if rest != [salt1, salt2, first, second] or not number:
            return
        pending.append((number, page))
        if commit:
            yield from pending
            pending = []


def _checksum(data: bytes, order: str, first: int, second: int) -> tuple[int, int]:
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for at in range(0, len(words), 2):
        first = (first + words[at] + second) & 0xFFFFFFFF
        second = (second + words[at + 1] + first) & 0xFFFFFFFF
    return first, second


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for step in range(8):
        byte = data[at + step]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:  # the highest bit is set if more bytes follow
            return value, at + step + 1
    return value << 8 | data[at + 8], at + 9


def _check_header(payload: bytes) -> None:
    """Raise `BadPage` if the bytes cannot be the start of a record."""
    header_bytes, at = _varint(payload, 0)
    if not at < header_bytes <= 1 + 9 * 100:
        raise BadPage


def _record(payload: bytes) -> tuple[SqliteValue, ...]:
    _check_header(payload)
    header_bytes, at = _varint(payload, 0)
    if header_bytes > len(payload):
        raise BadPage
    position = header_bytes
    values: list[SqliteValue] = []
    while at < header_bytes:
        serial, at = _varint(payload, at)
        value, position = _value(payload, serial, position)
        values.append(value)
    if at != header_bytes or position != len(payload):
        raise BadPage
    return tuple(values)


def _value(payload: bytes, serial: int, at: int) -> tuple[SqliteValue, int]:
    match serial:
        case 0:
            return None, at
        case 1 | 2 | 3 | 4 | 5 | 6:
            end = at + _INTEGER_BYTES[serial]
            _check_end(payload, end)
            return int.from_bytes(payload[at:end], "big", signed=True), end
        case 7:
            return struct.unpack_from(">d", payload, at)[0], at + 8
        case 8 | 9:
            return serial - 8, at
        case 10 | 11:
            raise BadPage
        case _:
            end = at + (serial - 12) // 2
            _check_end(payload, end)
            part = payload[at:end]
            return (part.decode() if serial % 2 else part), end


def _check_end(payload: bytes, end: int) -> None:
    if end > len(payload):
        raise BadPage
