"""Errors of a gateway in the shape of its caller's protocol.

What a provider still refuses after everything was tried is a 400 with its own words: clients repeat a 5xx, and the same
request would be refused again.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from loom.errors import (
    CapabilityMissing,
    ContextOverflow,
    LoomError,
    MediaRefused,
    NotAuthorised,
    Overloaded,
    ProviderError,
    RateLimited,
    Refused,
    TooManyBytes,
    Unavailable,
)


class AnswerFault(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` is Anthropic's word, `code` OpenAI's."""

    status: int
    kind: str
    code: str
    text: str
    retry_after: float | None = None


_KINDS: Final = {
    400: ("invalid_request_error", "invalid_request_error"),
    401: ("authentication_error", "invalid_api_key"),
    403: ("permission_error", "permission_denied"),
    404: ("not_found_error", "not_found"),
    405: ("invalid_request_error", "method_not_allowed"),
    413: ("request_too_large", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    500: ("api_error", "server_error"),
    502: ("api_error", "server_error"),
    503: ("overloaded_error", "server_overloaded"),
    504: ("timeout_error", "server_error"),
    529: ("overloaded_error", "server_overloaded"),
}


def make_fault(status: int, text: str, *, code: str = "", retry_after: float | None = None) -> AnswerFault:
    """Return the fault of a status. `code` is OpenAI's code where that of the status is not exact."""
    kind, usual = _KINDS.get(status, ("api_error", "server_error"))
    return AnswerFault(status=status, kind=kind, code=code or usual, text=text, retry_after=retry_after)


def unknown_model(text: str) -> AnswerFault:
    return make_fault(404, text, code="model_not_found")


def fault_of(error: LoomError) -> AnswerFault:
    """Return what a failed request means to the caller."""
    text = str(error)
    match error:
        case NotAuthorised():
            return make_fault(401, text)
        case RateLimited():
            return make_fault(429, text, retry_after=error.retry_after)
        case Overloaded():
            return make_fault(529, text, retry_after=error.retry_after)
        case TooManyBytes():
            return make_fault(413, text)
        case ContextOverflow():
            return make_fault(413, text, code="context_length_exceeded")
        case Unavailable():
            return make_fault(503, text, retry_after=error.retry_after)
        case Refused() | MediaRefused() | CapabilityMissing():
            return unknown_model(text) if error.status == 404 else make_fault(400, text)
        case ProviderError():
            return make_fault(502, text)
        case _:
            return make_fault(500, text)


def anthropic_error(fault: AnswerFault, request_id: str = "") -> dict[str, Any]:
    return {"type": "error", "error": {"type": fault.kind, "message": fault.text}, "request_id": request_id or None}


def openai_error(fault: AnswerFault) -> dict[str, Any]:
    kind = "invalid_request_error" if fault.status < 500 else "server_error"
    return {"error": {"message": fault.text, "type": kind, "param": None, "code": fault.code}}
