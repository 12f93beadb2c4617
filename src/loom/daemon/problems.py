"""Errors as answers: every LoomError has a status and one shape that clients read,
`{"error": {"code", "message", "hint"}}`. Anything that is no LoomError is a bug: the client is told just that."""

from __future__ import annotations

import math
from typing import ClassVar, Final

import msgspec
from starlette.responses import Response

from loom.api_types import ProblemBody, ProblemText
from loom.config import redact
from loom.content.blocks import clean_text
from loom.errors import (
    CapabilityMissing,
    ConfigError,
    Conflict,
    ContentError,
    Corrupt,
    Encrypted,
    ExtraMissing,
    Full,
    LoomError,
    MediaError,
    Newer,
    NotFound,
    ProviderError,
    ReadOnly,
    Stale,
    StoreError,
    TooLarge,
    Unreachable,
    Unreadable,
    Unsupported,
)

JSON: Final = "application/json"
MOST_WORDS: Final = 2_000
"""A sentence that is longer holds something else, such as the whole of a bad value."""


class RequestError(LoomError):
    """A request that is turned down before anything is done."""

    code: ClassVar[str] = "request.refused"
    status: ClassVar[int] = 400


class UnreadableRequest(RequestError):
    """Not JSON, not a form, no such page cursor."""

    code = "request.unreadable"


class InvalidBody(RequestError):
    """JSON of another shape than the schema's."""

    code = "request.invalid"
    status = 422


class Unauthorised(RequestError):
    code = "auth.required"
    status = 401


class Forbidden(RequestError):
    """A wrong Host or Origin, or a cookie without the header that only our own pages send."""

    code = "auth.forbidden"
    status = 403


class NoSuchRoute(RequestError):
    code = "request.no_route"
    status = 404


class WrongMethod(RequestError):
    code = "request.method"
    status = 405


class TooSlow(RequestError):
    code = "request.too_slow"
    status = 408


class WrongType(RequestError):
    """A body of a media type that this route does not read."""

    code = "request.type"
    status = 415


class NotSent(RequestError):
    """The model asked about would not be shown these bytes at all."""

    code = "media.not_sent"
    status = 404


class ApprovalNotPending(RequestError):
    code = "approval.gone"
    status = 409


class TooMany(RequestError):
    """Over a rate limit; `retry_after` is in seconds."""

    code = "rate.limited"
    status = 429

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message, hint=f"Try again in {math.ceil(retry_after)} s.")
        self.retry_after = retry_after


class Draining(RequestError):
    """The daemon is stopping and begins nothing new."""

    code = "daemon.draining"
    status = 503


def status_of(error: LoomError) -> int:
    match error:
        case RequestError():
            return error.status
        case TooLarge():
            return 413
        case Unsupported():
            return 415
        case Unreadable() | Encrypted() | MediaError():
            return 422
        case NotFound():
            return 404
        case Stale():
            return 412
        case Conflict() | Newer():
            return 409
        case Corrupt():
            return 410
        case Full() | ReadOnly():
            return 507
        case Unreachable() | StoreError():
            return 503
        case ExtraMissing():
            return 501
        case CapabilityMissing() | ContentError() | ConfigError():
            return 400
        case ProviderError():
            return 502
        case _:
            return 400


def problem(error: LoomError) -> ProblemText:
    """Its words, with whatever looks like a key masked; hints are our own words."""
    message, hint = clean_text(redact(error.message)), clean_text(error.hint)
    return ProblemText(error.code, message[:MOST_WORDS], hint[:MOST_WORDS])


def error_response(error: LoomError) -> Response:
    headers = {"Cache-Control": "no-store"}
    status = status_of(error)
    if isinstance(error, TooMany):
        headers["Retry-After"] = str(math.ceil(error.retry_after))
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="loom"'
    return Response(msgspec.json.encode(ProblemBody(problem(error))), status, headers, JSON)


def internal_error() -> Response:
    """Something that must not happen did. What it was is in the log, not here."""
    text = ProblemText("daemon.bug", "Something went wrong inside the daemon.", "Its log says what; nothing was lost.")
    return Response(msgspec.json.encode(ProblemBody(text)), 500, {"Cache-Control": "no-store"}, JSON)
