"""The results of inspecting and rendering bytes: facts, notices and derived bytes. Plain values only."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from loom.content.media import Category, Media
from loom.content.recipes import Recipe, Rendered

__all__ = ["EmbeddedPicture", "ImageCharacter", "Inspection", "IntakeLimits", "MadeRendition", "Rendered"]

ImageCharacter: TypeAlias = Literal["photo", "screenshot"]
"""Whether an image must stay lossless to stay legible ("screenshot": flat colors, text, lines) or not."""


class IntakeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits at intake. They can be configured; the documentation promises the defaults."""

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
    """The limit for slow conversions: LibreOffice, the scenes and the audio track of a video. Audio programs get a
    multiple of it. OCR uses `ocr_seconds`, everything else `deadline_seconds`."""
    ocr_seconds: float = 60.0
    worker_memory_bytes: int = 1_000_000_000

    @property
    def max_oversize_bytes(self) -> int:
        """The largest image that is accepted by making a smaller copy."""
        return self.max_image_bytes * 25


class EmbeddedPicture(msgspec.Struct, frozen=True, kw_only=True):
    """An image inside a document. `number` counts from one and is the argument of the recipe `EmbeddedImage`."""

    number: int
    page: int
    media_type: str
    width: int | None = None
    height: int | None = None
    name: str = ""


class MadeRendition(msgspec.Struct, frozen=True):
    """Derived bytes that were rendered while an image was decoded anyway; the caller stores them in its cache."""

    recipe: Recipe
    rendered: Rendered


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of an accepted file. `notices` are sentences for users about changes and problems."""

    media: Media
    category: Category
    notices: tuple[str, ...] = ()
    text: str | None = None
    """The decoded text of a text file (and the source of an SVG)."""
    encoding: str = ""
    pages_without_text: tuple[int, ...] = ()
    """PDF pages with no text layer, counted from one (scanned), among the first `pages_examined`."""
    pages_examined: int = 0
    """How many pages of a PDF were examined for text and images; the others are examined when they are read."""
    pictures: tuple[EmbeddedPicture, ...] = ()
    sample_rate_hz: int | None = None
    channels: int | None = None
    renditions: tuple[MadeRendition, ...] = ()
    """The renditions of an image by the recipes that were passed to `inspect`."""
