"""Wire forms: messages and request bodies in the exact form of one protocol, so that they can be sent to its provider
unchanged. Plain values.

A form is JSON with two kinds of placeholders: `{"$media": digest, "prefix": …}` for the base64 of a medium, and
`{"$text": n}` for a long text that the n-th text block of its messages already holds. A key that only looks like one of
them is escaped with another `$`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from loom.content.blocks import Block, TextBlock, ToolResult
from loom.content.encoded import looks_encoded
from loom.content.media import Media
from loom.content.messages import Message
from loom.struct_types import convert

_MEDIA: Final = "$media"
_TEXT: Final = "$text"
_LONG_CHARS: Final = 200
_DECLARED: Final = ("media_type", "mimeType", "mime_type")
_SAME_TYPES: Final = {"image/jpg": "image/jpeg", "audio/x-wav": "audio/wav", "audio/mp3": "audio/mpeg"}
_BYTE_HOLDERS: Final = ("source", "inlineData", "inline_data", "input_audio", "image_url", "file")


class WireForm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Neighbouring messages in their original form: `items` are the messages or items of the request from which they
    were read."""

    provider: str
    """The owner of the protocol, as in `Model.opaque_owner`."""
    wire: str
    items: list[Any]
    messages: int = 1
    """How many messages of the path the items became; the first of them carries the form."""
    is_plain: bool = False
    """Whether `items` are known to have no holes."""


class BodyForm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request body in its original form, without its conversation. `head` are the items before the first message
    (system prompts among the messages)."""

    provider: str
    wire: str
    fields: dict[str, Any]
    head: tuple[Any, ...] = ()
    names: tuple[str, ...] = ()
    """The names of all fields of the body, in order."""


class UnusableForm(Exception):
    """Raised if a form contains bytes that are not stored, or that have another type than it declares."""


def texts_of(messages: Sequence[Message]) -> list[str]:
    """Return the texts that the placeholders of a form count, in order."""
    return [text for message in messages for block in message.blocks for text in _texts(block)]


def _texts(block: Block) -> Iterator[str]:
    if isinstance(block, TextBlock):
        yield block.text
    elif isinstance(block, ToolResult):
        for inner in block.blocks:
            yield from _texts(inner)


def make_template(value: Any, media: Mapping[str, Media], texts: Sequence[str]) -> Any:
    """Return JSON with placeholders for media, found by their encoded text, and for long texts.

    Raise `UnusableForm` if bytes would remain in it, or have another type than it declares.
    """
    places = {text: at for at, text in reversed(list(enumerate(texts))) if len(text) > _LONG_CHARS}
    return _template(value, media, places, "")


def _template(value: Any, media: Mapping[str, Media], texts: Mapping[str, int], declared: str) -> Any:
    match value:
        case str():
            if value in media:
                return _media_placeholder(value, media[value], declared)
            if value[:5].lower() == "data:" or looks_encoded(value):
                raise UnusableForm
            return {_TEXT: texts[value]} if value in texts else value
        case dict():
            fields = cast("dict[str, Any]", value)
            kind = next((found for key in _DECLARED if isinstance(found := fields.get(key), str)), "")
            if any(key in fields and _lacks_bytes(fields[key], media) for key in _BYTE_HOLDERS):
                raise UnusableForm
            return {_escape(key): _template(item, media, texts, kind) for key, item in fields.items()}
        case list():
            return [_template(item, media, texts, "") for item in cast("list[Any]", value)]
        case _:
            return value


def _escape(key: str) -> str:
    return f"${key}" if key[:1] == "$" and f"${key.lstrip('$')}" in (_MEDIA, _TEXT) else key


def _unescape(key: str) -> str:
    return key[1:] if key[:2] == "$$" and f"${key.lstrip('$')}" in (_MEDIA, _TEXT) else key


def _lacks_bytes(holder: Any, media: Mapping[str, Media]) -> bool:
    """Return whether an object holds inline bytes that were not stored."""
    if not isinstance(holder, dict):
        return False
    fields = cast("dict[str, Any]", holder)
    if fields.get("type", "base64") != "base64":
        return False
    found = [fields[key] for key in ("data", "file_data") if key in fields]
    return any(not isinstance(data, str) or data not in media for data in found)


def _media_placeholder(text: str, found: Media, declared: str) -> dict[str, Any]:
    head, comma, _ = text.partition(",")
    is_url = bool(comma) and head[:5].lower() == "data:"
    declared_type = head[5:].split(";")[0].lower() if is_url else declared.lower()
    if declared_type and _SAME_TYPES.get(declared_type, declared_type) != found.media_type:
        raise UnusableForm
    return {_MEDIA: found.digest, "prefix": f"{head}," if is_url else ""}


def fill_form(value: Any, embed: Callable[[str, str], Any], texts: Sequence[str]) -> Any:
    """Return the JSON of a form with its placeholders filled; `embed` receives the digest and the prefix of a
    medium."""
    match value:
        case dict():
            fields = cast("dict[str, Any]", value)
            if isinstance(digest := fields.get(_MEDIA), str):
                return embed(digest, str(fields.get("prefix", "")))
            if len(fields) == 1 and isinstance(at := fields.get(_TEXT), int) and at < len(texts):
                return texts[at]
            return {_unescape(key): fill_form(item, embed, texts) for key, item in fields.items()}
        case list() | tuple():
            return [fill_form(item, embed, texts) for item in cast("Sequence[Any]", value)]
        case _:
            return value


FORM_KEY: Final = "form"
"""The key under which a node's metadata holds its form."""


def stored_form(meta: Mapping[str, Any]) -> WireForm | None:
    """Return the form that was stored with a message; None if there is none that can be read."""
    try:
        return convert(meta[FORM_KEY], WireForm) if FORM_KEY in meta else None
    except msgspec.ValidationError:
        return None
