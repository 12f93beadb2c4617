"""Request bodies: counted while they arrive, refused at the limit, and written to disk without being held in memory.

A file is kept in an anonymous temporary file next to the store until it is accepted. Small bodies (JSON) are held in
memory, with a limit on their total size.
"""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import msgspec
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from loom.content.blocks import clean_text
from loom.content.media import size_label
from loom.daemon.problems import TooMany, TooSlow, UnreadableRequest
from loom.errors import Full, LoomError, StoreError, TooLarge

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

STEP_BYTES: Final = 262_144
IDLE_SECONDS: Final = 30.0
"""How long a client may send nothing in the middle of a body."""
MAX_PARTS: Final = 64
MAX_FIELD_BYTES: Final = 1_000_000
MAX_HELD_BYTES: Final = 64_000_000
FORM_OVERHEAD_BYTES: Final = 65_536
"""How much larger than its file a form with one file may be."""
_MAX_LENGTH_DIGITS: Final = 18
"""The maximum digits of `Content-Length`; Python refuses to parse numbers of thousands of digits."""


class MemoryBudget:
    """The number of bytes of request bodies that are in memory, with a limit."""

    def __init__(self) -> None:
        self._bytes = 0

    def add(self, count: int) -> None:
        if self._bytes + count > MAX_HELD_BYTES:
            raise TooMany("Too many large requests at once.", retry_after=2.0)
        self._bytes += count

    def drop(self, count: int) -> None:
        self._bytes -= count


class UploadSpool:
    """An anonymous temporary file on the disk of the store; deleted when it is closed, or when the process dies."""

    def __init__(self, folder: Path) -> None:
        with _faults():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = _open_unnamed(folder)
        self._pending = bytearray()
        self.size_bytes = 0

    async def append(self, data: bytes) -> None:
        self._pending += data
        self.size_bytes += len(data)
        if len(self._pending) >= STEP_BYTES:
            await self._flush()

    async def read_all(self) -> bytes:
        await self._flush()
        return await asyncio.to_thread(self._read)

    def close(self) -> None:
        self._file.close()

    async def _flush(self) -> None:
        pending, self._pending = self._pending, bytearray()
        await asyncio.to_thread(self._write, pending)

    def _write(self, data: bytearray) -> None:
        with _faults():
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) :]

    def _read(self) -> bytes:
        with _faults():
            self._file.seek(0)
            return self._file.read()


class FormPart(msgspec.Struct, kw_only=True):
    """One part of a form: a file (`spool`) or a field (`text`)."""

    name: str
    filename: str = ""
    spool: UploadSpool | None = None
    data: bytearray = msgspec.field(default_factory=bytearray)

    @property
    def text(self) -> str:
        return clean_text(self.data.decode("utf-8", "replace"))


async def chunks(request: Request, max_bytes: int) -> AsyncIterator[bytes]:
    """Yield the body as it arrives. Raise `TooLarge` at the limit, or at once if `Content-Length` exceeds it; raise
    `TooSlow` if nothing arrives for `IDLE_SECONDS`."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and (len(announced) > _MAX_LENGTH_DIGITS or int(announced) > max_bytes):
        raise too_large(max_bytes)
    taken = 0
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                chunk = await anext(stream, None)
        except TimeoutError:
            raise TooSlow("The upload timed out.", hint="Send it again.") from None
        if chunk is None:
            return
        taken += len(chunk)
        if taken > max_bytes:
            raise too_large(max_bytes)
        if chunk:
            yield chunk


@asynccontextmanager
async def body_bytes(request: Request, max_bytes: int, held: MemoryBudget) -> AsyncGenerator[bytes]:
    """Yield a small body as a whole; raise `TooMany` if too many are in memory."""
    data = bytearray()
    try:
        async for chunk in chunks(request, max_bytes):
            held.add(len(chunk))
            data += chunk
        yield bytes(data)
    finally:
        held.drop(len(data))


@asynccontextmanager
async def spool_body(request: Request, folder: Path, max_bytes: int) -> AsyncGenerator[UploadSpool]:
    """Yield the body as a file."""
    spool = UploadSpool(folder)
    try:
        async for chunk in chunks(request, max_bytes):
            await spool.append(chunk)
        yield spool
    finally:
        spool.close()


@asynccontextmanager
async def one_file(request: Request, folder: Path, max_bytes: int) -> AsyncGenerator[tuple[UploadSpool, str]]:
    """Yield a file, which is the body or the only file of a form, and the name that the form gives it."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "multipart/form-data":
        async with spool_body(request, folder, max_bytes) as spool:
            yield spool, ""
        return
    async with form(request, folder, max_file_bytes=max_bytes, max_bytes=max_bytes + FORM_OVERHEAD_BYTES) as parts:
        files = [part for part in parts if part.spool is not None]
        if len(files) != 1 or files[0].spool is None:
            raise UnreadableRequest("The form contains no file, or more than one.", hint="Send one part named `file`.")
        yield files[0].spool, files[0].filename


@asynccontextmanager
async def form(
    request: Request, folder: Path, *, max_file_bytes: int, max_bytes: int
) -> AsyncGenerator[list[FormPart]]:
    """Yield the parts of a multipart body, with files on disk."""
    _, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if not 0 < len(boundary) <= 200:
        raise UnreadableRequest("The form has no boundary.", hint="Send multipart/form-data as a browser does.")
    reading = _Form(folder, max_file_bytes)
    try:
        parser = MultipartParser(boundary, reading.callbacks())
        try:
            async for chunk in chunks(request, max_bytes):
                parser.write(chunk)
                await reading.drain()
        except FormParserError:
            raise UnreadableRequest("Invalid form.", hint="Send multipart/form-data as a browser does.") from None
        if not reading.is_complete:
            raise UnreadableRequest("The form is incomplete.", hint="Send it again.")
        yield reading.parts
    finally:
        reading.close()


class _Form:
    """The callbacks of the multipart parser. They only collect data; `drain` writes it, off the event loop."""

    def __init__(self, folder: Path, max_file_bytes: int) -> None:
        self.parts: list[FormPart] = []
        self.is_complete = False
        self._folder = folder
        self._max_file_bytes = max_file_bytes
        self._field = bytearray()
        self._value = bytearray()
        self._headers: dict[str, bytes] = {}
        self._waiting: list[tuple[UploadSpool, bytes]] = []
        self._error: LoomError | None = None

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._headers.clear,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._header,
            "on_headers_finished": self._begin,
            "on_part_data": self._data,
            "on_end": self._end,
        }

    async def drain(self) -> None:
        if self._error is not None:
            raise self._error
        waiting, self._waiting = self._waiting, []
        for spool, data in waiting:
            await spool.append(data)

    def close(self) -> None:
        for part in self.parts:
            if part.spool is not None:
                part.spool.close()

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header(self) -> None:
        self._headers[self._field.decode("latin-1").lower()] = bytes(self._value)
        self._field.clear()
        self._value.clear()

    def _begin(self) -> None:
        _, options = parse_options_header(self._headers.get("content-disposition", b""))
        name = options.get(b"name", b"").decode("utf-8", "replace")
        filename = options.get(b"filename", b"").decode("utf-8", "replace")
        if len(self.parts) >= MAX_PARTS:
            self._error = self._error or TooLarge(
                f"The form has more than {MAX_PARTS} parts.", hint="Send fewer at once."
            )
            return
        is_file = b"filename" in options
        self.parts.append(FormPart(name=name, filename=filename, spool=UploadSpool(self._folder) if is_file else None))

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._error is not None:
            return
        part = self.parts[-1]
        if part.spool is not None:
            waiting = sum(len(piece) for spool, piece in self._waiting if spool is part.spool)
            if part.spool.size_bytes + waiting + end - start > self._max_file_bytes:
                self._error = too_large(self._max_file_bytes)
            self._waiting.append((part.spool, data[start:end]))
            return
        part.data += data[start:end]
        if len(part.data) > MAX_FIELD_BYTES:
            self._error = TooLarge(f"A field of the form is larger than {size_label(MAX_FIELD_BYTES)}.")

    def _end(self) -> None:
        self.is_complete = True


def too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"The request is larger than the limit of {size_label(max_bytes)}.", hint="Send less at once.")


def _open_unnamed(folder: Path) -> IO[bytes]:
    return tempfile.TemporaryFile(dir=folder, buffering=0)


@contextmanager
def _faults() -> Generator[None]:
    """Raise errors of the operating system as `Full` or `StoreError`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise Full("No disk space left for uploads; nothing was stored.", hint="Free some space.") from None
        reason = os.strerror(error.errno) if error.errno else "unknown error"
        raise StoreError(
            f"The upload could not be stored: {reason}.", hint="Check the disk of the data folder."
        ) from None
