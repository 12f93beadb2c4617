"""The requests and responses of the document worker, and the result of a reader. Plain values only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from loom.formats.facts import IntakeLimits


class InspectDocument(msgspec.Struct, frozen=True, tag="inspect"):
    """Request the facts of the document."""


class ReadSections(msgspec.Struct, frozen=True, tag="text"):
    """Request the pages `first` to `last`, counted from one; all pages from `first` if `last` is 0."""

    first: int
    last: int


class ReadPicture(msgspec.Struct, frozen=True, tag="picture"):
    number: int


class ReadMember(msgspec.Struct, frozen=True, tag="member"):
    path: str


DocumentJob: TypeAlias = InspectDocument | ReadSections | ReadPicture | ReadMember


class PictureFacts(msgspec.Struct, frozen=True):
    name: str
    media_type: str
    page: int


class DocumentFacts(msgspec.Struct, frozen=True):
    """`pages` is 0 for a document without pages."""

    pages: int
    pictures: tuple[PictureFacts, ...]
    notices: tuple[str, ...]


class Member(msgspec.Struct, frozen=True):
    """A file inside a document. `name` is its base name."""

    name: str
    data: bytes


class StoredPicture(msgspec.Struct, frozen=True):
    """An image inside a document; `page` counts from one."""

    data: bytes
    media_type: str
    name: str = ""
    page: int = 1


class ReadDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a reader: the text by pages (or as one piece), the images, and a function that returns a file
    inside the document.

    `sections` may be a lazy sequence, for a document whose pages are rarely all needed at once.
    """

    sections: Sequence[str]
    is_paged: bool = False
    pictures: Sequence[StoredPicture] = ()
    members: Mapping[str, Callable[[], bytes]] = {}
    notices: tuple[str, ...] = ()


class ReadContext(msgspec.Struct, frozen=True):
    """The inputs of a reader in addition to the bytes."""

    name: str
    limits: IntakeLimits
