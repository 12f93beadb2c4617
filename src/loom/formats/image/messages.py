"""What the picture worker is asked and what it answers. Values only, shared by both sides."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from loom.content.recipes import Crop, Fit, Low, Thumb
from loom.formats.facts import Rendered

SUBJECT: Final = "The image"
"""How every error about a picture without a name begins."""
MEMORY_SHARE: Final = 2
"""Of the memory limit of a worker. The decoder of WebP takes a gigabyte for the largest picture that is let in."""

PictureRecipe: TypeAlias = Fit | Low | Crop | Thumb


class CheckPicture(msgspec.Struct, frozen=True, tag="check"):
    """Decode the whole first frame, and render it by `recipes` while it is decoded."""

    recipes: tuple[PictureRecipe, ...] = ()


class RenderPicture(msgspec.Struct, frozen=True, tag="render"):
    recipe: PictureRecipe


class PagesToPdf(msgspec.Struct, frozen=True, tag="pages"):
    """Write all pages of a TIFF as a PDF."""


class DescribePixels(msgspec.Struct, frozen=True, tag="describe"):
    """Measure what can be seen in the picture."""


PictureJob: TypeAlias = CheckPicture | RenderPicture | PagesToPdf | DescribePixels


class ImageFacts(msgspec.Struct, frozen=True):
    """Width and height as seen upright; the number of frames or pages."""

    width: int
    height: int
    frames: int


class PackedRendition(msgspec.Struct, frozen=True):
    """A rendition whose bytes are the next `size_bytes` of the blob; with None they are those of the picture itself."""

    facts: Rendered
    size_bytes: int | None


class CheckedPicture(msgspec.Struct, frozen=True):
    facts: ImageFacts
    renditions: tuple[PackedRendition | None, ...]
    """In the order of the recipes; None where the picture cannot be rendered by that recipe."""


def pack(renditions: list[Rendered | None], original: bytes) -> tuple[tuple[PackedRendition | None, ...], bytes]:
    """Take the bytes out of renditions: those of the `original` stay away, the others become one blob."""
    packed: list[PackedRendition | None] = []
    parts: list[bytes] = []
    for rendition in renditions:
        if rendition is None:
            packed.append(None)
            continue
        is_original = rendition.data is original
        if not is_original:
            parts.append(rendition.data)
        facts = msgspec.structs.replace(rendition, data=b"")
        packed.append(PackedRendition(facts, None if is_original else len(rendition.data)))
    return tuple(packed), parts[0] if len(parts) == 1 else b"".join(parts)


def unpack(packed: tuple[PackedRendition | None, ...], blob: bytes, original: bytes) -> list[Rendered | None]:
    """Return the reverse of `pack`."""
    renditions: list[Rendered | None] = []
    at = 0
    for entry in packed:
        if entry is None:
            renditions.append(None)
            continue
        data = original
        if entry.size_bytes is not None:
            data = blob[at : at + entry.size_bytes]
            at += entry.size_bytes
        renditions.append(msgspec.structs.replace(entry.facts, data=data))
    return renditions
