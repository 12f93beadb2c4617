"""Recipes: how derived bytes are made from a medium. Plain values; `formats.render` executes them.

Derived bytes are cached by (digest, recipe key), so the key contains everything that changes the bytes; a change in how
a recipe is executed raises `RECIPES_VERSION`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, TypeAlias, cast

import msgspec

from loom.content.blocks import page_range
from loom.errors import ContentError

RECIPES_VERSION: Final = 2
DEFAULT_FORMATS: Final = ("image/png", "image/jpeg", "image/webp")


class Fit(msgspec.Struct, frozen=True, tag="fit"):
    """An image within limits: longest side, bytes of the *base64* field, media types that the model accepts."""

    max_side_px: int = 2048
    max_encoded_bytes: int = 5_000_000
    formats: tuple[str, ...] = DEFAULT_FORMATS

    def __post_init__(self) -> None:
        if self.max_side_px < 1 or self.max_encoded_bytes < 100 or not self.formats:
            raise ContentError("fit needs a side of at least 1 px, room for 100 bytes and one format")


class Low(msgspec.Struct, frozen=True, tag="low"):
    """The small form in which older images are sent."""

    side_px: int = 512
    formats: tuple[str, ...] = DEFAULT_FORMATS


class Crop(msgspec.Struct, frozen=True, tag="crop"):
    """A box of the upright original, in pixels (left, top, right, bottom), resized to the limits."""

    box: tuple[int, int, int, int]
    max_side_px: int = 2048
    max_encoded_bytes: int = 5_000_000
    formats: tuple[str, ...] = DEFAULT_FORMATS

    def __post_init__(self) -> None:
        left, top, right, bottom = self.box
        if left < 0 or top < 0 or right <= left or bottom <= top:
            raise ContentError(f"A crop box is left, top, right, bottom with an area, not {self.box}")


class Thumb(msgspec.Struct, frozen=True, tag="thumb"):
    """A small preview for people: an image, or the first page of a document."""

    side_px: int = 256


class Page(msgspec.Struct, frozen=True, tag="page"):
    """One page of a document as an image."""

    number: int
    dpi: int = 150
    max_side_px: int = 2048
    max_encoded_bytes: int = 5_000_000
    formats: tuple[str, ...] = DEFAULT_FORMATS

    def __post_init__(self) -> None:
        if self.number < 1:
            raise ContentError("Pages count from one")


class Slice(msgspec.Struct, frozen=True, tag="slice"):
    """A new document with only these pages."""

    pages: str

    def __post_init__(self) -> None:
        page_range(self.pages)


class Text(msgspec.Struct, frozen=True, tag="text"):
    """The text of a document, with page, slide or sheet markers; empty `pages` means all."""

    pages: str = ""

    def __post_init__(self) -> None:
        if self.pages:
            page_range(self.pages)


class Ocr(msgspec.Struct, frozen=True, tag="ocr"):
    """The text in an image, or on one page of a document (`page` 0 means an image)."""

    page: int = 0


class Scenes(msgspec.Struct, frozen=True, tag="scenes"):
    """The scenes of a video: a JSON list of the seconds at which they begin."""


class Frame(msgspec.Struct, frozen=True, tag="frame"):
    """The frame of a video at one time."""

    at_ms: int
    max_side_px: int = 1024
    max_encoded_bytes: int = 1_000_000
    formats: tuple[str, ...] = DEFAULT_FORMATS

    def __post_init__(self) -> None:
        if self.at_ms < 0:
            raise ContentError("A video begins at zero seconds")


class SoundTrack(msgspec.Struct, frozen=True, tag="sound"):
    """The sound of a video or of a recording, as MP3 in speech quality."""


class SpokenText(msgspec.Struct, frozen=True, tag="spoken"):
    """The transcript of a recording or a video, written by a configured program or service."""


class EmbeddedImage(msgspec.Struct, frozen=True, tag="picture"):
    """The n-th image inside a document, counted from one, in its stored form."""

    number: int

    def __post_init__(self) -> None:
        if self.number < 1:
            raise ContentError("Images count from one")


class Describe(msgspec.Struct, frozen=True, tag="describe"):
    """A description of an image, written by a model; `formats.render` cannot make it."""

    by: str
    """The model's reference."""


Recipe: TypeAlias = (
    Fit
    | Low
    | Crop
    | Thumb
    | Page
    | Slice
    | Text
    | Ocr
    | Scenes
    | Frame
    | SoundTrack
    | SpokenText
    | EmbeddedImage
    | Describe
)


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """Derived bytes. `media_type` is the type that the encoder wrote."""

    data: bytes
    media_type: str
    width: int | None = None
    height: int | None = None
    pages: int | None = None
    pages_without_text: tuple[int, ...] = ()
    """For the text of a PDF: the pages without a text layer, counted from one in the whole document."""
    notices: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def recipe_key(recipe: Recipe) -> str:
    """Return a short stable name for a recipe, suitable as a file name and in a database column."""
    fields = msgspec.structs.asdict(recipe)
    values = "_".join(_name_part(value) for value in fields.values())
    return f"{recipe.__struct_config__.tag}{RECIPES_VERSION}" + (f"-{values}" if values else "")


def _name_part(value: object) -> str:
    if isinstance(value, tuple):
        return "+".join(_name_part(item) for item in cast("tuple[object, ...]", value))
    return str(value).replace("image/", "").replace("/", ".")


def fitted_size(width: int, height: int, side_px: int) -> tuple[int, int]:
    """Return the largest size of the same aspect ratio whose longer side is at most `side_px`; never enlarge."""
    longest = max(width, height)
    if longest <= side_px:
        return width, height
    return max(1, round(width * side_px / longest)), max(1, round(height * side_px / longest))
