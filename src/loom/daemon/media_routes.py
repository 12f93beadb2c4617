"""Media: upload as a form, as raw bytes, as base64, by URL or by digest; download in the requested form.

Served media cannot run in a browser: content types come from a short list, everything else is a download, and each
response has a policy that forbids everything. Images are served without the metadata of cameras.
"""

from __future__ import annotations

import asyncio
import binascii
import io
import mmap
import os
import re
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import quote, unquote

import msgspec
import pybase64
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from loom.api_types import DescriptionView, MediaForm, MediaName, MediaPage, MediaText, NewDescription, NewMedia
from loom.daemon.dispatch import Call, json_body, json_response
from loom.daemon.problems import WrongType
from loom.daemon.request_bodies import one_file
from loom.daemon.services import Daemon
from loom.errors import ContentError
from loom.formats.file_names import clean_name
from loom.formats.sniff.kinds import category_of
from loom.runtime.library import media_view
from loom.runtime.media_intake import StoredUpload
from loom.session import MediaBytes
from loom.tools.download import download
from loom.tools.egress import Egress

MAX_INLINE_JSON_BYTES: Final = 16_000_000
"""Base64 is held in memory; larger files have to be sent as raw bytes."""
UNLOCK_HEADER: Final = "X-Loom-Password"
"""The header for the password of a PDF, percent-encoded. URLs are logged in many places; headers are not."""
POLICY: Final = "sandbox; default-src 'none'"
FOR_EVER: Final = "private, max-age=31536000, immutable"
WHOLE_BYTES: Final = 4_000_000
"""Responses up to this size are sent in one piece."""
SLICE_BYTES: Final = 1_000_000
_PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_VIDEOS: Final = ("video/mp4", "video/webm", "video/quicktime", "video/ogg")
_INLINE: Final = frozenset((*_PICTURES, "audio/wav", "audio/mpeg", "audio/flac", "audio/ogg", "audio/mp4", *_VIDEOS))
_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


# In -------------------------------------------------------------------------------------------------------------------


async def upload(call: Call[MediaName, None]) -> Response:
    """Store a file. With `?name=` the body is the file whatever its type; other JSON gives base64, url or digest."""
    daemon, request = call.daemon, call.request
    daemon.rates.upload(call.client)
    most = daemon.runtime.config.server.max_upload_bytes
    declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    name = call.query.name
    if declared == "application/json" and not name:
        taken, size_bytes = await _from_json(call)
    elif not declared:
        raise WrongType("The upload has no Content-Type.", hint="Name one, such as application/octet-stream.")
    else:
        async with one_file(request, daemon.runtime.config.data_folder(), most) as (spool, filename):
            password = unquote(request.headers.get(UNLOCK_HEADER, ""))
            taken = await daemon.intake.accept(spool, name or filename, password=password)
            size_bytes = spool.size_bytes
    await daemon.access.note_media(call.identity, taken.media.digest)
    daemon.metrics.uploaded_bytes += size_bytes
    return json_response(media_view(taken), 201 if taken.is_new else 200)


async def _from_json(call: Call[MediaName, None]) -> tuple[StoredUpload, int]:
    daemon = call.daemon
    async with json_body(daemon, call.request, NewMedia, max_bytes=MAX_INLINE_JSON_BYTES) as found:
        given: NewMedia = found
        if sum(map(bool, (given.base64, given.url, given.digest))) != 1:
            raise ContentError("Expected one of base64, url and digest.")
        if given.digest:
            await daemon.access.check_media(call.identity, given.digest)
            return await daemon.intake.reuse(given.digest, given.name), 0
        data, name, source = await bytes_of(daemon, given.base64, given.url)
        taken = await daemon.intake.accept(data, given.name or name, source=source, password=given.password)
        return taken, len(data)


async def bytes_of(daemon: Daemon, encoded: str, url: str) -> tuple[bytes, str, str]:
    """Return the bytes, a name and a source URL. URLs are fetched with the egress rules: of private hosts, only
    configured ones are allowed."""
    if encoded:
        return from_base64(encoded), "", ""
    config = daemon.runtime.config
    found = await download(url, Egress(allow=config.tools.allow_hosts), max_bytes=config.server.max_upload_bytes)
    return found.data, found.name, found.url


def from_base64(text: str) -> bytes:
    """Decode base64, or a data: URL that contains it."""
    if text.startswith("data:"):
        head, _, text = text.partition(",")
        if not head.endswith(";base64"):
            raise ContentError("A data: URL is accepted if it contains base64.")
    try:
        return pybase64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ContentError("Invalid base64.", hint="Use the standard alphabet, with padding.") from None


# Out ------------------------------------------------------------------------------------------------------------------


async def head_media(call: Call[MediaForm, None]) -> Response:
    """Return whether the store has the medium, so that a client need not send it again; protect it from the next
    sweep."""
    await call.daemon.access.check_media(call.identity, call.path("digest"))
    await call.daemon.intake.keep(call.path("digest"))
    return await get_media(call)


async def get_media(call: Call[MediaForm, None]) -> Response:
    query, digest = call.query, call.path("digest")
    await call.daemon.access.check_media(call.identity, digest)
    if query.session and query.v.startswith("sent:"):
        await call.daemon.access.check(call.identity, query.session)
        session = await call.daemon.library.open(query.session)
        return _response(call, await call.daemon.library.forms.open(digest, query.v, session))
    return _response(call, await call.daemon.library.open_media(digest, query.v))


async def image_of_session(call: Call[MediaForm, None]) -> Response:
    """Return a medium, like `get_media`, if this session refers to it."""
    session = await call.daemon.library.open(call.path("session"))
    return _response(call, await session.open_media(call.path("digest"), call.query.v))


async def text_of_session(call: Call[MediaPage, None]) -> MediaText:
    """Return the text of a medium, like `text`, if this session refers to it."""
    session = await call.daemon.library.open(call.path("session"))
    return await session.media_text(call.path("digest"), page=call.query.page)


async def text(call: Call[MediaPage, None]) -> MediaText:
    await call.daemon.access.check_media(call.identity, call.path("digest"))
    return await call.daemon.library.media_text(call.path("digest"), page=call.query.page)


async def describe_media(call: Call[None, NewDescription]) -> DescriptionView:
    """Let the named model describe the image, unless it has done so before."""
    await call.daemon.access.check_media(call.identity, call.path("digest"))
    return await call.daemon.library.describe(call.path("digest"), call.body.model)


class ResponseHead(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]


def _response(call: Call[MediaForm, None], ready: MediaBytes) -> Response:
    request, name = call.request, clean_name(call.query.name)
    etag = f'"{ready.etag.removeprefix("sha256:")}"'
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Cache-Control": FOR_EVER if ready.is_immutable else "private, no-cache",
        "Content-Security-Policy": POLICY,
        "Content-Disposition": disposition(ready.media_type, name),
    }
    if _matches(request.headers.get("if-none-match", ""), etag):
        _close(ready)
        return Response(status_code=304, headers=headers)
    start, end, status = 0, ready.size_bytes, 200
    asked = _RANGE.fullmatch(request.headers.get("range", "").replace(" ", ""))
    if asked and request.headers.get("if-range", etag) == etag:
        span = _span(asked, ready.size_bytes)
        if span is None:
            _close(ready)
            return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{ready.size_bytes}"})
        (start, end), status = span, 206
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{ready.size_bytes}"
    headers["Content-Length"] = str(end - start)
    call.daemon.metrics.served_bytes += end - start
    return _body(request, ready, start, end, ResponseHead(status, headers))


def _body(request: Request, ready: MediaBytes, start: int, end: int, head: ResponseHead) -> Response:
    """Return a small body as one memory-mapped piece, a large one as slices that are read as the client takes them."""
    media_type = display_type(ready.media_type)
    if request.method == "HEAD" or start == end:
        _close(ready)
        return Response(status_code=head.status, headers=head.headers, media_type=media_type)
    if ready.file is None:
        return StreamingResponse(_cut(ready.blocks, start, end), head.status, head.headers, media_type)
    if end - start > WHOLE_BYTES:
        return _Slices(ready.file, start, end, head, media_type)
    with ready.file as file:
        offset = file.tell()
        mapped = memoryview(mmap.mmap(file.fileno(), offset + ready.size_bytes, prot=mmap.PROT_READ))
    return Response(mapped[offset + start : offset + end], head.status, head.headers, media_type)


class _Slices(Response):
    def __init__(self, file: io.RawIOBase, start: int, end: int, head: ResponseHead, media_type: str) -> None:
        super().__init__(None, head.status, head.headers, media_type)
        self._file = file
        self._start = start
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file as file:
            offset = file.tell()
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for at in range(self._start, self._end, SLICE_BYTES):
                size = min(SLICE_BYTES, self._end - at)
                piece = await asyncio.to_thread(os.pread, file.fileno(), size, offset + at)
                await send({"type": "http.response.body", "body": piece, "more_body": at + size < self._end})


async def _cut(blocks: AsyncIterator[bytes], start: int, end: int) -> AsyncIterator[bytes]:
    at = 0
    async for block in blocks:
        piece = block[max(start - at, 0) : max(end - at, 0)]
        at += len(block)
        if piece:
            yield piece
        if at >= end:
            return


def _close(ready: MediaBytes) -> None:
    if ready.file is not None:
        ready.file.close()


def _matches(header: str, etag: str) -> bool:
    return header.strip() == "*" or etag in (part.strip().removeprefix("W/") for part in header.split(","))


def _span(asked: re.Match[str], size: int) -> tuple[int, int] | None:
    """Return the requested range; None if it is empty."""
    first, last = asked[1], asked[2]
    if not first:
        count = min(int(last or 0), size)
        return (size - count, size) if count else None
    start, end = int(first), min(int(last) + 1, size) if last else size
    return (start, end) if start < end else None


def display_type(media_type: str) -> str:
    """Return a content type from a short list, none of which a browser runs."""
    match category_of(media_type):
        case _ if media_type in _INLINE:
            return media_type
        case "pdf" | "office":
            return media_type
        case "text":
            return "text/plain; charset=utf-8"
        case _:
            return "application/octet-stream"


def disposition(media_type: str, name: str) -> str:
    """Return the `Content-Disposition` header (RFC 6266), with the name in ASCII and in UTF-8."""
    kind = "inline" if media_type in _INLINE else "attachment"
    if not name:
        return kind
    plain = re.sub(
        r'[^\w.()+=@, -]|[%"\\]', "_", name.encode("ascii", "replace").decode().replace("?", "_"), flags=re.ASCII
    )
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
