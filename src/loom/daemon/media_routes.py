"""Media: bytes in by form, as they are, by base64, address or digest; bytes out in the form that is asked for.

What goes out never runs: types come from a short list, everything else is a download, and each answer carries a policy
that forbids all. Pictures leave without what cameras write into them.
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
from urllib.parse import quote

import msgspec
import pybase64
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from loom.api_types import MediaForm, MediaName, MediaPage, MediaText, MediaView, NewMedia
from loom.compile.policy import DetachedMessage
from loom.compile.request import Snapshot
from loom.content.media import is_digest
from loom.content.messages import Message
from loom.content.recipes import DEFAULT_FORMATS, Fit, Low, Ocr, Page, Recipe, Text, Thumb, recipe_key
from loom.daemon.dispatch import Call, json_body, json_response
from loom.daemon.media_intake import StoredUpload
from loom.daemon.problems import NotSent, UnreadableRequest, WrongType
from loom.daemon.services import Daemon
from loom.daemon.uploads import FORM_OVERHEAD_BYTES, form, spool_body
from loom.errors import ContentError, NotFound, Unsupported
from loom.formats import ocr
from loom.formats.file_names import clean_name
from loom.formats.sniff.kinds import SVG, category_of
from loom.prompt import MediaRef
from loom.store.derived import Derived
from loom.tools.download import download
from loom.tools.egress import Egress

MAX_INLINE_JSON_BYTES: Final = 16_000_000
"""A file in base64 is held in memory; larger ones come as they are."""
POLICY: Final = "sandbox; default-src 'none'"
FOR_EVER: Final = "private, max-age=31536000, immutable"
WHOLE_BYTES: Final = 4_000_000
"""Up to here an answer is one piece."""
SLICE_BYTES: Final = 1_000_000
PAGE_THUMB_PX: Final = 240
THUMB_PX: Final = 320
_FULL: Final = Fit(max_side_px=16_384, max_encoded_bytes=200_000_000, formats=(*DEFAULT_FORMATS, "image/gif"))
_PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_INLINE: Final = frozenset((*_PICTURES, "audio/wav", "audio/mpeg", "audio/flac", "audio/ogg", "audio/mp4"))
_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_FORM: Final = re.compile(r"(full|low|thumb|(?:page|thumb):([1-9][0-9]{0,5})|sent:(.+))")


# In -------------------------------------------------------------------------------------------------------------------


async def upload(call: Call[MediaName, None]) -> Response:
    """Store a file. With `?name=` the body is the file whatever its type; other JSON gives base64, url or digest."""
    daemon, request = call.daemon, call.request
    daemon.rates.upload(call.client)
    most = daemon.runtime.config.server.max_upload_bytes
    declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    name = call.query.name
    if declared == "multipart/form-data":
        bounds = {"max_file_bytes": most, "max_bytes": most + FORM_OVERHEAD_BYTES}
        async with form(request, daemon.intake.folder, **bounds) as parts:
            files = [part for part in parts if part.spool is not None]
            if len(files) != 1 or files[0].spool is None:
                raise UnreadableRequest("The form holds no file, or more than one.", hint="Send one part named `file`.")
            taken = await daemon.intake.accept(files[0].spool, name or files[0].filename)
            size_bytes = files[0].spool.size_bytes
    elif declared == "application/json" and not name:
        taken, size_bytes = await _from_json(daemon, request)
    elif not declared:
        raise WrongType("The upload has no Content-Type.", hint="Name one, such as application/octet-stream.")
    else:
        async with spool_body(request, daemon.intake.folder, most) as spool:
            taken = await daemon.intake.accept(spool, name)
            size_bytes = spool.size_bytes
    daemon.metrics.uploaded_bytes += size_bytes
    return json_response(media_view(taken), 201 if taken.is_new else 200)


async def _from_json(daemon: Daemon, request: Request) -> tuple[StoredUpload, int]:
    async with json_body(daemon, request, NewMedia, max_bytes=MAX_INLINE_JSON_BYTES) as found:
        given: NewMedia = found
        if sum(map(bool, (given.base64, given.url, given.digest))) != 1:
            raise ContentError("Give one of base64, url and digest.")
        if given.digest:
            return await daemon.intake.reuse(given.digest, given.name), 0
        data, name, source = await bytes_of(daemon, given.base64, given.url)
        return await daemon.intake.accept(data, given.name or name, source=source), len(data)


async def bytes_of(daemon: Daemon, encoded: str, url: str) -> tuple[bytes, str, str]:
    """Bytes, a name and where they come from. Addresses are fetched through the gate: of what is private, only hosts
    that are configured are asked."""
    if encoded:
        return from_base64(encoded), "", ""
    config = daemon.runtime.config
    found = await download(url, Egress(allow=config.tools.allow_hosts), max_bytes=config.server.max_upload_bytes)
    return found.data, found.name, found.url


def from_base64(text: str) -> bytes:
    """Base64, or a data: URL that holds some."""
    if text.startswith("data:"):
        head, _, text = text.partition(",")
        if not head.endswith(";base64"):
            raise ContentError("A data: URL is taken where it holds base64.")
    try:
        return pybase64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ContentError("That is not base64.", hint="Use the standard alphabet, with padding.") from None


def media_view(taken: StoredUpload) -> MediaView:
    media = taken.media
    return MediaView(
        id=media.digest,
        digest=media.digest,
        kind=taken.kind,
        mime=media.media_type,
        bytes=media.size_bytes,
        width=media.width,
        height=media.height,
        pages=media.pages,
        duration=media.duration_seconds,
        name=media.name,
        new=taken.is_new,
        block=taken.block,
        notices=taken.notices,
    )


# Out ------------------------------------------------------------------------------------------------------------------


class ServedBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that are ready to leave."""

    media_type: str
    size_bytes: int
    etag: str
    file: io.RawIOBase | None
    """On this machine; it stands at the first byte."""
    blocks: AsyncIterator[bytes]
    """The same from elsewhere."""
    lasts: bool = True


async def head_media(call: Call[MediaForm, None]) -> Response:
    """HEAD: whether the store has it; a client need not send it again then, and it stays for a while."""
    digest = _digest(call.path("digest"))
    if not await call.daemon.runtime.media.refresh(digest):
        raise _no_media()
    return await get_media(call)


async def get_media(call: Call[MediaForm, None]) -> Response:
    return await _get_bytes(call, _digest(call.path("digest")))


async def image_of_session(call: Call[MediaForm, None]) -> Response:
    """The same, for media that this session shows."""
    digest = _digest(call.path("digest"))
    if digest not in await call.daemon.runtime.sessions.digests(call.path("session")):
        raise _no_media()
    return await _get_bytes(call, digest)


async def _get_bytes(call: Call[MediaForm, None], digest: str) -> Response:
    daemon, query = call.daemon, call.query
    found = _FORM.fullmatch(query.v)
    if found is None:
        raise UnreadableRequest("There is no such form.", hint="v is full, low, thumb, page:N, thumb:N or sent:MODEL.")
    if not await daemon.runtime.media.exists(digest):
        raise _no_media()
    ready = await _ready(daemon, digest, query, found)
    return _response(daemon, call.request, ready, clean_name(query.name))


async def _ready(daemon: Daemon, digest: str, query: MediaForm, found: re.Match[str]) -> ServedBytes:
    config = daemon.runtime.config
    if found[3]:
        return await _sent_rendition(daemon, digest, found[3], query.session)
    media_type = await daemon.intake.media_type(digest)
    category = category_of(media_type)
    kind, number = found[1].partition(":")[0], int(found[2] or 0)
    match kind:
        case "full" if category != "image":
            return await _original(daemon, digest, media_type)
        case "full":
            recipe: Recipe = _FULL
        case "low":
            recipe = Low(side_px=config.images.low_res_size)
        case "page":
            recipe = Page(number=number, dpi=config.documents.dpi)
        case "thumb" if number:
            recipe = Page(number=number, dpi=72, max_side_px=PAGE_THUMB_PX)
        case _:
            recipe = Thumb(side_px=THUMB_PX)
    if category == "audio" or (category == "text" and media_type != SVG):
        raise Unsupported("Sound and text have no picture.", hint="Ask for v=full, or for the text.")
    return await _derive(daemon, digest, media_type, recipe)


async def _original(daemon: Daemon, digest: str, media_type: str) -> ServedBytes:
    media = daemon.runtime.media
    return ServedBytes(
        media_type=media_type,
        size_bytes=await media.size(digest),
        etag=digest,
        file=await media.open_local(digest),
        blocks=media.read_blocks(digest),
    )


async def _derive(daemon: Daemon, digest: str, media_type: str, recipe: Recipe) -> ServedBytes:
    """What a recipe makes of it, made the first time and kept."""
    runtime = daemon.runtime
    ref = MediaRef(digest=digest, media_type=media_type, size_bytes=0, recipe=recipe)
    made = await _render(daemon, ref, recipe)
    return ServedBytes(
        media_type=made.media_type,
        size_bytes=made.size_bytes,
        etag=f"sha256:{made.sha256}",
        file=await runtime.renditions.open_local(ref),
        blocks=runtime.renditions.blocks(ref, SLICE_BYTES),
    )


async def _render(daemon: Daemon, ref: MediaRef, recipe: Recipe) -> Derived:
    """Only a few are made at once; one that is there waits for nobody."""
    runtime = daemon.runtime
    made = await runtime.derived.get(ref.digest, recipe)
    if made is None:
        async with daemon.renders:
            file = await runtime.renditions.open_local(ref)
            if file is not None:
                file.close()
        made = await runtime.derived.get(ref.digest, recipe)
    if made is None:
        raise NotFound("What was made of it was cleaned away just now.", hint="Ask again.")
    return made


async def _sent_rendition(daemon: Daemon, digest: str, model: str, session_id: str) -> ServedBytes:
    """The very bytes that this model would be sent: in a session's next request, or in a message of its own."""
    runtime = daemon.runtime
    if session_id:
        session = await runtime.session(session_id)
        if not await session.path():
            raise NotSent("That session has said nothing yet.")
        request = await session.next_request(model)
    else:
        shown = (await daemon.intake.reuse(digest)).block
        snapshot = Snapshot(path=(DetachedMessage("look", Message("user", (shown,))),))
        request = await runtime.next_request(snapshot, await runtime.resolve_live(model), tools=())
    refs = request.prompt.media()
    ref = next((ref for ref in refs if ref.digest == digest), None)
    if ref is None:
        raise NotSent(f"{request.input.model.reference} is not shown these bytes: it gets their text or nothing.")
    return ServedBytes(
        media_type=ref.media_type,
        size_bytes=ref.size_bytes,
        etag=f"{digest}.{recipe_key(ref.recipe) if ref.recipe else 'full'}",
        file=await runtime.renditions.open_local(ref),
        blocks=runtime.renditions.blocks(ref, SLICE_BYTES),
        lasts=False,
    )


async def text(call: Call[MediaPage, None]) -> MediaText:
    """The words of a document or a text, or those that are drawn in a picture, where something can read them."""
    daemon, digest = call.daemon, _digest(call.path("digest"))
    runtime = daemon.runtime
    if not await runtime.media.exists(digest):
        raise _no_media()
    media_type = await daemon.intake.media_type(digest)
    category = category_of(media_type)
    page = call.query.page
    if category == "audio" or (category == "image" and not ocr.is_available()):
        return MediaText("", None)
    recipe: Recipe = Ocr() if category == "image" else Text(pages=str(page) if page and category != "text" else "")
    ref = MediaRef(digest=digest, media_type=media_type, size_bytes=0, recipe=recipe)
    made = await _render(daemon, ref, recipe)
    data = b"".join([block async for block in runtime.renditions.blocks(ref, SLICE_BYTES)])
    return MediaText(data.decode("utf-8", "replace"), made.pages)


class Head(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]


def _response(daemon: Daemon, request: Request, ready: ServedBytes, name: str) -> Response:
    etag = f'"{ready.etag.removeprefix("sha256:")}"'
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Cache-Control": FOR_EVER if ready.lasts else "private, no-cache",
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
    daemon.metrics.served_bytes += end - start
    return _body(request, ready, start, end, Head(status, headers))


def _body(request: Request, ready: ServedBytes, start: int, end: int, head: Head) -> Response:
    """One piece from memory-mapped bytes where it is small, else slices that wait for the client."""
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
    def __init__(self, file: io.RawIOBase, start: int, end: int, head: Head, media_type: str) -> None:
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


def _close(ready: ServedBytes) -> None:
    if ready.file is not None:
        ready.file.close()


def _matches(header: str, etag: str) -> bool:
    return header.strip() == "*" or etag in (part.strip().removeprefix("W/") for part in header.split(","))


def _span(asked: re.Match[str], size: int) -> tuple[int, int] | None:
    """The one range that was asked for; None where there is nothing in it."""
    first, last = asked[1], asked[2]
    if not first:
        count = min(int(last or 0), size)
        return (size - count, size) if count else None
    start, end = int(first), min(int(last) + 1, size) if last else size
    return (start, end) if start < end else None


def display_type(media_type: str) -> str:
    """What a browser is told: a short list, and nothing that it could run."""
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
    """RFC 6266, with the name in both spellings."""
    kind = "inline" if media_type in _INLINE else "attachment"
    if not name:
        return kind
    plain = re.sub(
        r'[^\w.()+=@, -]|[%"\\]', "_", name.encode("ascii", "replace").decode().replace("?", "_"), flags=re.ASCII
    )
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def _digest(written: str) -> str:
    if not is_digest(written):
        raise _no_media()
    return written


def _no_media() -> NotFound:
    return NotFound("There is no such file in the store.", hint="Upload it: POST /v1/media.")


def media_url(digest: str, v: str = "") -> str:
    return f"/v1/media/{digest}" + (f"?v={quote(v)}" if v else "")
