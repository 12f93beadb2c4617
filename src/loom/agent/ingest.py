"""Content as people and programs hand it over → blocks whose bytes are in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from loom.agent.custom import expand_custom_blocks
from loom.compile.ports import MediaWriter
from loom.content.blocks import AudioBlock, ContentBlock, DocumentBlock, ImageBlock, TextBlock, UnknownBlock, clean_text
from loom.content.inputs import Attachment, Content, flatten
from loom.errors import ContentError, Unsupported
from loom.formats.facts import IntakeLimits
from loom.formats.intake import Accepted, accept
from loom.tools.workspace import open_file, read_whole


class Ingested(msgspec.Struct, frozen=True):
    blocks: tuple[ContentBlock, ...]
    notices: tuple[str, ...]


class FileBytes(msgspec.Struct, frozen=True):
    """What was in a file, what it is called, and where it was."""

    data: bytes
    name: str
    source: str


ReadFile: TypeAlias = Callable[[Path], Awaitable[FileBytes]]
"""How a path becomes bytes; raises if reading it is not allowed."""
Fetch: TypeAlias = Callable[[str], Awaitable[Attachment]]
"""How an address becomes bytes."""


async def ingest(
    content: Content,
    shelf: MediaWriter,
    *,
    limits: IntakeLimits = IntakeLimits(),
    read: ReadFile | None = None,
    fetch: Fetch | None = None,
) -> Ingested:
    """Every leaf in order. All of it is understood before any of it is stored, so a bad file leaves nothing behind.

    Without `read`, paths are the user's own, taken from the working directory; without `fetch`, addresses are refused.
    """
    blocks: list[ContentBlock] = []
    notices: list[str] = []
    kept: list[bytes] = []
    known: list[str] = []
    for leaf in flatten(expand_custom_blocks(content)):
        match leaf:
            case str():
                if leaf.strip():
                    blocks.append(TextBlock(clean_text(leaf)))
                continue
            case TextBlock() | UnknownBlock():
                blocks.append(leaf)
                continue
            case ImageBlock() | DocumentBlock() | AudioBlock():
                blocks.append(leaf)
                known.append(leaf.media.digest)
                continue
            case Path() | bytes():
                attachment = Attachment(source=leaf)
            case Attachment():
                attachment = leaf
        admitted = await _accept(attachment, limits, read or read_own_file(limits), fetch)
        blocks.append(admitted.block)
        notices.extend(admitted.notices)
        if admitted.data is not None:
            kept.append(admitted.data)
    if not blocks:
        raise ContentError("the message is empty: give text, a file or a block")
    for data in kept:
        await shelf.put(data)
    for digest in dict.fromkeys(known):
        await shelf.refresh(digest)
    return Ingested(tuple(blocks), tuple(notices))


async def _accept(attachment: Attachment, limits: IntakeLimits, read: ReadFile, fetch: Fetch | None) -> Accepted:
    source, origin = attachment.source, ""
    name = attachment.name
    if isinstance(source, str):
        if fetch is None:
            raise Unsupported(
                f"{source} is a URL, and nothing is fetched here", hint="Download the file and attach it."
            )
        origin = source
        fetched = await fetch(source)
        source, name = fetched.source, name or fetched.name
    if isinstance(source, Path):
        found = await read(source)
        source, name, origin = found.data, name or found.name, found.source
    if isinstance(source, str):
        raise Unsupported(f"{origin} only leads to another address", hint="Download the file and attach it.")
    return await asyncio.to_thread(
        accept,
        source,
        name,
        source=origin,
        alt=attachment.alt,
        detail=attachment.detail,
        pages=attachment.pages,
        limits=limits,
    )


def read_own_file(limits: IntakeLimits) -> ReadFile:
    """Files that the user names: whatever they may read themselves."""

    def read(path: Path) -> FileBytes:
        with open_file(Path.cwd(), str(path)) as opened:
            return FileBytes(read_whole(opened, limits), path.name, str(opened.path))

    async def in_thread(path: Path) -> FileBytes:
        return await asyncio.to_thread(read, path)

    return in_thread
