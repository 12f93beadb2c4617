"""MediaStore: bytes by digest, each stored once however often they are said."""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import AsyncIterable, AsyncIterator, Callable
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from loom.content.media import DIGEST_TAG, is_digest, size_label
from loom.errors import ConfigError, ContentError, TooLarge
from loom.store.blobs import BLOCK_BYTES, MAX_BLOB_BYTES, BlobStore, Checksum, missing_blob

TOP: Final = "media"
SPOOL_STEP_BYTES: Final = 1 << 20
TIMEOUT_SECONDS: Final = 10.0


class StoredMedia(msgspec.Struct, frozen=True, kw_only=True):
    """`modified_at` is when the bytes were last put or refreshed."""

    digest: str
    size_bytes: int
    modified_at: datetime


class MediaStore:
    """Everything raises `NotFound` for bytes that are gone, `Corrupt` for bytes that are not what was put, and
    `BlobsUnavailable` where it cannot be known for now; writing raises `Full` or `ReadOnly` besides, and then leaves
    nothing behind."""

    def __init__(self, place: BlobStore) -> None:
        self.place: Final = place

    async def put(self, data: bytes | memoryview, digest: str = "") -> str:
        """Give the digest once the bytes are safe. What is there already is not written again, only made young.
        `digest` is theirs, where intake has computed it already."""
        if isinstance(data, memoryview):
            data = data.cast("B")  # whose length is in bytes
        if len(data) > MAX_BLOB_BYTES:
            raise _too_large(MAX_BLOB_BYTES)
        return DIGEST_TAG + await self.place.put(data, _key_of, hex_of(digest) if digest else "")

    async def put_stream(self, chunks: AsyncIterable[bytes], *, max_bytes: int) -> tuple[str, int]:
        """The same for bytes in pieces, in constant memory. Over the limit: `TooLarge`, and nothing stays."""
        max_bytes = min(max_bytes, MAX_BLOB_BYTES)
        spool = await self.place.open_temp()
        try:
            hasher, size_bytes = hashlib.sha256(), 0
            pending = bytearray()
            async for chunk in chunks:
                size_bytes += len(chunk)
                if size_bytes > max_bytes:
                    raise _too_large(max_bytes)
                pending += chunk
                if len(pending) >= SPOOL_STEP_BYTES:
                    await _feed(pending, hasher.update, spool.append)
                    pending = bytearray()
            await _feed(pending, hasher.update, spool.append)
            digest = DIGEST_TAG + hasher.hexdigest()
            await spool.keep(digest_key(digest), _seal(digest))
        finally:
            await asyncio.shield(asyncio.to_thread(spool.discard))
        return digest, size_bytes

    async def load(self, digest: str) -> bytes:
        return await self.place.load(digest_key(digest), _seal(digest))

    async def open_local(self, digest: str) -> io.FileIO | None:
        """Return a checked file, for the caller to read and close; None where the bytes are not on this machine."""
        return await self.place.open_local(digest_key(digest), _seal(digest))

    def read_blocks(self, digest: str, block_bytes: int = BLOCK_BYTES) -> AsyncIterator[bytes]:
        """Yield blocks of exactly `block_bytes`, the last one excepted."""
        return self.place.blocks(digest_key(digest), _seal(digest), block_bytes)

    async def size(self, digest: str) -> int:
        key = digest_key(digest)
        entry = await self.place.stat(key)
        if entry is None:
            raise missing_blob(key)
        return entry.size_bytes

    async def exists(self, digest: str) -> bool:
        return await self.place.stat(digest_key(digest)) is not None

    async def refresh(self, digest: str) -> bool:
        """To be called before bytes that were put a while ago are referenced: a sweep will spare them for an hour.

        False when they are gone."""
        return await self.place.touch(digest_key(digest))

    async def delete(self, digest: str, *, unless_since: datetime | None = None) -> bool:
        """Return whether something was deleted; nothing is that was put or refreshed at or after `unless_since`."""
        return await self.place.delete(digest_key(digest), unless_since=unless_since)

    async def check(self) -> None:
        """Try whether bytes could be stored now: a bucket answers, a folder takes a small file. Raise `Full`,
        `ReadOnly` or `BlobsUnavailable` otherwise. For a readiness probe, every few seconds."""
        await self.place.check()

    async def listing(self) -> AsyncIterator[StoredMedia]:
        async for entry in self.place.listing(TOP):
            digest = DIGEST_TAG + entry.key.removeprefix(TOP).replace("/", "")
            if is_digest(digest):  # else a file that is not of the store's making
                yield StoredMedia(digest=digest, size_bytes=entry.size_bytes, modified_at=entry.modified_at)


async def _feed(data: bytearray, *takers: Callable[[bytearray], None]) -> None:
    """To all at the same time: hashing and writing do not hold the interpreter."""
    await asyncio.gather(*(asyncio.to_thread(take, data) for take in takers))


def open_media(address: str | Path, *, timeout_seconds: float = TIMEOUT_SECONDS) -> MediaStore:
    """Open the store in a folder (a path or `file:///path`) or in a bucket (`s3://bucket/prefix`).

    `timeout_seconds` is how long a bucket may take to answer."""
    if isinstance(address, Path) or "://" not in address:
        return _open_folder(Path(address))
    parts = urlsplit(address)
    match parts.scheme:
        case "s3":
            from loom.store.s3_blobs import open_bucket

            return MediaStore(open_bucket(address, timeout_seconds=timeout_seconds))
        case "file" if parts.netloc in ("", "localhost") and parts.path:
            return _open_folder(Path(unquote(parts.path)))
        case _:
            raise ConfigError(
                f"media cannot be stored at {parts.scheme}://{parts.hostname or ''}.",
                hint="Use a folder, file:///folder or s3://bucket/prefix.",
            )


def digest_key(digest: str) -> str:
    """`media/ab/cdef…`. The only way from a digest to a path; what is no digest never becomes one."""
    return _key_of(hex_of(digest))


def _key_of(hexadecimal: str) -> str:
    return f"{TOP}/{hexadecimal[:2]}/{hexadecimal[2:]}"


def hex_of(digest: str) -> str:
    if not is_digest(digest):
        raise ContentError(f"a digest is 'sha256:' and 64 hex digits, not {digest[:80]!r}")
    return digest.removeprefix(DIGEST_TAG)


def _open_folder(root: Path) -> MediaStore:
    from loom.store.local_blobs import LocalBlobs

    return MediaStore(LocalBlobs(root))


def _seal(digest: str) -> Checksum:
    return Checksum(hex_of(digest))


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(
        f"The file is larger than the {size_label(max_bytes)} that are taken.", hint="Supply a smaller one."
    )
