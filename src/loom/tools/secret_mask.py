"""Mask configured secrets in results of tools, before anything is stored, shown or sent.

A command may print a key in many forms; those that programs print by themselves are covered: unchanged, in base64, as
hexadecimal digits, and escaped for a URL or for JSON.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, cast
from urllib.parse import quote

import msgspec

from loom.content.blocks import ContentBlock, TextBlock, ToolResult

MIN_CHARS: Final = 8
"""Shorter secrets would mask ordinary words."""
_SECRET_NAME: Final = re.compile(r"(API_?KEY|ACCESS_KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)", re.IGNORECASE)
_TAIL_FROM: Final = 16


def mask_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return `text` with every secret of at least `MIN_CHARS` characters replaced by `[secret …abcd]`, or by `[secret]`
    if it is short."""
    pattern, names = _compile_masks(frozenset(secret for secret in secrets if len(secret) >= MIN_CHARS))
    return pattern.sub(lambda found: names[found[0]], text) if pattern is not None else text


def environment_secrets(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the values of the variables whose names mark them as secret."""
    return frozenset(value for name, value in environ.items() if _SECRET_NAME.search(name) and len(value) >= MIN_CHARS)


def mask_value(value: Any, secrets: Iterable[str]) -> Any:
    """Return JSON-like data with every text in it masked, keys included."""
    known = tuple(secrets)
    match value:
        case str():
            return mask_secrets(value, known)
        case dict():
            items = cast("dict[Any, Any]", value).items()
            return {mask_value(key, known): mask_value(item, known) for key, item in items}
        case list() | tuple():
            return [mask_value(item, known) for item in cast("list[Any]", value)]
        case _:
            return value


def mask_blocks(blocks: Iterable[ContentBlock], secrets: Iterable[str]) -> tuple[ContentBlock, ...]:
    """Return the blocks with their texts masked; bytes of media are unchanged."""
    known = tuple(secrets)
    return tuple(
        msgspec.structs.replace(block, text=masked)
        if isinstance(block, TextBlock) and (masked := mask_secrets(block.text, known)) != block.text
        else block
        for block in blocks
    )


def mask_result(result: ToolResult, secrets: Iterable[str]) -> ToolResult:
    """Return the result with its texts and its data masked."""
    known = tuple(secrets)
    return msgspec.structs.replace(
        result, blocks=mask_blocks(result.blocks, known), data=mask_value(result.data, known)
    )


@lru_cache(maxsize=16)
def _compile_masks(secrets: frozenset[str]) -> tuple[re.Pattern[str] | None, dict[str, str]]:
    names: dict[str, str] = {}
    for secret in secrets:
        tail = f" …{secret[-4:]}" if len(secret) >= _TAIL_FROM else ""
        for spelling in _spellings(secret):
            if len(spelling) >= MIN_CHARS:
                names[spelling] = f"[secret{tail}]"
    ordered = sorted(names, key=len, reverse=True)
    return (re.compile("|".join(map(re.escape, ordered))) if ordered else None), names


def _spellings(secret: str) -> Iterable[str]:
    data = secret.encode("utf-8", "surrogateescape")
    yield secret
    yield quote(secret, safe="")
    yield json.dumps(secret)[1:-1]
    yield data.hex()
    yield data.hex().upper()
    for shift in range(3):  # base64 of a longer text: the part that does not depend on its neighbours
        whole = base64.b64encode(bytes(shift) + data)
        start = {0: 0, 1: 2, 2: 3}[shift]
        end = len(whole) - {0: 0, 1: 3, 2: 2}[(shift + len(data)) % 3]
        inner = whole[start:end].decode()
        yield inner
        yield inner.replace("+", "-").replace("/", "_")
