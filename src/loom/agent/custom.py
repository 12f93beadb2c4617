"""Blocks of your own. They are stored as a kind that other versions and other programs do not know, so they survive
there, and with a text form, so every model copes; where one can be drawn, the picture goes with it.

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


class _Kind(msgspec.Struct, frozen=True):
    tag: str
    fallback: Callable[[Any], str]
    image: Callable[[Any], bytes | Path] | None


_kinds: dict[type, _Kind] = {}


def register_block(
    kind: type[T], *, fallback: Callable[[T], str], image: Callable[[T], bytes | Path] | None = None, tag: str = ""
) -> Callable[[T], Content]:
    """Let values of a dataclass (or msgspec struct) be sent like any other content.

    `fallback` gives the words that every model reads, `image` a picture for those that see. `tag` is what the kind is
    called where it is stored; without one, the class's name. Return a function that makes content of a value, for
    programs that are type-checked: `session.send("where is this?", place(Place(48.2, 16.4)))`.
    """
    chosen = tag or kind.__name__.removesuffix("Block").lower()
    if _TAG.fullmatch(chosen) is None or chosen in {*KNOWN_TYPES, "unknown"}:
        raise ContentError(f"a block of your own needs a small name that Loom does not use itself, not {chosen!r}")
    if any(known is not kind and found.tag == chosen for known, found in _kinds.items()):
        raise ContentError(f"there is another block called {chosen!r}: give one of them a tag")
    _kinds[kind] = _Kind(chosen, fallback, image)
    return expand_custom_blocks


def is_custom(value: object) -> bool:
    return type(value) in _kinds


def expand_custom_blocks(content: object) -> Content:
    """The same with every value of a registered kind as the blocks that stand for it."""
    kind = _kinds.get(type(content))
    if kind is not None:
        return _blocks(content, kind)
    if isinstance(content, Sequence) and not isinstance(content, str | bytes):
        return [expand_custom_blocks(item) for item in cast("Sequence[Any]", content)]
    return cast("Content", content)


def _blocks(value: Any, kind: _Kind) -> list[Content]:
    text = clean_text(kind.fallback(value)).strip()
    if not text:
        raise ContentError(f"the fallback of {kind.tag} gave no text")
    try:
        fields = msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, UnicodeError):
        raise ContentError(f"{kind.tag} holds something that JSON cannot say") from None
    if not isinstance(fields, dict) or any(name in fields for name in _OWN):
        raise ContentError(f"{kind.tag} needs fields with names, and none called {' or '.join(_OWN)}")
    block = UnknownBlock({"type": kind.tag, **cast("dict[str, Any]", fields), "text": text})
    return [block] if kind.image is None else [block, Attachment(source=kind.image(value), name=kind.tag, alt=text)]
