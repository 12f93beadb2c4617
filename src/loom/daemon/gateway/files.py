"""Files of gateway clients, with the APIs of Anthropic and OpenAI: the bytes are in the media store, and requests refer
to them by id."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime
from typing import Any, Final

from starlette.responses import Response, StreamingResponse

from loom.content.blocks import clean_text
from loom.daemon.dispatch import Call, json_response
from loom.daemon.gateway.body import GatewayFault
from loom.daemon.gateway.clients import GatewayClient
from loom.daemon.gateway.protocol import ANTHROPIC, CHAT, GatewayProtocol
from loom.daemon.request_bodies import FORM_OVERHEAD_BYTES, form
from loom.errors import MediaError
from loom.store.gateway import GatewayFile
from loom.wire.answer_errors import make_fault

_MAX_PURPOSE_CHARS: Final = 64
_MAX_LISTED: Final = 1_000


def files_protocol(call: Call[None, None]) -> GatewayProtocol:
    """Return the protocol of a client: both APIs have the same URLs, but only Anthropic's clients send a version
    header."""
    return ANTHROPIC if "anthropic-version" in call.request.headers else CHAT


async def upload_file(call: Call[None, None], protocol: GatewayProtocol, client: GatewayClient) -> Response:
    daemon = call.daemon
    most = daemon.runtime.config.server.max_upload_bytes
    if not call.request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise GatewayFault(make_fault(400, "Send the file as multipart/form-data, in a part named `file`."))
    bounds = {"max_file_bytes": most, "max_bytes": most + FORM_OVERHEAD_BYTES}
    async with form(call.request, daemon.runtime.config.data_folder(), **bounds) as parts:
        found = next((part for part in parts if part.name == "file" and part.spool is not None), None)
        if found is None or found.spool is None:
            raise GatewayFault(make_fault(400, "The form contains no part named `file`."))
        purpose = next((part.text for part in parts if part.name == "purpose"), "")
        try:
            taken = await daemon.intake.accept(found.spool, found.filename)
        except MediaError as error:
            raise GatewayFault(make_fault(400, str(error))) from None
    media = taken.media
    file = GatewayFile(
        f"file_{secrets.token_hex(12)}",
        client.name,
        media.digest,
        media.name or clean_text(found.filename) or "file",
        media.media_type,
        media.size_bytes,
        purpose[:_MAX_PURPOSE_CHARS] or "user_data",
        time.time(),
    )
    await daemon.runtime.conversations.records.keep_file(file)
    return json_response(_describe(file, protocol))


async def list_files(call: Call[None, None], protocol: GatewayProtocol, client: GatewayClient) -> Response:
    query = call.request.query_params
    limit = query.get("limit", "")
    most = min(int(limit), _MAX_LISTED) if limit.isascii() and limit.isdecimal() and 0 < len(limit) < 9 else 100
    records = call.daemon.runtime.conversations.records
    cursor = query.get("after_id") or query.get("after") or ""
    after = await records.file(client.name, cursor) if cursor else None
    if cursor and after is None:
        raise GatewayFault(make_fault(404, f"File {cursor!r} not found."))
    found = await records.files(client.name, limit=max(1, most) + 1, after=after)
    shown = found[: max(1, most)]
    ids = {"first_id": shown[0].id if shown else None, "last_id": shown[-1].id if shown else None}
    data = [_describe(file, protocol) for file in shown]
    return json_response({"object": "list", "data": data, "has_more": len(found) > len(shown), **ids})


async def get_file(call: Call[None, None], protocol: GatewayProtocol, client: GatewayClient) -> Response:
    return json_response(_describe(await _find(call, client), protocol))


async def file_content(call: Call[None, None], _: GatewayProtocol, client: GatewayClient) -> Response:
    file = await _find(call, client)
    found = await call.daemon.runtime.library.open_media(file.digest)
    if found.file is not None:
        found.file.close()
    headers = {"X-Content-Type-Options": "nosniff", "Content-Length": str(found.size_bytes)}
    return StreamingResponse(found.blocks, media_type=file.media_type, headers=headers)


async def delete_file(call: Call[None, None], protocol: GatewayProtocol, client: GatewayClient) -> Response:
    file = await _find(call, client)
    await call.daemon.runtime.conversations.records.delete_file(client.name, file.id)
    if protocol is ANTHROPIC:
        return json_response({"id": file.id, "type": "file_deleted"})
    return json_response({"id": file.id, "object": "file", "deleted": True})


async def _find(call: Call[None, None], client: GatewayClient) -> GatewayFile:
    file_id = call.path("file")
    found = await call.daemon.runtime.conversations.records.file(client.name, file_id)
    if found is None:
        raise GatewayFault(make_fault(404, f"File {file_id!r} not found."))
    return found


def _describe(file: GatewayFile, protocol: GatewayProtocol) -> dict[str, Any]:
    if protocol is ANTHROPIC:
        return {
            "id": file.id,
            "type": "file",
            "filename": file.name,
            "mime_type": file.media_type,
            "size_bytes": file.size_bytes,
            "created_at": datetime.fromtimestamp(file.created_at, UTC).isoformat().replace("+00:00", "Z"),
            "downloadable": True,
        }
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.size_bytes,
        "created_at": int(file.created_at),
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
    }
