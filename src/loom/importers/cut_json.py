"""Repair truncated JSON by closing it after the last complete value."""

from __future__ import annotations

import re
from typing import Final

_CLOSERS: Final = {"{": "}", "[": "]"}
_SIGN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]', re.DOTALL)


def close_cut_json(text: str) -> str | None:
    """Return the longest prefix of `text` that ends with a complete member or item, with its brackets closed; None if
    there is none, or the text is damaged in another way."""
    stack: list[str] = []
    whole: tuple[int, tuple[str, ...]] | None = None
    for match in _SIGN.finditer(text):
        sign = match[0]
        if sign in _CLOSERS:
            stack.append(sign)
            whole = (match.end(), tuple(stack)) if sign == "[" else whole
        elif sign in ("}", "]"):
            if not stack or _CLOSERS[stack.pop()] != sign:
                return None
            if not stack:
                return text[: match.end()]
            whole = match.end(), tuple(stack)
        elif sign == "," and stack:
            whole = match.start(), tuple(stack)
    if whole is None:
        return None
    end, left = whole
    return text[:end] + "".join(_CLOSERS[bracket] for bracket in reversed(left))
