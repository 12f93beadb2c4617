"""Tool names and call ids in the form that platforms accept."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Final

from loom.content.messages import Message
from loom.models import IdRule, Model

_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")
_CODE_CHARS: Final = 8


def tool_name(name: str, model: Model) -> str:
    """Return the tool's name in a form that the model's platform accepts, the same on every request."""
    legal = _NAME.sub("_", name) or "tool"
    if model.tool_name_start == "letter" and not (legal[0].isalpha() or legal[0] == "_"):
        legal = f"_{legal}"
    return _name_with_code(legal, name, model) if len(legal) > model.max_tool_name else legal


def declared_names(names: Iterable[str], model: Model) -> dict[str, str]:
    """Return names that the platform accepts for declared tools. They are unique, and a legal name is unchanged."""
    declared = dict.fromkeys(names)
    found = {name: name for name in declared if tool_name(name, model) == name}
    used = set(found)
    for name in declared:
        if name in found:
            continue
        legal = tool_name(name, model)
        found[name] = _name_with_code(legal, name, model) if legal in used else legal
        used.add(found[name])
    return found


def _name_with_code(legal: str, name: str, model: Model) -> str:
    """Return a name that is cut to make room for a code of the whole one."""
    code = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_CODE_CHARS]
    return f"{legal[: model.max_tool_name - _CODE_CHARS - 1]}_{code}"


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
