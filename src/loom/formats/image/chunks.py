"""Walk the parts of PNG, JPEG, WebP and GIF files. Damage ends the walk; nothing is decoded.

A file of millions of empty parts would block the process for minutes, also in the decoders: no walk exceeds
`MAX_PARTS`, and `open_picture` walks before a decoder does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import Struct, error
from typing import Final

import msgspec

_PNG_HEAD: Final = Struct(">I4s").unpack_from
_RIFF_HEAD: Final = Struct("<4sI").unpack_from
_U16: Final = Struct(">H").unpack_from
_ICON_COUNT: Final = Struct("<H").unpack_from
_ICON_PLACE: Final = Struct("<I").unpack_from
_GIF_FRAME: Final = Struct("<HHHH").unpack_from

# In compressed data FF is followed by 00, by a restart mark, or by more FF; anything else is the next marker.
_NEXT_MARKER: Final = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
SOS: Final = 0xDA
EOI: Final = 0xD9
MAX_PARTS: Final = 50_000
"""The largest accepted image has 32,000 parts when written by libpng, in chunks of 8 KB; fill bytes count too."""
_LEAST_BLOCK_BYTES: Final = 64
"""GIF is stored in blocks of 255 bytes. A file with shorter blocks on average, and more than `MAX_PARTS`, is
refused."""


class TooManyChunks(Exception):
    """Converted to `TooLarge` by callers that have the name of the file."""


class ImageChunk(msgspec.Struct, frozen=True):
    """`start` to `end` is the whole part, `body` is the offset of its content."""

    kind: bytes
    start: int
    body: int
    end: int


def png_chunks(data: bytes, start: int = 0) -> Iterator[ImageChunk]:
    """Yield the chunks of a PNG; `end` includes the checksum. A truncated chunk is not yielded."""
    at = start + 8
    for _ in range(MAX_PARTS):
        if at + 12 > len(data):
            return
        length, kind = _PNG_HEAD(data, at)
        end = at + 12 + length
        if end > len(data):
            return
        yield ImageChunk(kind, at, at + 8, end)
        if kind == b"IEND":
            return
        at = end
    raise TooManyChunks


def riff_chunks(data: bytes) -> Iterator[ImageChunk]:
    """Yield the chunks of a RIFF file; `end` is the end of the content, without the padding byte."""
    at = 12
    for _ in range(MAX_PARTS):
        if at + 8 > len(data):
            return
        kind, length = _RIFF_HEAD(data, at)
        end = at + 8 + length
        if end > len(data):
            return
        yield ImageChunk(kind, at, at + 8, end)
        at = end + (length & 1)
    raise TooManyChunks


def jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (marker, start, end) of each segment, until EOI. The compressed data of a scan belongs to its SOS
    segment."""
    at = 2
    end = len(data)
    for _ in range(MAX_PARTS):
        if at + 2 > end:
            return
        if data[at] != 0xFF:  # stray bytes outside any segment
            at = data.find(b"\xff", at)
            if at < 0:
                return
            continue
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if marker == EOI:
            yield marker, at, at + 2
            return
        if marker in (0x00, 0x01) or 0xD0 <= marker <= 0xD8:
            at += 2
            continue
        if at + 4 > end:
            return
        stop = at + 2 + _U16(data, at + 2)[0]
        if stop > end:
            return
        if marker == SOS:
            following = _NEXT_MARKER.search(data, stop)
            stop = end if following is None else following.start()
        yield marker, at, stop
        at = stop
    raise TooManyChunks


def icon_parts(data: bytes) -> int:
    """Return the number of chunks in the PNGs inside an icon; a PNG that is listed twice counts twice."""
    count = 0
    for entry in range(18, 18 + 16 * _ICON_COUNT(data, 4)[0], 16):
        at = _ICON_PLACE(data, entry)[0]
        if data[at : at + 4] == b"\x89PNG":
            count += sum(1 for _ in png_chunks(data, at))
        if count > MAX_PARTS:
            raise TooManyChunks
    return count


class Gif(msgspec.Struct, frozen=True):
    """`width` and `height` include the first frame, which may be larger than the screen that the file declares."""

    frames: int
    width: int
    height: int
    still: bytes | None
    """The first frame alone, with nothing else in the file; None if it is truncated."""


def read_gif(data: bytes) -> Gif:
    """Read a GIF. For a truncated file, return the part before the cut; raise `struct.error` if even the header is
    incomplete."""
    width, height, flags = Struct("<HHB").unpack_from(data, 6)
    at = table_end = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    frames, control, still = 0, b"", None
    blocks_left = MAX_PARTS + len(data) // _LEAST_BLOCK_BYTES
    try:
        while data[at] in (0x21, 0x2C):
            start = at
            if data[at] == 0x21:
                at, blocks_left = _after_blocks(data, at + 2, blocks_left)
                if data[start + 1] == 0xF9 and not frames:
                    control = data[start:at]
                continue
            left, top, across, down = _GIF_FRAME(data, at + 1)
            flags = data[at + 9]
            table = 3 << (flags & 7) + 1 if flags & 0x80 else 0
            at, blocks_left = _after_blocks(data, at + 11 + table, blocks_left)
            if not frames:
                width, height = max(width, left + across), max(height, top + down)
                still = data[:table_end] + control + data[start:at] + b";"
            frames += 1
    except (IndexError, error):  # truncated
        pass
    return Gif(max(frames, 1), width, height, still)


def _after_blocks(data: bytes, at: int, left: int) -> tuple[int, int]:
    """Return the offset after the empty block that ends the blocks, and how many more parts this file may have."""
    for used in range(1, left + 1):
        size = data[at]
        at += size + 1
        if not size:
            return at, left - used
    raise TooManyChunks
