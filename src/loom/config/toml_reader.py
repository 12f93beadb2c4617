"""TOML text → plain data, and the line of each key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import cast

from loom.config.schema_tree import KeyPath
from loom.config.secret import redact
from loom.errors import ConfigError

_PLACE = re.compile(r"(?P<what>.*) \(at (?P<place>line \d+, column \d+|end of document)\)", re.DOTALL)
_MAY_CLOSE = re.compile(r"\"\"\"|'''|[\]}]")


def parse(text: str, name: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        placed = _PLACE.fullmatch(str(error))
        what = redact(placed["what"] if placed else str(error))
        raise ConfigError(what + ".", file=name, key=placed["place"] if placed else "") from None
    except ValueError:  # from int(), which tomllib lets through
        raise ConfigError("a number has too many digits.", file=name) from None


def lines(text: str) -> Iterator[tuple[KeyPath, int]]:
    """Yield the path and line of each key of a valid text. Each statement is parsed separately."""
    table: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    for line, statement in _statements(text):
        data = tomllib.loads(statement)
        if statement.lstrip().startswith("["):
            table = _header_path(data, counts)
            yield table, line
        else:
            for path in _paths(data):
                yield (*table, *path), line


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield each statement with the number of its first line. A statement ends at the first line up to which it parses;
    only lines that can end one are tried."""
    start, pending = 1, ""
    for number, line in enumerate(text.split("\n"), 1):
        if not pending:
            start = number
        pending += line + "\n"
        if start != number and not _MAY_CLOSE.search(line):
            continue
        try:
            tomllib.loads(pending)
        except tomllib.TOMLDecodeError:
            continue
        yield start, pending
        pending = ""


def _header_path(data: dict[str, object], counts: dict[KeyPath, int]) -> KeyPath:
    """Return the path of `[a.b]` or `[[a.b]]`, with the position of the latest item below a list."""
    path: list[str | int] = []
    table = data
    while table:
        name, below = next(iter(table.items()))
        path.append(name)
        if isinstance(below, list):
            counts[tuple(path)] = counts.get(tuple(path), -1) + 1
        if below and tuple(path) in counts:
            path.append(counts[tuple(path)])
        table = cast("dict[str, object]", below) if isinstance(below, dict) else {}
    return tuple(path)


def _paths(value: object) -> Iterator[KeyPath]:
    if isinstance(value, dict):
        for name, item in cast("dict[str, object]", value).items():
            yield from ((name, *rest) for rest in _paths(item))
    elif isinstance(value, list):
        for position, item in enumerate(cast("list[object]", value)):
            yield from ((position, *rest) for rest in _paths(item))
    yield ()
