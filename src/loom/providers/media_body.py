"""A request body that is written part by part: JSON text, then the base64 of a medium read in blocks, then JSON text.

Nothing larger than a block is ever in memory, the length is known beforehand, and the body can be written again for a
retry, because media never change.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import AsyncIterator
from typing import Any, Final, Protocol, cast

import msgspec
from pybase64 import b64encode

from loom.content.media import size_label
from loom.errors import Corrupt
from loom.prompt import Embedded, MediaRef

BLOCK_BYTES: Final = 288 * 1024
"""A multiple of three, so that every block's base64 joins the next without padding."""


class MediaSource(Protocol):
    """Where the bytes behind references are read."""

    async def open_local(self, ref: MediaRef) -> io.RawIOBase | None:
        """A file to read to its end and close; None where the bytes are on another machine."""
        ...

    def blocks(self, ref: MediaRef, block_bytes: int) -> AsyncIterator[bytes]:
        """Blocks of exactly this size, the last one excepted."""
        ...


class MediaBody:
    """Iterate it as often as needed; `content_length` is exact."""

    def __init__(self, request: dict[str, Any], source: MediaSource) -> None:
        self._source = source
        self._parts = _split(request)
        self.content_length = sum(
            part.encoded_bytes if isinstance(part, MediaRef) else len(part) for part in self._parts
        )

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            if isinstance(part, MediaRef):
                async for piece in self._expand(part):
                    yield piece
            else:
                yield part

    async def _expand(self, ref: MediaRef) -> AsyncIterator[bytes]:
        file = await self._source.open_local(ref)
        written = 0
        if file is None:
            async for block in self._source.blocks(ref, BLOCK_BYTES):
                written += len(block)
                yield b64encode(block)
        else:
            with file:
                while block := _read_full(file):
                    written += len(block)
                    yield b64encode(block)
        if written != ref.size_bytes:
            raise Corrupt(
                f"a medium has {written} bytes, not the {ref.size_bytes} that were announced",
                hint="Run loom doctor.",
            )


def _read_full(file: io.RawIOBase) -> bytes:
    """A whole block, however short the single reads are."""
    block = file.read(BLOCK_BYTES) or b""
    while block and len(block) < BLOCK_BYTES:
        more = file.read(BLOCK_BYTES - len(block))
        if not more:
            break
        block += more
    return block


def _split(request: dict[str, Any]) -> list[bytes | MediaRef]:
    """The JSON skeleton is written once with a mark for every medium, then cut at the marks."""
    nonce = secrets.token_hex(16)
    found: list[Embedded] = []

    def marked(value: Any) -> Any:
        match value:
            case Embedded():
                found.append(value)
                return f"{value.prefix}{nonce}"
            case dict():
                return {key: marked(item) for key, item in cast("dict[str, Any]", value).items()}
            case list():
                return [marked(item) for item in cast("list[Any]", value)]
            case _:
                return value

    texts = msgspec.json.encode(marked(request)).split(nonce.encode())
    parts: list[bytes | MediaRef] = [texts[0]]
    for embedded, text in zip(found, texts[1:], strict=True):
        parts += [embedded.ref, text]
    return parts


def elided(request: dict[str, Any]) -> dict[str, Any]:
    """The same JSON for people: each medium as its digest and size."""

    def readable(value: Any) -> Any:
        match value:
            case Embedded():
                return f"{value.prefix}<{value.ref.digest} {size_label(value.ref.size_bytes)}>"
            case dict():
                return {key: readable(item) for key, item in cast("dict[str, Any]", value).items()}
            case list():
                return [readable(item) for item in cast("list[Any]", value)]
            case _:
                return value

    return readable(request)
