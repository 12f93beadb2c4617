"""Rows of cells as short text that a model reads well: `a | b | c`, one line per row.

Trailing empty cells and rows are dropped, runs of empty rows are counted, dates are ISO, integers have no `.0`. The
cells of one column are mostly of one type, so that whole sheets are written column by column (`row_lines`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from loom.formats.office import text_marks
from loom.formats.office.number_formats import plain_number

Cell: TypeAlias = str | int | float | bool | dt.datetime | dt.date | dt.time | dt.timedelta | None
SEPARATOR: Final = " | "
MAX_COLUMNS: Final = 512
_LONG_NUMBER: Final = 16
"""From this length on, a number may have more digits than a spreadsheet stores."""
_UNUSUAL: Final = ("e", "n", "0.0000", "-0.0,")
"""Numbers that JSON writes in another way: exponents, NaN and infinity, numbers near zero, minus zero."""
_MIDNIGHT: Final = dt.time()


def _words(value: str) -> str:
    if "\0" in value:  # calamine reads UTF-16 in some old workbooks as single bytes
        value = value.replace("\0", "")
    return value if value.isprintable() and "|" not in value else text_marks.cell(value)


def _moment(value: dt.datetime) -> str:
    return value.date().isoformat() if value.time() == _MIDNIGHT else value.isoformat(" ")


def _hours(value: dt.timedelta) -> str:
    """Return a duration as spreadsheets show it: `30:05:00`."""
    sign = "-" if value < dt.timedelta() else ""
    minutes, seconds = divmod(round(abs(value).total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours}:{minutes:02d}:{seconds:02d}"


class RowLines:
    """Lines of text from row `first` on (from 0), up to a maximum number of rows and of characters."""

    def __init__(self, max_rows: int, max_characters: int, first: int) -> None:
        self.lines: list[str] = []
        self.rows = 0
        self._left_rows = max_rows
        self._left_characters = max_characters
        self._last = first - 1

    @property
    def is_full(self) -> bool:
        return self._left_rows <= 0 or self._left_characters <= 0

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def add(self, number: int, line: str) -> None:
        """Add the line of row `number` (from 0); an empty line only widens the gap before the next."""
        if not line:
            return
        gap = number - self._last - 1
        if gap:
            self.lines.append("" if gap == 1 else f"[{gap} empty rows]")
        self.lines.append(line)
        self.rows += 1
        self._last = number
        self._left_rows -= 1
        self._left_characters -= len(line) + 1

    def extend(self, first: int, lines: Sequence[str]) -> int | None:
        """Add the lines of row `first` and the following rows; return the first row that does not fit, or None."""
        characters = sum(map(len, lines)) + len(lines)
        has_room = len(lines) <= self._left_rows and characters < self._left_characters
        if has_room and first == self._last + 1 and all(lines):
            self.lines.extend(lines)
            self.rows += len(lines)
            self._last += len(lines)
            self._left_rows -= len(lines)
            self._left_characters -= characters
            return None
        for number, line in enumerate(lines, first):
            if line and self.is_full:
                return number
            self.add(number, line)
        return None


_FORMS: Final[dict[type[Any], Callable[[Any], str]]] = {
    type(None): lambda _value: "",
    str: _words,
    bool: {True: "TRUE", False: "FALSE"}.__getitem__,
    int: str,
    float: plain_number,
    dt.datetime: _moment,
    dt.date: dt.date.isoformat,
    dt.time: dt.time.isoformat,
    dt.timedelta: _hours,
}


def row_line(cells: Sequence[Cell], more: int = 0) -> str:
    """Return one row. Cells beyond the last shown column are counted; `more` is the number of cells not in `cells`."""
    if len(cells) > MAX_COLUMNS:
        more += sum(1 for value in cells[MAX_COLUMNS:] if value not in ("", None))
        cells = cells[:MAX_COLUMNS]
    line = _line([_FORMS[type(value)](value) for value in cells])
    return f"{line} [{more} more cells]" if more else line


def row_lines(rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Return the lines of rows of equal length."""
    if rows and len(rows[0]) > MAX_COLUMNS:
        return [row_line(cells) for cells in rows]
    columns = [list(_column(cells)) for cells in zip(*rows, strict=True)]
    is_full = bool(columns) and all(columns[-1])
    return list(map(SEPARATOR.join if is_full else _line, zip(*columns, strict=True)))


def _line(texts: Sequence[str]) -> str:
    shown = len(texts)
    while shown and not texts[shown - 1]:
        shown -= 1
    return SEPARATOR.join(texts[:shown])


def _column(cells: tuple[Any, ...]) -> Iterable[str]:
    kinds = set(map(type, cells))
    if len(kinds) > 1:
        return [_FORMS[type(value)](value) for value in cells]
    kind = kinds.pop()
    if kind is str:
        words = "".join(cells)
        return cells if words.isprintable() and "|" not in words else map(_words, cells)
    return _numbers(cells) if kind is float else map(_FORMS[kind], cells)


def _numbers(cells: tuple[float, ...]) -> Iterable[str]:
    """Return the numbers as text. JSON writes usual numbers as `plain_number` does, and all of them at once."""
    together = msgspec.json.encode(cells)[1:-1].decode() + ","
    if any(sign in together for sign in _UNUSUAL):
        return map(plain_number, cells)
    texts = together.replace(".0,", ",").split(",")[:-1]
    if max(set(map(len, texts))) < _LONG_NUMBER:  # a set: there are few lengths, and comparing takes time
        return texts
    return [text if len(text) < _LONG_NUMBER else plain_number(value) for text, value in zip(texts, cells, strict=True)]


def column_name(column: int) -> str:
    """Return the name of a column: 0 → A, 25 → Z, 26 → AA."""
    letters = ""
    column += 1
    while column:
        column, place = divmod(column - 1, 26)
        letters = chr(ord("A") + place) + letters
    return letters


def area(first: tuple[int, int], last: tuple[int, int]) -> str:
    """Return the range of two corners (row, column), counted from 0: `A1:H120`."""
    return f"{column_name(first[1])}{first[0] + 1}:{column_name(last[1])}{last[0] + 1}"
