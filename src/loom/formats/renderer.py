"""The renderer that compiling uses: `render` beside the event loop, and OCR for scanned pages."""

from __future__ import annotations

import asyncio

from loom.content.media import Media
from loom.content.recipes import Ocr, Recipe, Rendered
from loom.formats import ocr, render
from loom.formats.facts import IntakeLimits
from loom.formats.ocr.scanned_pages import has_scanned_pages, read_scanned_pages
from loom.formats.sniff import sniff


class FormatRenderer:
    def __init__(self, limits: IntakeLimits) -> None:
        self._limits = limits

    @property
    def reads_images(self) -> bool:
        return bool(ocr.is_available())

    def has_scans(self, rendered: Rendered) -> bool:
        return has_scanned_pages(rendered.data.decode())

    def media_type_of(self, data: bytes) -> str:
        return sniff(data).media_type

    async def render(self, data: bytes, media: Media, recipe: Recipe) -> Rendered:
        run = ocr.run_in_ocr_thread if isinstance(recipe, Ocr) else asyncio.to_thread
        return await run(render, data, media, recipe, self._limits)

    async def read_scans(self, data: bytes, media: Media, rendered: Rendered) -> Rendered:
        return await ocr.run_in_ocr_thread(read_scanned_pages, data, media, rendered, self._limits)
