"""Streams inside OLE containers (.xls, .msg, .doc): the file system of Office before 2007, read from bytes.

No chain of sectors is followed more than once round, so that a cycle is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

MAGIC: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_FREE: Final = 0xFFFFFFFA
_ENTRY_BYTES: Final = 128
_MAX_ENTRIES: Final = 100_000
_STORAGE, _STREAM, _ROOT = 1, 2, 5
_NO_ENTRY: Final = 0xFFFFFFFF


class OleError(ValueError):
    """The container is truncated, or its tables are invalid."""


class OleEntry(msgspec.Struct, frozen=True):
    """A stream or a storage; `path` has its names from the root down."""

    path: tuple[str, ...]
    is_stream: bool
    start: int
    size: int


class OleFile:
    """Reads a container. Raises `OleError` if it cannot be read."""

    def __init__(self, data: bytes) -> None:
        if not data.startswith(MAGIC) or len(data) < 512:
            raise OleError("not an OLE container")
        self._data = data
        try:
            self._open()
        except (struct.error, IndexError) as error:
            raise OleError("the container is cut off") from error

    def _open(self) -> None:
        data = self._data
        sector_shift, mini_shift = struct.unpack_from("<HH", data, 30)
        if sector_shift not in range(7, 17) or mini_shift not in range(3, 12):
            raise OleError("sectors of an unknown size")
        self._sector, self._mini_sector = 1 << sector_shift, 1 << mini_shift
        directory, _, self._cutoff, mini_table, _, next_difat, _ = struct.unpack_from("<IIIIIII", data, 48)
        self._table = self._sector_table(next_difat)
        entries = self._chain(directory)
        self.entries = {entry.path: entry for entry in self._walk(entries)}
        root_start, root_size = struct.unpack_from("<II", entries, 116)
        self._mini_stream = self._chain(root_start)[:root_size] if root_start < _FREE else b""
        raw = self._chain(mini_table) if mini_table < _FREE else b""
        self._mini_table = struct.unpack(f"<{len(raw) // 4}I", raw[: len(raw) // 4 * 4])

    def read(self, *path: str) -> bytes:
        """Return the bytes of a stream. Names are compared case-insensitively."""
        wanted = tuple(name.lower() for name in path)
        entry = self.entries.get(wanted)
        if entry is None or not entry.is_stream:
            raise OleError(f"no stream {'/'.join(path)}")
        if entry.size >= self._cutoff:
            return self._chain(entry.start)[: entry.size]
        size = self._mini_sector
        sectors = _follow_chain(entry.start, self._mini_table)
        return b"".join(self._mini_stream[at * size : (at + 1) * size] for at in sectors)[: entry.size]

    def replace(self, content: bytes, *path: str) -> bytes:
        """Return the container with other bytes of the same length in a stream. Raise `OleError` for a stream so short
        that it shares its sectors with others."""
        entry = self.entries.get(tuple(name.lower() for name in path))
        if entry is None or entry.size != len(content) or entry.size < self._cutoff:
            raise OleError(f"{'/'.join(path)} cannot be replaced")
        changed = bytearray(self._data)
        for number, sector in enumerate(_follow_chain(entry.start, self._table)):
            part = content[number * self._sector : (number + 1) * self._sector]
            at = (sector + 1) * self._sector
            changed[at : at + len(part)] = part
        return bytes(changed[: len(self._data)])

    def __contains__(self, path: tuple[str, ...]) -> bool:
        return tuple(name.lower() for name in path) in self.entries

    def children(self, *path: str) -> list[OleEntry]:
        """Return the direct entries of a storage (of the root, without arguments)."""
        above = tuple(name.lower() for name in path)
        return [entry for entry in self.entries.values() if entry.path[:-1] == above]

    def _sector_table(self, next_difat: int) -> tuple[int, ...]:
        places = list(struct.unpack_from("<109I", self._data, 76))
        seen: set[int] = set()
        while next_difat < _FREE and next_difat not in seen:
            seen.add(next_difat)
            block = self._sector_bytes(next_difat)
            numbers = struct.unpack(f"<{len(block) // 4}I", block)
            places.extend(numbers[:-1])
            next_difat = numbers[-1]
        raw = b"".join(self._sector_bytes(place) for place in places if place < _FREE)
        return struct.unpack(f"<{len(raw) // 4}I", raw[: len(raw) // 4 * 4])

    def _sector_bytes(self, sector: int) -> bytes:
        start = (sector + 1) * self._sector
        if start >= len(self._data):
            raise OleError("the container is cut off")
        return self._data[start : start + self._sector].ljust(self._sector, b"\0")

    def _chain(self, sector: int) -> bytes:
        return b"".join([self._sector_bytes(place) for place in _follow_chain(sector, self._table)])

    def _walk(self, directory: bytes) -> Iterator[OleEntry]:
        """Yield the entries of each storage, which are a binary tree; `seen` ends trees with cycles."""
        seen: set[int] = set()
        waiting: list[tuple[int, tuple[str, ...]]] = [(struct.unpack_from("<I", directory, 76)[0], ())]
        while waiting and len(seen) < _MAX_ENTRIES:
            number, above = waiting.pop()
            at = number * _ENTRY_BYTES
            if number == _NO_ENTRY or number in seen or at + _ENTRY_BYTES > len(directory):
                continue
            seen.add(number)
            length, kind = struct.unpack_from("<HB", directory, at + 64)
            name = directory[at : at + max(0, min(length, 64) - 2)].decode("utf-16-le", "replace").lower()
            left, right, child = struct.unpack_from("<III", directory, at + 68)
            start, size = struct.unpack_from("<II", directory, at + 116)
            path = (*above, name)
            if kind in (_STORAGE, _STREAM):
                yield OleEntry(path, kind == _STREAM, start, size)
            waiting += [(left, above), (right, above)]
            if kind == _STORAGE:
                waiting.append((child, path))


def _follow_chain(sector: int, table: tuple[int, ...]) -> Iterator[int]:
    for _ in range(len(table) + 1):
        if sector >= _FREE:
            return
        if sector >= len(table):
            raise OleError("a sector chain points outside the file")
        yield sector
        sector = table[sector]
    raise OleError("a sector chain is circular")
