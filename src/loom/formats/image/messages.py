"""The requests and responses of the image worker. Plain values only, shared by both sides."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from loom.content.recipes import Crop, Fit, Low, Thumb
from loom.formats.facts import Rendered

SUBJECT: Final = "The image"
"""The beginning of every error about an image without a name."""
MEMORY_SHARE: Final = 2
"""The factor for the memory limit of a worker. The WebP decoder uses a gigabyte for the largest accepted image."""

PictureRecipe: TypeAlias = Fit | Low | Crop | Thumb


class CheckPicture(msgspec.Struct, frozen=True, tag="check"):
    """Decode the whole first frame, and render it by `recipes` while it is decoded."""

    recipes: tuple[PictureRecipe, ...] = ()


class RenderPicture(msgspec.Struct, frozen=True, tag="render"):
    recipe: PictureRecipe


class PagesToPdf(msgspec.Struct, frozen=True, tag="pages"):
    """Convert all pages of a TIFF to a PDF."""


class DescribePixels(msgspec.Struct, frozen=True, tag="describe"):
    """Measure the pixels of the image."""


PictureJob: TypeAlias = CheckPicture | RenderPicture | PagesToPdf | DescribePixels


class ImageFacts(msgspec.Struct, frozen=True):
    """Width and height of the upright image; the number of frames or pages."""

    width: int
    height: int
    frames: int


class PackedRendition(msgspec.Struct, frozen=True):
    """A rendition whose bytes are the next `size_bytes` of the blob; None means the bytes of the original image."""

    facts: Rendered
    size_bytes: int | None


class CheckedPicture(msgspec.Struct, frozen=True):
    facts: ImageFacts
    renditions: tuple[PackedRendition | None, ...]
    """In the order of the recipes; None if the image cannot be rendered by that recipe."""


def pack(renditions: list[Rendered | None], original: bytes) -> tuple[tuple[PackedRendition | None, ...], bytes]:
    """Separate the bytes from the renditions and join them to one blob; bytes of the `original` are left out."""
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
    """Return the renditions that `pack` packed."""
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
