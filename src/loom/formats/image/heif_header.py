"""The size of a HEIC or AVIF image: that of its primary item, cropped and rotated as the file specifies."""

from __future__ import annotations

from struct import Struct
from typing import Final

from loom.formats.sniff.boxes import boxes, find_box, find_path

_U16: Final = Struct(">H").unpack_from
_U32: Final = Struct(">I").unpack_from
_SIZE: Final = Struct(">4xII").unpack_from
_APERTURE: Final = Struct(">IIII").unpack_from


def heif_size(data: bytes) -> tuple[int, int] | None:
    """Return the size. `meta/iprp/ipco` contains properties, `ipma` assigns them to items, `pitm` selects the primary
    item."""
    meta = find_path(data, b"meta")
    if meta is None:
        return None
    primary = -1
    properties: list[tuple[bytes, int]] = []
    associations: dict[int, list[int]] = {}
    for kind, start, end in boxes(data, meta[0] + 4, meta[1]):
        if kind == b"pitm":
            primary = _U16(data, start + 4)[0] if data[start] == 0 else _U32(data, start + 4)[0]
        elif kind == b"iprp":
            for inner, at, stop in boxes(data, start, end):
                if inner == b"ipco":
                    properties = [(name, body) for name, body, _ in boxes(data, at, stop)]
                elif inner == b"ipma":
                    associations.update(_associations(data, at, stop))
    of_primary = associations.get(primary)
    if of_primary is not None:
        own = [properties[index - 1] for index in of_primary if 0 < index <= len(properties)]
        size = _apply(data, own)
        if size is not None:
            return size
    sizes = [_SIZE(data, body) for name, body in properties if name == b"ispe"]
    return max(sizes, key=_area, default=None)


def heif_primaries(data: bytes) -> int:
    """Return the number of the primaries in the first `colr` box that has one (ITU-T H.273), or 0 if there is none."""
    meta = find_path(data, b"meta")
    if meta is None:
        return 0
    properties = find_box(data, meta[0] + 4, meta[1], b"iprp")
    container = find_box(data, *properties, b"ipco") if properties else None
    if container is None:
        return 0
    for kind, start, end in boxes(data, *container):
        if kind == b"colr" and data[start : start + 4] == b"nclx" and end - start >= 6:
            return _U16(data, start + 4)[0]
    return 0


def _area(size: tuple[int, int]) -> int:
    return size[0] * size[1]


def _associations(data: bytes, at: int, end: int) -> dict[int, list[int]]:
    version, wide = data[at], data[at + 3] & 1
    count = _U32(data, at + 4)[0]
    at += 8
    found: dict[int, list[int]] = {}
    for _ in range(min(count, 65_535)):
        if at >= end:
            break
        item = _U16(data, at)[0] if version == 0 else _U32(data, at)[0]
        at += 2 if version == 0 else 4
        amount = data[at]
        at += 1
        if wide:
            found[item] = [_U16(data, at + 2 * n)[0] & 0x7FFF for n in range(amount)]
            at += 2 * amount
        else:
            found[item] = [value & 0x7F for value in data[at : at + amount]]
            at += amount
    return found


def _apply(data: bytes, properties: list[tuple[bytes, int]]) -> tuple[int, int] | None:
    size: tuple[int, int] | None = None
    for name, body in properties:
        if name == b"ispe":
            size = _SIZE(data, body)
    if size is None:
        return None
    for name, body in properties:
        if name == b"clap":
            width, width_parts, height, height_parts = _APERTURE(data, body)
            if width_parts and height_parts:
                size = round(width / width_parts), round(height / height_parts)
        elif name == b"irot" and data[body] & 1:
            size = size[1], size[0]
    return size
