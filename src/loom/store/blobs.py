"""BlobStore: bytes under keys, in a local folder or an S3 bucket. The media store and the derived cache use it.

A write is atomic: bytes appear under their key complete or not at all. Reads verify a checksum, so that damaged bytes
are never returned: a local file before the first byte is returned (once per file and process), an object in a bucket
before the last window of the stream is returned.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeAlias

import msgspec

from loom.errors import Corrupt, NotFound

BLOCK_BYTES: Final = 288 * 1024
"""A multiple of three: each block becomes base64 on its own, without padding in the middle."""

GRACE: Final = timedelta(hours=1)
"""Bytes that were put this recently may be about to be referenced; no sweep deletes them."""

MAX_BLOB_BYTES: Final = 2**30
"""Loom writes no larger blob. A larger file is not Loom's, and is never read into memory."""


class Checksum(msgspec.Struct, frozen=True):
    """The SHA-256 (hex) of the bytes from `start` to the end."""

    sha256: str
    start: int = 0


class BlobEntry(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    size_bytes: int
    modified_at: datetime


BlobHead: TypeAlias = tuple[bytes, BlobEntry]
"""The first bytes of a blob, and its entry."""

FileStamp: TypeAlias = tuple[int, ...]
"""A value that changes whenever the bytes under a key change."""

KeyOf: TypeAlias = Callable[[str], str]
"""Returns the key for bytes with this SHA-256 (hex)."""


class TempBlob(Protocol):
    """Bytes that are being written and have no key yet; `keep` publishes them. `append` and `discard` block: call them
    in a thread."""

    def append(self, data: bytes | bytearray | memoryview) -> None: ...

    async def keep(self, key: str, checksum: Checksum) -> None: ...

    def discard(self) -> None:
        """Delete the temporary bytes. Do nothing after `keep`."""
        ...


ChecksumOf: TypeAlias = Callable[[str, bytes, BlobEntry], Checksum]
"""Returns the checksum that the first bytes of a blob state; raises `Corrupt` if they state none."""


class BlobStore(Protocol):
    async def put(self, data: bytes | memoryview, key_of: KeyOf, sha256: str = "") -> str:
        """Write bytes under a key made from their hash; return the hash (hex SHA-256) once the bytes are durable. Pass
        `sha256` if the hash is already known."""
        ...

    async def write(self, key: str, data: bytes | memoryview, checksum: Checksum, *, durable: bool = True) -> None:
        """Write bytes under `key`. If the key already holds intact bytes, only refresh their age; replace damaged
        ones."""
        ...

    async def open_temp(self) -> TempBlob: ...

    async def load(self, key: str, checksum: Checksum) -> bytes: ...

    async def head_bytes(self, key: str, length: int) -> BlobHead:
        """Return the first `length` bytes without verifying the checksum."""
        ...

    async def peek(self, keys: Sequence[str], length: int, checksum_of: ChecksumOf) -> dict[str, BlobHead]:
        """Return the first `length` bytes of many keys. Local files are verified; missing and damaged ones are left
        out."""
        ...

    async def open_local(self, key: str, checksum: Checksum) -> io.FileIO | None:
        """Return a verified file positioned at `checksum.start`, which the caller closes; None if the bytes are not on
        this machine."""
        ...

    def blocks(self, key: str, checksum: Checksum, block_bytes: int) -> AsyncIterator[bytes]: ...

    async def stat(self, key: str) -> BlobEntry | None: ...

    def file_stamp(self, key: str) -> FileStamp | None:
        """Return the stamp of a key without network access; None if the key is known to be absent."""
        ...

    async def touch(self, key: str) -> bool:
        """Set the modification time to now. Return False if the key does not exist."""
        ...

    async def delete(self, key: str, *, unless_since: datetime | None = None) -> bool:
        """Delete a key. Return False if it does not exist, or was written or touched at or after `unless_since`."""
        ...

    def listing(self, under: str) -> AsyncIterator[BlobEntry]: ...

    async def check(self) -> None:
        """Test cheaply whether bytes could be stored now; raise the error that `put` would raise."""
        ...


def missing_blob(key: str) -> NotFound:
    return NotFound(f"The stored bytes {short_key(key)} are missing.", hint="Supply the file again to restore them.")


def damaged_blob(key: str) -> Corrupt:
    return Corrupt(
        f"The stored bytes {short_key(key)} are damaged: they differ from what was written.",
        hint="Supply the file again to replace them.",
    )


def short_key(key: str) -> str:
    """Return the first eight digits of a key, for messages: `3f5a02c1…`."""
    return "".join(key.split("/")[1:])[:8] + "…"
