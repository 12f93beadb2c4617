"""Extract the text inside media for search: of documents always, of images if an OCR engine is installed.

Prompts and search share the texts through the derived cache: what is extracted for one is used by the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from loom.content.media import Media
from loom.content.recipes import Ocr, Rendered, Text
from loom.errors import BlobsUnavailable, Corrupt, ExtraMissing, MediaError, NotFound
from loom.formats import ocr, render
from loom.formats.facts import IntakeLimits
from loom.formats.ocr.scanned_pages import has_scanned_pages, read_scanned_pages
from loom.formats.sniff import sniff
from loom.store.derived import DerivedCache
from loom.store.media import MediaStore
from loom.store.media_text import MediaTextKind, MediaTexts


class IndexReport(msgspec.Struct, frozen=True, kw_only=True):
    """`left` counts media that are still without a text, because there is no OCR engine or there was no time."""

    read: int = 0
    left: int = 0


async def index_media(
    texts: MediaTexts,
    media: MediaStore,
    derived: DerivedCache,
    *,
    limits: IntakeLimits,
    pictures: bool = True,
    seconds: float | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> IndexReport:
    """Extract the texts of media that have none yet, newest first, for at most `seconds`. With `pictures` False, images
    get a text only if one is cached already. `on_progress` is called with the number done and the total."""
    unread = await texts.list_unread(pictures=pictures)
    until = None if seconds is None else time.monotonic() + seconds
    reader = _TextReader(media, derived, limits, pictures=pictures and bool(ocr.is_available()))
    read = 0
    for at, digest in enumerate(unread):
        if until is not None and time.monotonic() > until:
            break
        if on_progress is not None:
            on_progress(at, len(unread))
        found = await reader.words(digest)
        if found is not None:
            read += found[0] != "unread"
            await texts.put(digest, *found)
    return IndexReport(read=read, left=await texts.count_unread())


class _TextReader:
    def __init__(self, media: MediaStore, derived: DerivedCache, limits: IntakeLimits, *, pictures: bool) -> None:
        self._media = media
        self._derived = derived
        self._limits = limits
        self._pictures = pictures

    async def words(self, digest: str) -> tuple[MediaTextKind, str] | None:
        """Return the kind and text of a medium; None if its bytes are missing or unavailable. A medium that cannot be
        decoded has an empty text."""
        try:
            data = await self._media.load(digest)
        except (NotFound, Corrupt, BlobsUnavailable):
            return None
        found = sniff(data)
        medium = Media(digest=digest, media_type=found.media_type, size_bytes=len(data))
        try:
            match found.category:
                case "pdf" | "office" | "text":
                    return "document", await self._document(data, medium)
                case "image":
                    return await self._picture(data, medium)
                case _:
                    return "other", ""
        except MediaError:
            return "other", ""
        except ExtraMissing:
            return "unread", ""

    async def _document(self, data: bytes, medium: Media) -> str:
        cached = await self._read_cached(medium.digest, Text())
        if cached is not None and not has_scanned_pages(cached):
            return cached
        rendered = await asyncio.to_thread(self._read, data, medium)
        if self._pictures:
            await self._derived.put(medium.digest, Text(), rendered, is_original=rendered.data is data)
        return rendered.data.decode()

    def _read(self, data: bytes, medium: Media) -> Rendered:
        rendered = render(data, medium, Text(), self._limits)
        return read_scanned_pages(data, medium, rendered, self._limits) if self._pictures else rendered

    async def _picture(self, data: bytes, medium: Media) -> tuple[MediaTextKind, str]:
        cached = await self._read_cached(medium.digest, Ocr())
        if cached is not None:
            return "picture", cached
        if not self._pictures:
            return "unread", ""
        made = await ocr.run_in_ocr_thread(render, data, medium, Ocr(), self._limits)
        await self._derived.put(medium.digest, Ocr(), made)
        return "picture", made.data.decode()

    async def _read_cached(self, digest: str, recipe: Text | Ocr) -> str | None:
        entry = await self._derived.get(digest, recipe)
        if entry is None:
            return None
        try:
            data = await (self._media.load(digest) if entry.is_original else self._derived.load(entry))
        except (NotFound, Corrupt, BlobsUnavailable):
            return None
        return data.decode()
