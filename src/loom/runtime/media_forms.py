"""Media forms: stored media in the form that an interface shows: original, small, page by page, as text, or exactly as
a model would receive them."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from loom.api_types import FORMS, MediaText
from loom.compile.policy import DetachedMessage
from loom.compile.request import Snapshot
from loom.content.media import is_digest
from loom.content.messages import Message
from loom.content.recipes import DEFAULT_FORMATS, Fit, Low, Ocr, Page, Recipe, Text, Thumb, recipe_key
from loom.errors import ContentError, NotFound, NotSent, Unsupported
from loom.formats import ocr
from loom.formats.sniff.kinds import SVG, category_of
from loom.prompt import MediaRef
from loom.runtime.media_intake import MediaIntake
from loom.session import MediaBytes
from loom.store.derived import Derived

if TYPE_CHECKING:
    from loom.runtime import Runtime
    from loom.runtime.session import LocalSession

RENDERS_AT_ONCE: Final = 2
"""The limit for rendering; renditions that are cached do not wait."""
BLOCK_BYTES: Final = 1_000_000
PAGE_THUMB_PX: Final = 240
THUMB_PX: Final = 320
_FULL: Final = Fit(max_side_px=16_384, max_encoded_bytes=200_000_000, formats=(*DEFAULT_FORMATS, "image/gif"))
_FORM: Final = re.compile(FORMS)


class MediaForms:
    def __init__(self, runtime: Runtime, intake: MediaIntake) -> None:
        self._runtime = runtime
        self._intake = intake
        self._renders = asyncio.Semaphore(RENDERS_AT_ONCE)

    async def open(self, digest: str, form: str, session: LocalSession | None = None) -> MediaBytes:
        """Open a medium in a form of `Session.open_media`; `sent:MODEL` is the form in the next request of
        `session`."""
        if not _FORM.fullmatch(form):
            raise ContentError(
                f"Unknown media version: {form[:80]!r}.",
                hint="Use full, low, thumb, page:N, thumb:N or sent:MODEL.",
            )
        await self.check_exists(digest)
        kind, _, rest = form.partition(":")
        if kind == "sent":
            return await self._open_sent(digest, rest, session)
        media_type = await self._intake.media_type(digest)
        category = category_of(media_type)
        if kind == "full" and category != "image":
            media = self._runtime.stores.media
            return MediaBytes(
                media_type=media_type,
                size_bytes=await media.size(digest),
                etag=digest,
                file=await media.open_local(digest),
                blocks=media.read_blocks(digest),
            )
        if category == "audio" or (category == "text" and media_type != SVG):
            raise Unsupported("Audio and text have no preview image.", hint="Ask for v=full, or for the text.")
        return await self.derive(digest, media_type, self._recipe(kind, int(rest or 0)))

    async def check_exists(self, digest: str) -> None:
        if not is_digest(digest) or not await self._runtime.stores.media.exists(digest):
            raise media_not_found()

    def _recipe(self, kind: str, page: int) -> Recipe:
        config = self._runtime.config
        match kind:
            case "full":
                return _FULL
            case "low":
                return Low(side_px=config.images.low_res_size)
            case "page":
                return Page(number=page, dpi=config.documents.dpi)
            case _ if page:
                return Page(number=page, dpi=72, max_side_px=PAGE_THUMB_PX)
            case _:
                return Thumb(side_px=THUMB_PX)

    async def derive(self, digest: str, media_type: str, recipe: Recipe) -> MediaBytes:
        """Open the rendition of a medium. It is rendered once and cached."""
        renditions = self._runtime.stores.renditions
        ref = MediaRef(digest=digest, media_type=media_type, size_bytes=0, recipe=recipe)
        made = await self._render(ref, recipe)
        return MediaBytes(
            media_type=made.media_type,
            size_bytes=made.size_bytes,
            etag=f"sha256:{made.sha256}",
            file=await renditions.open_local(ref),
            blocks=renditions.blocks(ref, BLOCK_BYTES),
        )

    async def _render(self, ref: MediaRef, recipe: Recipe) -> Derived:
        derived = self._runtime.stores.derived
        made = await derived.get(ref.digest, recipe)
        if made is None:
            async with self._renders:
                file = await self._runtime.stores.renditions.open_local(ref)
                if file is not None:
                    file.close()
            made = await derived.get(ref.digest, recipe)
        if made is None:
            raise NotFound("The rendition was removed from the cache a moment ago.", hint="Try again.")
        return made

    async def _open_sent(self, digest: str, model: str, session: LocalSession | None) -> MediaBytes:
        """Open the bytes that a model would receive: in the next request of a session, or in a message with only this
        medium."""
        runtime = self._runtime
        if session is not None:
            if not await session.path():
                raise NotSent("The session has no messages yet.")
            request = await session.previews.next_request(model)
        else:
            block = (await self._intake.reuse(digest)).block
            snapshot = Snapshot(path=(DetachedMessage("look", Message("user", (block,))),))
            request = await runtime.library.next_request(snapshot, await runtime.models.resolve_live(model), tools=())
        ref = next((ref for ref in request.prompt.media() if ref.digest == digest), None)
        if ref is None:
            raise NotSent(f"{request.input.model.reference} does not receive this file: it gets its text, or nothing.")
        return MediaBytes(
            media_type=ref.media_type,
            size_bytes=ref.size_bytes,
            etag=f"{digest}.{recipe_key(ref.recipe) if ref.recipe else 'full'}",
            file=await runtime.stores.renditions.open_local(ref),
            blocks=runtime.stores.renditions.blocks(ref, BLOCK_BYTES),
            is_immutable=False,
        )

    async def text(self, digest: str, page: int = 0) -> MediaText:
        """Return the text of a document or a text file, or the text in an image if OCR is installed."""
        await self.check_exists(digest)
        media_type = await self._intake.media_type(digest)
        category = category_of(media_type)
        if category == "audio" or (category in ("image", "video") and not ocr.is_available()):
            return MediaText("", None)
        recipe: Recipe = Ocr() if category == "image" else Text(pages=str(page) if page and category != "text" else "")
        ref = MediaRef(digest=digest, media_type=media_type, size_bytes=0, recipe=recipe)
        made = await self._render(ref, recipe)
        data = b"".join([block async for block in self._runtime.stores.renditions.blocks(ref, BLOCK_BYTES)])
        return MediaText(data.decode("utf-8", "replace"), made.pages)


def media_not_found() -> NotFound:
    return NotFound("File not found in the store.", hint="Upload it: POST /v1/media.")
