"""Remove everything but the image from a file, without decoding it: locations, names, comments, thumbnails, frames.

The parts that remain are on an allow-list, so unknown parts are removed too, and so is everything after the end of the
image.
"""

from __future__ import annotations

from struct import Struct
from typing import Final
from zlib import crc32

from loom.formats.image.chunks import EOI, SOS, jpeg_segments, png_chunks, read_gif, riff_chunks

# Color profiles are not among them: only sRGB and gray images are kept without decoding, and a profile may be a bomb.
_PNG_KEPT: Final = frozenset(
    (
        b"IHDR",
        b"PLTE",
        b"IDAT",
        b"IEND",
        b"tRNS",
        b"gAMA",
        b"cHRM",
        b"sRGB",
        b"sBIT",
        b"bKGD",
        b"pHYs",
    )
)
_WEBP_KEPT: Final = frozenset((b"VP8X", b"VP8 ", b"VP8L", b"ALPH", b"ICCP"))
_WEBP_ANIMATED: Final = 0x02
_WEBP_EXIF_OR_XMP: Final = 0x0C
_COMMON_JPEG: Final = frozenset((0xC0, 0xC1, 0xC2))
_U32: Final = Struct(">I").unpack_from


def remove_metadata(data: bytes, media_type: str) -> bytes | None:
    """Return the same image with nothing else in the file, or None if that requires decoding and encoding.

    That includes images that many readers do not accept (16 bits, CMYK, arithmetic coding, animation), and files with
    wrong checksums or lengths, even if they can be decoded.
    """
    match media_type:
        case "image/png":
            return _clean_png(data)
        case "image/jpeg":
            return _clean_jpeg(data)
        case "image/webp":
            return _clean_webp(data)
        case "image/gif":
            return read_gif(data).still
        case _:
            return None


def _clean_png(data: bytes) -> bytes | None:
    if data[24] > 8:
        return None
    kept = [data[:8]]
    complete = False
    for chunk in png_chunks(data):
        if chunk.kind not in _PNG_KEPT:
            continue
        if crc32(memoryview(data)[chunk.start + 4 : chunk.end - 4]) != _U32(data, chunk.end - 4)[0]:
            return None
        kept.append(data[chunk.start : chunk.end])
        complete = chunk.kind == b"IEND"
    return _join_parts(kept, data) if complete else None


def _clean_jpeg(data: bytes) -> bytes | None:
    kept = [b"\xff\xd8"]
    has_frame = has_scan = False
    for marker, start, end in jpeg_segments(data):
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            # precision, height and number of components of the frame
            if marker not in _COMMON_JPEG or data[start + 4] != 8 or data[start + 9] not in (1, 3):
                return None
            if data[start + 5 : start + 7] == b"\0\0":
                return None
            has_frame = True
        has_scan = has_scan or marker == SOS
        if _is_picture(data, marker, start):
            kept.append(data[start:end])
    if not has_frame or not has_scan:
        return None
    if not kept[-1].startswith(b"\xff\xd9"):
        kept.append(b"\xff\xd9")
    return _join_parts(kept, data)


def _is_picture(data: bytes, marker: int, start: int) -> bool:
    """Return whether the segment is needed to show the image: JFIF (density), ICC and Adobe (color transform) are;
    other APPn and COM are not."""
    if marker == 0xE0:
        return data[start + 4 : start + 9] == b"JFIF\0"
    if marker == 0xE2:
        return data[start + 4 : start + 16] == b"ICC_PROFILE\0"
    if marker == 0xEE:
        return data[start + 4 : start + 9] == b"Adobe"
    return marker == EOI or not (0xE0 <= marker <= 0xEF or marker == 0xFE)


def _clean_webp(data: bytes) -> bytes | None:
    if 8 + int.from_bytes(data[4:8], "little") > len(data):
        return None
    kept: list[bytes] = []
    for chunk in riff_chunks(data[: 8 + int.from_bytes(data[4:8], "little")]):
        body = data[chunk.body : chunk.end]
        if chunk.kind == b"VP8X":
            if not body or body[0] & _WEBP_ANIMATED:
                return None
            body = bytes((body[0] & ~_WEBP_EXIF_OR_XMP,)) + body[1:]
        if chunk.kind in _WEBP_KEPT:
            kept.append(data[chunk.start : chunk.body] + body + b"\0" * (len(body) & 1))
    if not any(part.startswith((b"VP8 ", b"VP8L")) for part in kept):
        return None
    size = 4 + sum(map(len, kept))
    return _join_parts([b"RIFF", size.to_bytes(4, "little"), b"WEBP", *kept], data)


def _join_parts(parts: list[bytes], data: bytes) -> bytes:
    """Return the original object if nothing was removed, so that callers can see that it is unchanged."""
    joined = b"".join(parts)
    return data if joined == data else joined
