"""Media inside plain JSON: `data:` URLs, and base64 that begins like a known format, become blocks and leave a
label."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from loom.content.blocks import ContentBlock, TextBlock
from loom.content.encoded import data_url, from_base64, looks_encoded
from loom.content.media import size_label
from loom.content.media_kinds import kind_word
from loom.content.messages import text_of
from loom.errors import MediaError


class StoreLegacyMedia(Protocol):
    """Stores bytes and returns their block. `declared` is the type that the text claimed; the type is detected from the
    bytes.

    None, or a `MediaError` with the reason, is a refusal: a text replaces the medium.
    """

    def __call__(self, data: bytes, name: str, declared: str, /) -> ContentBlock | None: ...


Note = Callable[[str], None]
"""Receives one sentence about a medium that could not be stored."""


def store_nested_media(value: Any, lift: StoreLegacyMedia, note: Note | None = None) -> tuple[Any, list[ContentBlock]]:
    """Take media out of plain JSON. Return the JSON with a label in the place of each, and the blocks."""
    found: list[ContentBlock] = []
    return _without_bytes(value, found, lift, note), found


def store_data_url(text: str, lift: StoreLegacyMedia, note: Note | None = None) -> ContentBlock | None:
    """Return the block for a text that is a `data:` URL as a whole; None if it is not."""
    url = data_url(text)
    if url is None:
        return None
    found = store_bytes(url.data, lift, note, kind=kind_word(url.media_type), name=url.name, declared=url.media_type)
    return TextBlock(found) if isinstance(found, str) else found


def store_bytes(
    data: bytes | None, lift: StoreLegacyMedia, note: Note | None = None, *, kind: str, name: str, declared: str
) -> ContentBlock | str:
    """Return the block for bytes, or a label with the reason why there is none. `data` is None if its base64 was
    damaged."""
    named = f"{kind}: {name}" if name else kind
    if not data:
        problem = "its base64 data could not be decoded" if data is None else "it was empty"
        return _refusal(f"{named}: {problem}", note)
    reason = "it could not be read"
    try:
        block = lift(data, name, declared)
    except MediaError as error:
        block, reason = None, error.message
    if block is not None:
        return block
    facts = ", ".join(fact for fact in (named, declared, size_label(len(data))) if fact)
    return _refusal(f"{facts}: {reason}", note)


def _refusal(sentence: str, note: Note | None) -> str:
    if note is not None:
        note(sentence)
    return f"[{sentence}]"


def _without_bytes(value: Any, found: list[ContentBlock], lift: StoreLegacyMedia, note: Note | None) -> Any:
    if isinstance(value, str):
        return _label_of(value, found, lift, note)
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {key: _without_bytes(item, found, lift, note) for key, item in items}
    if isinstance(value, list):
        return [_without_bytes(item, found, lift, note) for item in cast("list[Any]", value)]
    return value


def _label_of(text: str, found: list[ContentBlock], lift: StoreLegacyMedia, note: Note | None) -> str:
    """Return the label of the bytes that a string encodes, or the string itself."""
    block = store_data_url(text, lift, note)
    if block is None and looks_encoded(text) and (data := from_base64(text)):
        block = _lift_or_none(data, lift)
    if block is None:
        return text
    if not isinstance(block, TextBlock):
        found.append(block)
    return text_of(block)


def _lift_or_none(data: bytes, lift: StoreLegacyMedia) -> ContentBlock | None:
    """Return the block for bytes, or None if they are not media after all: the string then stays unchanged."""
    try:
        return lift(data, "", "")
    except MediaError:
        return None
