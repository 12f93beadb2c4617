"""MediaStore: bytes by digest, each stored once."""

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
    """Every method raises `NotFound` for missing bytes, `Corrupt` for damaged ones and `BlobsUnavailable` if the store
    cannot be reached. Writing also raises `Full` or `ReadOnly`, and then leaves nothing behind."""

    def __init__(self, place: BlobStore) -> None:
        self.place: Final = place

    async def put(self, data: bytes | memoryview, digest: str = "") -> str:
        """Store bytes; return their digest once they are durable. Bytes that are stored already are not written again,
        only their modification time is set to now. Pass `digest` if it is already known."""
        if isinstance(data, memoryview):
            data = data.cast("B")  # so that len() counts bytes
        if len(data) > MAX_BLOB_BYTES:
            raise _too_large(MAX_BLOB_BYTES)
        return DIGEST_TAG + await self.place.put(data, _key_of, hex_of(digest) if digest else "")

    async def put_stream(self, chunks: AsyncIterable[bytes], *, max_bytes: int) -> tuple[str, int]:
        """Store bytes from a stream in constant memory; return their digest and size. Raise `TooLarge`, and store
        nothing, if there are more than `max_bytes`."""
        max_bytes = min(max_bytes, MAX_BLOB_BYTES)
        temp = await self.place.open_temp()
        try:
            hasher, size_bytes = hashlib.sha256(), 0
            pending = bytearray()
            async for chunk in chunks:
                size_bytes += len(chunk)
                if size_bytes > max_bytes:
                    raise _too_large(max_bytes)
                pending += chunk
                if len(pending) >= SPOOL_STEP_BYTES:
                    await _feed(pending, hasher.update, temp.append)
                    pending = bytearray()
            await _feed(pending, hasher.update, temp.append)
            digest = DIGEST_TAG + hasher.hexdigest()
            await temp.keep(digest_key(digest), _checksum(digest))
        finally:
            await asyncio.shield(asyncio.to_thread(temp.discard))
        return digest, size_bytes

    async def load(self, digest: str) -> bytes:
        return await self.place.load(digest_key(digest), _checksum(digest))

    async def open_local(self, digest: str) -> io.FileIO | None:
        """Return a verified file, which the caller reads and closes; None if the bytes are not on this machine."""
        return await self.place.open_local(digest_key(digest), _checksum(digest))

    def read_blocks(self, digest: str, block_bytes: int = BLOCK_BYTES) -> AsyncIterator[bytes]:
        """Yield blocks of exactly `block_bytes`; the last one may be shorter."""
        return self.place.blocks(digest_key(digest), _checksum(digest), block_bytes)

    async def size(self, digest: str) -> int:
        key = digest_key(digest)
        entry = await self.place.stat(key)
        if entry is None:
            raise missing_blob(key)
        return entry.size_bytes

    async def exists(self, digest: str) -> bool:
        return await self.place.stat(digest_key(digest)) is not None

    async def refresh(self, digest: str) -> bool:
        """Set the modification time to now, so that no sweep deletes the bytes within an hour. Call it before a message
        refers to bytes that were stored a while ago. Return False if they are missing."""
        return await self.place.touch(digest_key(digest))

    async def delete(self, digest: str, *, unless_since: datetime | None = None) -> bool:
        """Delete bytes. Return False if they are missing, or were stored or refreshed at or after `unless_since`."""
        return await self.place.delete(digest_key(digest), unless_since=unless_since)

    async def check(self) -> None:
        """Test whether bytes could be stored now: write a small file to the folder, or send a request to the bucket.
        Raise `Full`, `ReadOnly` or `BlobsUnavailable` if not. Cheap enough for a readiness probe every few seconds."""
        await self.place.check()

    async def listing(self) -> AsyncIterator[StoredMedia]:
        async for entry in self.place.listing(TOP):
            digest = DIGEST_TAG + entry.key.removeprefix(TOP).replace("/", "")
            if is_digest(digest):  # other files were not written by Loom
                yield StoredMedia(digest=digest, size_bytes=entry.size_bytes, modified_at=entry.modified_at)


async def _feed(data: bytearray, *takers: Callable[[bytearray], None]) -> None:
    """Pass the data to all `takers` in parallel threads: hashing and writing release the interpreter lock."""
    await asyncio.gather(*(asyncio.to_thread(take, data) for take in takers))


def open_media(address: str | Path, *, timeout_seconds: float = TIMEOUT_SECONDS) -> MediaStore:
    """Open the store in a folder (a path or `file:///path`) or in a bucket (`s3://bucket/prefix`). `timeout_seconds`
    applies to requests to a bucket."""
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
                f"Media cannot be stored at {parts.scheme}://{parts.hostname or ''}.",
                hint="Use a folder, file:///folder or s3://bucket/prefix.",
            )


def digest_key(digest: str) -> str:
    """Return `media/ab/cdef…`. Paths are made only here, and only from valid digests; raise `ContentError` for anything
    else."""
    return _key_of(hex_of(digest))


def _key_of(hexadecimal: str) -> str:
    return f"{TOP}/{hexadecimal[:2]}/{hexadecimal[2:]}"


def hex_of(digest: str) -> str:
    if not is_digest(digest):
        raise ContentError(f"A digest is 'sha256:' and 64 hex digits, not {digest[:80]!r}")
    return digest.removeprefix(DIGEST_TAG)


def _open_folder(root: Path) -> MediaStore:
    from loom.store.local_blobs import LocalBlobs

    return MediaStore(LocalBlobs(root))


def _checksum(digest: str) -> Checksum:
    return Checksum(hex_of(digest))


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"The file is larger than the limit of {size_label(max_bytes)}.", hint="Supply a smaller one.")
