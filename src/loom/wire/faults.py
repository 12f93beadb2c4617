"""Classify error responses by status and text: too many bytes or tokens, one medium, a missing capability, an outage.

Every wire passes its map from error kinds to statuses, so that the same situation gives the same error for every
provider.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from loom.errors import (
    CapabilityMissing,
    ContextOverflow,
    MediaRefused,
    NotAuthorised,
    Overloaded,
    ProviderError,
    RateLimited,
    Refused,
    TooManyBytes,
    Unavailable,
)
from loom.models import Model
from loom.prompt import Embedded
from loom.struct_types import decode_json
from loom.wire.shapes import UploadedPart

_KEY: Final = re.compile(r"api[ _]key not valid|(?:invalid|incorrect|missing)[ _](?:x-)?api[ _-]key", re.IGNORECASE)
_UNPAID: Final = re.compile(r"insufficient[_ ](?:quota|balance)|credit balance is too low", re.IGNORECASE)
_CAPABILITY: Final = re.compile(
    r"mmproj|image input is not supported|does not support (?:image|vision|audio|pdf|tools|thinking)|"
    r"not support(?:ed)? (?:image|vision|multimodal|audio|file|document)|no endpoints found that support|"
    r"(?:image|vision|audio|video|document|file|multimodal|tool)\w*(?: \w+){0,4} (?:is|are) not supported|"
    r"is not a multimodal model|at most 0 (?:image|audio|video)|unknown variant `?(?:image_url|file|input_audio)",
    re.IGNORECASE,
)
_OVERFLOW: Final = re.compile(
    r"context[_ ](?:length|window|size|limit)|maximum context|prompt is too long|prompt too long|"
    r"too many (?:input )?tokens|exceeds? the (?:available )?(?:context|maximum number of tokens)|input token count|"
    r"longer than the context",
    re.IGNORECASE,
)
_BYTES: Final = re.compile(
    r"request[_ ]too[_ ]large|payload too large|(?:request )?entity too large|"
    r"request (?:body |payload )?(?:size )?(?:is )?(?:too large|exceeds)",
    re.IGNORECASE,
)
_OVER_ALLOWANCE: Final = re.compile(r"too large.*tokens per min", re.IGNORECASE | re.DOTALL)
"""More tokens than the account may send in a minute, so that waiting does not help."""
_MEDIA: Final = re.compile(
    r"(?:could not|unable to|cannot|failed to) (?:load|decode|process|identify|read|open) (?:input |the )?image|"
    r"image exceeds|image dimensions|many-image|invalid[_ ]image|image_(?:too|parse|file|content)|"
    r"invalid_base64_image|unsupported_image|empty_image|failed[_ ]to[_ ]download[_ ]image|image_url is not valid|"
    r"media type, but the image appears|pdf specified was not valid|password[- ]protected|"
    r"the document (?:has no pages|is (?:invalid|empty))|document .{0,40}(?:corrupt|invalid|unsupported)|"
    r"invalid (?:pdf|audio)|(?:pdf|audio|image) (?:file )?is (?:corrupt|damaged|invalid|empty)",
    re.IGNORECASE,
)

OPENAI_STATUS: Final = {
    "server_error": 500,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "invalid_api_key": 401,
    "invalid_request_error": 400,
    "invalid_prompt": 400,
}
"""The statuses of OpenAI's error kinds, for errors inside a stream, which have no status."""


def error_from_body(
    status: int | None,
    body: dict[str, Any],
    model: Model,
    sent: dict[str, Any] | None,
    statuses: Mapping[str, int],
    *,
    retry_after: float | None = None,
) -> ProviderError:
    """Return the error for a response body, or for an event of a stream, which has no `status`. `sent` is the request,
    to find the media at fault; `statuses` maps error kinds to statuses."""
    kind, message, place = explanation(body)
    if status is None:
        status = next(
            (statuses[word] for word in kind.split() if word in statuses),
            next((int(word) for word in kind.split() if re.fullmatch(r"[45]\d\d", word)), None),
        )
    digests = media_at_error_path(f"{place} {message}", sent)
    if not digests and _MEDIA.search(f"{kind} {message}"):
        only = set(media_in(sent))
        digests = tuple(only) if len(only) == 1 else ()
    return classify(status, kind, message, model, digests=digests, retry_after=retry_after)


def classify(
    status: int | None,
    kind: str,
    message: str,
    model: Model,
    *,
    digests: tuple[str, ...] = (),
    retry_after: float | None = None,
) -> ProviderError:
    """Return the typed error. The text takes precedence over the status: a 500 about `mmproj` is a missing capability,
    not an outage."""
    words = f"{kind} {message}"
    problem, hint = _situation(status, words, bool(digests))
    said = " ".join(message.split())[:600]
    return problem(
        f"{model.reference}: {said}",
        provider=model.provider,
        model=model.name,
        status=status,
        retry_after=retry_after,
        digests=digests,
        hint=hint,
    )


_REDUCED: Final = "Older turns are reduced until the request fits."
_SET_ASIDE: Final = "The text of the image or document is sent instead."


def _situation(status: int | None, words: str, points_at_media: bool) -> tuple[type[ProviderError], str]:
    if status in (401, 403) or _KEY.search(words):
        return NotAuthorised, "Check the key for this provider: loom keys set."
    if status == 402 or _UNPAID.search(words):
        return Refused, "Check the plan and the balance of this account."
    if status in (413, 429) and _OVER_ALLOWANCE.search(words):
        return ContextOverflow, _REDUCED
    if status == 429:
        return RateLimited, "Wait, or choose another model."
    if status == 529 or (status == 503 and "overload" in words.lower()):
        return Overloaded, "Try again shortly."
    if _MEDIA.search(words):
        return MediaRefused, _SET_ASIDE
    if _CAPABILITY.search(words):
        return CapabilityMissing, "Its text is sent instead."
    if status != 413 and _OVERFLOW.search(words):
        return ContextOverflow, _REDUCED
    if status == 413 or _BYTES.search(words):
        return TooManyBytes, "Older images and documents are reduced until the request fits."
    if status is None or status >= 500 or status in (408, 409, 425):
        return Unavailable, "Try again shortly."
    if status == 404:
        return Refused, "Check the model name and the server URL."
    if points_at_media:
        return MediaRefused, _SET_ASIDE
    return Refused, "`loom wire` prints the request that was refused."


def explanation(body: dict[str, Any]) -> tuple[str, str, str]:
    """Return (kind, message, path) from `{"error": {"type"|"code"|"status", "message", "param"}}` and the like."""
    error: Any = body.get("error") or body.get("detail") or body
    if isinstance(error, str):
        # Ollama passes on its runner's error as JSON inside the string.
        inner = _object(error)
        return explanation(inner) if inner else ("", error, "")
    if not isinstance(error, dict):
        return "", _text(error), ""
    details = cast("dict[str, Any]", error)
    kinds = [str(details[key]) for key in ("type", "code", "status") if details.get(key)]
    message = _text(details.get("message") or details.get("detail") or details)
    place = str(details.get("param") or "")
    metadata: Any = details.get("metadata")
    raw: Any = cast("dict[str, Any]", metadata).get("raw") if isinstance(metadata, dict) else None
    if raw:
        # OpenRouter's message is "Provider returned error"; the provider's own error is here, as JSON or text.
        inner_kind, cause, inner_place = explanation({"error": raw})
        return " ".join((*kinds, inner_kind)).strip(), f"{message}: {cause}", place or inner_place
    return " ".join(kinds), message, place


def _object(text: str) -> dict[str, Any] | None:
    try:
        return decode_json(text, dict[str, Any])
    except msgspec.DecodeError:
        return None


def _text(value: Any) -> str:
    if not value:
        return "no explanation"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# The media at fault -------------------------------------------------------------------------------------------------

_PATH: Final = re.compile(r"\b(?:messages|contents|input)(?:\[\d+\]|\.\w+)+")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")


def media_at_error_path(words: str, sent: dict[str, Any] | None) -> tuple[str, ...]:
    """Return the digests at a path in the text, such as `messages.3.content.1.image` or
    `input[0].content[2].image_url`."""
    if sent is None:
        return ()
    for found in _PATH.finditer(words):
        digests = _media_at(re.findall(r"\w+", found[0]), sent)
        if digests:
            return digests
    return ()


def _media_at(steps: list[str], sent: dict[str, Any]) -> tuple[str, ...]:
    """Return the digests at a path, followed as far as it exists. A path to a whole message (only one number) counts as
    none, because it does not identify a medium."""
    value: Any = sent
    numbers = 0
    reached: tuple[str, ...] = ()
    for step in steps:
        if isinstance(value, dict):
            place = cast("dict[str, Any]", value)
            if step in place:
                value = place[step]
            elif place.get("type") != step:
                break
        elif isinstance(value, list) and _NUMBER.fullmatch(step) and int(step) < len(cast("list[Any]", value)):
            value = cast("list[Any]", value)[int(step)]
            numbers += 1
        else:
            break
        reached = (media_in(value) or reached) if numbers >= 2 else ()
    return reached


def media_in(value: Any) -> tuple[str, ...]:
    """Return the digests of all media that a part of a request contains or refers to."""
    match value:
        case Embedded() | UploadedPart():
            return (value.ref.digest,)
        case dict():
            return tuple(digest for item in cast("dict[str, Any]", value).values() for digest in media_in(item))
        case list():
            return tuple(digest for item in cast("list[Any]", value) for digest in media_in(item))
        case _:
            return ()
