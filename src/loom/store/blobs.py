"""Place: where named bytes lie, a folder or a bucket. The media store and the cache of derived bytes are built on it.

Bytes appear under their key whole or not at all. What is read is checked against a seal, so that damaged bytes are
never handed out: a folder is checked before the first byte leaves (once per file and process), a bucket before the
last window of a stream leaves.
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
"""Nothing that Loom writes is larger; a file that is was not written by Loom, and is not read into memory."""


class Checksum(msgspec.Struct, frozen=True):
    """What the bytes from `start` to the end must hash to (hex SHA-256)."""

    sha256: str
    start: int = 0


class BlobEntry(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    size_bytes: int
    modified_at: datetime


FileStamp: TypeAlias = tuple[int, ...]
"""Changes whenever what lies under a key changes."""

KeyOf: TypeAlias = Callable[[str], str]
"""From the hex SHA-256 of bytes to the key that they lie under."""


class TempBlob(Protocol):
    """Bytes on their way in: no key yet, invisible until kept. The two plain methods block; call them in a thread."""

    def append(self, data: bytes | bytearray | memoryview) -> None: ...

    async def keep(self, key: str, seal: Checksum) -> None: ...

    def discard(self) -> None:
        """Leave nothing behind; does nothing once kept."""
        ...


SealOf: TypeAlias = Callable[[str, bytes, BlobEntry], Checksum]
"""The checksum that the first bytes of a key name; raises `Corrupt` where they name none."""


class BlobStore(Protocol):
    async def put(self, data: bytes | memoryview, key_of: KeyOf, sha256: str = "") -> str:
        """Write bytes under a key made from their own hash, and give that (hex SHA-256) once they are safe. `sha256` is
        their hash, where the caller has computed it already."""
        ...

    async def write(self, key: str, data: bytes | memoryview, seal: Checksum, *, durable: bool = True) -> None:
        """Put once: whole bytes that are already there are only refreshed, damaged ones are replaced."""
        ...

    async def open_temp(self) -> TempBlob: ...

    async def load(self, key: str, seal: Checksum) -> bytes: ...

    async def head_bytes(self, key: str, length: int) -> tuple[bytes, BlobEntry]:
        """Return the first bytes, unchecked."""
        ...

    async def peek(self, keys: Sequence[str], length: int, seal_of: SealOf) -> dict[str, tuple[bytes, BlobEntry]]:
        """Return the first bytes of many keys at once, checked where they are local. What is missing or damaged is left
        out."""
        ...

    async def open_local(self, key: str, seal: Checksum) -> io.FileIO | None:
        """Return a checked file that stands at `seal.start`, for the caller to close; None where bytes are
        not local."""
        ...

    def blocks(self, key: str, seal: Checksum, block_bytes: int) -> AsyncIterator[bytes]: ...

    async def stat(self, key: str) -> BlobEntry | None: ...

    def file_stamp(self, key: str) -> FileStamp | None:
        """Answers at once and without a network; None when the key is known to be gone."""
        ...

    async def touch(self, key: str) -> bool:
        """Make it as young as if it had been written now; False when it is gone."""
        ...

    async def delete(self, key: str, *, unless_since: datetime | None = None) -> bool:
        """False when there was nothing to delete, or it was written or touched at or after `unless_since`."""
        ...

    def listing(self, under: str) -> AsyncIterator[BlobEntry]: ...

    async def check(self) -> None:
        """Try, cheaply, whether bytes could be stored now; raise what storing them would."""
        ...


def missing_blob(key: str) -> NotFound:
    return NotFound(f"The stored bytes {short_key(key)} are not there.", hint="Supply the file again to store it anew.")


def damaged_blob(key: str) -> Corrupt:
    return Corrupt(
        f"The stored bytes {short_key(key)} are damaged: they are not the bytes that were put.",
        hint="Supply the file again to replace them.",
    )


def short_key(key: str) -> str:
    """Return enough of a key to find it by: `3f5a02c1…`."""
    return "".join(key.split("/")[1:])[:8] + "…"
