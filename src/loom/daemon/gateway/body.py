"""The body of a gateway request, as it arrives: long base64 is decoded to disk, and the JSON around it stays small.

So a request of 50 MB needs memory for its text, and for its largest medium while that one is decoded.
"""

from __future__ import annotations

import asyncio
import binascii
import hashlib
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from starlette.requests import Request

from loom.content.json_values import MAX_INPUT_DEPTH, sanitize_json
from loom.content.media import DIGEST_TAG
from loom.daemon.request_bodies import MemoryBudget, UploadSpool, chunks
from loom.runtime.inline_media import InlineMedia
from loom.wire.answer_errors import AnswerFault, make_fault

_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_LONG_CHARS: Final = 65_536
"""Runs of base64 of at least this length are not kept in memory."""


class GatewayFault(Exception):
    """An error to be sent in the format of the caller's protocol."""

    def __init__(self, fault: AnswerFault) -> None:
        super().__init__(fault.text)
        self.fault = fault


class SpooledPart:
    """A run of base64, decoded into an anonymous file while its digest is computed."""

    def __init__(self, folder: Path) -> None:
        self._spool = UploadSpool(folder)
        self._hasher = hashlib.sha256()
        self._rest = b""
        self._padding = 0
        self.name = ""

    @property
    def digest(self) -> str:
        return DIGEST_TAG + self._hasher.hexdigest()

    async def append(self, chunk: bytes) -> bytes:
        """Consume the part of `chunk` that belongs to the run; return the rest."""
        behind = b"" if self._padding else chunk.lstrip(_ALPHABET)
        run = chunk[: len(chunk) - len(behind)] if not self._padding else b""
        behind = chunk[len(run) :]
        padding = len(behind) - len(behind.lstrip(b"="))
        self._padding += padding
        data = self._rest + run
        whole = len(data) // 4 * 4
        self._rest = data[whole:]
        await self._write(data[:whole])
        return behind[padding:]

    async def finish(self) -> bytes:
        """Complete the run. Return its text if it is not valid base64 and therefore no medium; else return empty
        bytes."""
        last = self._rest + b"=" * self._padding
        if self._padding <= 2 and len(last) % 4 == 0:
            await self._write(last)
            return b""
        return binascii.b2a_base64(await self.read_all(), newline=False) + last

    async def _write(self, encoded: bytes) -> None:
        decoded = await asyncio.to_thread(self._decode, encoded) if encoded else b""
        await self._spool.append(decoded)

    def _decode(self, encoded: bytes) -> bytes:
        decoded = binascii.a2b_base64(encoded)
        self._hasher.update(decoded)
        return decoded

    async def read_all(self) -> bytes:
        return await self._spool.read_all()

    def close(self) -> None:
        self._spool.close()


class _Scanner:
    """Extracts long runs of base64 from a text that arrives in chunks. `text` is the rest."""

    def __init__(self, folder: Path, inline: InlineMedia, stack: AsyncExitStack) -> None:
        self._folder = folder
        self._inline = inline
        self._stack = stack
        self._run = 0
        """The number of bytes of base64 at the end of `text`."""
        self._part: SpooledPart | None = None
        self.text = bytearray()

    async def feed(self, chunk: bytes) -> None:
        if self._part is not None:
            chunk = await self._part.append(chunk)
            if not chunk:
                return
            await self.finish()
        self.text += chunk
        trailing = len(chunk) - len(chunk.rstrip(_ALPHABET))
        self._run = trailing + (self._run if trailing == len(chunk) else 0)
        if self._run >= _LONG_CHARS:
            part = self._part = SpooledPart(self._folder)
            self._stack.callback(part.close)
            await part.append(bytes(self.text[-self._run :]))
            del self.text[-self._run :]
            self._run = 0

    async def finish(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            self.text += await part.finish() or self._inline.add(part).encode()


def _decode(data: bytes) -> Any:
    """Decode JSON. Unpaired surrogates, which JavaScript writes when a text is cut inside a character, are replaced
    rather than refused."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        if b"\\ud" not in data.lower():
            raise
    try:
        return sanitize_json(json.loads(data), MAX_INPUT_DEPTH)
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None


@asynccontextmanager
async def gateway_body(
    request: Request, folder: Path, max_bytes: int, held: MemoryBudget
) -> AsyncGenerator[tuple[dict[str, Any], InlineMedia]]:
    """Yield the JSON of a request and the media that were extracted from it; the media are deleted when the request
    ends."""
    inline = InlineMedia()
    taken = 0
    async with AsyncExitStack() as stack:
        scanner = _Scanner(folder, inline, stack)
        try:
            async for chunk in chunks(request, max_bytes):
                await scanner.feed(chunk)
                grown = len(scanner.text) - taken
                if grown > 0:
                    held.add(grown)
                    taken += grown
            await scanner.finish()
            raw = _decode(bytes(scanner.text) or b"{}")
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise GatewayFault(make_fault(400, f"The body is not JSON: {error}")) from None
        finally:
            held.drop(taken)
            scanner.text.clear()
        if not isinstance(raw, dict):
            raise GatewayFault(make_fault(400, "The body must be a JSON object."))
        yield cast("dict[str, Any]", raw), inline
