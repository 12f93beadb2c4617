"""Request bodies that stream media in blocks: JSON with embedded base64, and multipart uploads.

No more than a block is in memory at a time, the length is known beforehand, and a body can be sent again for a retry,
because media never change.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final, Protocol

import msgspec
from pybase64 import b64encode

from loom.content.media import size_label
from loom.errors import Corrupt
from loom.prompt import Embedded, MediaRef

BLOCK_BYTES: Final = 480 * 1024
"""A multiple of three, so that the base64 of blocks can be joined without padding. Reading, encoding and sending one
takes well under a millisecond; smaller blocks cost more in total, larger ones more memory."""
_LONG_BLOCK_BYTES: Final = 144 * 1024
"""The block size of a long body, which fills the socket's buffer repeatedly. The base64 of a block (192 KiB) is the
most that the buffer takes at once by default, so each block is sent in one write, without a remainder to wait for."""
_LONG_BYTES: Final = 8_000_000
_SHORT_BYTES: Final = 128 * 1024


class MediaSource(Protocol):
    """Reads the bytes of media references."""

    async def open_local(self, ref: MediaRef) -> io.RawIOBase | None:
        """Return a file, which the caller reads to its end and closes; None if the bytes are not on this machine."""
        ...

    def blocks(self, ref: MediaRef, block_bytes: int) -> AsyncIterator[bytes]:
        """Yield blocks of exactly `block_bytes`; the last one may be shorter."""
        ...


class Body(Protocol):
    """A request body. It can be iterated several times; `content_length` is exact."""

    @property
    def content_length(self) -> int: ...

    def __aiter__(self) -> AsyncGenerator[bytes]: ...


async def read_media_blocks(
    source: MediaSource, ref: MediaRef, block_bytes: int = BLOCK_BYTES
) -> AsyncGenerator[bytes]:
    """Yield the bytes of a medium, at most `ref.size_bytes`. Raise `Corrupt` if there are more or fewer."""
    left = ref.size_bytes
    file = await source.open_local(ref)
    if file is None:
        async for block in source.blocks(ref, block_bytes):
            left -= len(block)
            if left < 0:
                break
            yield block
    else:
        # The file has just been verified, so it is in the page cache, and a read does not wait for the disk.
        with file:
            while left >= 0 and (block := _read_full(file, block_bytes)):
                left -= len(block)
                if left >= 0:
                    yield block
    if left != 0:
        raise Corrupt(
            f"A medium does not have the expected {ref.size_bytes} bytes ({ref.digest[:15]}…)",
            hint="Run loom doctor.",
        )


def _read_full(file: io.RawIOBase, block_bytes: int) -> bytes:
    """Read a full block, even if single reads return less."""
    block = file.read(block_bytes) or b""
    while block and len(block) < block_bytes:
        more = file.read(block_bytes - len(block))
        if not more:
            break
        block += more
    return block


async def sha256_of(body: Body) -> str:
    """Return the hash (hex) of a body, computed in constant memory."""
    hasher = hashlib.sha256()
    async with aclosing(aiter(body)) as pieces:
        async for piece in pieces:
            await asyncio.to_thread(hasher.update, piece)
    return hasher.hexdigest()


# JSON ---------------------------------------------------------------------------------------------------------------


class MediaBody:
    """The JSON of a request: text, the base64 of a medium, text, and so on."""

    def __init__(self, request: dict[str, Any], source: MediaSource) -> None:
        self._source = source
        self._parts = _split(request)
        self.content_length = sum(
            part.encoded_bytes if isinstance(part, MediaRef) else len(part) for part in self._parts
        )

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        """Yield the body. Short pieces are joined, because every piece costs a pass through the HTTP client; long ones
        are not copied."""
        waiting: list[bytes] = []
        block_bytes = _LONG_BLOCK_BYTES if self.content_length > _LONG_BYTES else BLOCK_BYTES
        for part in self._parts:
            if not isinstance(part, MediaRef):
                waiting.append(part)
                continue
            async with aclosing(read_media_blocks(self._source, part, block_bytes)) as blocks:
                async for block in blocks:
                    waiting.append(b64encode(block))
                    if len(waiting[-1]) >= _SHORT_BYTES:
                        last = waiting.pop()
                        if waiting:
                            yield b"".join(waiting)
                        waiting.clear()
                        yield last
                        del last
        yield b"".join(waiting)


def _split(request: dict[str, Any]) -> list[bytes | MediaRef]:
    """Encode the JSON with a marker for every medium, and split it at the markers."""
    nonce = secrets.token_hex(16)
    found: list[Embedded] = []

    def mark(embedded: Any) -> str:
        if not isinstance(embedded, Embedded):
            raise TypeError(f"a request contains {type(embedded).__name__}, which JSON cannot represent")
        found.append(embedded)
        return f"{embedded.prefix}{nonce}"

    texts = msgspec.json.encode(request, enc_hook=mark).split(nonce.encode())
    parts: list[bytes | MediaRef] = [texts[0]]
    for embedded, text in zip(found, texts[1:], strict=True):
        parts += [embedded.ref, text]
    return parts


def elide_media(request: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON for display: each medium as its digest and size."""
    return msgspec.json.decode(msgspec.json.encode(request, enc_hook=_media_label))


def _media_label(embedded: Embedded) -> str:
    return f"{embedded.prefix}<{embedded.ref.digest} {size_label(embedded.ref.size_bytes)}>"


# Multipart ----------------------------------------------------------------------------------------------------------


class FormBody:
    """multipart/form-data with a few short fields and the raw bytes of one medium."""

    def __init__(self, fields: Mapping[str, str], ref: MediaRef, name: str, source: MediaSource) -> None:
        boundary = f"loom-{secrets.token_hex(16)}"
        self.content_type = f"multipart/form-data; boundary={boundary}"
        self._source, self._ref = source, ref
        parts = [
            f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{text}\r\n'
            for key, text in fields.items()
        ]
        parts.append(
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
            f"Content-Type: {ref.media_type}\r\n\r\n"
        )
        self._head, self._tail = "".join(parts).encode(), f"\r\n--{boundary}--\r\n".encode()
        self.content_length = len(self._head) + ref.size_bytes + len(self._tail)

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        yield self._head
        async with aclosing(read_media_blocks(self._source, self._ref)) as blocks:
            async for block in blocks:
                yield block
        yield self._tail


class RawBody:
    """The raw bytes of one medium."""

    def __init__(self, ref: MediaRef, source: MediaSource) -> None:
        self._source, self._ref = source, ref
        self.content_length = ref.size_bytes

    def __aiter__(self) -> AsyncGenerator[bytes]:
        return read_media_blocks(self._source, self._ref)
