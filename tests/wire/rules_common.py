"""What the rules of all platforms are written with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from loom.prompt import Embedded, MediaRef

JSON = dict[str, Any]
Found = Iterator[str]

IMAGES = ("image/png", "image/jpeg", "image/webp", "image/gif")
PDF = "application/pdf"


def embedded(value: Any) -> list[Embedded]:
    match value:
        case Embedded():
            return [value]
        case dict():
            return [found for item in value.values() for found in embedded(item)]
        case list():
            return [found for item in value for found in embedded(item)]
        case _:
            return []


def plain(value: Any, stand_in: str = "AAAA") -> Any:
    """The same JSON with a stand-in for every medium."""
    match value:
        case Embedded():
            return value.prefix + stand_in
        case dict():
            return {key: plain(item, stand_in) for key, item in value.items()}
        case list():
            return [plain(item, stand_in) for item in value]
        case _:
            return value


def body_bytes(request: JSON) -> int:
    """How long the body is once every medium is base64."""
    return len(msgspec.json.encode(plain(request, ""))) + sum(found.ref.encoded_bytes for found in embedded(request))


def dicts(value: Any) -> Iterator[JSON]:
    match value:
        case dict():
            yield value
            for item in value.values():
                yield from dicts(item)
        case list():
            for item in value:
                yield from dicts(item)
        case _:
            pass


def blank(text: Any) -> bool:
    return not isinstance(text, str) or not text.strip()


def legal_name(name: Any, most: int = 64) -> bool:
    return isinstance(name, str) and re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{most}}}", name) is not None


def is_object(text: Any) -> bool:
    try:
        return isinstance(text, str) and isinstance(json.loads(text), dict)
    except ValueError:
        return False


def twice(ids: list[str]) -> Found:
    for repeated in sorted({found for found in ids if ids.count(found) > 1}):
        yield f"the id {repeated!r} is used twice"


def sized(request: JSON, most: int) -> Found:
    size = body_bytes(request)
    if size > most:
        yield f"the request has {size} bytes, over {most}"


def counted(kind: str, count: int, most: int) -> Found:
    if count > most:
        yield f"{count} {kind}, over {most}"


def refs(request: JSON, kind: str) -> list[MediaRef]:
    return [found.ref for found in embedded(request) if found.ref.media_type.startswith(kind)]
