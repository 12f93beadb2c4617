"""The content of a request as blocks. Media are given by digest or as bytes; their facts are read from the bytes, not
from the request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar, assert_never

import msgspec

from loom.content.blocks import (
    AudioBlock,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    UnknownBlock,
    VideoBlock,
    clean_text,
    page_range,
)
from loom.daemon.services import Daemon
from loom.daemon.sign_in import Identity
from loom.errors import ContentError, Unsupported
from loom.message_types import ContentInput, FileReference, ImageReference, MediaReference
from loom.runtime.media_intake import StoredUpload

BlockT = TypeVar("BlockT", ImageBlock, DocumentBlock, AudioBlock, VideoBlock)


async def blocks_of(
    daemon: Daemon, identity: Identity, workspace: str, text: str, given: Sequence[ContentInput]
) -> tuple[tuple[ContentBlock, ...], tuple[str, ...]]:
    """Return the blocks, the text first and the others in order, and notices about them."""
    blocks: list[ContentBlock] = [TextBlock(clean_text(text))] if text.strip() else []
    notices: list[str] = []
    for block in given:
        made, said = await _block(daemon, identity, workspace, block)
        blocks.append(made)
        notices += said
    return tuple(blocks), tuple(notices)


async def _block(
    daemon: Daemon, identity: Identity, workspace: str, given: ContentInput
) -> tuple[ContentBlock, tuple[str, ...]]:
    async def reuse(digest: str, name: str) -> StoredUpload:
        await daemon.access.check_media(identity, digest)
        return await daemon.intake.reuse(digest, name)

    match given:
        case TextBlock():
            return TextBlock(given.text), ()
        case UnknownBlock():
            raise Unsupported(f"Unknown block type {given.kind[:80]!r}.")
        case ImageReference():
            return _block_of_type(await reuse(given.image_id, given.name), ImageBlock), ()
        case MediaReference():
            taken = await reuse(given.digest, given.name)
            return _pages(taken.block, given.pages), ()
        case FileReference():
            taken = await daemon.intake.file(Path(workspace) if workspace else Path.cwd(), given.path)
            return taken.block, taken.notices
        case ImageBlock():
            block = _block_of_type(await reuse(given.media.digest, given.media.name), ImageBlock)
            return msgspec.structs.replace(block, alt=given.alt, detail=given.detail), ()
        case DocumentBlock():
            block = _block_of_type(await reuse(given.media.digest, given.media.name), DocumentBlock)
            return _pages(msgspec.structs.replace(block, title=given.title), given.pages), ()
        case AudioBlock():
            block = _block_of_type(await reuse(given.media.digest, given.media.name), AudioBlock)
            return msgspec.structs.replace(block, transcript=given.transcript), ()
        case VideoBlock():
            block = _block_of_type(await reuse(given.media.digest, given.media.name), VideoBlock)
            return msgspec.structs.replace(block, transcript=given.transcript), ()
        case _:
            assert_never(given)


def _block_of_type(taken: StoredUpload, kind: type[BlockT]) -> BlockT:
    if not isinstance(taken.block, kind):
        raise ContentError(f"{taken.media.name or 'That file'} is {taken.media.media_type}, not what the block says.")
    return taken.block


def _pages(block: ContentBlock, pages: str) -> ContentBlock:
    if not pages:
        return block
    if not isinstance(block, DocumentBlock):
        raise ContentError("Only a document has pages.")
    first, _ = page_range(pages)
    if block.media.pages is not None and first > block.media.pages:
        raise ContentError(f"The document has {block.media.pages} pages; page {first} does not exist.")
    return msgspec.structs.replace(block, pages=pages)
