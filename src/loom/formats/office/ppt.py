"""The number of slides of a PowerPoint 97 file, from its own list of slides; LibreOffice reads everything else.

A file that was saved several times also contains its old states: the directory of the last save determines which
records count.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from loom.formats.ole import OleError, OleFile

_EDIT: Final = 0x0FF5
_DIRECTORY: Final = 0x1772
_DOCUMENT: Final = 0x03E8
_SLIDE_LIST: Final = 0x0FF0
_SLIDE: Final = 0x03F3
_MAX_SAVES: Final = 10_000


def count_slides(data: bytes) -> int | None:
    """Return the number of slides, or None if the records do not contain it."""
    try:
        container = OleFile(data)
        stream = container.read("PowerPoint Document")
        (edit,) = struct.unpack_from("<I", container.read("Current User"), 16)
        document, places = _last_state(stream, edit)
        _, kind, start, end = _record(stream, places[document])
        if kind != _DOCUMENT:
            return None
        lists = [
            (start, end)
            for number, kind, start, end in _records(stream, start, end)
            if kind == _SLIDE_LIST and not number
        ]
        return sum(kind == _SLIDE for start, end in lists for _, kind, _, _ in _records(stream, start, end))
    except (OleError, struct.error, KeyError):
        return None


def _last_state(stream: bytes, edit: int) -> tuple[int, dict[int, int]]:
    """Return the number of the document's record, and the offset of each numbered record; later saves win."""
    places: dict[int, int] = {}
    document = 0
    for _ in range(_MAX_SAVES):
        _, kind, start, _ = _record(stream, edit)
        if kind != _EDIT:
            break
        before, directory, found = struct.unpack_from("<III", stream, start + 8)
        document = document or found
        _, kind, start, end = _record(stream, directory)
        while kind == _DIRECTORY and start + 4 <= end:
            (head,) = struct.unpack_from("<I", stream, start)
            count = min(head >> 20, (end - start) // 4 - 1)
            for at, place in enumerate(struct.unpack_from(f"<{count}I", stream, start + 4)):
                places.setdefault((head & 0xFFFFF) + at, place)
            start += 4 + 4 * count
        if not before or before >= edit:  # a larger offset would make a cycle
            break
        edit = before
    return document, places


def _record(stream: bytes, at: int) -> tuple[int, int, int, int]:
    """Return the instance and the kind of a record, and the start and end of its content."""
    head, kind, size = struct.unpack_from("<HHI", stream, at)
    return head >> 4, kind, at + 8, min(at + 8 + size, len(stream))


def _records(stream: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    while at + 8 <= end:
        found = _record(stream, at)
        yield found
        at = found[3]
