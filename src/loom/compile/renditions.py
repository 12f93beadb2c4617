"""Renditions: derived bytes and texts that are rendered once, cached, and streamed to the socket."""

from __future__ import annotations

import contextlib
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Final, Generic, TypeAlias

from loom.compile.ports import E, MediaReader, Renderer, RenditionCache
from loom.content.media import Media
from loom.content.moments import time_label
from loom.content.recipes import Frame, Ocr, Page, Recipe, Rendered, Scenes, Slice, SpokenText, Text
from loom.errors import StoreError
from loom.prompt import MediaRef

OnText: TypeAlias = Callable[[str, Recipe, str], Awaitable[None]]
"""Receives the digest, the recipe and the text of a medium when it is first extracted."""

SLOW: Final = (Page, Ocr, Scenes, Frame, SpokenText)
"""Recipes that render pages, run OCR or transcribe: an estimate does not wait for them."""


class Renditions(Generic[E]):
    def __init__(
        self,
        media: MediaReader,
        cache: RenditionCache[E],
        renderer: Renderer,
        *,
        on_text: OnText | None = None,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        """Create the service. `on_text` receives newly extracted text; `on_progress` receives a short description of
        slow work."""
        self._media = media
        self._cache = cache
        self._renderer = renderer
        self._on_text = on_text
        self.on_progress = on_progress

    @property
    def reads_images(self) -> bool:
        return self._renderer.reads_images

    @property
    def transcribes(self) -> bool:
        return self._renderer.transcribes

    def report(self, text: str) -> None:
        if self.on_progress is not None:
            self.on_progress(text)

    async def load(self, digest: str) -> bytes:
        """Return the bytes of a medium itself."""
        return await self._media.load(digest)

    async def learn(self, wanted: Iterable[tuple[str, Recipe]]) -> Mapping[tuple[str, str], E]:
        """Load in one query which of these are in the cache; return them by digest and key of the recipe."""
        return await self._cache.learn(wanted)

    async def get(self, digest: str, media_type: str, recipe: Recipe) -> E:
        """Return the cache entry for `recipe`; render it now if it is not cached."""
        entry = await self._cache.get(digest, recipe)
        return entry if entry is not None else await self._make(digest, media_type, recipe)

    async def get_quick(self, digest: str, media_type: str, recipe: Recipe) -> E | None:
        """Return the cache entry for `recipe`, like `get`, but None if rendering it would take seconds (page images,
        OCR)."""
        entry = await self._cache.get(digest, recipe)
        is_slow = isinstance(recipe, SLOW) or (isinstance(recipe, Text) and media_type.startswith("video/"))
        if entry is not None or is_slow:
            return entry
        data, _, rendered = await self._render(digest, media_type, recipe)
        return (
            None
            if self._needs_ocr(recipe, rendered)
            else await self.keep(digest, recipe, rendered, is_original=rendered.data is data)
        )

    async def text(self, digest: str, entry: E) -> str:
        """Return the text of an entry that was made by `Text` or `Ocr`."""
        data = self._media.load(digest) if entry.is_original else self._cache.load(entry)
        return (await data).decode()

    async def _make(self, digest: str, media_type: str, recipe: Recipe) -> E:
        if work := _describe_work(recipe):
            self.report(work)
        data, media, rendered = await self._render(digest, media_type, recipe)
        if self._needs_ocr(recipe, rendered):
            rendered = await self._renderer.read_scans(data, media, rendered)
        return await self.keep(digest, recipe, rendered, is_original=rendered.data is data)

    async def _render(self, digest: str, media_type: str, recipe: Recipe) -> tuple[bytes, Media, Rendered]:
        data = await self._media.load(digest)
        media = Media(digest=digest, media_type=media_type, size_bytes=len(data))
        return data, media, await self._renderer.render(data, media, recipe)

    def _needs_ocr(self, recipe: Recipe, rendered: Rendered) -> bool:
        return isinstance(recipe, Text) and self._renderer.reads_images and self._renderer.has_scans(rendered)

    async def keep(self, digest: str, recipe: Recipe, rendered: Rendered, *, is_original: bool = False) -> E:
        """Store a rendition; with `is_original` its bytes are those of the medium."""
        entry = await self._cache.put(digest, recipe, rendered, is_original=is_original)
        if self._on_text is not None and isinstance(recipe, Text | Ocr | SpokenText):
            with contextlib.suppress(StoreError):  # only search would miss it, and the index catches up later
                await self._on_text(digest, recipe, rendered.data.decode())
        return entry

    # Reads for request bodies ----------------------------------------------------------------------------------------

    async def open_local(self, ref: MediaRef) -> io.RawIOBase | None:
        entry = await self._entry(ref)
        if entry is None or entry.is_original:
            return await self._media.open_local(ref.digest)
        return await self._cache.open_local(entry)

    async def blocks(self, ref: MediaRef, block_bytes: int) -> AsyncIterator[bytes]:
        entry = await self._entry(ref)
        if entry is None or entry.is_original:
            source = self._media.read_blocks(ref.digest, block_bytes)
        else:
            source = self._cache.read_blocks(entry, block_bytes)
        async for block in source:
            yield block

    async def _entry(self, ref: MediaRef) -> E | None:
        """Return the cache entry of a reference; None if it refers to the original bytes. Render it again if it was
        evicted since the prompt was settled: recipes are deterministic."""
        recipe = ref.recipe
        if recipe is None:
            return None
        entry = await self._cache.get(ref.digest, recipe)
        if entry is not None:
            return entry
        media_type = self._renderer.media_type_of(await self._media.load(ref.digest))
        return await self._make(ref.digest, media_type, recipe)


def _describe_work(recipe: Recipe) -> str:
    """Return a progress message for slow recipes; empty for fast ones."""
    match recipe:
        case Page():
            return f"rendering page {recipe.number}"
        case Text():
            return f"reading pages {recipe.pages}" if recipe.pages else "reading the document"
        case Ocr(page=0):
            return "reading the text in an image"
        case Ocr():
            return f"reading the text on page {recipe.page}"
        case Scenes():
            return "finding the scenes of the video"
        case Frame():
            return f"extracting the frame at {time_label(recipe.at_ms / 1000)}"
        case SpokenText():
            return "transcribing the recording"
        case Slice():
            return f"extracting pages {recipe.pages}"
        case _:
            return ""
