"""The orientation that a camera stored in an image. Loom reads no other part of EXIF."""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from loom.formats.image.chunks import SOS, jpeg_segments, png_chunks, riff_chunks

_ORIENTATION: Final = 0x0112
_HEADER: Final = b"Exif\0\0"


def orientation(data: bytes, media_type: str) -> int:
    """Return the orientation, 1 to 8; 1 if there is none or it is invalid."""
    exif = _find(data, media_type)
    if exif is None:
        return 1
    return tiff_orientation(exif.removeprefix(_HEADER))


def _find(data: bytes, media_type: str) -> bytes | None:
    if media_type == "image/jpeg":
        for marker, start, end in jpeg_segments(data):
            if marker == 0xE1 and data[start + 4 : start + 10] == _HEADER:
                return data[start + 10 : end]
            if marker == SOS:
                return None
    elif media_type == "image/png":
        for chunk in png_chunks(data):
            if chunk.kind == b"eXIf":
                return data[chunk.body : chunk.end - 4]
    elif media_type == "image/webp":
        for chunk in riff_chunks(data):
            if chunk.kind == b"EXIF":
                return data[chunk.body : chunk.end]
    return None


def tiff_orientation(tiff: bytes) -> int:
    """Return the orientation in the first directory of a TIFF file, or 1 if there is none."""
    try:
        return _read(tiff)
    except error:  # truncated
        return 1


def _read(tiff: bytes) -> int:
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None:
        return 1
    at = Struct(order + "I").unpack_from(tiff, 4)[0]
    for entry in range(at + 2, at + 2 + 12 * Struct(order + "H").unpack_from(tiff, at)[0], 12):
        tag, kind, count = Struct(order + "HHI").unpack_from(tiff, entry)
        if tag == _ORIENTATION:
            value = Struct(order + "H").unpack_from(tiff, entry + 8)[0]
            return value if kind == 3 and count == 1 and 1 <= value <= 8 else 1
    return 1
