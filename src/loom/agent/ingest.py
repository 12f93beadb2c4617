"""Content as people and programs hand it over → blocks whose bytes are in the store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from loom.agent.ports import Shelf
from loom.content.blocks import AudioBlock, ContentBlock, DocumentBlock, ImageBlock, TextBlock, UnknownBlock, clean_text
from loom.content.inputs import Attachment, Content, flatten
from loom.errors import ContentError, Unsupported
from loom.formats.door import Admitted, admit
from loom.formats.facts import Limits
from loom.tools.workspace import open_file, read_whole


class Ingested(msgspec.Struct, frozen=True):
    blocks: tuple[ContentBlock, ...]
    notices: tuple[str, ...]


async def ingest(content: Content, shelf: Shelf, *, limits: Limits = Limits()) -> Ingested:
    """Every leaf in order. All of it is understood before any of it is stored, so a bad file leaves nothing behind."""
    blocks: list[ContentBlock] = []
    notices: list[str] = []
    kept: list[bytes] = []
    for leaf in flatten(content):
        match leaf:
            case str():
                if leaf.strip():
                    blocks.append(TextBlock(clean_text(leaf)))
                continue
            case TextBlock() | ImageBlock() | DocumentBlock() | AudioBlock() | UnknownBlock():
                blocks.append(leaf)
                continue
            case Path() | bytes():
                attachment = Attachment(source=leaf)
            case Attachment():
                attachment = leaf
        admitted = await asyncio.to_thread(_admit, attachment, limits)
        blocks.append(admitted.block)
        notices.extend(admitted.notices)
        if admitted.data is not None:
            kept.append(admitted.data)
    if not blocks:
        raise ContentError("there is nothing to say: give some text, a file or a block")
    for data in kept:
        await shelf.put(data)
    return Ingested(tuple(blocks), tuple(notices))


def _admit(attachment: Attachment, limits: Limits) -> Admitted:
    source = attachment.source
    if isinstance(source, str):
        raise Unsupported(
            f"{source} is a URL, and this session does not fetch any", hint="Download the file and attach it."
        )
    if isinstance(source, Path):
        with open_file(Path.cwd(), str(source)) as opened:
            data, name, origin = read_whole(opened, limits), attachment.name or source.name, str(opened.path)
    else:
        data, name, origin = source, attachment.name, ""
    return admit(
        data,
        name,
        source=origin,
        alt=attachment.alt,
        detail=attachment.detail,
        pages=attachment.pages,
        limits=limits,
    )
