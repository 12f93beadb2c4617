"""Message routes: send, watch, queue, cancel, approve, regenerate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from loom.api_types import RequestChoices, sampling_of_body
from loom.content.blocks import ContentBlock
from loom.daemon import sse
from loom.daemon.dispatch import Call, decode_body, json_body, json_response
from loom.daemon.envelopes import Composer
from loom.daemon.media_routes import MAX_INLINE_JSON_BYTES, bytes_of
from loom.daemon.problems import UnreadableRequest
from loom.daemon.request_bodies import FORM_OVERHEAD_BYTES, FormPart, form
from loom.daemon.request_content import blocks_of
from loom.daemon.services import Daemon
from loom.daemon.turns import AcceptedMessage as Accepted
from loom.errors import ContentError
from loom.message_types import (
    ApprovalAnswer,
    ApprovalList,
    Cancel,
    CompactBody,
    ContentInput,
    EventEnvelope,
    EventQuery,
    History,
    ImageInput,
    MessageBody,
    MessageQuery,
    PostedMessage,
    QueueChange,
    QueueView,
    RegenerateBody,
    Running,
)
from loom.runtime.history import queued_view
from loom.runtime.session import LocalSession
from loom.store.events import StoredEvent
from loom.struct_types import convert, decode_json

MAX_KEY_CHARACTERS: Final = 200
MAX_FORM_FILES: Final = 4
"""One form may be as large as this many of the largest uploads."""
_TRACEPARENT: Final = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_FIELDS: Final = ("message", "text", "model", "workspace", "parent", "n", "thinking")


async def read(call: Call[MessageQuery, None]) -> History:
    daemon, query = call.daemon, call.query
    session = await daemon.library.open(call.path("session"))
    found = await session.history(before=query.before, head=query.head, limit=query.limit)
    if found.running is None:
        return found
    return msgspec.structs.replace(found, running=await _compose(daemon, session.id, found.running))


async def _compose(daemon: Daemon, session_id: str, running: Running) -> Running:
    """Return a running turn with the envelopes that a watcher gets: joined deltas, previews of images."""
    events = [StoredEvent(envelope.seq, envelope.type, bytes(envelope.data)) for envelope in running.partial]
    composed = await Composer(daemon.runtime.dispatch, daemon.feeds.previews, session_id).compose(events)
    envelopes = tuple(decode_json(envelope.json, EventEnvelope) for envelope in composed)
    return msgspec.structs.replace(running, partial=envelopes)


async def post_message(call: Call[None, None]) -> Response:
    """Accept a message. It is on disk before the response is sent."""
    daemon = call.daemon
    daemon.rates.message(call.client)
    key = _key(call.request)
    session = await daemon.library.open(call.path("session"))
    declared = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if declared == "multipart/form-data":
        most = daemon.runtime.config.server.max_upload_bytes
        bounds = {"max_file_bytes": most, "max_bytes": most * MAX_FORM_FILES + FORM_OVERHEAD_BYTES}
        async with form(call.request, daemon.runtime.config.data_folder(), **bounds) as parts:
            return await _post(call, session, _from_fields(parts), key, parts)
    async with json_body(daemon, call.request, MessageBody, max_bytes=MAX_INLINE_JSON_BYTES) as body:
        return await _post(call, session, body, key)


def _key(request: Request) -> str:
    """Return the idempotency key: repeated requests with one key are handled once."""
    key = request.headers.get("idempotency-key", "")
    if len(key) > MAX_KEY_CHARACTERS or not key.isprintable():
        raise UnreadableRequest(f"An Idempotency-Key has at most {MAX_KEY_CHARACTERS} plain characters.")
    return key


def _traceparent(request: Request) -> str:
    """Return the W3C header of the caller's span; empty if it is not valid."""
    found = request.headers.get("traceparent", "")
    return found if _TRACEPARENT.fullmatch(found) else ""


def _from_fields(parts: Sequence[FormPart]) -> MessageBody:
    """Return the fields of a form as a JSON body would give them; `blocks` and `options` contain JSON."""
    fields: dict[str, Any] = {part.name: part.text for part in parts if part.spool is None and part.name in _FIELDS}
    if not fields.get("parent"):
        fields.pop("parent", None)
    blocks: tuple[ContentInput, ...] = ()
    for part in parts:
        if part.spool is None and part.name == "blocks":
            blocks += decode_body(bytes(part.data), tuple[ContentInput, ...])
    options = next((part.data for part in parts if part.spool is None and part.name == "options"), b"")
    chosen = decode_body(bytes(options), RequestChoices) if options else None
    try:
        return msgspec.structs.replace(convert(fields, MessageBody, strict=False), blocks=blocks, options=chosen)
    except msgspec.ValidationError as error:
        raise UnreadableRequest(f"Invalid form field: {error}") from None


async def _post(
    call: Call[None, None], session: LocalSession, body: MessageBody, key: str, parts: Sequence[FormPart] = ()
) -> Response:
    daemon = call.daemon
    for name in (body.model, *body.models):
        if name:
            daemon.library.check_model(name)
    workspace = (await session.change(workspace=body.workspace)).workspace if body.workspace else session.workspace
    content, notices = await blocks_of(daemon, call.identity, workspace, body.text or body.message, body.blocks)
    for block, said in [*await _images(daemon, body.images), *await _files(daemon, parts)]:
        content, notices = (*content, block), (*notices, *said)
    if not content:
        raise ContentError("The message is empty: send text, blocks, images or files.")
    if body.tools is not None:
        session = await daemon.library.open(session.id, tools=body.tools)
    accepted = await daemon.turns.post(
        session,
        *content,
        key=key,
        model=body.model,
        models=body.models,
        parent=body.parent,
        n=body.n,
        sampling=sampling_of_body(body.thinking, body.options),
        steer=body.steer,
        traceparent=_traceparent(call.request),
    )
    return _accepted_response(session.id, accepted, notices)


async def _images(daemon: Daemon, images: Sequence[ImageInput]) -> list[tuple[ContentBlock, tuple[str, ...]]]:
    found: list[tuple[ContentBlock, tuple[str, ...]]] = []
    for image in images:
        given = image.base64 or image.data
        if bool(given) == bool(image.url):
            raise ContentError("An image is given by base64 or by url.")
        data, name, source = await bytes_of(daemon, given, image.url)
        taken = await daemon.intake.accept(data, image.name or name, source=source)
        found.append((taken.block, taken.notices))
    return found


async def _files(daemon: Daemon, parts: Sequence[FormPart]) -> list[tuple[ContentBlock, tuple[str, ...]]]:
    found: list[tuple[ContentBlock, tuple[str, ...]]] = []
    for part in parts:
        if part.spool is not None and (part.spool.size_bytes or part.filename):
            taken = await daemon.intake.accept(part.spool, part.filename)
            daemon.metrics.uploaded_bytes += part.spool.size_bytes
            found.append((taken.block, taken.notices))
    return found


def _accepted_response(session_id: str, accepted: Accepted, notices: Sequence[str] = ()) -> Response:
    answer = PostedMessage(
        message=accepted.message,
        node=accepted.node,
        turn=accepted.turn,
        queued=accepted.queued,
        events=f"/v1/sessions/{session_id}/events?after={accepted.seq}",
        notices=(*notices, *accepted.notices),
    )
    return json_response(answer, 202)


async def regenerate(call: Call[None, RegenerateBody]) -> Response:
    daemon, body = call.daemon, call.body
    daemon.rates.message(call.client)
    if body.model:
        daemon.library.check_model(body.model)
    session_id = call.path("session")
    posted = await daemon.turns.regenerate(
        session_id,
        node=body.node,
        key=_key(call.request),
        model=body.model,
        n=body.n,
        tools=body.tools,
        sampling=sampling_of_body(body.thinking, body.options),
    )
    return _accepted_response(session_id, posted)


async def compact(call: Call[None, CompactBody]) -> Response:
    daemon, session_id = call.daemon, call.path("session")
    daemon.rates.message(call.client)
    if call.body.model:
        daemon.library.check_model(call.body.model)
    posted = await daemon.turns.compact(session_id, key=_key(call.request), model=call.body.model)
    return _accepted_response(session_id, posted)


async def cancel_turn(call: Call[None, Cancel]) -> Response:
    await call.daemon.turns.cancel(call.path("session"), call.body.turn, pause_queue=call.body.pause_queue)
    return json_response({}, 202)


async def list_queued(call: Call[None, None]) -> QueueView:
    return await _queue_view(await call.daemon.library.open(call.path("session")))


async def change_queue(call: Call[None, QueueChange]) -> QueueView:
    return await _queue_view(
        await call.daemon.turns.change_queue(call.path("session"), call.body.messages, paused=call.body.paused)
    )


async def _queue_view(session: LocalSession) -> QueueView:
    queue = await session.queue()
    return QueueView(tuple(queued_view(queued) for queued in queue if queued.message is not None))


async def remove_queued(call: Call[None, None]) -> None:
    session = await call.daemon.library.open(call.path("session"))
    await session.remove_queued(call.path("message"))
    await call.daemon.turns.announce_change(session.id)


async def list_approvals(call: Call[None, None]) -> ApprovalList:
    return ApprovalList(await (await call.daemon.library.open(call.path("session"))).approvals())


async def answer_approval(call: Call[None, ApprovalAnswer]) -> None:
    by = call.identity.name if call.identity.account else ""
    await call.daemon.turns.answer(call.path("session"), call.path("approval"), call.body.answer, call.body.reason, by)


async def events(call: Call[EventQuery, None]) -> Response:
    if call.request.method == "HEAD":
        return Response(media_type="text/event-stream")
    return await sse.events(call.daemon, call.request)
