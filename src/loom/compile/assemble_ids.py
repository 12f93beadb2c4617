"""Tool names and call ids in the form that platforms accept."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from loom.content.messages import Message
from loom.models import IdRule

_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")


def tool_name(name: str) -> str:
    """Return the tool's name in a form that every platform accepts."""
    return _NAME.sub("_", name)[:64] or "tool"


def legal_ids(messages: Sequence[Message], rule: IdRule) -> dict[tuple[int, str], str]:
    """Map (message position, call id) to an id that the platform accepts, unique in the conversation and the same on
    every request."""
    legal = re.compile(rule.pattern) if rule.pattern else None
    used: set[str] = set()
    mapped: dict[tuple[int, str], str] = {}
    for position, message in enumerate(messages):
        for call in message.calls:
            new = call.id
            if (legal is not None and not legal.fullmatch(new)) or len(new) > rule.length:
                new = _mint_id(call.id, rule)
            while new in used:
                new = _mint_id(f"{position}:{new}", rule)
            used.add(new)
            mapped[position, call.id] = new
    return mapped


_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _mint_id(seed: str, rule: IdRule) -> str:
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest(), "big")
    digits: list[str] = []
    while number and len(digits) < 24:
        number, digit = divmod(number, 62)
        digits.append(_ALPHABET[digit])
    return (rule.prefix + "".join(digits))[: rule.length]
