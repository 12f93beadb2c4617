"""Media intake: store bytes from interfaces and return their blocks. What a client claims about them is not trusted.

Only a few files are decoded at the same time, so that memory stays bounded.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias, assert_never

import msgspec

from loom.content.blocks import (
    AudioBlock,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    MediaBlock,
    TextBlock,
    UnknownBlock,
    VideoBlock,
    clean_text,
)
from loom.content.media import Media, digest_of, is_digest
from loom.errors import NotFound, Unreadable
from loom.formats.facts import IntakeLimits
from loom.formats.file_names import clean_name
from loom.formats.intake import Accepted, accept
from loom.formats.sniff import sniff
from loom.store.media import MediaStore
from loom.tools.workspace import open_file, read_whole

AT_ONCE: Final = 2
REMEMBERED: Final = 5_000

IntakeKind: TypeAlias = Literal["image", "document", "audio", "video", "text"]


class SpooledUpload(Protocol):
    """Bytes on disk that are read once there is memory for them."""

    async def read_all(self) -> bytes: ...


class StoredUpload(msgspec.Struct, frozen=True, kw_only=True):
    """A file in the store. `media` describes the stored bytes, also for a text."""

    media: Media
    block: ContentBlock
    is_new: bool = False
    notices: tuple[str, ...] = ()

    @property
    def kind(self) -> IntakeKind:
        match self.block:
            case ImageBlock():
                return "image"
            case DocumentBlock():
                return "document"
            case AudioBlock():
                return "audio"
            case VideoBlock():
                return "video"
            case TextBlock() | UnknownBlock():
                return "text"
            case _:
                assert_never(self.block)


class MediaIntake:
    def __init__(self, media: MediaStore, limits: IntakeLimits) -> None:
        self._media = media
        self.limits = limits
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._known: OrderedDict[str, StoredUpload] = OrderedDict()

    async def accept(
        self, data: bytes | SpooledUpload, name: str = "", *, source: str = "", password: str = ""
    ) -> StoredUpload:
        """Decode a file, store it, and return its facts and its block. A file that is refused is not stored.

        A PDF that needs the `password` is stored decrypted.
        """
        name = clean_name(clean_text(name))
        async with self._turn:
            whole = data if isinstance(data, bytes) else await data.read_all()
            return await self._store_upload(whole, name, source, password)

    async def reuse(self, digest: str, name: str = "") -> StoredUpload:
        """Return the facts and the block of bytes that are already stored, and protect them from the next cleanup.
        Raise `NotFound` if they are not stored."""
        await self.keep(digest)
        name = clean_name(clean_text(name))
        found = self._known.get(digest)
        if found is None:
            async with self._turn:
                found = await self._store_upload(await self._media.load(digest), name, "")
        self._remember(digest, found)
        return _with_name(msgspec.structs.replace(found, is_new=False), name)

    async def keep(self, digest: str) -> None:
        """Protect stored bytes from the next cleanup; raise `NotFound` if they are not stored."""
        if not is_digest(digest) or not await self._media.refresh(digest):
            raise NotFound("File not found in the store.", hint="Upload it: POST /v1/media.")

    def drop(self, digests: Collection[str]) -> None:
        """Forget deleted media."""
        for digest in digests:
            self._known.pop(digest, None)

    async def file(self, workspace: Path, path: str) -> StoredUpload:
        """Store a file of a workspace. Files outside it, and files whose names suggest keys, are refused."""

        def read() -> tuple[bytes, str]:
            with open_file(workspace, path) as opened:
                if not opened.inside or opened.sensitive:
                    raise Unreadable(f"{path[:200]} is not a file of the workspace that may be attached")
                return read_whole(opened, self.limits), str(opened.path)

        async with self._turn:
            data, source = await asyncio.to_thread(read)
            return await self._store_upload(data, clean_name(Path(source).name), source)

    async def media_type(self, digest: str) -> str:
        """Return the type of stored bytes, even if intake would not accept them today."""
        found = self._known.get(digest)
        if found is not None:
            return found.media.media_type
        async with self._turn:
            data = await self._media.load(digest)
            return (await asyncio.to_thread(sniff, data)).media_type

    async def _store_upload(self, data: bytes, name: str, source: str, password: str = "") -> StoredUpload:
        admitted = await asyncio.to_thread(accept, data, name, source=source, limits=self.limits, password=password)
        kept = data if admitted.data is None else admitted.data
        media = await asyncio.to_thread(_media, admitted, kept, name)
        is_new = not await self._media.exists(media.digest)
        await self._media.put(kept)
        taken = StoredUpload(media=media, block=admitted.block, is_new=is_new, notices=admitted.notices)
        self._remember(media.digest, msgspec.structs.replace(taken, notices=()))
        return taken

    def _remember(self, digest: str, taken: StoredUpload) -> None:
        self._known[digest] = taken
        self._known.move_to_end(digest)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


def _media(admitted: Accepted, data: bytes, name: str) -> Media:
    block = admitted.block
    if isinstance(block, MediaBlock):
        return block.media
    media_type = sniff(data, name).media_type
    return Media(digest=digest_of(data), media_type=media_type, size_bytes=len(data), name=name)


def _with_name(taken: StoredUpload, name: str) -> StoredUpload:
    """Return the upload with another name."""
    if not name or name == taken.media.name:
        return taken
    media = msgspec.structs.replace(taken.media, name=name)
    block = taken.block
    if isinstance(block, MediaBlock):
        block = msgspec.structs.replace(block, media=media)
    elif isinstance(block, TextBlock):
        block = TextBlock(f"{file_header(name)}{block.text.removeprefix(file_header(taken.media.name))}")
    return msgspec.structs.replace(taken, media=media, block=block)


def file_header(name: str) -> str:
    """Return the line that names a text file in its block; empty for a text without a name."""
    return f"[file: {name}]\n" if name else ""
