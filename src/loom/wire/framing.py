"""Split a byte stream, in any chunking, into server-sent events or lines of JSON, and read JSON leniently."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

import msgspec

from loom.content.blocks import clean_text
from loom.errors import WireError
from loom.models import Model
from loom.struct_types import decode_json

_BEFORE_JSON: Final = b" \t\r\n\xef\xbb\xbf"
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
MAX_NAME_CHARS: Final = 200
"""The largest line, event or answer. An image in an answer is a few megabytes of base64."""


class ServerSentEvent(msgspec.Struct, frozen=True):
    event: str
    data: str


class LineSplitter:
    """Splits bytes into lines that end with LF, CR or CRLF, without scanning any byte twice."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._scanned = 0
        self._skip_lf = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        pending = self._pending
        pending += data
        start = 0
        position = self._scanned
        while True:
            end = _line_end(pending, position)
            if end < 0:
                break
            skip = self._skip_lf and end == start and pending[end] == 0x0A
            self._skip_lf = pending[end] == 0x0D
            if not skip:
                yield bytes(pending[start:end])
            start = position = end + 1
        del pending[:start]
        self._scanned = len(pending)
        if len(pending) > MAX_FRAME_BYTES:
            raise WireError(f"The provider sent a line of more than {MAX_FRAME_BYTES} bytes")

    def rest(self) -> bytes:
        """Return the bytes after the last line end."""
        return bytes(self._pending)


class SseParser:
    """Parses text/event-stream: fields up to a blank line; comments and unknown fields are skipped.

    No event starts with a brace or bracket. A body that does is a complete JSON answer, from a server that ignores
    `stream`; it is kept for `whole_answers`.
    """

    def __init__(self) -> None:
        self._lines = LineSplitter()
        self._lead = bytearray()
        self._begun = False
        self._whole: bytearray | None = None
        self._event = ""
        self._data: list[bytes] = []
        self._size = 0
        self._first = True

    def feed(self, data: bytes) -> Iterator[ServerSentEvent]:
        if not self._begun:
            self._lead += data
            beginning = bytes(self._lead.lstrip(_BEFORE_JSON)[:1])
            if not beginning:
                return
            self._begun, data = True, bytes(self._lead)
            self._whole = bytearray() if beginning in (b"{", b"[") else None
        if self._whole is not None:
            self._whole += data
            if len(self._whole) > MAX_FRAME_BYTES:
                raise WireError(f"The provider sent an answer of more than {MAX_FRAME_BYTES} bytes")
            return
        for raw in self._lines.feed(data):
            line = raw
            if self._first:
                line, self._first = raw.removeprefix(b"\xef\xbb\xbf"), False
            if not line:
                yield from self._dispatch()
                continue
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                self._data.append(value)
                self._size += len(value)
                if self._size > MAX_FRAME_BYTES:
                    raise WireError(f"The provider sent an event of more than {MAX_FRAME_BYTES} bytes")
            elif field == b"event":
                self._event = value.decode("utf-8", "replace")

    def whole_answers(self, model: Model) -> list[dict[str, Any]]:
        """Return the JSON objects of an answer that was not streamed: one, or those of a list; empty after a stream."""
        if self._whole is None:
            return []
        data, self._whole = bytes(self._whole).lstrip(_BEFORE_JSON), None
        try:
            found: Any = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise not_an_answer(model, f"{error}: {data[:120]!r}") from None
        items = cast("list[Any]", found) if isinstance(found, list) else [found]
        return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]

    def _dispatch(self) -> Iterator[ServerSentEvent]:
        if self._data:
            yield ServerSentEvent(self._event, b"\n".join(self._data).decode("utf-8", "replace"))
        self._event, self._data, self._size = "", [], 0


def parse_object(text: str | bytes, model: Model) -> dict[str, Any]:
    """Parse a JSON object of a provider. Raise `WireError`, which quotes the start of the text, if it is not one."""
    try:
        return decode_json(text, dict[str, Any])
    except msgspec.DecodeError as error:
        found = _with_half_characters(text)
        if found is not None:
            return found
        beginning = (text if isinstance(text, str) else text.decode("utf-8", "replace"))[:120]
        raise _not_understood(model, f"{error}: {beginning!r}") from None


def _with_half_characters(text: str | bytes) -> dict[str, Any] | None:
    """Parse JSON with lone surrogates, which servers send that split a text inside a surrogate pair (`"\\ud83d"`).
    Return None if it is not a JSON object."""
    try:
        found: Any = json.loads(text)
    except ValueError:
        return None
    return cast("dict[str, Any]", _clean_json(found)) if isinstance(found, dict) else None


def _clean_json(value: Any) -> Any:
    match value:
        case str():
            return clean_text(value)
        case list():
            return [_clean_json(item) for item in cast("list[Any]", value)]
        case dict():
            return {clean_text(key): _clean_json(item) for key, item in cast("dict[str, Any]", value).items()}
        case _:
            return value


def get_object(value: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the object under a key; empty if it is null, missing or not an object."""
    found = value.get(key)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def get_str(value: dict[str, Any], key: str) -> str:
    """Return the text under a key; empty if it is null or missing. Raise `TypeError` if it is not text."""
    found = value.get(key)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise TypeError(f"{key!r} is not text")
    return found


def get_name(value: dict[str, Any], key: str) -> str:
    """Return a name that is only reported, of limited length; empty if it is not text. It must not fail an answer."""
    found = value.get(key)
    return clean_text(found)[:MAX_NAME_CHARS] if isinstance(found, str) else ""


def get_int(value: dict[str, Any], key: str) -> int:
    """Return the integer under a key. Raise `KeyError` or `TypeError` if there is none."""
    found = value[key]
    if not isinstance(found, int):
        raise TypeError(f"{key!r} is not a whole number")
    return int(found)


def get_count(value: dict[str, Any], key: str) -> int:
    """Return the count under a key; 0 if there is none. Some servers send counts as floats."""
    found = value.get(key)
    return int(found) if isinstance(found, int | float) else 0


@contextmanager
def wire_errors(model: Model) -> Generator[None]:
    """Turn errors from unexpected JSON into a `WireError` of the provider."""
    try:
        yield
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise _not_understood(model, f"{type(error).__name__}: {error}") from error


def not_an_answer(model: Model, what: str) -> WireError:
    """Return the error for JSON that is not an answer of the protocol: most often `base_url` is wrong."""
    return WireError(
        f"{model.reference}: the server sent JSON that is not an answer of this protocol ({what})",
        provider=model.provider,
        model=model.name,
        hint="Check base_url: it must be the URL of the API, with its version.",
    )


def _not_understood(model: Model, what: str) -> WireError:
    return WireError(
        f"{model.reference} sent an answer that Loom cannot read ({what})",
        provider=model.provider,
        model=model.name,
        hint="Try again, or choose another model.",
    )


def _line_end(data: bytearray, start: int) -> int:
    lf = data.find(b"\n", start)
    cr = data.find(b"\r", start, lf if lf >= 0 else len(data))
    return cr if cr >= 0 else lf
