"""What is not an answer: refusals, web pages where a stream should be, silence. Each becomes one ProviderError."""

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
    """Return why the status was not 200. What a proxy or a load balancer says in HTML is quoted in its first words."""
    if response.is_redirect:
        return _redirect_error(response, model)
    error = fault(response.status_code, _error_body(await read_beginning(response), response.headers))
    stated = retry_after(response.headers)
    error.retry_after = stated if stated is not None else error.retry_after
    return error


def page(response: httpx2.Response, model: Model, host: str) -> ProviderError | None:
    """Status 200, but a web page, such as one that says to log in. Any other type is read by its bytes: servers label
    streams as JSON, and send whole JSON where a stream was asked for."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _PAGES:
        return None
    return WireError(
        f"{model.reference}: {host} answered with {kind} where a stream was expected",
        provider=model.provider,
        model=model.name,
        status=response.status_code,
        hint="Check base_url: it must be the address of the API, with its version.",
    )


async def read_beginning(response: httpx2.Response, limit: int = MAX_ERROR_BYTES) -> bytes:
    """As much as explains it; a server that goes on for ever, or breaks off, is not waited for."""
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
    """Gemini's answer to a stream that never began is a list of one."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(raw, type=dict[str, Any])
    with suppress(msgspec.DecodeError, IndexError):
        return msgspec.json.decode(raw, type=list[dict[str, Any]])[0]
    return {}


def _words(raw: bytes) -> str:
    """Return the words of what is not JSON; of a web page its title, or its text without the tags."""
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
        f"{model.reference}: the server redirects to another address ({target.host or 'no address given'})",
        provider=model.provider,
        model=model.name,
        status=response.status_code,
        hint="Keys are not sent on. If that is the right address, set it as base_url.",
    )


def request_id(headers: Mapping[str, str]) -> str:
    return next((headers[name] for name in _REQUEST_IDS if name in headers), "")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, milliseconds or a date: all three are in use."""
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
    """Some services say whether trying again makes sense."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", ""), otherwise)


def unreachable_error(model: Model, target: Endpoint, error: Exception) -> Unavailable:
    """No connection, or none that lasted until an answer began."""
    import httpx2

    if isinstance(error, httpx2.ReadTimeout):
        what, hint = "did not answer in time", "Try again, or choose another model."
    elif is_untrusted(error):
        what, hint = "has a certificate that this machine does not trust", "Check the address and the machine's clock."
    elif isinstance(error, httpx2.ConnectError) and target.is_local:
        what, hint = "is not running", "Start it, or choose another model."
    else:
        what = f"cannot be reached ({type(error).__name__})"
        hint = "Check the network and the address, or choose another model."
    return Unavailable(f"{model.reference}: {target.host} {what}", provider=model.provider, model=model.name, hint=hint)


def is_lasting(error: Exception, target: Endpoint) -> bool:
    """Return whether trying again at once would end the same way."""
    import httpx2

    nobody_listens = isinstance(error, httpx2.ConnectError) and target.is_local
    return nobody_listens or is_untrusted(error) or isinstance(error, httpx2.ReadTimeout | httpx2.UnsupportedProtocol)


def is_untrusted(error: BaseException | None) -> bool:
    import ssl

    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def timeout_error(model: Model, seconds: float) -> Unavailable:
    return Unavailable(
        f"{model.reference}: no answer began within {seconds:g} seconds",
        provider=model.provider,
        model=model.name,
        hint="Try again, or choose another model.",
    )


def cut_off_error(model: Model, why: str, *, arrived: bool) -> Unavailable:
    """`arrived`: whether a word of the answer was already passed on."""
    what = "the answer was cut off" if arrived else "the answer ended before its first word"
    return Unavailable(
        f"{model.reference}: {what} ({why})",
        provider=model.provider,
        model=model.name,
        hint="What arrived is kept. Try again." if arrived else "Try again, or choose another model.",
    )


def complete_error(error: ProviderError, response: httpx2.Response | None, secrets: Iterable[str]) -> ProviderError:
    """The same error with the request's id, and without the secrets that the server repeated."""
    if response is not None:
        error.request_id = error.request_id or request_id(response.headers)
    error.message = mask_sent_secrets(error.message, secrets)
    error.args = (error.message,)
    return error
