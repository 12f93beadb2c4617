"""Images inside office files: their types, from their first bytes, and the bytes as stored."""

from __future__ import annotations

import posixpath
from typing import Final

from loom.content.media import size_label
from loom.errors import TooLarge, Unreadable
from loom.formats.facts import EmbeddedPicture, IntakeLimits, Rendered
from loom.formats.image.header import ImageHeader, read_header
from loom.formats.office.archive import Archive
from loom.formats.office.ooxml import FoundPicture
from loom.formats.sniff import sniff
from loom.formats.sniff.kinds import UNKNOWN

_HEADER_BYTES: Final = 262_144
_WMF: Final = b"\xd7\xcd\xc6\x9a"
_EMF_MARK: Final = slice(40, 44)


def list_pictures(archive: Archive, found: list[FoundPicture]) -> tuple[EmbeddedPicture, ...]:
    return tuple(_picture_facts(archive, picture, number) for number, picture in enumerate(found, 1))


def extract_picture(archive: Archive, picture: FoundPicture, *, name: str, limits: IntakeLimits) -> Rendered:
    """Return the image's bytes, unchanged; its type is detected from the bytes."""
    size = archive.size_bytes(picture.part)
    if size > limits.max_office_bytes:
        raise TooLarge(f"That image in {name or 'the document'} has {size_label(size)}.", name=name)
    data = archive.read(picture.part)
    media_type, header = _facts(data)
    if header is None:
        return Rendered(data=data, media_type=media_type)
    return Rendered(data=data, media_type=media_type, width=header.width, height=header.height)


def _picture_facts(archive: Archive, picture: FoundPicture, number: int) -> EmbeddedPicture:
    try:
        media_type, header = _facts(archive.beginning(picture.part, _HEADER_BYTES))
    except (Unreadable, TooLarge):  # one damaged image does not make the document unreadable, and keeps its number
        media_type, header = UNKNOWN, None
    return EmbeddedPicture(
        number=number,
        page=picture.page,
        media_type=media_type,
        width=header.width if header else None,
        height=header.height if header else None,
        name=posixpath.basename(picture.part),
    )


def _facts(data: bytes) -> tuple[str, ImageHeader | None]:
    """Return type and header. Drawings (EMF, WMF, SVG) and damaged images have a type but no size."""
    try:
        header = read_header(data)
    except (Unreadable, TooLarge):
        if data[_EMF_MARK] == b" EMF":
            return "image/emf", None
        return ("image/wmf" if data.startswith(_WMF) else sniff(data).media_type), None
    return header.media_type, header
