"""Errors as answers: every LoomError has a status and one shape that clients read, `application/problem+json` with a
`code`; `{"error": {"code", "message", "hint"}}` in it is the shape of older versions. Any other exception is a bug: the
client gets `internal`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Final

import msgspec
from starlette.responses import Response

from loom.api_types import ProblemBody, ProblemText
from loom.errors import (
    ApprovalGone,
    CapabilityMissing,
    Conflict,
    Corrupt,
    ExtraMissing,
    Full,
    KeyReused,
    LoomError,
    MediaError,
    Newer,
    NotFound,
    ProviderError,
    ReadOnly,
    Stale,
    StoreError,
    TooLarge,
    Unsupported,
)
from loom.runtime.plan_table import problem_text

JSON: Final = "application/json"
PROBLEM_JSON: Final = "application/problem+json"


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


_STATUS: Final[tuple[tuple[type[LoomError], int], ...]] = (
    (TooLarge, 413),
    (Unsupported, 415),
    (MediaError, 422),
    (ApprovalGone, 409),
    (KeyReused, 422),
    (NotFound, 404),
    (Stale, 412),
    (Conflict, 409),
    (Newer, 409),
    (Corrupt, 410),
    (Full, 507),
    (ReadOnly, 507),
    (StoreError, 503),
    (ExtraMissing, 501),
    (CapabilityMissing, 400),
    (ProviderError, 502),
)
"""The first row that fits counts; any other error is 400."""


def status_of(error: LoomError) -> int:
    if isinstance(error, RequestError):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 400)


def error_response(error: LoomError) -> Response:
    headers = {"Cache-Control": "no-store"}
    status = status_of(error)
    if isinstance(error, TooMany):
        headers["Retry-After"] = str(math.ceil(error.retry_after))
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="loom"'
    return _problem(problem_text(error), status, headers)


def internal_error() -> Response:
    """Something that must not happen did. What it was is in the log, not here."""
    text = ProblemText("daemon.bug", "Something went wrong inside the daemon.", "See its log; nothing was lost.")
    return _problem(text, 500, {"Cache-Control": "no-store"})


def _problem(text: ProblemText, status: int, headers: Mapping[str, str]) -> Response:
    """An RFC 9457 problem; `error` is the shape that clients of older versions read."""
    body = ProblemBody(
        type=f"urn:loom:error:{text.code}",
        title=text.message,
        status=status,
        detail=text.hint,
        code=text.code,
        error=text,
    )
    return Response(msgspec.json.encode(body), status, headers, PROBLEM_JSON)
