"""Previews: images small enough to be part of an event, and scaled images for clients that request bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec
import pybase64

from loom.content.media import Media
from loom.content.recipes import Fit, Low, Recipe
from loom.errors import ExtraMissing, MediaError, StoreError
from loom.runtime.media_forms import MediaForms

_SIDES_PX: Final = (64, 40, 24, 12)
_FORMATS: Final = ("image/webp",)
PREVIEW_CHARACTERS: Final = 1_500
"""The maximum length of the whole data: URL."""
INLINE_BYTES: Final = 1_000_000
_INLINE: Final = Fit(max_side_px=1280, max_encoded_bytes=INLINE_BYTES)
_REMEMBERED: Final = 1_000


class InlinePreview(msgspec.Struct, frozen=True):
    media_type: str
    data: bytes


class Previews:
    """Renders previews once per medium and caches them as derived media. An image that cannot be rendered has none."""

    def __init__(self, forms: MediaForms) -> None:
        self._forms = forms
        self._known: OrderedDict[str, str] = OrderedDict()

    async def preview(self, media: Media) -> str:
        """Return a data: URL; empty if there is no preview."""
        known = self._known.get(media.digest)
        if known is None:
            known = self._known[media.digest] = await self._make(media)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        self._known.move_to_end(media.digest)
        return known

    async def inline(self, media: Media) -> InlinePreview | None:
        """Return the bytes to send over a socket, scaled down to `INLINE_BYTES`; None if they cannot be rendered."""
        return await self._render(media, _INLINE)

    async def _make(self, media: Media) -> str:
        for side_px in _SIDES_PX:
            made = await self._render(media, Low(side_px, _FORMATS))
            if made is None:
                return ""
            url = f"data:{made.media_type};base64,{pybase64.b64encode(made.data).decode()}"
            if len(url) <= PREVIEW_CHARACTERS:
                return url
        return ""

    async def _render(self, media: Media, recipe: Recipe) -> InlinePreview | None:
        try:
            found = await self._forms.derive(media.digest, media.media_type, recipe)
            return InlinePreview(found.media_type, await found.read())
        except (MediaError, ExtraMissing, StoreError):
            return None
