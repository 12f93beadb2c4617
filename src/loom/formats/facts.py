"""What inspecting and rendering bytes gives: facts, notices and derived bytes. Values only."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from loom.content.media import Category, Media
from loom.content.recipes import Recipe, Rendered

__all__ = ["EmbeddedPicture", "ImageCharacter", "Inspection", "IntakeLimits", "MadeRendition", "Rendered"]

ImageCharacter: TypeAlias = Literal["photo", "screenshot"]
"""Whether a picture must stay lossless to stay legible ("screenshot": flat colours, text, lines) or not."""


class IntakeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What the door lets in. Configurable; the defaults are the promises of the documentation."""

    max_text_bytes: int = 1_000_000
    max_image_bytes: int = 10_485_760
    max_pdf_bytes: int = 33_554_432
    max_office_bytes: int = 67_108_864
    max_audio_bytes: int = 26_214_400
    max_video_bytes: int = 209_715_200
    max_pixels: int = 64_000_000
    max_frames: int = 5_000
    max_expanded_bytes: int = 268_435_456
    deadline_seconds: float = 15.0
    conversion_seconds: float = 60.0
    """LibreOffice starts slowly; everything else lives with `deadline_seconds`, OCR with `ocr_seconds`."""
    ocr_seconds: float = 60.0
    worker_memory_bytes: int = 1_000_000_000

    @property
    def max_oversize_bytes(self) -> int:
        """A picture up to this size is still taken in, as a copy that fits."""
        return self.max_image_bytes * 25


class EmbeddedPicture(msgspec.Struct, frozen=True, kw_only=True):
    """A picture inside a document. `number` counts from one and is what `Picture(number)` takes."""

    number: int
    page: int
    media_type: str
    width: int | None = None
    height: int | None = None
    name: str = ""


class MadeRendition(msgspec.Struct, frozen=True):
    """Derived bytes that were made while a picture was decoded anyway; the caller puts them into its cache."""

    recipe: Recipe
    rendered: Rendered


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """What the door found. `notices` are sentences for people, each naming what was changed or noticed."""

    media: Media
    category: Category
    notices: tuple[str, ...] = ()
    text: str | None = None
    """The decoded text of a text file (and the source of an SVG)."""
    encoding: str = ""
    pages_without_text: tuple[int, ...] = ()
    """PDF pages with no text layer, counted from one (scanned), among the first `pages_examined`."""
    pages_examined: int = 0
    """How many pages of a PDF were looked at for text and pictures; the others are when they are read."""
    pictures: tuple[EmbeddedPicture, ...] = ()
    sample_rate_hz: int | None = None
    channels: int | None = None
    renditions: tuple[MadeRendition, ...] = ()
    """Of a picture, by the recipes that `inspect` was given."""
