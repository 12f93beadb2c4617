"""Error responses: every `LoomError` has a status and is sent as `application/problem+json` with a `code`. The field
`{"error": {"code", "message", "hint"}}` is the format of older versions. Any other exception is a bug: the client gets
`internal`."""

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
    """A request that is refused before anything is done."""

    code: ClassVar[str] = "request.refused"
    status: ClassVar[int] = 400


class UnreadableRequest(RequestError):
    """The request is not valid JSON, not a valid form, or has an invalid cursor."""

    code = "request.unreadable"


class InvalidBody(RequestError):
    """The JSON does not match the schema."""

    code = "request.invalid"
    status = 422


class Unauthorised(RequestError):
    code = "auth.required"
    status = 401


class Forbidden(RequestError):
    """A wrong Host or Origin, a missing role or access, or a cookie without the header that only the daemon's own pages
    send."""

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
    """The route does not read this content type."""

    code = "request.type"
    status = 415


class TooMany(RequestError):
    """A rate limit is exceeded; `retry_after` is in seconds."""

    code = "rate.limited"
    status = 429

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message, hint=f"Try again in {math.ceil(retry_after)} s.")
        self.retry_after = retry_after


class Draining(RequestError):
    """The daemon is stopping and accepts nothing new."""

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
"""The status of each error; the first matching row counts, any other error is 400."""


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
    """Return the response to a bug. Details are only in the log."""
    text = ProblemText("daemon.bug", "Something went wrong inside the daemon.", "See its log; nothing was lost.")
    return _problem(text, 500, {"Cache-Control": "no-store"})


def _problem(text: ProblemText, status: int, headers: Mapping[str, str]) -> Response:
    """Return an RFC 9457 problem; `error` is the format for clients of older versions."""
    body = ProblemBody(
        type=f"urn:loom:error:{text.code}",
        title=text.message,
        status=status,
        detail=text.hint,
        code=text.code,
        error=text,
    )
    return Response(msgspec.json.encode(body), status, headers, PROBLEM_JSON)
