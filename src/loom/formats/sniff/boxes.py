"""Walk the boxes of ISO base media files: MP4, M4A, QuickTime, HEIC, AVIF."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

_HEAD: Final = Struct(">I4s").unpack_from
_LONG: Final = Struct(">Q").unpack_from
MAX_BOXES: Final = 4096


def boxes(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield (kind, start of the body, end of the body) of each box in a range; stop at the first invalid one."""
    for _ in range(MAX_BOXES):
        if start + 8 > end:
            return
        size, kind = _HEAD(data, start)
        body = start + 8
        if size == 1:
            if body + 8 > end:
                return
            size = _LONG(data, body)[0]
            body += 8
        elif size == 0:
            size = end - start
        if size < body - start:
            return
        stop = start + size
        yield kind, body, min(stop, end)
        start = stop


def find_box(data: bytes, start: int, end: int, kind: bytes) -> tuple[int, int] | None:
    """Return start and end of the body of the first box of this kind."""
    for found, body, stop in boxes(data, start, end):
        if found == kind:
            return body, stop
    return None


def find_path(data: bytes, *path: bytes) -> tuple[int, int] | None:
    """Return start and end of the body of a nested box: `find_path(data, b"moov", b"mvhd")`."""
    place: tuple[int, int] | None = (0, len(data))
    for kind in path:
        if place is None:
            return None
        place = find_box(data, *place, kind)
    return place
