"""The size of an image from its header, without decoding: PNG, JPEG, GIF, BMP, WebP, TIFF, ICO, HEIC, AVIF, JPEG 2000,
Photoshop, Netpbm, Targa, PCX, Apple icons, SGI, QOI, DirectDraw.

Sizes are as stored, before an EXIF orientation is applied; the rotation of HEIC and AVIF is part of the file format and
is applied here. Only the bytes up to the end of the header are needed, so the beginning of a file is enough for most
images.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import Struct, error
from typing import Final

import msgspec

from loom.errors import TooLarge, Unreadable
from loom.formats.image.chunks import MAX_PARTS, TooManyChunks
from loom.formats.image.heif_header import heif_size
from loom.formats.image.jxl_header import jxl_size
from loom.formats.sniff.containers import iso_media_type

_PNG: Final = Struct(">II").unpack_from
_PAIR: Final = Struct("<HH").unpack_from
_BE_PAIR: Final = Struct(">HH").unpack_from
_U16: Final = Struct(">H").unpack_from
_INT_PAIR: Final = Struct("<ii").unpack_from
_U32: Final = Struct("<I").unpack_from
NETPBM: Final = "image/x-portable-anymap"
TARGA: Final = "image/x-tga"
_JPEG2000_BOX: Final = b"\0\0\0\x0cjP  "
_JXL_BOX: Final = b"\0\0\0\x0cJXL "
_JPEG2000_REACH: Final = 1_048_576
"""Boxes with color profiles and metadata may precede the image."""
_NETPBM: Final = re.compile(rb"P[4-6](?:\s|#[^\n]*\n)+(\d{1,9})(?:\s|#[^\n]*\n)+(\d{1,9})\s")

_APPLE_ICONS: Final = {
    b"is32": 16, b"il32": 32, b"ih32": 48, b"it32": 128, b"icp4": 16, b"icp5": 32, b"icp6": 64, b"ic07": 128,
    b"ic08": 256, b"ic09": 512, b"ic10": 1024, b"ic11": 32, b"ic12": 64, b"ic13": 256, b"ic14": 512,
}  # fmt: skip


class ImageHeader(msgspec.Struct, frozen=True):
    media_type: str
    width: int
    height: int


def read_header(data: bytes, media_type: str = "") -> ImageHeader:
    """Return the type and the size. `media_type` is needed for Targa only, which has no magic number.

    Raise `Unreadable` if the bytes are not an image of a known type, are truncated, or have no area; `TooLarge` if more
    parts precede the header than an image may have.
    """
    if media_type == TARGA:
        reader = _targa
    else:
        media_type, reader = _READERS.get(data[:2], _NONE)
    if data[:8] == _JPEG2000_BOX:
        media_type, reader = "image/jp2", _jpeg2000
    elif data[:8] == _JXL_BOX or data[:2] == b"\xff\x0a":
        media_type, reader = "image/jxl", jxl_size
    elif data[4:8] == b"ftyp" and media_type != TARGA:
        media_type, reader = iso_media_type(data), heif_size
    try:
        size = reader(data)
    except (error, IndexError, OverflowError):  # the header points beyond the end of the file
        size = None
    except TooManyChunks as fault:
        raise TooLarge("The image has too many parts.") from fault
    if size is None:
        what = "damaged: its header contains no size" if media_type else "of an unknown type"
        raise Unreadable(f"The image is {what}.")
    width, height = size
    if width < 1 or height < 1:
        raise Unreadable(f"The image has no area ({width}×{height}).")
    return ImageHeader(media_type, width, height)


def _png(data: bytes) -> tuple[int, int] | None:
    if data[:8] != b"\x89PNG\r\n\x1a\n" or data[12:16] != b"IHDR":
        return None
    return _PNG(data, 16)


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """Walk the segments to the first frame header (SOF). Fill bytes may precede any marker."""
    at = 2
    end = len(data)
    for _ in range(MAX_PARTS):
        if at + 9 > end:
            return None
        if data[at] != 0xFF:  # stray bytes between segments: decoders skip to the next marker
            at = data.find(b"\xff", at)
            if at < 0:
                return None
            continue
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = _BE_PAIR(data, at + 5)
            return width, height or _late_height(data, at)
        if marker == 0xFF:
            at += 1
        elif 0xD0 <= marker <= 0xD8 or marker in (0x00, 0x01):
            at += 2
        elif marker in (0xD9, 0xDA):
            return None
        else:
            at += 2 + _U16(data, at + 2)[0]
    raise TooManyChunks


def _late_height(data: bytes, at: int) -> int:
    """Return the height from a DNL segment after the first scan, where it is if the frame header has 0."""
    found = data.find(b"\xff\xdc\x00\x04", at)
    return _U16(data, found + 4)[0] if found >= 0 else 0


def _gif(data: bytes) -> tuple[int, int] | None:
    return _PAIR(data, 6) if data[:6] in (b"GIF87a", b"GIF89a") else None


def _bmp(data: bytes) -> tuple[int, int] | None:
    return dib_size(data, 14 if data[:2] == b"BM" else 0)


def dib_size(data: bytes, at: int) -> tuple[int, int] | None:
    """Read the size from a DIB header. The OS/2 core header has 16-bit sizes; in the others a negative height means
    top-down."""
    header = _U32(data, at)[0]
    if header == 12:
        return _PAIR(data, at + 4)
    if not 16 <= header <= 124:
        return None
    width, height = _INT_PAIR(data, at + 4)
    return width, abs(height)


def _webp(data: bytes) -> tuple[int, int] | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    kind = data[12:16]
    if kind == b"VP8 ":
        if data[23:26] != b"\x9d\x01\x2a":
            return None
        width, height = _PAIR(data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L":
        if data[20] != 0x2F:
            return None
        bits = _U32(data, 21)[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":
        low, high = _U32(data, 24)[0], _U32(data, 26)[0]
        return (low & 0xFFFFFF) + 1, (high >> 8) + 1
    return None


def _tiff(data: bytes) -> tuple[int, int] | None:
    """Read tags 256 and 257 of the first directory; BigTIFF has wider counts and offsets."""
    order = "<" if data[:2] == b"II" else ">"
    version = Struct(order + "H").unpack_from(data, 2)[0]
    if version == 42:
        at = Struct(order + "I").unpack_from(data, 4)[0]
        count, first, step, value_at = Struct(order + "H").unpack_from(data, at)[0], at + 2, 12, 8
    elif version == 43:
        at = Struct(order + "Q").unpack_from(data, 8)[0]
        count, first, step, value_at = Struct(order + "Q").unpack_from(data, at)[0], at + 8, 20, 12
    else:
        return None
    head = Struct(order + "HH").unpack_from
    sizes: dict[int, int] = {}
    for entry in range(first, first + min(count, 4096) * step, step):
        tag, kind = head(data, entry)
        if tag in (256, 257) and kind in (1, 3, 4, 16):
            letter = {1: "B", 3: "H", 4: "I", 16: "Q"}[kind]
            sizes[tag] = Struct(order + letter).unpack_from(data, entry + value_at)[0]
        if tag > 257 and len(sizes) == 2:
            break
    return (sizes[256], sizes[257]) if len(sizes) == 2 else None


def _icon(data: bytes) -> tuple[int, int] | None:
    """Return the size of the largest image in an icon. The directory has one byte per side, so the images themselves
    are read."""
    if data[2:4] not in (b"\1\0", b"\2\0"):
        return None
    best = (0, 0)
    for entry in range(6, 6 + 16 * _PAIR(data, 4)[0], 16):
        at = _U32(data, entry + 12)[0]
        if data[at : at + 4] == b"\x89PNG":
            size = _png(data[at : at + 24])
        elif at + 12 <= len(data):
            size = dib_size(data, at)
            if size is not None and size[1] > 1:
                size = size[0], size[1] // 2  # the image and its mask, one above the other
        else:
            size = data[entry] or 256, data[entry + 1] or 256
        if size is not None and size[0] * size[1] > best[0] * best[1]:
            best = size
    return best


def _jpeg2000(data: bytes) -> tuple[int, int] | None:
    """Read the `SIZ` marker of the codestream, which is the file itself or inside a box of it."""
    at = data.find(b"\xff\x4f\xff\x51", 0, _JPEG2000_REACH)
    if at < 0:
        return None
    right, bottom, left, top = Struct(">IIII").unpack_from(data, at + 8)
    return right - left, bottom - top


def _photoshop(data: bytes) -> tuple[int, int] | None:
    if data[:4] != b"8BPS":
        return None
    height, width = _PNG(data, 14)
    return width, height


def _netpbm(data: bytes) -> tuple[int, int] | None:
    found = _NETPBM.match(data, 0, 4096)
    return (int(found[1]), int(found[2])) if found else None


def _targa(data: bytes) -> tuple[int, int] | None:
    return _PAIR(data, 12)


def _pcx(data: bytes) -> tuple[int, int] | None:
    left, top, right, bottom = Struct("<HHHH").unpack_from(data, 4)
    return right - left + 1, bottom - top + 1


def _sgi(data: bytes) -> tuple[int, int] | None:
    return _BE_PAIR(data, 6)


def _qoi(data: bytes) -> tuple[int, int] | None:
    return _PNG(data, 4) if data[:4] == b"qoif" else None


def _directdraw(data: bytes) -> tuple[int, int] | None:
    if data[:4] != b"DDS ":
        return None
    height, width = _INT_PAIR(data, 12)
    return width, height


def _apple_icon(data: bytes) -> tuple[int, int] | None:
    """Return the size of the largest image: as its kind has it, or as the PNG or JPEG 2000 inside has it."""
    if data[:4] != b"icns":
        return None
    best = 0, 0
    at = 8
    for _ in range(MAX_PARTS):
        if at + 8 > len(data):
            return best
        kind, length = data[at : at + 4], _PNG(data, at)[1]
        body = data[at + 8 : at + length]
        side = _APPLE_ICONS.get(kind, 0)
        size = (side, side) if side else None
        if side:
            size = _png(body) or (_jpeg2000(body) if body[:8] == _JPEG2000_BOX or body[:2] == b"\xff\x4f" else size)
        if size is not None and size[0] * size[1] > best[0] * best[1]:
            best = size
        at += max(8, length)
    raise TooManyChunks


def _no_picture(_data: bytes) -> tuple[int, int] | None:
    return None


_NONE: Final[tuple[str, Callable[[bytes], tuple[int, int] | None]]] = ("", _no_picture)
_READERS: Final[dict[bytes, tuple[str, Callable[[bytes], tuple[int, int] | None]]]] = {
    b"\x89P": ("image/png", _png),
    b"\xff\xd8": ("image/jpeg", _jpeg),
    b"GI": ("image/gif", _gif),
    b"BM": ("image/bmp", _bmp),
    b"(\0": ("image/bmp", _bmp),
    b"RI": ("image/webp", _webp),
    b"II": ("image/tiff", _tiff),
    b"MM": ("image/tiff", _tiff),
    b"\0\0": ("image/x-icon", _icon),
    b"\xff\x4f": ("image/jp2", _jpeg2000),
    b"8B": ("image/vnd.adobe.photoshop", _photoshop),
    b"P4": (NETPBM, _netpbm),
    b"P5": (NETPBM, _netpbm),
    b"P6": (NETPBM, _netpbm),
    **{bytes((10, version)): ("image/x-pcx", _pcx) for version in (0, 2, 3, 4, 5)},
    b"\x01\xda": ("image/x-sgi", _sgi),
    b"qo": ("image/qoi", _qoi),
    b"DD": ("image/x-dds", _directdraw),
    b"ic": ("image/x-icns", _apple_icon),
}
