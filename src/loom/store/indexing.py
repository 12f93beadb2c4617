"""Reading the words inside media for search: documents at once, pictures where an OCR engine is installed."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Final

import msgspec

from loom.content.media import Media
from loom.content.recipes import Ocr, Text
from loom.errors import Corrupt, ExtraMissing, MediaError, NotFound
from loom.formats import ocr, render
from loom.formats.facts import Limits
from loom.formats.sniff import sniff
from loom.store.derived import DerivedCache
from loom.store.media import MediaStore
from loom.store.media_text import Kind, MediaTexts

_UNREAD_PAGE: Final = re.compile(r"^\[page (\d+): no text layer\]$", re.MULTILINE)
_OCR_PAGES: Final = 50


class Indexed(msgspec.Struct, frozen=True, kw_only=True):
    """`left` are media whose words are still not known: pictures without an engine, or what there was no time for."""

    read: int = 0
    left: int = 0


async def index_media(
    texts: MediaTexts,
    media: MediaStore,
    derived: DerivedCache,
    *,
    limits: Limits,
    pictures: bool = True,
    seconds: float | None = None,
    told: Callable[[int, int], None] | None = None,
) -> Indexed:
    """Read what is not known yet, the newest first, for at most so many seconds. `pictures` False reads only those
    whose words were needed before. `told` hears how many of how many are done."""
    unread = await texts.unread(pictures=pictures)
    until = None if seconds is None else time.monotonic() + seconds
    reader = _Reader(media, derived, limits, pictures=pictures and bool(ocr.available()))
    read = 0
    for at, digest in enumerate(unread):
        if until is not None and time.monotonic() > until:
            break
        if told is not None:
            told(at, len(unread))
        found = await reader.words(digest)
        if found is not None:
            read += found[0] != "unread"
            await texts.put(digest, *found)
    return Indexed(read=read, left=await texts.count_unread())


class _Reader:
    def __init__(self, media: MediaStore, derived: DerivedCache, limits: Limits, *, pictures: bool) -> None:
        self._media = media
        self._derived = derived
        self._limits = limits
        self._pictures = pictures

    async def words(self, digest: str) -> tuple[Kind, str] | None:
        """None where the bytes are gone. What cannot be read at all has no words."""
        try:
            data = await self._media.load(digest)
        except (NotFound, Corrupt):
            return None
        found = sniff(data)
        medium = Media(digest=digest, media_type=found.media_type, size_bytes=len(data))
        try:
            match found.category:
                case "pdf" | "office":
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
        cached = await self._cached(medium.digest, Text())
        if cached is not None and not _UNREAD_PAGE.search(cached):
            return cached
        return await asyncio.to_thread(self._read, data, medium)

    def _read(self, data: bytes, medium: Media) -> str:
        text = render(data, medium, Text(), self._limits).data.decode()
        if self._pictures:
            for page in list(_UNREAD_PAGE.finditer(text))[:_OCR_PAGES]:
                words = render(data, medium, Ocr(page=int(page[1])), self._limits).data.decode()
                text = text.replace(page[0], f"[page {page[1]}]\n{words}")
        return text

    async def _picture(self, data: bytes, medium: Media) -> tuple[Kind, str]:
        cached = await self._cached(medium.digest, Ocr())
        if cached is not None:
            return "picture", cached
        if not self._pictures:
            return "unread", ""
        made = await ocr.beside(render, data, medium, Ocr(), self._limits)
        return "picture", made.data.decode()

    async def _cached(self, digest: str, recipe: Text | Ocr) -> str | None:
        entry = await self._derived.get(digest, recipe)
        if entry is None:
            return None
        try:
            data = await (self._media.load(digest) if entry.is_original else self._derived.load(entry))
        except (NotFound, Corrupt):
            return None
        return data.decode()
