"""Turn failed requests into a `ProviderError`: refusals, web pages instead of a stream, lost connections, timeouts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from loom.errors import ProviderError, Refused, Unavailable, WireError
from loom.models import Model
from loom.providers.connections import Endpoint, mask_sent_secrets, transport_errors
from loom.struct_types import decode_json

if TYPE_CHECKING:
    import httpx2

FaultReader: TypeAlias = Callable[[int | None, dict[str, Any]], ProviderError]

_TAG: Final = re.compile(r"<[!/]?[A-Za-z][^<>]{0,2000}>")
_TITLE: Final = re.compile(r"<title[^<>]{0,200}>([^<]{1,500})</title>", re.IGNORECASE)
_HIDDEN: Final = re.compile(r"<(script|style)\b.{0,20000}?</\1>", re.IGNORECASE | re.DOTALL)
MAX_ERROR_BYTES: Final = 65_536
_REQUEST_IDS: Final = ("request-id", "x-request-id", "x-amzn-requestid", "x-goog-request-id")
_PAGES: Final = ("text/html", "application/xhtml+xml", "application/xml", "text/xml")


async def refusal_error(response: httpx2.Response, model: Model, fault: FaultReader) -> ProviderError:
    """Return the error for a response with a status other than 200. An HTML page of a proxy or load balancer is quoted
    as text."""
    if response.is_redirect:
        return _redirect_error(response, model)
    error = fault(response.status_code, _error_body(await read_beginning(response), response.headers))
    stated = retry_after(response.headers)
    error.retry_after = stated if stated is not None else error.retry_after
    return error


def page(response: httpx2.Response, model: Model, host: str) -> ProviderError | None:
    """Return the error for a web page with status 200, such as a login page; None for other content types, which are
    read by their bytes: some servers label streams as JSON, or send JSON instead of a stream."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _PAGES:
        return None
    return WireError(
        f"{model.reference}: {host} sent {kind} instead of a stream",
        provider=model.provider,
        model=model.name,
        status=response.status_code,
        hint="Check base_url: it must be the URL of the API, with its version.",
    )


async def read_beginning(response: httpx2.Response, limit: int = MAX_ERROR_BYTES) -> bytes:
    """Return up to `limit` bytes of a response; what has arrived if the connection is lost."""
    raw = b""
    with suppress(*transport_errors()):
        async for chunk in response.aiter_bytes():
            raw += chunk
            if len(raw) >= limit:
                break
    return raw[:limit]


def _error_body(raw: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    body = _object(raw)
    if not body:
        return {"error": {"message": _words(raw)}, "unreadable": True}
    kind = headers.get("x-amzn-errortype", "").partition(":")[0]
    return {"type": kind, **body} if kind else body


def _object(raw: bytes) -> dict[str, Any]:
    """Parse a JSON object, or the first object of a list, which is Gemini's error format for streams; empty if it is
    neither."""
    with suppress(msgspec.DecodeError):
        return decode_json(raw, dict[str, Any])
    with suppress(msgspec.DecodeError, IndexError):
        return decode_json(raw, list[dict[str, Any]])[0]
    return {}


def _words(raw: bytes) -> str:
    """Return the text of a body that is not JSON; of a web page its title, or its text without tags."""
    text = raw.decode("utf-8", "replace")
    if _TAG.search(text):
        title = _TITLE.search(text)
        text = title[1] if title else _TAG.sub(" ", _HIDDEN.sub(" ", text))
    return " ".join(text.split())[:500] or "no explanation"


def _redirect_error(response: httpx2.Response, model: Model) -> Refused:
    import httpx2

    try:
        target = httpx2.URL(response.headers.get("location", ""))
    except httpx2.InvalidURL:
        target = httpx2.URL("")
    return Refused(
        f"{model.reference}: the server redirects to another URL ({target.host or 'none given'})",
        provider=model.provider,
        model=model.name,
        status=response.status_code,
        hint="Loom does not follow redirects with a key. If that URL is right, set it as base_url.",
    )


def request_id(headers: Mapping[str, str]) -> str:
    return next((headers[name] for name in _REQUEST_IDS if name in headers), "")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait from `retry-after-ms` or `retry-after`, a number of seconds or a date; None without
    either."""
    try:
        if "retry-after-ms" in headers:
            return _seconds(float(headers["retry-after-ms"]) / 1000)
        value = headers.get("retry-after", "")
        if value.replace(".", "", 1).isdecimal():
            return _seconds(float(value))
        return _seconds((parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()) if value else None
    except (ValueError, TypeError):
        return None


def _seconds(value: float) -> float | None:
    return max(value, 0.0) if math.isfinite(value) else None


def may_retry(headers: Mapping[str, str], *, otherwise: bool) -> bool:
    """Return whether to retry: `x-should-retry` if the service sends it, else `otherwise`."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", ""), otherwise)


def unreachable_error(model: Model, target: Endpoint, error: Exception) -> Unavailable:
    """Return the error for a connection that failed, or that was lost before an answer started."""
    import httpx2

    if isinstance(error, httpx2.ReadTimeout):
        problem, hint = f"{target.host} did not answer in time", "Try again, or choose another model."
    elif is_untrusted(error):
        problem = f"{target.host} has a certificate that this machine does not trust"
        hint = "Check the URL and the machine's clock."
    elif isinstance(error, httpx2.ConnectError) and target.is_local:
        problem, hint = f"no server is running at {target.host}", "Start it, or choose another model."
    else:
        problem = f"{target.host} cannot be reached ({type(error).__name__})"
        hint = "Check the network and the URL, or choose another model."
    return Unavailable(f"{model.reference}: {problem}", provider=model.provider, model=model.name, hint=hint)


def is_lasting(error: Exception, target: Endpoint) -> bool:
    """Return whether an immediate retry would fail in the same way."""
    import httpx2

    is_refused_locally = isinstance(error, httpx2.ConnectError) and target.is_local
    return (
        is_refused_locally or is_untrusted(error) or isinstance(error, httpx2.ReadTimeout | httpx2.UnsupportedProtocol)
    )


def is_untrusted(error: BaseException | None) -> bool:
    import ssl

    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def timeout_error(model: Model, seconds: float) -> Unavailable:
    return Unavailable(
        f"{model.reference}: no answer within {seconds:g} seconds",
        provider=model.provider,
        model=model.name,
        hint="Try again, or choose another model.",
    )


def cut_off_error(model: Model, why: str, *, arrived: bool) -> Unavailable:
    """Return the error for a stream that ended too early; `arrived` is whether part of the answer was emitted."""
    what = "the answer was cut off" if arrived else "the connection ended before the answer started"
    return Unavailable(
        f"{model.reference}: {what} ({why})",
        provider=model.provider,
        model=model.name,
        hint="The partial answer is kept. Try again." if arrived else "Try again, or choose another model.",
    )


def complete_error(error: ProviderError, response: httpx2.Response | None, secrets: Iterable[str]) -> ProviderError:
    """Add the request id to an error, mask secrets in its message, and return it."""
    if response is not None:
        error.request_id = error.request_id or request_id(response.headers)
    error.message = mask_sent_secrets(error.message, secrets)
    error.args = (error.message,)
    return error
