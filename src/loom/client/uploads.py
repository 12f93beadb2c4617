"""Uploads content to a daemon; bytes that the daemon already has are not sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from loom.agent.ingest import read_own_file
from loom.api_types import MediaView
from loom.client.connection import DaemonConnection
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
from loom.content.media import digest_of
from loom.errors import ContentError, NotFound
from loom.formats.facts import IntakeLimits
from loom.struct_types import decode_json

_BINARY: Final = "application/octet-stream"


async def upload(link: DaemonConnection, content: Sequence[Content], limits: IntakeLimits) -> Ingested:
    """Upload all content and return its blocks in order. Paths are local files."""
    blocks: list[ContentBlock] = []
    notices: list[str] = []
    for leaf in flatten(list(content)):
        match leaf:
            case str():
                if leaf.strip():
                    blocks.append(TextBlock(clean_text(leaf)))
            case TextBlock() | ImageBlock() | DocumentBlock() | AudioBlock() | VideoBlock() | UnknownBlock():
                blocks.append(leaf)
            case Path() | bytes():
                kept = await upload_attachment(link, Attachment(source=leaf), limits)
                blocks.append(kept.block)
                notices += kept.notices
            case Attachment():
                kept = await upload_attachment(link, leaf, limits)
                blocks.append(_with_caption(kept.block, leaf))
                notices += kept.notices
    if not blocks:
        raise ContentError("The message is empty: add text, a file or a block")
    return Ingested(tuple(blocks), tuple(notices))


async def upload_attachment(link: DaemonConnection, attachment: Attachment, limits: IntakeLimits) -> MediaView:
    source, name = attachment.source, attachment.name
    if isinstance(source, str):
        return await _post_media(link, {"url": source, "name": name, "password": attachment.password})
    if isinstance(source, Path):
        found = await read_own_file(limits)(source)
        source, name = found.data, name or found.name
    digest = await asyncio.to_thread(digest_of, source)
    try:
        return await _post_media(link, {"digest": digest, "name": name})
    except NotFound:
        headers = {"content-type": _BINARY}
        if attachment.password:
            headers["x-loom-password"] = quote(attachment.password)
        answer = await link.ask("POST", f"/v1/media?name={quote(name)}", body=source, headers=headers)
        return decode_json(answer, MediaView)


async def _post_media(link: DaemonConnection, wanted: dict[str, Any]) -> MediaView:
    return decode_json(await link.ask("POST", "/v1/media", json=wanted), MediaView)


def _with_caption(block: ContentBlock, attachment: Attachment) -> ContentBlock:
    """Return the block with the caption and page range of the attachment."""
    match block:
        case ImageBlock():
            return msgspec.structs.replace(block, alt=attachment.alt or block.alt, detail=attachment.detail)
        case DocumentBlock():
            return msgspec.structs.replace(block, pages=attachment.pages or block.pages)
        case _:
            return block
