"""Camera raw images: most are TIFF files whose pixels are a mosaic of color filters."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error
from typing import Final

_MAKER: Final = 0x010F
_PHOTOMETRIC: Final = 0x0106
_COMPRESSION: Final = 0x0103
_PARTS: Final = 0x014A
_DNG_VERSION: Final = 0xC612
_UNDER_A_MOSAIC: Final = (32803, 34892)
_PACKED_BY_MAKERS: Final = (32767, 32769, 32770, 34713, 65000, 65535)
_MAX_TAGS: Final = 300
_MAX_PARTS: Final = 8
_BY_MAKER: Final = (
    (b"nikon", "image/x-nikon-nef"),
    (b"sony", "image/x-sony-arw"),
    (b"pentax", "image/x-pentax-pef"),
    (b"ricoh", "image/x-pentax-pef"),
    (b"samsung", "image/x-samsung-srw"),
)


def raw_type(data: bytes) -> str | None:
    """Return the media type of a raw image that is built like a TIFF file, or None if it is a TIFF image."""
    if data[8:10] == b"CR":
        return "image/x-canon-cr2"
    order = "<" if data[:2] == b"II" else ">"
    try:
        tags = dict(_tags(data, order, Struct(order + "I").unpack_from(data, 4)[0]))
        if _DNG_VERSION in tags:
            return "image/x-adobe-dng"
        if not _is_raw(data, order, tags):
            return None
        count, place = tags.get(_MAKER, (0, 0))
        maker = data[place : place + min(count, 40)].lower()
    except error:  # truncated
        return None
    return next((media_type for word, media_type in _BY_MAKER if word in maker), "image/x-dcraw")


def _is_raw(data: bytes, order: str, tags: dict[int, tuple[int, int]]) -> bool:
    count, place = tags.get(_PARTS, (0, 0))
    if count == 1:
        places: tuple[int, ...] = (place,)
    else:
        places = Struct(f"{order}{min(count, _MAX_PARTS)}I").unpack_from(data, place) if count else ()
    parts = [tags, *(dict(_tags(data, order, place)) for place in places)]
    return any(
        part.get(_PHOTOMETRIC, (0, 0))[1] in _UNDER_A_MOSAIC or part.get(_COMPRESSION, (0, 0))[1] in _PACKED_BY_MAKERS
        for part in parts
    )


def _tags(data: bytes, order: str, at: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield each tag of a directory with its count and its value, or the offset of the value."""
    head, short, long = Struct(order + "HHI"), Struct(order + "H"), Struct(order + "I")
    for number in range(min(short.unpack_from(data, at)[0], _MAX_TAGS)):
        entry = at + 2 + 12 * number
        tag, kind, count = head.unpack_from(data, entry)
        is_short = kind == 3 and count == 1
        yield tag, (count, (short if is_short else long).unpack_from(data, entry + 8)[0])
