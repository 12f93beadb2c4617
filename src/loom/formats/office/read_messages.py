"""The requests and responses of the worker for office files. Plain values only, shared by both sides."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from loom.content.media import Media
from loom.content.recipes import EmbeddedImage, Text


class InspectOffice(msgspec.Struct, frozen=True, tag="inspect"):
    media: Media


class RenderOffice(msgspec.Struct, frozen=True, tag="render"):
    media: Media
    recipe: Text | EmbeddedImage


class ReadRows(msgspec.Struct, frozen=True, tag="rows"):
    """Request rows of one sheet, from `first_row` on, counted from one."""

    media: Media
    pages: str
    first_row: int
    max_rows: int


OfficeJob: TypeAlias = InspectOffice | RenderOffice | ReadRows


class ReadFailure(msgspec.Struct, frozen=True, tag="failure"):
    """A `MediaError` of the reader: `code` is the error code of its class."""

    code: str
    message: str
    name: str
    hint: str
