"""Content on its way to a daemon: bytes that it has already are not sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from loom.agent.ingest import own_file
from loom.client.link import Link
from loom.content.blocks import (
    AudioBlock,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    UnknownBlock,
    clean_text,
)
from loom.content.inputs import Attachment, Content, flatten
from loom.content.media import digest_of
from loom.errors import ContentError, NotFound
from loom.formats.facts import Limits

_BINARY: Final = "application/octet-stream"


class _Kept(msgspec.Struct):
    """What is read of a medium that the daemon holds."""

    block: ContentBlock
    notices: tuple[str, ...] = ()


class Uploaded(msgspec.Struct, frozen=True):
    blocks: tuple[ContentBlock, ...]
    notices: tuple[str, ...]


async def upload(link: Link, content: Sequence[Content], limits: Limits) -> Uploaded:
    """Every leaf in order as a block whose bytes the daemon holds. Paths are files of this machine."""
    blocks: list[ContentBlock] = []
    notices: list[str] = []
    for leaf in flatten(list(content)):
        match leaf:
            case str():
                if leaf.strip():
                    blocks.append(TextBlock(clean_text(leaf)))
            case TextBlock() | ImageBlock() | DocumentBlock() | AudioBlock() | UnknownBlock():
                blocks.append(leaf)
            case Path() | bytes():
                kept = await _kept(link, Attachment(source=leaf), limits)
                blocks.append(kept.block)
                notices += kept.notices
            case Attachment():
                kept = await _kept(link, leaf, limits)
                blocks.append(_described(kept.block, leaf))
                notices += kept.notices
    if not blocks:
        raise ContentError("there is nothing to say: give some text, a file or a block")
    return Uploaded(tuple(blocks), tuple(notices))


async def _kept(link: Link, attachment: Attachment, limits: Limits) -> _Kept:
    source, name = attachment.source, attachment.name
    if isinstance(source, str):
        return await _told(link, {"url": source, "name": name})
    if isinstance(source, Path):
        found = await own_file(limits)(source)
        source, name = found.data, name or found.name
    digest = await asyncio.to_thread(digest_of, source)
    try:
        return await _told(link, {"digest": digest, "name": name})
    except NotFound:
        answer = await link.ask("POST", f"/v1/media?name={quote(name)}", body=source, headers={"content-type": _BINARY})
        return msgspec.json.decode(answer, type=_Kept)


async def _told(link: Link, wanted: dict[str, Any]) -> _Kept:
    return msgspec.json.decode(await link.ask("POST", "/v1/media", json=wanted), type=_Kept)


def _described(block: ContentBlock, attachment: Attachment) -> ContentBlock:
    """What is said about the bytes is not in them."""
    match block:
        case ImageBlock():
            return msgspec.structs.replace(block, alt=attachment.alt or block.alt, detail=attachment.detail)
        case DocumentBlock():
            return msgspec.structs.replace(block, pages=attachment.pages or block.pages)
        case _:
            return block
