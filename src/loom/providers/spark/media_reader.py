"""Reads what is shown: bytes from the source, then pixels and pages, away from the event loop.

Whatever cannot be read is told in words: a picture that does not decode is something to say, not a failure.
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
from loom.formats.image.describe_pixels import ImageDifference, PixelFacts, compare, describe
from loom.prompt import MediaRef, ShownMedia
from loom.providers.media_body import BLOCK_BYTES, MediaSource
from loom.providers.samples import Sample
from loom.providers.spark.pictures import describe_image
from loom.providers.spark.quotes import QuotedDocument
from loom.providers.spark.sentences import read_text
from loom.providers.spark.turn import ShownDocument, ShownImage

NO_ENGINE: Final = "I cannot read words in pictures: no OCR engine is installed (pip install 'loom-runtime[ocr]')."
READING_SECONDS: Final = 20.0
SCANNED_PAGES: Final = 3
"""Reading the text of a page picture takes seconds."""

_Given = TypeVar("_Given")


class UnreadableMedia(str):
    """One sentence: why a picture or a document could not be looked at."""

    __slots__ = ()


class SparkReader:
    """Bytes are read once per answer. `texts` holds the words of the documents that were read."""

    def __init__(self, source: MediaSource, *, reads_text: bool) -> None:
        self._source = source
        self.reads_text = reads_text
        self._bytes: dict[MediaRef, bytes] = {}
        self.texts: dict[MediaRef, str] = {}

    @property
    def engine(self) -> str:
        """The OCR engine in use, or nothing."""
        return ocr.is_available() if self.reads_text else ""

    async def look(self, picture: ShownImage) -> PixelFacts | UnreadableMedia:
        data = await self._data(picture.media.ref)
        return await _run_or_explain(describe, data)

    async def compare(self, first: ShownImage, second: ShownImage) -> ImageDifference | UnreadableMedia:
        a, b = await self._data(first.media.ref), await self._data(second.media.ref)
        return await _run_or_explain(compare, a, b)

    async def words_in(self, picture: ShownImage) -> str | UnreadableMedia:
        data = await self._data(picture.media.ref)
        return await _run_or_explain(
            ocr.read_picture, data, IntakeLimits(ocr_seconds=READING_SECONDS), beside=ocr.run_in_ocr_thread
        )

    async def read(self, paper: ShownDocument) -> QuotedDocument | UnreadableMedia:
        if paper.media is None:
            text = await asyncio.to_thread(read_text, paper.text)
            return QuotedDocument(name=paper.name, text=text, shown=paper.pages)
        ref = paper.media.ref
        data = await self._data(ref)
        media = _media(data, paper.media, paper.name)
        rendered = await _run_or_explain(render, data, media, Text())
        if isinstance(rendered, UnreadableMedia):
            return rendered
        self.texts[ref] = rendered.data.decode()
        first = int(paper.pages.partition("-")[0]) if paper.pages else 1
        text = await asyncio.to_thread(read_text, self.texts[ref], first)
        source = QuotedDocument(name=paper.name, text=text, digest=ref.digest, shown=paper.pages)
        is_blank = not text.sentences and not text.headings and len(text.blank_pages) == len(text.pages)
        return await self._scan_pages(source, data, media, first) if is_blank else source

    async def read_sample(self, sample: Sample) -> QuotedDocument:
        """A document that ships with Loom and is in no store, so it is cited without a digest."""
        media = Media(
            digest=digest_of(sample.data),
            media_type=sample.media_type,
            size_bytes=len(sample.data),
            name=sample.name,
        )
        rendered = await asyncio.to_thread(render, sample.data, media, Text())
        return QuotedDocument(name=sample.name, text=read_text(rendered.data.decode()))

    async def _scan_pages(
        self, source: QuotedDocument, data: bytes, media: Media, first: int
    ) -> QuotedDocument | UnreadableMedia:
        """A document without a text layer: its pages are pictures."""
        if not self.engine:
            page = await _run_or_explain(render, data, media, Page(1))
            seen = page if isinstance(page, UnreadableMedia) else await _run_or_explain(describe, page.data)
            looks = f" Its first page: {describe_image(seen)}" if isinstance(seen, PixelFacts) else ""
            note = f"It is a scan without a text layer.{f' {NO_ENGINE}' if self.reads_text else ''}{looks}"
            return msgspec.structs.replace(source, note=note)
        texts: list[str] = []
        failed = ""
        for number in range(1, min(SCANNED_PAGES, len(source.text.pages)) + 1):
            limits = IntakeLimits(ocr_seconds=READING_SECONDS)
            words = await _run_or_explain(render, data, media, Ocr(number), limits, beside=ocr.run_in_ocr_thread)
            if isinstance(words, UnreadableMedia):
                failed = failed or words
            else:
                texts.append(f"[page {number}]\n{words.data.decode()}")
        if failed and not texts:
            return UnreadableMedia(f"It is a scan, and reading it with {self.engine} failed: {failed}")
        text = await asyncio.to_thread(read_text, "\n\n".join(texts) or "[page 1]", first)
        whole = msgspec.structs.replace(text, pages=source.text.pages, blank_pages=())
        read = "its only page" if len(source.text.pages) == 1 else f"the first {len(texts)} of its pages"
        return msgspec.structs.replace(source, text=whole, note=f"It is a scan; I read {read} with {self.engine}.")

    async def _data(self, ref: MediaRef) -> bytes:
        if ref not in self._bytes:
            self._bytes[ref] = await _read(self._source, ref)
        return self._bytes[ref]


def _media(data: bytes, shown: ShownMedia, name: str) -> Media:
    """The bytes may be a slice of the medium that the reference names."""
    return Media(digest=digest_of(data), media_type=shown.ref.media_type, size_bytes=len(data), name=name)


async def _run_or_explain(
    work: Callable[..., _Given], *given: object, beside: Callable[..., Awaitable[_Given]] = asyncio.to_thread
) -> _Given | UnreadableMedia:
    try:
        return await beside(work, *given)
    except (MediaError, ExtraMissing) as error:
        return UnreadableMedia(str(error))


async def _read(source: MediaSource, ref: MediaRef) -> bytes:
    file = await source.open_local(ref)
    if file is None:
        data = b"".join([block async for block in source.blocks(ref, BLOCK_BYTES)])
    else:
        data = await asyncio.to_thread(_read_file, file)
    if ref.exact and len(data) != ref.size_bytes:
        raise Corrupt(
            f"a medium has {len(data)} bytes, not the {ref.size_bytes} that were announced", hint="Run loom doctor."
        )
    return data


def _read_file(file: io.RawIOBase) -> bytes:
    with file:
        return file.readall()
