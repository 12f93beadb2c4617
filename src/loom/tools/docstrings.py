"""Parse docstrings: the descriptions of a function and its parameters, in Google, NumPy and Sphinx style, and as plain
`name: text`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection
from typing import Final

import msgspec

_HEADINGS: Final = ("args", "arguments", "parameters", "params", "other parameters")
_SPHINX: Final = re.compile(r"\s*:(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")
_SPHINX_TYPE: Final = re.compile(r"\s*:type\s+\w+\s*:")
_NUMPY: Final = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_PLAIN: Final = re.compile(r"\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


class Docstring(msgspec.Struct, frozen=True):
    summary: str
    """Everything that is not about a parameter."""
    parameters: dict[str, str]


def parse_docstring(text: str, names: Collection[str]) -> Docstring:
    """Return the description and the descriptions of the parameters `names`; every other line stays in the
    description."""
    lines = inspect.cleandoc(text).splitlines()
    rest: list[str] = []
    described: dict[str, list[str]] = {}
    at = 0
    while at < len(lines):
        is_numpy = at + 1 < len(lines) and set(lines[at + 1].strip()) == {"-"} and len(lines[at + 1].strip()) > 2
        heading = lines[at].strip().rstrip(":").casefold()
        is_google = lines[at].rstrip().endswith(":") and not is_numpy
        if heading in _HEADINGS and (is_numpy or is_google):
            at = _read_section(lines, at + (2 if is_numpy else 1), names, described, is_numpy=is_numpy)
        elif _SPHINX_TYPE.match(lines[at]):
            at += 1
        elif found := (_SPHINX.match(lines[at]) or _PLAIN.match(lines[at])):
            if found[1] in names and found[2]:
                at = _read_item(lines, at, found[1], found[2], described)
            else:
                rest.append(lines[at])
                at += 1
        else:
            rest.append(lines[at])
            at += 1
    summary = re.sub(r"\n{3,}", "\n\n", "\n".join(rest)).strip()
    return Docstring(summary, {name: " ".join(words).strip() for name, words in described.items()})


def _read_section(
    lines: list[str], at: int, names: Collection[str], described: dict[str, list[str]], *, is_numpy: bool
) -> int:
    """Read a list of parameters; return the line after it."""
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
            continue
        if is_numpy:
            found = _NUMPY.fullmatch(line)
            chosen = [name.strip(" *") for name in found[1].split(",")] if found else []
            if _indent(line) or not chosen or not set(chosen) & set(names):
                return at
            end = _end_of_item(lines, at)
            words = [text.strip() for text in lines[at + 1 : end] if text.strip()]
            described.update({name: list(words) for name in chosen if name in names})
            at = end
            continue
        found = _PLAIN.match(line)
        if not _indent(line) or found is None or found[1] not in names:
            return at
        at = _read_item(lines, at, found[1], found[2], described)
    return at


def _read_item(lines: list[str], at: int, name: str, first: str, described: dict[str, list[str]]) -> int:
    """Read one parameter with the lines that are indented below it; return the line after it."""
    end = _end_of_item(lines, at)
    described[name] = [text.strip() for text in (first, *lines[at + 1 : end]) if text.strip()]
    return end


def _end_of_item(lines: list[str], at: int) -> int:
    depth = _indent(lines[at])
    end = at + 1
    while end < len(lines) and lines[end].strip() and _indent(lines[end]) > depth:
        end += 1
    return end


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
