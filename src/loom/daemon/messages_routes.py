"""Messages: say something, watch, wait in line, stop, answer what is asked, say it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from loom.content.blocks import ContentBlock
from loom.daemon import sse
from loom.daemon.dispatch import Call, decode_body, json_body, json_response
from loom.daemon.history import history, live_state_of, queued_view
from loom.daemon.media_routes import MAX_INLINE_JSON_BYTES, bytes_of
from loom.daemon.problems import UnreadableRequest
from loom.daemon.request_content import blocks_of
from loom.daemon.services import Daemon
from loom.daemon.sessions_routes import folder_of
from loom.daemon.turns import AcceptedMessage as Accepted
from loom.daemon.uploads import FORM_OVERHEAD_BYTES, FormPart, form
from loom.errors import ContentError, NotFound
from loom.message_types import (
    ApprovalAnswer,
    ApprovalList,
    Cancel,
    ContentInput,
    EventQuery,
    History,
    ImageInput,
    MessageBody,
    MessageQuery,
    PostedMessage,
    QueueView,
    RegenerateBody,
)
from loom.store.session_rows import StoredSession

MAX_KEY_CHARACTERS: Final = 200
MAX_FORM_FILES: Final = 4
"""So many of the largest uploads fit into one form."""
_FIELDS: Final = ("message", "text", "model", "workspace", "parent", "n")


async def read(call: Call[MessageQuery, None]) -> History:
    return await history(call.daemon, call.path("session"), call.query)


async def post_message(call: Call[None, None]) -> Response:
    """It is on disk when this answers."""
    daemon = call.daemon
    daemon.rates.message(call.client)
    key = _key(call.request)
    stored = await daemon.runtime.sessions.get(call.path("session"))
    declared = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if declared == "multipart/form-data":
        most = daemon.runtime.config.server.max_upload_bytes
        bounds = {"max_file_bytes": most, "max_bytes": most * MAX_FORM_FILES + FORM_OVERHEAD_BYTES}
        async with form(call.request, daemon.intake.folder, **bounds) as parts:
            return await _say(daemon, stored, _from_fields(parts), key, parts)
    async with json_body(daemon, call.request, MessageBody, max_bytes=MAX_INLINE_JSON_BYTES) as body:
        return await _say(daemon, stored, body, key)


def _key(request: Request) -> str:
    """The same key is the same request, however often it is sent."""
    key = request.headers.get("idempotency-key", "")
    if len(key) > MAX_KEY_CHARACTERS or not key.isprintable():
        raise UnreadableRequest(f"An Idempotency-Key has at most {MAX_KEY_CHARACTERS} plain characters.")
    return key


def _from_fields(parts: Sequence[FormPart]) -> MessageBody:
    """The fields of a form are those of the JSON body; `blocks` is JSON itself."""
    fields: dict[str, Any] = {part.name: part.text for part in parts if part.spool is None and part.name in _FIELDS}
    if not fields.get("parent"):
        fields.pop("parent", None)
    blocks: tuple[ContentInput, ...] = ()
    for part in parts:
        if part.spool is None and part.name == "blocks":
            blocks += decode_body(bytes(part.data), tuple[ContentInput, ...])
    try:
        return msgspec.structs.replace(msgspec.convert(fields, MessageBody, strict=False), blocks=blocks)
    except msgspec.ValidationError as error:
        raise UnreadableRequest(f"A field of the form cannot be read: {error}") from None


async def _say(
    daemon: Daemon, stored: StoredSession, body: MessageBody, key: str, parts: Sequence[FormPart] = ()
) -> Response:
    if body.model:
        daemon.runtime.model(body.model)
    if body.workspace:
        await daemon.runtime.sessions.update(stored.id, workspace=await folder_of(body.workspace))
    content, notices = await blocks_of(daemon, stored, body.message or body.text, body.blocks)
    for block, said in [*await _images(daemon, body.images), *await _files(daemon, parts)]:
        content, notices = (*content, block), (*notices, *said)
    if not content:
        raise ContentError("There is nothing to say: send a message, blocks, images or files.")
    accepted = await daemon.turns.post(
        stored.id, *content, key=key, model=body.model, parent=body.parent, n=body.n, tools=body.tools
    )
    return _accepted_response(stored.id, accepted, notices)


async def _images(daemon: Daemon, images: Sequence[ImageInput]) -> list[tuple[ContentBlock, tuple[str, ...]]]:
    found: list[tuple[ContentBlock, tuple[str, ...]]] = []
    for image in images:
        if bool(image.data) == bool(image.url):
            raise ContentError("An image is given by data or by url.")
        data, name, source = await bytes_of(daemon, image.data, image.url)
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
        daemon.runtime.model(body.model)
    session_id = call.path("session")
    await daemon.runtime.sessions.get(session_id)
    key = _key(call.request)
    posted = await daemon.turns.regenerate(
        session_id, node=body.node, key=key, model=body.model, n=body.n, tools=body.tools
    )
    return _accepted_response(session_id, posted)


async def cancel_turn(call: Call[None, Cancel]) -> Response:
    session_id = call.path("session")
    await call.daemon.runtime.sessions.get(session_id)
    await call.daemon.turns.cancel(session_id, call.body.turn)
    return json_response({}, 202)


async def list_queued(call: Call[None, None]) -> QueueView:
    queue = await call.daemon.runtime.queue.list(call.path("session"))
    return QueueView(tuple(queued_view(queued) for queued in queue if queued.message is not None))


async def remove_queued(call: Call[None, None]) -> None:
    session_id = call.path("session")
    if not await call.daemon.runtime.queue.remove(session_id, call.path("message")):
        raise NotFound("That message does not wait any more.", hint="It was said, or removed before.")
    await call.daemon.turns.announce_change(session_id)


async def list_approvals(call: Call[None, None]) -> ApprovalList:
    stored = await call.daemon.runtime.sessions.get(call.path("session"))
    head = await call.daemon.runtime.forest.node(stored.head_id)
    return ApprovalList((await live_state_of(call.daemon, stored, head)).approvals)


async def answer_approval(call: Call[None, ApprovalAnswer]) -> None:
    session_id = call.path("session")
    await call.daemon.runtime.sessions.get(session_id)
    await call.daemon.turns.answer(session_id, call.path("approval"), call.body.answer, call.body.reason)


async def events(call: Call[EventQuery, None]) -> Response:
    if call.request.method == "HEAD":
        return Response(media_type="text/event-stream")
    return await sse.events(call.daemon, call.request)
