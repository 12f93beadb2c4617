"""Content of a message → blocks whose bytes are in the store."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from loom.agent.custom_blocks import expand_custom_blocks
from loom.compile.ports import MediaWriter
from loom.content.blocks import (
    AudioBlock,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    UnknownBlock,
    VideoBlock,
    clean_text,
)
from loom.content.inputs import Attachment, Content, Ingested, flatten
from loom.content.recipes import Fit, Recipe, Rendered
from loom.errors import ContentError, StoreError, Unsupported
from loom.formats.facts import IntakeLimits
from loom.formats.intake import Accepted, accept
from loom.tools.workspace import open_file, read_whole


class FileBytes(msgspec.Struct, frozen=True):
    """The bytes of a file, its name, and its path."""

    data: bytes
    name: str
    source: str


ReadFile: TypeAlias = Callable[[Path], Awaitable[FileBytes]]
"""Reads the bytes of a path; raises if reading it is not allowed."""
Fetch: TypeAlias = Callable[[str], Awaitable[Attachment]]
"""Fetches a URL."""


class KeepRendition(Protocol):
    """Puts a rendition into the cache of derived bytes."""

    async def __call__(self, digest: str, recipe: Recipe, rendered: Rendered, *, is_original: bool) -> object: ...


class Prerender(msgspec.Struct, frozen=True):
    """Renditions that the next request will need. Images are rendered while they are decoded for the check."""

    recipes: tuple[Fit, ...]
    keep: KeepRendition


async def ingest(
    content: Content,
    writer: MediaWriter,
    *,
    limits: IntakeLimits = IntakeLimits(),
    read: ReadFile | None = None,
    fetch: Fetch | None = None,
    prerender: Prerender | None = None,
) -> Ingested:
    """Return the blocks of the content, in order. Every part is checked before any is stored, so a bad file leaves
    nothing behind. Raise `ContentError` if the content is empty.

    Without `read`, any file that the user can read may be named, relative to the working directory; without `fetch`,
    URLs are refused.
    """
    blocks: list[ContentBlock] = []
    notices: list[str] = []
    kept: list[Accepted] = []
    known: list[str] = []
    recipes = prerender.recipes if prerender is not None else ()
    for leaf in flatten(expand_custom_blocks(content)):
        match leaf:
            case str():
                if leaf.strip():
                    blocks.append(TextBlock(clean_text(leaf)))
                continue
            case TextBlock() | UnknownBlock():
                blocks.append(leaf)
                continue
            case ImageBlock() | DocumentBlock() | AudioBlock() | VideoBlock():
                blocks.append(leaf)
                known.append(leaf.media.digest)
                continue
            case Path() | bytes():
                attachment = Attachment(source=leaf)
            case Attachment():
                attachment = leaf
        admitted = await _accept(attachment, limits, read or read_own_file(limits), fetch, recipes)
        blocks.append(admitted.block)
        notices.extend(admitted.notices)
        kept.append(admitted)
    if not blocks:
        raise ContentError("The message is empty: add text, a file or a block")
    for admitted in kept:
        await _keep(admitted, writer, prerender)
    for digest in dict.fromkeys(known):
        await writer.refresh(digest)
    return Ingested(tuple(blocks), tuple(notices))


async def _keep(accepted: Accepted, writer: MediaWriter, prerender: Prerender | None) -> None:
    block, data = accepted.block, accepted.data
    if data is None or isinstance(block, TextBlock | UnknownBlock):
        return
    digest = await writer.put(data, block.media.digest)
    if prerender is None:
        return
    for made in accepted.renditions:
        with contextlib.suppress(StoreError):  # it is rendered again when a request needs it
            await prerender.keep(digest, made.recipe, made.rendered, is_original=made.rendered.data is data)


async def _accept(
    attachment: Attachment, limits: IntakeLimits, read: ReadFile, fetch: Fetch | None, recipes: tuple[Fit, ...]
) -> Accepted:
    source, origin = attachment.source, ""
    name = attachment.name
    if isinstance(source, str):
        if fetch is None:
            raise Unsupported(
                f"{source} is a URL, and URLs are not fetched here", hint="Download the file and attach it."
            )
        origin = source
        fetched = await fetch(source)
        source, name = fetched.source, name or fetched.name
    if isinstance(source, Path):
        found = await read(source)
        source, name, origin = found.data, name or found.name, found.source
    if isinstance(source, str):
        raise Unsupported(f"{origin} only redirects to another URL", hint="Download the file and attach it.")
    return await asyncio.to_thread(
        accept,
        source,
        name,
        source=origin,
        alt=attachment.alt,
        detail=attachment.detail,
        pages=attachment.pages,
        limits=limits,
        recipes=recipes,
        password=attachment.password,
    )


def read_own_file(limits: IntakeLimits) -> ReadFile:
    """Return a reader for files that the user names: any file that the user can read."""

    def read(path: Path) -> FileBytes:
        with open_file(Path.cwd(), str(path)) as opened:
            return FileBytes(read_whole(opened, limits), path.name, str(opened.path))

    async def in_thread(path: Path) -> FileBytes:
        return await asyncio.to_thread(read, path)

    return in_thread
