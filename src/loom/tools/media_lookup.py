"""Find the medium or file that a model refers to: a medium of the session by id, digest or name, else a file of the
workspace."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

import msgspec

from loom.content.media import DIGEST_TAG, Media, digest_of
from loom.errors import NotFound, ToolError, Unreadable
from loom.formats import inspect
from loom.formats.facts import IntakeLimits, Rendered
from loom.formats.file_names import clean_name
from loom.formats.sniff import sniff
from loom.tools.base import ToolContext
from loom.tools.file_read import ask_to_read
from loom.tools.workspace import open_file, read_whole

ID_CHARS: Final = 12
_ID: Final = re.compile(r"(?:sha256:)?([0-9a-f]{8,64})")
_NUMBERED: Final = re.compile(r"\[?(?:image\s*#?|#)\s*(\d{1,6})\]?", re.IGNORECASE)


class LoadedMedia(msgspec.Struct, frozen=True):
    """A medium and its bytes."""

    media: Media
    data: bytes
    is_stored: bool
    """Whether the session contains it; `look` does not store files of the workspace."""


def short_id(media: Media) -> str:
    """Return enough of a digest to identify a medium within a session."""
    return media.digest.removeprefix(DIGEST_TAG)[:ID_CHARS]


def derived_media(made: Rendered, name: str) -> LoadedMedia:
    """Return derived bytes as a medium, for further use."""
    media = Media(
        digest=digest_of(made.data),
        media_type=made.media_type,
        size_bytes=len(made.data),
        width=made.width,
        height=made.height,
        pages=made.pages,
        name=name,
    )
    return LoadedMedia(media, made.data, is_stored=False)


async def find_medium(context: ToolContext, asked: str) -> LoadedMedia:
    """Return the medium with this id or name, or the file. Raise a ToolError that lists the media if there is none."""
    stored = await context.media()
    media = find_by_id(stored, asked) or find_by_name(stored, asked) or find_by_number(stored, asked)
    if media is not None:
        return LoadedMedia(media, await _load(context, media), is_stored=True)
    try:
        with open_file(context.workspace, asked) as opened:
            await ask_to_read(context, opened, asked)
            data = await asyncio.to_thread(read_whole, opened, context.limits)
    except Unreadable:
        raise _not_found(stored, asked) from None
    media = await asyncio.to_thread(_inspect, data, opened.path.name, context.limits)
    return LoadedMedia(msgspec.structs.replace(media, source=str(opened.path)), data, is_stored=False)


def _inspect(data: bytes, name: str, limits: IntakeLimits) -> Media:
    """Return the facts from intake; of a text, which is read by lines and may be long, only the type."""
    sniffed = sniff(data, name)
    if sniffed.category != "text":
        return inspect(data, name, limits).media
    return Media(digest=digest_of(data), media_type=sniffed.media_type, size_bytes=len(data), name=clean_name(name))


def find_by_id(stored: Sequence[Media], asked: str) -> Media | None:
    """Return the medium whose digest begins with `asked`, at least eight hex digits. Raise ToolError if several do."""
    found = _ID.fullmatch(asked.strip().lower())
    if found is None:
        return None
    matching = {media.digest: media for media in stored if media.digest.startswith(DIGEST_TAG + found[1])}
    if len(matching) > 1:
        listed = ", ".join(
            f"{media.digest.removeprefix(DIGEST_TAG)[:20]} ({media.name})" for media in matching.values()
        )
        raise ToolError(f"several media begin with {found[1]}: {listed}", hint="Use a longer id prefix.")
    return next(iter(matching.values()), None)


def find_by_name(stored: Sequence[Media], asked: str) -> Media | None:
    """Return the last medium with this name."""
    return next((media for media in reversed(stored) if media.name and media.name == asked.strip()), None)


def session_images(stored: Sequence[Media]) -> list[Media]:
    """Return the images of a conversation in the order in which receipts number them."""
    return [media for media in stored if media.media_type.startswith("image/")]


def find_by_number(stored: Sequence[Media], asked: str) -> Media | None:
    """Return the image that interfaces and receipts call `Image #1`, or None if `asked` has another form. Raise
    ToolError if there are fewer images."""
    found = _NUMBERED.fullmatch(asked.strip())
    if found is None:
        return None
    images, number = session_images(stored), int(found[1])
    if not 1 <= number <= len(images):
        there = "there are no images" if not images else f"there are {len(images)}, Image #1 to Image #{len(images)}"
        raise ToolError(f"Image #{number} not found in this conversation: {there}", hint="Call look() to list them.")
    return images[number - 1]


async def _load(context: ToolContext, media: Media) -> bytes:
    try:
        return await context.load(media.digest)
    except NotFound:
        raise ToolError(
            f"{media.label} is no longer stored", hint="Long outputs are kept for a few days only."
        ) from None


def _not_found(stored: Sequence[Media], asked: str) -> ToolError:
    names = list(dict.fromkeys(media.name for media in stored if media.name))
    near = get_close_matches(asked[:200], names, n=3, cutoff=0.5)
    hint = f"Near it: {', '.join(near)}." if near else "Call look() to list the media."
    return ToolError(f"No image, document or file {asked[:200]!r} found", hint=hint)
