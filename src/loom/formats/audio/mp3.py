"""MPEG audio frames: their headers, and the duration of a file that consists of them."""

from __future__ import annotations

from typing import Final

import msgspec

_MAX_TAGS: Final = 1_000
_RATES_HZ: Final = (44_100, 48_000, 32_000)
_KBITS: Final = {
    # bit rates by index, for each (is MPEG 1, layer)
    (True, 1): (0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (True, 2): (0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 1): (0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}


class Mp3Frame(msgspec.Struct, frozen=True):
    length_bytes: int
    samples: int
    sample_rate_hz: int
    channels: int
    side_bytes: int
    """The offset of a Xing header, counted from the start of the frame."""


def read_frame(data: bytes, at: int) -> Mp3Frame | None:
    """Return the frame whose header is at `at`, or None if there is none."""
    if at + 4 > len(data) or data[at] != 0xFF or data[at + 1] & 0xE0 != 0xE0:
        return None
    second, third, fourth = data[at + 1], data[at + 2], data[at + 3]
    version, layer = second >> 3 & 3, 4 - (second >> 1 & 3)
    rate_index, bit_index = third >> 2 & 3, third >> 4
    if version == 1 or layer == 4 or rate_index == 3 or bit_index in (0, 15):
        return None
    is_mpeg1 = version == 3
    rate = _RATES_HZ[rate_index] >> (0 if is_mpeg1 else 1 if version == 2 else 2)
    bits = _KBITS[is_mpeg1, layer][bit_index] * 1000
    padding = third >> 1 & 1
    channels = 1 if fourth >> 6 == 3 else 2
    if layer == 1:
        return Mp3Frame((12 * bits // rate + padding) * 4, 384, rate, channels, 0)
    samples = 1152 if is_mpeg1 or layer == 2 else 576
    side = (17 if channels == 1 else 32) if is_mpeg1 else (9 if channels == 1 else 17)
    return Mp3Frame(samples // 8 * bits // rate + padding, samples, rate, channels, 4 + side)


def frame_length(data: bytes, at: int) -> int:
    """Return the length of the frame that begins at `at`, or 0 if none does."""
    frame = read_frame(data, at)
    return 0 if frame is None else frame.length_bytes


def audio_start(data: bytes) -> int:
    """Return the offset at which the ID3v2 tags end."""
    at = 0
    for _ in range(_MAX_TAGS):
        if data[at : at + 3] != b"ID3" or at + 10 > len(data):
            break
        size = data[at + 6] << 21 | data[at + 7] << 14 | data[at + 8] << 7 | data[at + 9]
        at += 10 + size + (10 if data[at + 5] & 0x10 else 0)
    return at


def first_frame(data: bytes, start: int, reach: int = 65_536) -> tuple[int, Mp3Frame] | None:
    """Return the first header that is followed by another header. Players skip the padding between a tag and the
    audio."""
    at = data.find(b"\xff", start, start + reach)
    while at >= 0:
        frame = read_frame(data, at)
        if frame is not None:
            follows = at + frame.length_bytes
            if follows >= len(data) - 4 or read_frame(data, follows) is not None:
                return at, frame
        at = data.find(b"\xff", at + 1, start + reach)
    return None


def duration_seconds(data: bytes, at: int, first: Mp3Frame) -> float:
    """Return the duration by the Xing, Info or VBRI header if its size agrees with the file; otherwise walk the
    frames."""
    declared = _declared_frames(data, at, first)
    frames = _walk(data, at, first) if declared is None else declared
    return frames * first.samples / first.sample_rate_hz


def _declared_frames(data: bytes, at: int, first: Mp3Frame) -> int | None:
    tag = at + first.side_bytes
    available = len(data) - at
    if data[tag : tag + 4] in (b"Xing", b"Info"):
        flags = int.from_bytes(data[tag + 4 : tag + 8], "big")
        if flags & 1 and tag + 16 <= len(data):
            frames = int.from_bytes(data[tag + 8 : tag + 12], "big")
            size = int.from_bytes(data[tag + 12 : tag + 16], "big") if flags & 2 else 0
            return frames if frames and size <= available + first.length_bytes else None
    tag = at + 36
    if data[tag : tag + 4] == b"VBRI" and tag + 18 <= len(data):
        size = int.from_bytes(data[tag + 10 : tag + 14], "big")
        frames = int.from_bytes(data[tag + 14 : tag + 18], "big")
        return frames if frames and size <= available + first.length_bytes else None
    return None


def _walk(data: bytes, at: int, first: Mp3Frame) -> int:
    count = 0
    known: dict[bytes, int] = {}
    end = len(data)
    while at < end:
        head = data[at : at + 3]
        length = known.get(head)
        if length is None:
            frame = read_frame(data, at)
            if frame is None or frame.sample_rate_hz != first.sample_rate_hz:
                found = first_frame(data, at + 1, 4096)
                if found is None:
                    break
                at = found[0]
                continue
            length = known[head] = frame.length_bytes
        at += length
        count += at <= end
    return count
