"""The rules of `.gitignore`: git's patterns, matched without regular expressions, so that none can hang.

Names are compared byte by byte, as in git.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from loom.content.blocks import clean_text

MAX_FILE_BYTES: Final = 256_000


class _Class(msgspec.Struct, frozen=True):
    """One character from some ranges, or any other character if negated."""

    negated: bool
    ranges: tuple[tuple[str, str], ...]

    def has(self, character: str) -> bool:
        return any(low <= character <= high for low, high in self.ranges) != self.negated


_ANY: Final = _Class(negated=True, ranges=())
_One: TypeAlias = "str | _Class | None"
"""A character, a class, or None for a star."""
_PatternSegment: TypeAlias = "tuple[_One, ...] | None"
"""The part between two slashes; None for `**`, which is any number of folders."""

_NAMED: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "alnum": (("0", "9"), ("A", "Z"), ("a", "z")),
    "alpha": (("A", "Z"), ("a", "z")),
    "blank": ((" ", " "), ("\t", "\t")),
    "cntrl": (("\0", "\x1f"), ("\x7f", "\x7f")),
    "digit": (("0", "9"),),
    "graph": (("!", "~"),),
    "lower": (("a", "z"),),
    "print": ((" ", "~"),),
    "punct": (("!", "/"), (":", "@"), ("[", "`"), ("{", "~")),
    "space": ((" ", " "), ("\t", "\r")),
    "upper": (("A", "Z"),),
    "xdigit": (("0", "9"), ("A", "F"), ("a", "f")),
}


class Pattern(msgspec.Struct, frozen=True):
    """One line of a `.gitignore`, or a glob that a model wrote."""

    segments: tuple[_PatternSegment, ...]
    is_anchored: bool
    """Whether it is matched against the whole path, not against the name alone."""
    folders_only: bool = False
    is_negative: bool = False

    def matches(self, parts: Sequence[str], *, is_folder: bool) -> bool:
        """Return whether the pattern matches. `parts` are the names of the path, relative to the folder of the
        pattern."""
        if not parts or (self.folders_only and not is_folder):
            return False
        names = [as_bytes_text(part) for part in (parts if self.is_anchored else parts[-1:])]
        return _path_fits(self.segments, names)


Rules: TypeAlias = tuple[tuple[int, tuple[Pattern, ...]], ...]
"""Patterns with the depth of the folder of their file, the innermost last."""


def is_ignored(rules: Rules, parts: Sequence[str], *, is_folder: bool) -> bool:
    """Return the decision of the last pattern that matches; inner files follow outer ones.

    The parent folders are assumed to be visible: a file in an ignored folder cannot be included again.
    """
    for depth, patterns in reversed(rules):
        for pattern in reversed(patterns):
            if pattern.matches(parts[depth:], is_folder=is_folder):
                return not pattern.is_negative
    return False


def parse_ignore(data: bytes) -> tuple[Pattern, ...]:
    """Return the patterns of a `.gitignore`."""
    text = data.removeprefix(b"\xef\xbb\xbf").decode("latin-1")
    return tuple(pattern for line in text.split("\n") if (pattern := _parse_line(line.removesuffix("\r"))) is not None)


def glob_pattern(text: str) -> Pattern:
    """Return a pattern: `*.py` is matched against names, `src/**/*.py` against paths."""
    return _pattern(as_bytes_text(clean_text(text.removeprefix("./"))))


def rules_above(folder: Path) -> tuple[Rules, tuple[str, ...]]:
    """Return the repository's rules for a folder, and the path from the repository's root to the folder."""
    top = next((above for above in (folder, *folder.parents) if (above / ".git").exists()), folder)
    way = folder.relative_to(top).parts
    rules: list[tuple[int, tuple[Pattern, ...]]] = [(0, _read(top / ".git" / "info" / "exclude"))]
    rules += [(depth, _read(top.joinpath(*way[:depth], ".gitignore"))) for depth in range(len(way))]
    return tuple(rule for rule in rules if rule[1]), way


def _read(file: Path) -> tuple[Pattern, ...]:
    try:
        with file.open("rb") as opened:
            return parse_ignore(opened.read(MAX_FILE_BYTES)) if file.is_file() else ()
    except OSError:  # it does not exist or is not readable: no rules
        return ()


@lru_cache(maxsize=4096)
def as_bytes_text(name: str) -> str:
    """Return a text with one character for each byte of a file name."""
    return name if name.isascii() else os.fsencode(name).decode("latin-1")


# Parsing -------------------------------------------------------------------------------------------------------------


def _parse_line(line: str) -> Pattern | None:
    if not line or line.startswith("#"):
        return None
    is_negative = line.startswith("!")
    text = _without_trailing_spaces(line[is_negative:])
    if not text or text == "/":
        return None
    return msgspec.structs.replace(_pattern(text), is_negative=is_negative)


def _without_trailing_spaces(text: str) -> str:
    """Remove trailing spaces, except one after a backslash."""
    end = 0
    at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 1
            end = min(at + 1, len(text))
        elif text[at] != " ":
            end = at + 1
        at += 1
    return text[:end]


def _pattern(text: str) -> Pattern:
    folders_only = text.endswith("/")
    text = text[:-1] if folders_only else text
    if "/" not in text:
        tokens = _tokens(text)
        return Pattern(() if tokens is None else (tokens,), is_anchored=False, folders_only=folders_only)
    segments: list[_PatternSegment] = []
    for part in text.removeprefix("/").split("/"):
        if len(part) > 1 and not part.strip("*"):
            segments.append(None)
        elif (tokens := _tokens(part)) is None:
            return Pattern((), is_anchored=True)
        else:
            segments.append(tokens)
    if segments[-1] is None:
        segments.append((None,))
    return Pattern(tuple(segments), is_anchored=True, folders_only=folders_only)


def _tokens(text: str) -> tuple[_One, ...] | None:
    """Return the tokens, or None if the text is not a valid pattern; it then matches nothing."""
    tokens: list[_One] = []
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character == "*":
            if not tokens or tokens[-1] is not None:
                tokens.append(None)
        elif character == "?":
            tokens.append(_ANY)
        elif character == "[":
            found = _class(text, at)
            if found is None:
                return None
            token, at = found
            tokens.append(token)
        elif character == "\\":
            if at == len(text):
                return None
            tokens.append(text[at])
            at += 1
        else:
            tokens.append(character)
    return tuple(tokens)


def _class(text: str, at: int) -> tuple[_Class, int] | None:
    """Return the class after a `[`, and its end. A `]` in the first place is a character of it."""
    negated = text[at : at + 1] in ("!", "^") and at < len(text)
    at += negated
    ranges: list[tuple[str, str]] = []
    previous = ""
    first = True
    while first or text[at : at + 1] != "]":
        first = False
        if at >= len(text):
            return None
        if text.startswith("[:", at):
            end = text.find("]", at + 2)
            if end < 0:
                return None
            if text[end - 1] == ":" and end > at + 2:
                named = _NAMED.get(text[at + 2 : end - 1])
                if named is None:
                    return None
                ranges += named
                previous, at = "", end + 1
                continue
        is_range = text[at] == "-" and previous != "" and text[at + 1 : at + 2] not in ("", "]")
        at += is_range
        at += text[at] == "\\"
        if at >= len(text):
            return None
        ranges.append((previous if is_range else text[at], text[at]))
        previous = "" if is_range else text[at]
        at += 1
    return _Class(negated=negated, ranges=tuple(ranges)), at + 1


# Matching: both loops backtrack to the last star only, which is sufficient and never slow --------------------------


def _path_fits(segments: tuple[_PatternSegment, ...], names: list[str]) -> bool:
    if not segments:
        return False
    at = token = mark = 0
    star = -1
    while at < len(names):
        segment = segments[token] if token < len(segments) else ()
        if segment is None:
            star, mark, token = token, at, token + 1
        elif segment and _name_fits(segment, names[at]):
            at, token = at + 1, token + 1
        elif star >= 0:
            mark += 1
            at, token = mark, star + 1
        else:
            return False
    return all(segment is None for segment in segments[token:])


def _name_fits(tokens: tuple[_One, ...], name: str) -> bool:
    at = token = mark = 0
    star = -1
    while at < len(name):
        wanted = tokens[token] if token < len(tokens) else ""
        if wanted is None:
            star, mark, token = token, at, token + 1
        elif wanted == name[at] or (isinstance(wanted, _Class) and wanted.has(name[at])):
            at, token = at + 1, token + 1
        elif star >= 0:
            mark += 1
            at, token = mark, star + 1
        else:
            return False
    return all(left is None for left in tokens[token:])
