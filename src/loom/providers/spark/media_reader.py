"""Read what a prompt shows: bytes from the source, then pixels and pages, outside the event loop.

Media that cannot be read become a sentence of the answer, not a failure.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from loom.content.media import Media, digest_of
from loom.content.recipes import Ocr, Page, Text
from loom.errors import Corrupt, ExtraMissing, MediaError
from loom.formats import ocr, render
from loom.formats.facts import IntakeLimits
from loom.formats.image.describe_pixels import PixelFacts, compare, describe
from loom.prompt import MediaRef
from loom.providers.media_body import BLOCK_BYTES, MediaSource
from loom.providers.samples import Sample
from loom.providers.spark.documents import QuotedDocument, read_document
from loom.providers.spark.turn import ShownDocument, ShownImage

NO_ENGINE: Final = "I cannot read words in images: no OCR engine is installed (pip install 'loom-runtime[ocr]')."
_OCR_LIMITS: Final = IntakeLimits(ocr_seconds=20.0)
_SCANNED_PAGES: Final = 3
"""Reading the text of a page image takes seconds."""

_Given = TypeVar("_Given")


class UnreadableMedia(str):
    """One sentence: why an image or a document could not be read."""

    __slots__ = ()


class SparkReader:
    """Reads bytes once per answer. `texts` holds the words of the documents that were read."""

    def __init__(self, source: MediaSource, *, reads_text: bool) -> None:
        self._source = source
        self.reads_text = reads_text
        self._bytes: dict[MediaRef, bytes] = {}
        self.texts: dict[MediaRef, str] = {}

    @property
    def engine(self) -> str:
        """The OCR engine in use, or nothing."""
        return ocr.is_available() if self.reads_text else ""

    async def look(self, image: ShownImage) -> PixelFacts | UnreadableMedia:
        return await _run_or_explain(describe, await self._data(image.media.ref))

    async def changed_percent(self, first: ShownImage, second: ShownImage) -> float | UnreadableMedia | None:
        a, b = await self._data(first.media.ref), await self._data(second.media.ref)
        return await _run_or_explain(compare, a, b)

    async def words_in(self, image: ShownImage) -> str | UnreadableMedia:
        data = await self._data(image.media.ref)
        return await _run_or_explain(ocr.read_picture, data, _OCR_LIMITS, beside=ocr.run_in_ocr_thread)

    async def read(self, shown: ShownDocument) -> QuotedDocument | UnreadableMedia:
        if shown.media is None:
            return await asyncio.to_thread(read_document, shown.name, shown.text, shown=shown.pages)
        ref = shown.media.ref
        data = await self._data(ref)
        # The bytes may be a slice of the medium that the reference names.
        media = Media(digest=digest_of(data), media_type=ref.media_type, size_bytes=len(data), name=shown.name)
        rendered = await _run_or_explain(render, data, media, Text())
        if isinstance(rendered, UnreadableMedia):
            return rendered
        self.texts[ref] = rendered.data.decode()
        first = int(shown.pages.partition("-")[0]) if shown.pages else 1
        found = await asyncio.to_thread(
            read_document, shown.name, self.texts[ref], first_page=first, shown=shown.pages, digest=ref.digest
        )
        return found if found.sentences else await self._read_scan(found, data, media, first)

    async def read_sample(self, sample: Sample) -> QuotedDocument:
        """Read a document that ships with Loom. It is in no store, so it has no digest."""
        digest, size = digest_of(sample.data), len(sample.data)
        media = Media(digest=digest, media_type=sample.media_type, size_bytes=size, name=sample.name)
        rendered = await asyncio.to_thread(render, sample.data, media, Text())
        return read_document(sample.name, rendered.data.decode())

    async def _read_scan(self, found: QuotedDocument, data: bytes, media: Media, first: int) -> QuotedDocument:
        """Read a document without a text layer by OCR, or look at its first page if there is no engine."""
        if not self.engine:
            page = await _run_or_explain(render, data, media, Page(1))
            seen = page if isinstance(page, UnreadableMedia) else await _run_or_explain(describe, page.data)
            looks = "" if isinstance(seen, UnreadableMedia) else f" Its first page: {describe_image(seen)}"
            note = f"It is a scan without a text layer.{f' {NO_ENGINE}' if self.reads_text else ''}{looks}"
            return msgspec.structs.replace(found, note=note)
        texts: list[str] = []
        for number in range(1, min(_SCANNED_PAGES, len(found.pages)) + 1):
            words = await _run_or_explain(render, data, media, Ocr(number), _OCR_LIMITS, beside=ocr.run_in_ocr_thread)
            if isinstance(words, UnreadableMedia):
                return msgspec.structs.replace(found, note=f"It is a scan, and OCR failed: {words}")
            texts.append(f"[page {number}]\n{words.data.decode()}")
        read = await asyncio.to_thread(read_document, found.name, "\n\n".join(texts), first_page=first)
        note = f"It is a scan; I read the first {len(texts)} of its pages with {self.engine}."
        return msgspec.structs.replace(found, sentences=read.sentences, note=note)

    async def _data(self, ref: MediaRef) -> bytes:
        if ref not in self._bytes:
            file = await self._source.open_local(ref)
            if file is None:
                data = b"".join([block async for block in self._source.blocks(ref, BLOCK_BYTES)])
            else:
                data = await asyncio.to_thread(_read_file, file)
            if ref.exact and len(data) != ref.size_bytes:
                raise Corrupt(f"A medium has {len(data)} bytes instead of {ref.size_bytes}.", hint="Run loom doctor.")
            self._bytes[ref] = data
        return self._bytes[ref]


def describe_image(seen: PixelFacts) -> str:
    """Return `A bright screenshot or diagram, 900×500 PNG. Mostly white (84%), navy (14%).`"""
    size = f"{seen.width}×{seen.height} {seen.media_type.rpartition('/')[2].removeprefix('x-').upper()}"
    colours = ", ".join(f"{share.name} ({share.percent}%)" for share in seen.palette)
    facts = [f"A {seen.tone} {seen.kind}, {size}. Mostly {colours}."]
    if len(seen.palette) == 1 and seen.palette[0].percent == 100:
        facts = [f"A plain {seen.palette[0].name} image, {size}."]
    if seen.clear_percent:
        facts.append(f"{seen.clear_percent}% of it is transparent.")
    if seen.frames > 1:
        facts.append(f"It has {seen.frames} frames; this is the first.")
    return " ".join(facts)


async def _run_or_explain(
    work: Callable[..., _Given], *given: object, beside: Callable[..., Awaitable[_Given]] = asyncio.to_thread
) -> _Given | UnreadableMedia:
    try:
        return await beside(work, *given)
    except (MediaError, ExtraMissing) as error:
        return UnreadableMedia(str(error))


def _read_file(file: io.RawIOBase) -> bytes:
    with file:
        return file.readall()
