"""What the document worker is asked and what it answers, and what a reader gives. Values only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from loom.formats.facts import IntakeLimits


class InspectDocument(msgspec.Struct, frozen=True, tag="inspect"):
    """Facts of the document."""


class ReadSections(msgspec.Struct, frozen=True, tag="text"):
    """Pages `first` to `last`, counted from one; all of them where `last` is 0."""

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
    """A file inside a document, by its base name."""

    name: str
    data: bytes


class StoredPicture(msgspec.Struct, frozen=True):
    """A picture inside a document; `page` counts from one."""

    data: bytes
    media_type: str
    name: str = ""
    page: int = 1


class ReadDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader gives: its text by pages (or as one piece), its pictures, and how to get a file inside it.

    `sections` may be a lazy sequence, for a document whose pages are rarely all needed at once.
    """

    sections: Sequence[str]
    is_paged: bool = False
    pictures: Sequence[StoredPicture] = ()
    members: Mapping[str, Callable[[], bytes]] = {}
    notices: tuple[str, ...] = ()


class ReadContext(msgspec.Struct, frozen=True):
    """What a reader knows beside the bytes."""

    name: str
    limits: IntakeLimits
