"""The size of a JPEG XL image, read from the bits of its header, before a decoder may allocate memory."""

from __future__ import annotations

from typing import Final

_BOX_SIGNATURE: Final = b"\0\0\0\x0cJXL "
_HEADER_BYTES: Final = 16
_SIZE_BITS: Final = (9, 13, 18, 30)
_RATIOS: Final = ((1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))
"""Ratios of width to height, by their number in the header."""
_MAX_BOXES: Final = 100


def jxl_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height as stored, or None if the header is damaged."""
    start = _codestream(data)
    if start is None or data[start : start + 2] != b"\xff\x0a" or len(data) < start + 4:
        return None
    bits = _Bits(data[start + 2 : start + 2 + _HEADER_BYTES])
    is_small = bits.read(1) == 1
    height = (bits.read(5) + 1) * 8 if is_small else bits.read_size()
    ratio = bits.read(3)
    if ratio:
        across, down = _RATIOS[ratio - 1]
        return height * across // down, height
    return ((bits.read(5) + 1) * 8 if is_small else bits.read_size()), height


def _codestream(data: bytes) -> int | None:
    """Return the offset at which the image begins: 0, or the first box `jxlc` or `jxlp`."""
    if not data.startswith(_BOX_SIGNATURE):
        return 0
    at = 0
    for _ in range(_MAX_BOXES):
        size, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        head = 8
        if size == 1:
            size, head = int.from_bytes(data[at + 8 : at + 16], "big"), 16
        if kind == b"jxlc":
            return at + head
        if kind == b"jxlp":
            return at + head + 4
        if size < head:
            return None
        at += size
    return None


class _Bits:
    """Reads bits, the lowest bit of each byte first."""

    def __init__(self, data: bytes) -> None:
        self._left = int.from_bytes(data, "little")

    def read(self, count: int) -> int:
        found = self._left & ((1 << count) - 1)
        self._left >>= count
        return found

    def read_size(self) -> int:
        return self.read(_SIZE_BITS[self.read(2)]) + 1
