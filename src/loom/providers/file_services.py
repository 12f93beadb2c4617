"""The Files APIs of Anthropic, OpenAI and Gemini: upload bytes and get an id. Uploads use constant memory.

Every upload has an expiry, so that no data stays with a provider forever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote, urlsplit

import msgspec

from loom.errors import NotAuthorised
from loom.models import Model
from loom.prompt import MediaRef
from loom.providers.connections import Connections, endpoint, transport_errors
from loom.providers.http_errors import read_beginning
from loom.providers.media_body import FormBody, MediaSource, RawBody
from loom.struct_types import decode_json
from loom.wire import anthropic
from loom.wire.framing import get_object

if TYPE_CHECKING:
    import httpx2

WEEK_SECONDS: Final = 7 * 24 * 3600
_MARGIN_SECONDS: Final = 3600
_GEMINI_SECONDS: Final = 48 * 3600
_FIRST_LOOK_SECONDS: Final = 0.25
_LOOKS: Final = 12
_SUFFIXES: Final = {"application/pdf": ".pdf", "audio/mpeg": ".mp3", "audio/x-wav": ".wav"}


class UploadFailed(Exception):
    """An upload failed. It never leaves this package: the bytes are sent inline instead. `status` is 0 if there was no
    response."""

    def __init__(self, problem: str, status: int = 0) -> None:
        super().__init__(problem)
        self.status = status


class FileService(Protocol):
    @property
    def lifetime_seconds(self) -> float:
        """How long an id is used: its lifetime minus an hour."""
        ...

    async def upload(
        self, connections: Connections, model: Model, key: str | None, ref: MediaRef, source: MediaSource
    ) -> str: ...

    async def delete(self, connections: Connections, model: Model, key: str | None, file_id: str) -> None:
        """Delete a file; do nothing if it does not exist. Raise `UploadFailed` if that fails."""
        ...


class _Forms:
    """Anthropic and OpenAI: one multipart form; the response has the id."""

    lifetime_seconds: float = WEEK_SECONDS - _MARGIN_SECONDS

    def __init__(self, path: str, headers: Mapping[str, str], fields: Mapping[str, str], *, purpose: bool) -> None:
        self._path, self._headers, self._fields, self._purpose = path, headers, fields, purpose

    async def upload(
        self, connections: Connections, model: Model, key: str | None, ref: MediaRef, source: MediaSource
    ) -> str:
        fields = dict(self._fields)
        if self._purpose:
            fields["purpose"] = "vision" if ref.media_type.startswith("image/") else "user_data"
        form = FormBody(fields, ref, _name(ref), source)
        headers = {
            **self._headers,
            "content-type": form.content_type,
            "content-length": str(form.content_length),
        }
        url = endpoint(model.base_url, self._path).url
        answer = await _send_request(connections, "POST", url, headers | _access(connections, model, key), form)
        return _text(answer.body, "id")

    async def delete(self, connections: Connections, model: Model, key: str | None, file_id: str) -> None:
        url = endpoint(model.base_url, f"{self._path}/{quote(file_id, safe='')}").url
        await _delete_file(connections, url, {**self._headers, **_access(connections, model, key)})


class _Gemini:
    """Gemini's resumable upload: request a URL, send the bytes there, and wait until the file is ACTIVE."""

    lifetime_seconds: float = _GEMINI_SECONDS - _MARGIN_SECONDS

    async def upload(
        self, connections: Connections, model: Model, key: str | None, ref: MediaRef, source: MediaSource
    ) -> str:
        base = endpoint(model.base_url, "").url
        version = urlsplit(base).path
        start = {
            "x-goog-upload-protocol": "resumable",
            "x-goog-upload-command": "start",
            "x-goog-upload-header-content-length": str(ref.size_bytes),
            "x-goog-upload-header-content-type": ref.media_type,
            "content-type": "application/json",
        }
        opening = msgspec.json.encode({"file": {"display_name": _name(ref)}})
        url = base.removesuffix(version) + f"/upload{version}/files"
        answer = await _send_request(connections, "POST", url, start | _access(connections, model, key), opening)
        target = answer.headers.get("x-goog-upload-url", "")
        if urlsplit(target)[:2] != urlsplit(base)[:2]:
            raise UploadFailed("the upload URL is on another host")
        body = RawBody(ref, source)
        finish = {
            "x-goog-upload-command": "upload, finalize",
            "x-goog-upload-offset": "0",
            "content-length": str(body.content_length),
        }
        uploaded = await _send_request(connections, "POST", target, finish | connections.own_headers(model), body)
        return await self._wait_until_active(connections, model, key, get_object(uploaded.body, "file"))

    async def _wait_until_active(
        self, connections: Connections, model: Model, key: str | None, file: dict[str, Any]
    ) -> str:
        pause = _FIRST_LOOK_SECONDS
        for _ in range(_LOOKS):
            state = file.get("state", "ACTIVE")
            if state == "ACTIVE":
                return _text(file, "uri")
            if state != "PROCESSING":
                break
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 5.0)
            url = endpoint(model.base_url, "/" + _text(file, "name")).url
            file = (await _send_request(connections, "GET", url, _access(connections, model, key))).body
        raise UploadFailed(f"the file is {file.get('state')}")

    async def delete(self, connections: Connections, model: Model, key: str | None, file_id: str) -> None:
        url = endpoint(model.base_url, f"/files/{quote(file_id.rsplit('/', 1)[-1], safe='')}").url
        await _delete_file(connections, url, _access(connections, model, key))


SERVICES: Final[dict[str, FileService]] = {
    "anthropic": _Forms("/v1/files", anthropic.HEADERS, {"expires_in_seconds": str(WEEK_SECONDS)}, purpose=False),
    "openai-responses": _Forms(
        "/files",
        {},
        {"expires_after[anchor]": "created_at", "expires_after[seconds]": str(WEEK_SECONDS)},
        purpose=True,
    ),
    "gemini": _Gemini(),
}
"""File services by provider. The others have none, or none whose ids can be used for images."""


class _Answer(msgspec.Struct, frozen=True):
    headers: Mapping[str, str]
    body: dict[str, Any]


async def _send_request(
    connections: Connections, method: str, url: str, headers: Mapping[str, str], content: Any = None
) -> _Answer:
    client = connections.client()
    try:
        response: httpx2.Response = await client.send(
            client.build_request(method, url, headers=headers, content=content), stream=True
        )
        try:
            raw = await read_beginning(response)
        finally:
            await response.aclose()
    except transport_errors() as error:
        raise UploadFailed(type(error).__name__) from error
    if not response.is_success:
        raise UploadFailed(f"status {response.status_code}", response.status_code)
    try:
        return _Answer(response.headers, decode_json(raw, dict[str, Any]) if raw.strip() else {})
    except msgspec.DecodeError as error:
        raise UploadFailed("the answer is not JSON") from error


async def _delete_file(connections: Connections, url: str, headers: Mapping[str, str]) -> None:
    try:
        await _send_request(connections, "DELETE", url, headers)
    except UploadFailed as error:
        if error.status not in (404, 410):
            raise


def _access(connections: Connections, model: Model, key: str | None) -> dict[str, str]:
    try:
        return connections.access(model, key)
    except NotAuthorised as error:
        raise UploadFailed("no key") from error


def _text(value: dict[str, Any], field: str) -> str:
    found = value.get(field)
    if not isinstance(found, str) or not found:
        raise UploadFailed(f"the answer has no {field}")
    return found


def _name(ref: MediaRef) -> str:
    """Return a file name without the user's own name for it: all sessions with the same bytes share an upload."""
    kind = ref.media_type
    return ref.digest[7:19] + _SUFFIXES.get(kind, "." + kind.partition("/")[2].partition("+")[0])
