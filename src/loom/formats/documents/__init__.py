"""Documents that Python readers convert to text: web pages, mail, books, notebooks, archives, databases …

A `DocumentFormat` declares its kinds and its reader. The reader runs in a worker process under limits of time and
memory, so that a hostile file ends in a typed error. A reader takes bytes and returns a `ReadDocument`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from loom.content.media import Media, digest_of
from loom.content.recipes import Crop, EmbeddedImage, Fit, Low, Ocr, Page, Recipe, Slice, Text, Thumb
from loom.errors import Unsupported
from loom.formats.documents.messages import (
    DocumentFacts,
    DocumentJob,
    InspectDocument,
    Member,
    ReadMember,
    ReadPicture,
    ReadSections,
)
from loom.formats.facts import EmbeddedPicture, Inspection, IntakeLimits, Rendered
from loom.formats.pdf.messages import clamp_pages
from loom.formats.sniff.kinds import KINDS, FileKind, label_of
from loom.formats.worker import WorkerKind, current_pool
from loom.struct_types import decode_msgpack

NO_TEXT: Final = b"[this document contains no text]"


DOCUMENT_WORKER: Final = WorkerKind("loom.formats.documents.job", memory_share=2)


class DocumentFormat:
    """Files of `media_types`, read by `reader` (`module:function`) in a worker.

    `require` is called first and raises `ExtraMissing` if a package that the reader needs is not installed. A format of
    an installed package passes `kinds` for types that Loom does not have, and `recognise`.
    """

    recipes: tuple[type[Recipe], ...] = (Text, EmbeddedImage)

    def __init__(
        self,
        *media_types: str,
        reader: str,
        require: Callable[[], None] | None = None,
        kinds: Mapping[str, FileKind] | None = None,
        recognise: Callable[[bytes, str], str | None] | None = None,
    ) -> None:
        self.kinds: Mapping[str, FileKind] = kinds or {media_type: KINDS[media_type] for media_type in media_types}
        self.reader = reader
        self._require = require
        self._recognise = recognise

    def detect(self, data: bytes, name: str) -> str | None:
        return self._recognise(data, name) if self._recognise else None

    def inspect(self, data: bytes, media_type: str, name: str, limits: IntakeLimits) -> Inspection:
        facts = decode_msgpack(self._ask(InspectDocument(), data, name, limits)[0], DocumentFacts)
        media = Media(
            digest=digest_of(data), media_type=media_type, size_bytes=len(data), pages=facts.pages or None, name=name
        )
        pictures = tuple(
            EmbeddedPicture(number=number, page=picture.page, media_type=picture.media_type, name=picture.name)
            for number, picture in enumerate(facts.pictures, 1)
        )
        return Inspection(media=media, category="office", notices=facts.notices, pictures=pictures)

    def render(self, data: bytes, media: Media, recipe: Recipe, limits: IntakeLimits) -> Rendered:
        match recipe:
            case Text():
                return self._text(data, media, recipe, limits)
            case EmbeddedImage():
                found, blob = self._ask(ReadPicture(recipe.number), data, media.name, limits, media.digest)
                return Rendered(data=blob, media_type=decode_msgpack(found, str))
            case Fit() | Low() | Crop() | Ocr() | Page() | Thumb() | Slice():
                label = label_of(media.media_type)
                raise Unsupported(
                    f"{media.name or 'The file'} is {label} and cannot be shown as an image.", name=media.name
                )
            case _:
                raise Unsupported(f"{media.name or 'The file'} cannot be described without a model.", name=media.name)

    def member(self, data: bytes, media: Media, path: str, limits: IntakeLimits) -> Member:
        """Return a file inside the document: a member of an archive or an attachment of a mail."""
        found, blob = self._ask(ReadMember(path), data, media.name, limits, media.digest)
        return Member(decode_msgpack(found, str), blob)

    def _text(self, data: bytes, media: Media, recipe: Text, limits: IntakeLimits) -> Rendered:
        asked, notices = recipe.pages, ()
        facts: DocumentFacts | None = None
        if asked:
            raw = self._ask(InspectDocument(), data, media.name, limits, media.digest)[0]
            facts = decode_msgpack(raw, DocumentFacts)
            if facts.pages:
                first, last, notice = clamp_pages(asked, facts.pages, default=facts.pages)
                notices = (notice,) if notice else ()
            else:
                first, last, notices = 1, 0, ("It has no pages: the whole text is given.",)
        else:
            first, last = 1, 0
        found, blob = self._ask(ReadSections(first, last), data, media.name, limits, media.digest)
        pages = decode_msgpack(found, int)
        return Rendered(data=blob or NO_TEXT, media_type="text/plain", pages=pages or None, notices=notices)

    def _ask(
        self, job: DocumentJob, data: bytes, name: str, limits: IntakeLimits, digest: str = ""
    ) -> tuple[msgspec.Raw, bytes]:
        if self._require is not None:
            self._require()
        named = msgspec.msgpack.encode((self.reader, name, job))
        return current_pool().call(
            DOCUMENT_WORKER,
            named,
            data,
            digest=f"{digest or digest_of(data)} {self.reader}",
            name=name or "The document",
            limits=limits,
            seconds=limits.deadline_seconds,
        )
