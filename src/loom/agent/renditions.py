"""Renditions: makes the derived bytes and texts that a prompt needs, once, and hands them to the socket.

This is where `prepare`, which is pure, meets the store: it asks for what it lacks, and is run again with the facts.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, Generic, TypeAlias

import msgspec

from loom.agent.ports import DerivedShelf, E, MediaShelf
from loom.content.media import Media
from loom.content.recipes import Ocr, Page, Recipe, Slice, Text, recipe_key
from loom.context.policy import DerivedFacts, Known, Need
from loom.context.prepare import Prepared
from loom.errors import Corrupt, ExtraMissing, MediaError, NotFound, StoreError
from loom.formats import ocr, render
from loom.formats.facts import Limits, Rendered
from loom.formats.sniff import sniff
from loom.prompt import MediaRef, Prompt

OnText: TypeAlias = Callable[[str, Recipe, str], Awaitable[None]]
Prepare: TypeAlias = Callable[[Known], Prepared]

_ROUNDS: Final = 16
"""Each round makes what the last one lacked; a history that needed six is the longest known."""
_OCR_PAGES: Final = 20
_UNREAD_PAGE: Final = re.compile(r"^\[page (\d+): no text layer\]$", re.MULTILINE)


class AtOnce(msgspec.Struct, frozen=True):
    """A `prepare` that takes a few milliseconds at most: a thread of its own would take longer than it frees."""

    prepare: Prepare

    def __call__(self, known: Known) -> Prepared:
        return self.prepare(known)


class Renditions(Generic[E]):
    """`on_text` is told the words of a medium when they were read for the first time."""

    def __init__(
        self, media: MediaShelf, derived: DerivedShelf[E], *, limits: Limits, on_text: OnText | None = None
    ) -> None:
        self._media = media
        self._derived = derived
        self._limits = limits
        self._on_text = on_text
        self.on_progress: Callable[[str], None] | None = None
        """Told in a few words what is being made, where that takes time."""
        self._facts: dict[tuple[str, str], DerivedFacts] = {}
        self._texts: dict[tuple[str, str], str] = {}
        self._failed: dict[tuple[str, str], str] = {}
        self._missing: set[str] = set()

    @property
    def known(self) -> Known:
        return Known(derived=self._facts, texts=self._texts, failed=self._failed, missing=frozenset(self._missing))

    def tell(self, words: str) -> None:
        """Whoever waits is told what is being done."""
        if self.on_progress is not None:
            self.on_progress(words)

    async def settle(self, prepare: Prepare) -> Prepared:
        """Run `prepare` until it lacks nothing that can be made. Every round makes what the last one asked for."""
        await self._look_again()
        prepared = await self._prepared(prepare)
        for _ in range(_ROUNDS):
            needs = [need for need in prepared.needs if not self._settled(need)]
            if not needs:
                break
            await self._make(needs)
            prepared = await self._prepared(prepare)
        return prepared

    async def _prepared(self, prepare: Prepare) -> Prepared:
        """Thousands of messages would hold up everybody else."""
        if not isinstance(prepare, AtOnce):
            return await asyncio.to_thread(prepare, self.known)
        prepared = prepare(self.known)
        await asyncio.sleep(0)  # whoever waited meanwhile goes before the request is written
        return prepared

    async def _look_again(self) -> None:
        """What was gone may have been attached once more."""
        for digest in tuple(self._missing):
            with contextlib.suppress(NotFound, Corrupt):
                await self._media.load(digest)
                self._missing.discard(digest)

    def _settled(self, need: Need) -> bool:
        key = (need.digest, recipe_key(need.recipe))
        return key in self._facts or key in self._texts or key in self._failed or need.digest in self._missing

    async def _make(self, needs: Sequence[Need]) -> None:
        for need in needs:
            await self._make_one(need.digest, need.media_type, need.recipe)

    async def _make_one(self, digest: str, media_type: str, recipe: Recipe) -> None:
        key = (digest, recipe_key(recipe))
        if isinstance(recipe, Ocr) and not ocr.available():
            self._texts[key] = ""
            return
        try:
            derived = await self._derived.get(digest, recipe)
            if derived is None:
                derived = await self._made(digest, media_type, recipe)
            if isinstance(recipe, Text | Ocr):
                source = self._media.load(digest) if derived.is_original else self._derived.load(derived)
                self._texts[key] = (await source).decode()
            else:
                self._facts[key] = msgspec.convert(derived, DerivedFacts, from_attributes=True)
        except (NotFound, Corrupt):
            self._missing.add(digest)
        except (MediaError, ExtraMissing) as error:
            self._failed[key] = error.message

    async def _made(self, digest: str, media_type: str, recipe: Recipe) -> E:
        if words := _work(recipe):
            self.tell(words)
        rendered = await self._render(digest, media_type, recipe)
        derived = await self._derived.put(digest, recipe, rendered)
        if self._on_text is not None and isinstance(recipe, Text | Ocr):
            with contextlib.suppress(StoreError):  # only search would miss it, and that catches up by itself
                await self._on_text(digest, recipe, rendered.data.decode())
        return derived

    async def _render(self, digest: str, media_type: str, recipe: Recipe) -> Rendered:
        data = await self._media.load(digest)
        media = Media(digest=digest, media_type=media_type, size_bytes=len(data))
        beside = ocr.beside if isinstance(recipe, Ocr) else asyncio.to_thread
        rendered = await beside(render, data, media, recipe, self._limits)
        if isinstance(recipe, Text) and ocr.available() and _UNREAD_PAGE.search(rendered.data.decode()):
            return await ocr.beside(self._read_scans, data, media, rendered)
        return rendered

    def _read_scans(self, data: bytes, media: Media, rendered: Rendered) -> Rendered:
        """Pages without a text layer are read from their picture, where something can read."""
        text = rendered.data.decode()
        for found in list(_UNREAD_PAGE.finditer(text))[:_OCR_PAGES]:
            words = render(data, media, Ocr(page=int(found[1])), self._limits).data.decode().strip()
            if words:
                text = text.replace(found[0], f"[page {found[1]}, read from its picture]\n{words}")
        return msgspec.structs.replace(rendered, data=text.encode())

    async def recheck(self, prompt: Prompt) -> frozenset[str]:
        """Look again whether the media of a prompt are there, and forget what was known of them; the digests of those
        that are gone come back."""
        digests = {ref.digest for ref in prompt.media()}
        for facts in (self._facts, self._texts, self._failed):
            for key in [key for key in facts if key[0] in digests]:
                del facts[key]
        for digest in digests:
            try:
                await self._media.load(digest)
            except (NotFound, Corrupt):
                self._missing.add(digest)
        return frozenset(digests & self._missing)

    # What a request body reads ---------------------------------------------------------------------------------------

    async def open_local(self, ref: MediaRef) -> io.RawIOBase | None:
        derived = await self._entry(ref)
        if derived is None or derived.is_original:
            return await self._media.open_local(ref.digest)
        return await self._derived.open_local(derived)

    async def blocks(self, ref: MediaRef, block_bytes: int) -> AsyncIterator[bytes]:
        derived = await self._entry(ref)
        if derived is None or derived.is_original:
            source = self._media.read_blocks(ref.digest, block_bytes)
        else:
            source = self._derived.read_blocks(derived, block_bytes)
        async for block in source:
            yield block

    async def _entry(self, ref: MediaRef) -> E | None:
        """Derived bytes may have been cleaned up since the prompt was settled; recipes are deterministic."""
        recipe = ref.recipe
        if recipe is None:
            return None
        derived = await self._derived.get(ref.digest, recipe)
        if derived is not None:
            return derived
        return await self._made(ref.digest, sniff(await self._media.load(ref.digest)).media_type, recipe)


def _work(recipe: Recipe) -> str:
    """What a recipe does, for who waits for it; empty where it takes no time to speak of."""
    match recipe:
        case Page():
            return f"drawing page {recipe.number}"
        case Text():
            return f"reading pages {recipe.pages}" if recipe.pages else "reading the document"
        case Ocr(page=0):
            return "reading the words in a picture"
        case Ocr():
            return f"reading the words on page {recipe.page}"
        case Slice():
            return f"taking pages {recipe.pages} out of the document"
        case _:
            return ""
