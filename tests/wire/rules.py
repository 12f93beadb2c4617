"""What each platform refuses beyond the shape of a request: order, pairs, ids, emptiness, thinking, media, sizes.

Written from the platforms' documents, not from the catalog or the compiler, so that both can be held against it. A
request is JSON with `Embedded` media, as an encoder gives it. Opaque data in tests say who made them (`made_by`).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from wire.rules_claude import anthropic
from wire.rules_common import JSON, Found, body_bytes, embedded, plain
from wire.rules_converse import converse
from wire.rules_openai import chat, responses
from wire.rules_others import gemini, ollama

__all__ = ["PRODUCERS", "body_bytes", "check", "embedded", "made_by", "plain"]

PRODUCERS = {"bedrock-anthropic": "anthropic", "openai-responses": "openai", "openai-chat": "openai"}
_MADE_BY = re.compile(r"made-by:([^ |]+)\|")


def made_by(producer: str, model: str) -> str:
    """A mark that test data carry in what only their maker may get back."""
    return f"made-by:{producer}/{model}|"


def check(provider: str, name: str, request: JSON) -> list[str]:
    """Every rule that the request breaks; `name` is the model's, as the platform calls it."""
    found = [*_RULES[provider](provider, name, request), *_everywhere(provider, name, request)]
    return list(dict.fromkeys(found))


def _everywhere(provider: str, name: str, request: JSON) -> Found:
    own = f"{PRODUCERS.get(provider, provider)}/{name}"
    for text in _strings(request):
        for maker in _MADE_BY.findall(text):
            if maker != own:
                yield f"what {maker} made is sent to {own}"
    for found in embedded(request):
        ref = found.ref
        if found.prefix and found.prefix != f"data:{ref.media_type};base64,":
            yield f"a data URL says {found.prefix!r}, the bytes are {ref.media_type}"
        if ref.size_bytes < 1:
            yield "a medium has no bytes"
    for key, value in _named(request):
        if key in ("title", "filename", "document_name") and (
            not value.strip() or not value.isprintable() or len(value) > 200
        ):
            yield f"{key} is {value[:40]!r}"


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
            if value.isascii() and 24 <= len(value) <= 4_000 and " " not in value:
                with contextlib.suppress(binascii.Error):
                    yield base64.urlsafe_b64decode(value.replace("+", "-").replace("/", "_")).decode("ascii", "ignore")
        case dict():
            for item in value.values():
                yield from _strings(item)
        case list():
            for item in value:
                yield from _strings(item)
        case _:
            pass


def _named(value: Any) -> Iterator[tuple[str, str]]:
    match value:
        case dict():
            for key, item in value.items():
                if isinstance(item, str):
                    yield key, item
                else:
                    yield from _named(item)
        case list():
            for item in value:
                yield from _named(item)
        case _:
            pass


_RULES: dict[str, Callable[[str, str, JSON], Found]] = {
    "anthropic": anthropic,
    "bedrock-anthropic": anthropic,
    "bedrock-converse": converse,
    "openai-responses": responses,
    "openai-chat": chat,
    "gemini": gemini,
    "ollama": ollama,
    "deepseek": chat,
    "mistral": chat,
    "openai-compatible": chat,
    "groq": chat,
    "xai": chat,
}
