"""Facts of a regular expression that are known before a file is read: a text that every match must contain. Pure."""

from __future__ import annotations

import re
from typing import Final

MIN_LITERAL: Final = 3
_LOOKS_AROUND: Final = re.compile(r"\(\?|\\[AZ]")
_REPEATS: Final = "*?{"


def is_line_independent(pattern: str) -> bool:
    """Return whether a search of a whole text finds a match in every line that has one by itself: groups with
    extensions may depend on neighbouring lines, and `\\A` and `\\Z` mean the ends of the text."""
    return _LOOKS_AROUND.search(pattern) is None


def required_literal(pattern: str) -> bytes | None:
    """Return the longest plain ASCII text that every match of `pattern` contains, or None if there is none.

    Only characters outside of groups, classes and alternatives are considered.
    """
    if "|" in pattern or "(?" in pattern or not pattern.isascii():
        return None
    best, run = "", ""
    at = 0
    while at < len(pattern):
        letter = pattern[at]
        literal = ""
        at += 1
        if letter == "\\":
            escaped = pattern[at : at + 1]
            at += 1
            literal = escaped if escaped and not escaped.isalnum() else ""
        elif letter == "[":
            at = _end_of_class(pattern, at)
        elif letter == "(":
            at = _end_of_group(pattern, at)
        elif letter not in ".^$)*+?{}":
            literal = letter
        elif letter == "{":
            at = pattern.find("}", at) + 1 or len(pattern)
        follows = pattern[at : at + 1]
        if (literal and follows not in _REPEATS) or (literal and not follows):
            run += literal
        else:
            run = ""
        best = max(best, run, key=len)
        if follows == "+":
            run = ""
    return best.encode() if len(best) >= MIN_LITERAL else None


def _end_of_class(pattern: str, at: int) -> int:
    at += 1 if pattern[at : at + 1] == "^" else 0
    at += 1 if pattern[at : at + 1] == "]" else 0
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at + 1


def _end_of_group(pattern: str, at: int) -> int:
    depth = 1
    while at < len(pattern) and depth:
        match pattern[at]:
            case "\\":
                at += 1
            case "[":
                at = _end_of_class(pattern, at + 1) - 1
            case "(":
                depth += 1
            case ")":
                depth -= 1
            case _:
                pass
        at += 1
    return at
