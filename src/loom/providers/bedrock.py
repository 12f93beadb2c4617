"""Claude on Bedrock: the Anthropic wire behind AWS's address, signature and framing. Same names as in every wire.

The body is the Anthropic one (`wire.anthropic.encode` knows about Bedrock). A request is authorised with a Bedrock API
key (AWS_BEARER_TOKEN_BEDROCK) where there is one, else signed with the credentials that AWS's own tools would use.
A signature covers the hash of the body, and the service takes no unsigned ones; so the body is read twice, once to be
hashed and once to be sent, and never held.
"""

from __future__ import annotations

import asyncio
import os
from base64 import b64decode
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final
from urllib.parse import quote

from loom.errors import ExtraMissing, NotAuthorised, ProviderError
from loom.events import DecoderEvent
from loom.models import Model
from loom.prompt import Prompt
from loom.providers.event_frames import Frame, FrameSplitter
from loom.providers.media_body import Body, sha256_of
from loom.wire import anthropic, faults
from loom.wire.framing import parse_object, reading, words

HEADERS: Final = {"accept": "application/vnd.amazon.eventstream", "x-amzn-bedrock-accept": "application/json"}
SERVICE: Final = "bedrock"
_DEFAULT_REGION: Final = "us-east-1"

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
    """A model's name may be an ARN, with colons and slashes."""
    return f"/model/{quote(model.name, safe='')}/invoke-with-response-stream"


def base_url(model: Model) -> str:
    """The catalogue leaves the region open."""
    return model.base_url.replace("{region}", region()) if "{region}" in model.base_url else model.base_url


def region() -> str:
    """As AWS's own tools choose it; those that need no signature may do without botocore."""
    stated = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if stated:
        return stated
    try:
        session = _botocore("session").get_session()
    except ExtraMissing:
        return _DEFAULT_REGION
    return str(session.get_config_variable("region") or _DEFAULT_REGION)


def encode(prompt: Prompt) -> dict[str, Any]:
    return anthropic.encode(prompt)


class Decoder:
    """The Anthropic events, each in base64 inside JSON inside a frame; errors are frames of their own."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._frames = FrameSplitter()
        self._events = anthropic.Decoder(model)

    def feed(self, data: bytes) -> Iterator[DecoderEvent]:
        with reading(self._model):
            for frame in self._frames.feed(data):
                yield from self._frame(frame)

    def finish(self) -> Iterator[DecoderEvent]:
        return self._events.finish()

    def _frame(self, frame: Frame) -> Iterator[DecoderEvent]:
        kind = frame.headers.get(":message-type", "event")
        if kind == "event":
            payload = parse_object(frame.payload, self._model)
            if payload.get("bytes"):
                event = b64decode(words(payload, "bytes"), validate=True)
                yield from self._events.decode(parse_object(event, self._model))
            return
        if kind == "exception":
            name = frame.headers.get(":exception-type", "")
            raise fault(_STATUS.get(name), {"type": name, **parse_object(frame.payload, self._model)}, self._model)
        name = frame.headers.get(":error-code", "")
        raise fault(None, {"type": name, "message": frame.headers.get(":error-message", name)}, self._model)


def fault(status: int | None, body: dict[str, Any], model: Model, sent: dict[str, Any] | None = None) -> ProviderError:
    """`body` is `{"message": …}`, its `type` the name of the exception."""
    if "input is too long" in str(body.get("message", "")).lower():
        body = {**body, "type": "prompt is too long"}  # in the words of the other doors to the same model
    return faults.read(status, body, model, sent, _STATUS)


class Signer:
    """Signature Version 4 with the usual credentials: environment, profile, single sign-on, instance role."""

    def __init__(self) -> None:
        self._session: Any = None

    async def signed(self, url: str, headers: Mapping[str, str], body: Body) -> dict[str, str]:
        """The headers to add."""
        digest = await sha256_of(body)
        return await asyncio.to_thread(self._sign, url, headers, digest)

    def _sign(self, url: str, headers: Mapping[str, str], digest: str) -> dict[str, str]:
        """In a thread: credentials may have to be fetched first."""
        # What is signed is what arrives: a proxy may change any other header.
        covered = {"content-type": headers["content-type"], "x-amz-content-sha256": digest}
        request = _botocore("awsrequest").AWSRequest(method="POST", url=url, headers=covered)
        _botocore("auth").SigV4Auth(self._credentials(), SERVICE, _region_of(url)).add_auth(request)
        return {name.lower(): value for name, value in request.headers.items()}

    def _credentials(self) -> Any:
        if self._session is None:
            self._session = _botocore("session").get_session()
        try:
            found = self._session.get_credentials()
            if found is not None:
                return found.get_frozen_credentials()
        except _botocore("exceptions").BotoCoreError as error:
            raise _no_credentials(f"AWS credentials could not be fetched ({type(error).__name__})") from None
        raise _no_credentials("there are no AWS credentials on this machine")


def _botocore(name: str) -> Any:
    try:
        return import_module(f"botocore.{name}")
    except ModuleNotFoundError:
        raise ExtraMissing(
            "signing requests to Bedrock needs botocore, which is not installed",
            hint="Run: pip install 'loom-runtime[bedrock]', or set AWS_BEARER_TOKEN_BEDROCK.",
        ) from None


def _region_of(url: str) -> str:
    """The region that the address names, so that both always agree; a private endpoint names none."""
    labels = url.split("/")[2].split(".")
    return labels[1] if len(labels) > 2 and labels[0].startswith("bedrock") else region()


def _no_credentials(message: str) -> NotAuthorised:
    return NotAuthorised(
        message,
        provider="bedrock-anthropic",
        hint="Run aws configure (or aws sso login), or set AWS_BEARER_TOKEN_BEDROCK.",
    )
