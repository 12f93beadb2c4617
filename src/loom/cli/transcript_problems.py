"""What is wrong with a foreign transcript before it is read: what the reading mends in passing, counted and said."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any, Final, cast

from loom.formats.sniff import sniff
from loom.tools.number_text import count_text

_HEAD_CHARACTERS: Final = 8_192
_TYPES: Final = ("media_type", "mime_type", "mimeType")


def find_problems(messages: Any) -> list[str]:
    """Sentences for people: empty texts, and bytes that are not what their declaration says."""
    empty = 0
    lies: dict[tuple[str, str], int] = {}
    for block in _objects(messages):
        text = block.get("text")
        if block.get("type") in ("text", "input_text", "output_text") and isinstance(text, str) and not text.strip():
            empty += 1
        declared = next((block[name] for name in _TYPES if isinstance(block.get(name), str)), "")
        data = block.get("data")
        if declared and isinstance(data, str) and (found := _type_of(data)) not in ("", declared):
            lies[declared, found] = lies.get((declared, found), 0) + 1
    told = [
        f"{count_text(count, 'block')} declared as {said} but {'is' if count == 1 else 'are'} {found};"
        " the content decides"
        for (said, found), count in lies.items()
    ]
    return [*told, *([f"{count_text(empty, 'empty text')} left out"] if empty else [])]


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every JSON object inside, whatever its depth."""
    waiting = [value]
    while waiting:
        at = waiting.pop()
        if isinstance(at, dict):
            found = cast("dict[str, Any]", at)
            yield found
            waiting.extend(found.values())
        elif isinstance(at, list):
            waiting.extend(cast("list[Any]", at))


def _type_of(encoded: str) -> str:
    """By the first bytes; empty where it is no base64."""
    head = encoded[:_HEAD_CHARACTERS]
    try:
        data = base64.b64decode(head[: len(head) // 4 * 4])
    except (binascii.Error, ValueError):
        return ""
    return sniff(data).media_type if data else ""
