"""AWS event streams: binary frames, each with headers, a payload and two checksums. No IO.

total length (4) · headers length (4) · CRC of these (4) · headers · payload · CRC of all (4)
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

import msgspec

from loom.errors import WireError

MAX_FRAME_BYTES: Final = 24 * 1024 * 1024
"""AWS limits the payload to 16 MB."""
_PRELUDE: Final = struct.Struct(">III")
_FIXED: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_TEXT: Final = 7
_BYTES: Final = 6


class EventFrame(msgspec.Struct, frozen=True):
    """A frame. Headers that are not text are left out, because nothing uses them."""

    headers: dict[str, str]
    payload: bytes


class FrameSplitter:
    """Splits a byte stream, in any chunking, into frames. Raises `WireError` for damaged ones."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[EventFrame]:
        pending = self._pending
        pending += data
        while len(pending) >= _PRELUDE.size:
            total, headers, checksum = _PRELUDE.unpack_from(pending)
            if zlib.crc32(pending[:8]) != checksum:
                raise WireError("A frame of the event stream is damaged (its lengths do not match their checksum)")
            if total > MAX_FRAME_BYTES or headers + 16 > total:
                raise WireError(f"A frame of the event stream claims {total} bytes")
            if len(pending) < total:
                return
            frame = bytes(pending[:total])
            del pending[:total]
            if zlib.crc32(frame[:-4]) != int.from_bytes(frame[-4:]):
                raise WireError("A frame of the event stream is damaged (its checksum does not match)")
            yield EventFrame(_headers(frame[12 : 12 + headers]), frame[12 + headers : -4])


def _headers(data: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    position = 0
    try:
        while position < len(data):
            end = position + 1 + data[position]
            name, kind = data[position + 1 : end].decode(), data[end]
            position = end + 1
            if kind in (_TEXT, _BYTES):
                size = int.from_bytes(data[position : position + 2])
                position += 2
                if kind == _TEXT:
                    found[name] = data[position : position + size].decode()
            else:
                size = _FIXED[kind]
            position += size
    except (IndexError, KeyError, UnicodeDecodeError):
        raise WireError("A frame of the event stream has headers that cannot be read") from None
    return found
