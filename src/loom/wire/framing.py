"""Bytes → whole messages: server-sent events and lines of JSON, however the network cuts them."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

import msgspec

from loom.content.blocks import clean_text
from loom.errors import WireError
from loom.models import Model

_BEFORE_JSON: Final = b" \t\r\n\xef\xbb\xbf"
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
"""A picture in an answer is a few megabytes of base64; anything larger is not an answer."""


class ServerSentEvent(msgspec.Struct, frozen=True):
    event: str
    data: str


class LineSplitter:
    """Lines ended by LF, CR or CRLF, found without looking at any byte twice."""

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
            raise WireError(f"the provider sent a line of more than {MAX_FRAME_BYTES} bytes")

    def rest(self) -> bytes:
        """Return what came after the last line end."""
        return bytes(self._pending)


class SseParser:
    """The text/event-stream format: fields up to a blank line; comments and unknown fields are skipped.

    No event begins with a brace or a bracket: a body that does is a whole JSON answer, as servers send it that ignore
    `stream`. It is kept until the end, for `whole`.
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
                raise WireError(f"the provider sent an answer of more than {MAX_FRAME_BYTES} bytes")
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
                    raise WireError(f"the provider sent an event of more than {MAX_FRAME_BYTES} bytes")
            elif field == b"event":
                self._event = value.decode("utf-8", "replace")

    def whole_answers(self, model: Model) -> list[dict[str, Any]]:
        """Return the JSON objects of an answer that was no stream: one, or those of a list; none after a stream."""
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
    """Return a JSON object that a provider sent, or a WireError that quotes the beginning of what it was instead."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        found = _with_half_characters(text)
        if found is not None:
            return found
        beginning = (text if isinstance(text, str) else text.decode("utf-8", "replace"))[:120]
        raise _not_understood(model, f"{error}: {beginning!r}") from None


def _with_half_characters(text: str | bytes) -> dict[str, Any] | None:
    """Some servers cut a text inside a surrogate pair and send `"\\ud83d"`, which only a lenient reader takes."""
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
    """Return the object under a key; an empty one where a provider says null or nothing."""
    found = value.get(key)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def get_str(value: dict[str, Any], key: str) -> str:
    """Return the text under a key; empty where a provider says null or nothing."""
    found = value.get(key)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise TypeError(f"{key!r} is not text")
    return found


def get_int(value: dict[str, Any], key: str) -> int:
    """Return the number under a key, which must be there."""
    found = value[key]
    if not isinstance(found, int):
        raise TypeError(f"{key!r} is not a whole number")
    return int(found)


def get_count(value: dict[str, Any], key: str) -> int:
    """Return how many; none where a provider does not say. Some servers count in floats."""
    found = value.get(key)
    return int(found) if isinstance(found, int | float) else 0


@contextmanager
def wire_errors(model: Model) -> Generator[None]:
    """Whatever does not have the shape that the protocol promises is the provider's fault, and said as such."""
    try:
        yield
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise _not_understood(model, f"{type(error).__name__}: {error}") from error


def not_an_answer(model: Model, what: str) -> WireError:
    """JSON of another kind than the protocol's: most often an address that belongs to something else."""
    return WireError(
        f"{model.reference}: the server sent JSON that is not an answer of this protocol ({what})",
        provider=model.provider,
        model=model.name,
        hint="Check base_url: it must be the address of the API, with its version.",
    )


def _not_understood(model: Model, what: str) -> WireError:
    return WireError(
        f"{model.reference} sent something that Loom does not understand ({what})",
        provider=model.provider,
        model=model.name,
        hint="Try again, or ask another model.",
    )


def _line_end(data: bytearray, start: int) -> int:
    lf = data.find(b"\n", start)
    cr = data.find(b"\r", start, lf if lf >= 0 else len(data))
    return cr if cr >= 0 else lf
