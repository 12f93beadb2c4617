"""Claude on Bedrock: the Anthropic body at another path, with each event as base64 inside an AWS event-stream frame.

`providers.bedrock` sets the URL and signs requests.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import Any, Final

from loom.errors import ProviderError
from loom.events import DecoderEvent
from loom.models import Model
from loom.prompt import Prompt
from loom.wire import anthropic, faults
from loom.wire.event_frames import EventFrame, FrameSplitter
from loom.wire.framing import get_str, parse_object, wire_errors

HEADERS: Final = {"accept": "application/vnd.amazon.eventstream", "x-amzn-bedrock-accept": "application/json"}
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
VERSION: Final = "bedrock-2023-05-31"

_STATUS: Final = {
    "accessDeniedException": 403,
    "internalServerException": 500,
    "modelErrorException": 424,
    "modelNotReadyException": 429,
    "modelStreamErrorException": 500,
    "modelTimeoutException": 408,
    "resourceNotFoundException": 404,
    "serviceQuotaExceededException": 429,
    "serviceUnavailableException": 503,
    "throttlingException": 429,
    "validationException": 400,
}


def path(model: Model) -> str:
    """Return the path. The name is encoded: it may be an ARN, with colons and slashes."""
    return f"/model/{quote_name(model.name)}/invoke-with-response-stream"


def quote_name(name: str) -> str:
    """Percent-encode all characters except unreserved ones."""
    return "".join(chr(byte) if chr(byte) in _UNRESERVED else f"%{byte:02X}" for byte in name.encode())


def encode(prompt: Prompt) -> dict[str, Any]:
    """Return the Anthropic body without `model` and `stream`, which are in the path, and with a version field."""
    body = anthropic.encode(prompt)
    del body["model"], body["stream"]
    return {"anthropic_version": VERSION, **body}


class Decoder:
    """Decodes event frames; errors are frames, too."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._frames = FrameSplitter()
        self._events = anthropic.Decoder(model)

    def feed(self, data: bytes) -> Iterator[DecoderEvent]:
        with wire_errors(self._model):
            for frame in self._frames.feed(data):
                yield from self._frame(frame)

    def finish(self) -> Iterator[DecoderEvent]:
        return self._events.finish()

    def _frame(self, frame: EventFrame) -> Iterator[DecoderEvent]:
        kind = frame.headers.get(":message-type", "event")
        if kind == "event":
            payload = parse_object(frame.payload, self._model)
            if payload.get("bytes"):
                event = b64decode(get_str(payload, "bytes"), validate=True)
                yield from self._events.decode(parse_object(event, self._model))
            return
        raise frame_error(frame, self._model)


def frame_error(frame: EventFrame, model: Model) -> ProviderError:
    """Return the error in a frame of Bedrock."""
    if frame.headers.get(":message-type") == "exception":
        name = frame.headers.get(":exception-type", "")
        return fault(_STATUS.get(name), {"type": name, **parse_object(frame.payload, model)}, model)
    name = frame.headers.get(":error-code", "")
    return fault(None, {"type": name, "message": frame.headers.get(":error-message", name)}, model)


def fault(status: int | None, body: dict[str, Any], model: Model, sent: dict[str, Any] | None = None) -> ProviderError:
    """Return the error for `{"message": …}`; `type` is the name of the exception."""
    if "input is too long" in str(body.get("message", "")).lower():
        body = {**body, "type": "prompt is too long"}  # the wording of Anthropic's own API
    return faults.error_from_body(status, body, model, sent, _STATUS)
