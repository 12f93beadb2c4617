"""The renderer of the compiler: runs `render` outside the event loop, and OCR for scanned pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from loom.content.media import Media
from loom.content.recipes import Ocr, Recipe, Rendered, SoundTrack, SpokenText
from loom.errors import ExtraMissing
from loom.formats import ocr, render
from loom.formats.audio import Transcriber, transcript_text
from loom.formats.facts import IntakeLimits
from loom.formats.ocr.scanned_pages import has_scanned_pages, read_scanned_pages
from loom.formats.sniff import sniff


class FormatRenderer:
    """`transcriber` returns the configured transcriber, or None if there is none."""

    def __init__(self, limits: IntakeLimits, transcriber: Callable[[], Transcriber | None] = lambda: None) -> None:
        self._limits = limits
        self._transcriber = transcriber

    @property
    def reads_images(self) -> bool:
        return bool(ocr.is_available())

    @property
    def transcribes(self) -> bool:
        return self._transcriber() is not None

    def has_scans(self, rendered: Rendered) -> bool:
        return has_scanned_pages(rendered.data.decode())

    def media_type_of(self, data: bytes) -> str:
        return sniff(data).media_type

    async def render(self, data: bytes, media: Media, recipe: Recipe) -> Rendered:
        if isinstance(recipe, SpokenText):
            return await self._transcribe(data, media)
        run = ocr.run_in_ocr_thread if isinstance(recipe, Ocr) else asyncio.to_thread
        return await run(render, data, media, recipe, self._limits)

    async def _transcribe(self, data: bytes, media: Media) -> Rendered:
        """Transcribe a recording. If the transcriber does not accept its type, as with most videos, send the audio
        track alone."""
        transcriber = self._transcriber()
        if transcriber is None:
            raise ExtraMissing(
                "No transcriber is configured.", hint="Set audio.transcriber or audio.transcribe_command."
            )
        media_type = media.media_type
        if media_type not in transcriber.accepts:
            sound = await asyncio.to_thread(render, data, media, SoundTrack(), self._limits)
            data, media_type = sound.data, sound.media_type
        heard = await transcriber.transcribe(data, media_type, name=media.name)
        return Rendered(data=transcript_text(heard).encode(), media_type="text/plain")

    async def read_scans(self, data: bytes, media: Media, rendered: Rendered) -> Rendered:
        return await ocr.run_in_ocr_thread(read_scanned_pages, data, media, rendered, self._limits)
