"""Custom blocks. They are stored with a kind that other versions and programs preserve without knowing it, and with a
text form that every model can read; a kind that can be drawn is sent with its image.

    @dataclass(frozen=True)
    class Place:
        lat: float
        lon: float

    register_block(Place, fallback=lambda place: f"[map: {place.lat}, {place.lon}]", image=draw)
    await session.send("where is this?", Place(48.2, 16.4))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec

from loom.content.blocks import KNOWN_TYPES, UnknownBlock, clean_text
from loom.content.inputs import Attachment, Content
from loom.errors import ContentError

T = TypeVar("T")

_TAG: Final = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_OWN: Final = ("type", "text")


class _CustomKind(msgspec.Struct, frozen=True):
    tag: str
    fallback: Callable[[Any], str]
    image: Callable[[Any], bytes | Path] | None


_kinds: dict[type, _CustomKind] = {}


def register_block(
    kind: type[T], *, fallback: Callable[[T], str], image: Callable[[T], bytes | Path] | None = None, tag: str = ""
) -> Callable[[T], Content]:
    """Let values of a dataclass (or msgspec struct) be sent like any other content.

    `fallback` returns the text that every model reads; `image` returns an image for models that support images. `tag`
    is the stored name of the kind, by default derived from the name of the class. Return a function that converts a
    value to content, for type-checked programs: `session.send("where is this?", place(Place(48.2, 16.4)))`. Raise
    `ContentError` if the tag is invalid or taken.
    """
    chosen = tag or kind.__name__.removesuffix("Block").lower()
    if _TAG.fullmatch(chosen) is None or chosen in {*KNOWN_TYPES, "unknown"}:
        raise ContentError(f"Invalid block tag {chosen!r}: use lower-case letters, and no built-in name")
    if any(known is not kind and found.tag == chosen for known, found in _kinds.items()):
        raise ContentError(f"Another block has the tag {chosen!r}: choose a different one")
    _kinds[kind] = _CustomKind(chosen, fallback, image)
    return expand_custom_blocks


def is_custom(value: object) -> bool:
    return type(value) in _kinds


def expand_custom_blocks(content: object) -> Content:
    """Return the content with every value of a registered kind replaced by its blocks."""
    kind = _kinds.get(type(content))
    if kind is not None:
        return _blocks(content, kind)
    if isinstance(content, Sequence) and not isinstance(content, str | bytes):
        return [expand_custom_blocks(item) for item in cast("Sequence[Any]", content)]
    return cast("Content", content)


def _blocks(value: Any, kind: _CustomKind) -> list[Content]:
    text = clean_text(kind.fallback(value)).strip()
    if not text:
        raise ContentError(f"The fallback of {kind.tag} returned no text")
    try:
        fields = msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, UnicodeError):
        raise ContentError(f"{kind.tag} contains a value that JSON cannot represent") from None
    if not isinstance(fields, dict) or any(name in fields for name in _OWN):
        raise ContentError(f"{kind.tag} must have named fields, none of them called {' or '.join(_OWN)}")
    block = UnknownBlock({"type": kind.tag, **cast("dict[str, Any]", fields), "text": text})
    return [block] if kind.image is None else [block, Attachment(source=kind.image(value), name=kind.tag, alt=text)]
