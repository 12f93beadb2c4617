"""Recipes: how derived bytes are made from a medium. Values; `formats.render` executes them.

Derived bytes are cached by (digest, recipe key), so a key names everything that changes the bytes, and a change in how
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
    """A picture within limits: longest side, bytes of the *base64* field, media types that the reader takes."""

    max_side_px: int = 2048
    max_encoded_bytes: int = 5_000_000
    formats: tuple[str, ...] = DEFAULT_FORMATS

    def __post_init__(self) -> None:
        if self.max_side_px < 1 or self.max_encoded_bytes < 100 or not self.formats:
            raise ContentError("fit needs a side of at least 1 px, room for 100 bytes and one format")


class Low(msgspec.Struct, frozen=True, tag="low"):
    """The small form that older pictures are shown in."""

    side_px: int = 512
    formats: tuple[str, ...] = DEFAULT_FORMATS


class Crop(msgspec.Struct, frozen=True, tag="crop"):
    """A box of the upright original, in pixels (left, top, right, bottom), then fitted."""

    box: tuple[int, int, int, int]
    max_side_px: int = 2048
    max_encoded_bytes: int = 5_000_000
    formats: tuple[str, ...] = DEFAULT_FORMATS

    def __post_init__(self) -> None:
        left, top, right, bottom = self.box
        if left < 0 or top < 0 or right <= left or bottom <= top:
            raise ContentError(f"a crop box is left, top, right, bottom with an area, not {self.box}")


class Thumb(msgspec.Struct, frozen=True, tag="thumb"):
    """A small preview for people: a picture, or the first page of a document."""

    side_px: int = 256


class Page(msgspec.Struct, frozen=True, tag="page"):
    """One page of a document as a picture."""

    number: int
    dpi: int = 150
    max_side_px: int = 2048
    max_encoded_bytes: int = 5_000_000
    formats: tuple[str, ...] = DEFAULT_FORMATS

    def __post_init__(self) -> None:
        if self.number < 1:
            raise ContentError("pages count from one")


class Slice(msgspec.Struct, frozen=True, tag="slice"):
    """A new document of just these pages."""

    pages: str

    def __post_init__(self) -> None:
        page_range(self.pages)


class Text(msgspec.Struct, frozen=True, tag="text"):
    """The words of a document, with page, slide or sheet markers; `pages` empty means all."""

    pages: str = ""

    def __post_init__(self) -> None:
        if self.pages:
            page_range(self.pages)


class Ocr(msgspec.Struct, frozen=True, tag="ocr"):
    """The words that are drawn in a picture, or on one page of a document (`page` 0 means a picture)."""

    page: int = 0


class Scenes(msgspec.Struct, frozen=True, tag="scenes"):
    """When the picture of a video changes: a JSON list of the seconds at which its scenes begin."""


class Frame(msgspec.Struct, frozen=True, tag="frame"):
    """The picture that a video shows at one moment."""

    at_ms: int
    max_side_px: int = 1024
    max_encoded_bytes: int = 1_000_000
    formats: tuple[str, ...] = DEFAULT_FORMATS

    def __post_init__(self) -> None:
        if self.at_ms < 0:
            raise ContentError("a video begins at zero seconds")


class SoundTrack(msgspec.Struct, frozen=True, tag="sound"):
    """The sound of a video or of a recording, as MP3 in the quality of speech."""


class SpokenText(msgspec.Struct, frozen=True, tag="spoken"):
    """What is said in a recording or a video. A configured program or service writes it down."""


class EmbeddedImage(msgspec.Struct, frozen=True, tag="picture"):
    """The n-th picture inside a document, counted from one, as it was stored there."""

    number: int

    def __post_init__(self) -> None:
        if self.number < 1:
            raise ContentError("images count from one")


class Describe(msgspec.Struct, frozen=True, tag="describe"):
    """Describe an image with a model. That model writes it; `formats.render` cannot."""

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
    """Derived bytes. `media_type` is what the encoder wrote."""

    data: bytes
    media_type: str
    width: int | None = None
    height: int | None = None
    pages: int | None = None
    pages_without_text: tuple[int, ...] = ()
    """For the text of a PDF: which of its pages have no text layer, counted from one in the whole document."""
    notices: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def recipe_key(recipe: Recipe) -> str:
    """Return a short stable name, fit for a file name and a database column."""
    fields = msgspec.structs.asdict(recipe)
    values = "_".join(_plain(value) for value in fields.values())
    return f"{recipe.__struct_config__.tag}{RECIPES_VERSION}" + (f"-{values}" if values else "")


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return "+".join(_plain(item) for item in cast("tuple[object, ...]", value))
    return str(value).replace("image/", "").replace("/", ".")
