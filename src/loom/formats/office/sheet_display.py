"""Cells of an .xlsx sheet as displayed, merged into the bare values of calamine; and the layout of the sheet.

calamine is ten times faster than any reader in Python but ignores number formats. So only the cells whose displayed
text differs from the bare number are read again, in the rows that are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from loom.formats.office.number_formats import BUILT_IN, GENERAL, display_number
from loom.formats.office.ooxml import Package
from loom.formats.office.sheet_rows import MAX_COLUMNS, column_name
from loom.formats.office.xml_reader import XmlNode, whole_number

PlacedText = tuple[int, int, str]
"""Row and column, counted from 0, and the displayed text."""

_CELL: Final = re.compile(
    rb"<(?:\w+:)?c\s([^>]*[^>/])>(?:<(?:\w+:)?f(?:\s[^>]*)?(?:/>|>[^<]*</(?:\w+:)?f>))?<(?:\w+:)?v>([^<]+)</"
)
_PLACE: Final = re.compile(rb'\br="([A-Z]{1,3})([0-9]{1,7})"')
_STYLE: Final = re.compile(rb'\bs="([0-9]{1,6})"')
_OTHER_TYPE: Final = re.compile(rb'\bt="(?!n")')
_MERGED: Final = re.compile(rb'<(?:\w+:)?mergeCell\s[^>]*?\bref="([A-Z0-9:]{1,24})"')
_HIDDEN_ROW: Final = re.compile(rb"<(?:\w+:)?row\s([^>]*\bhidden=\"(?:1|true)\"[^>]*)>")
_ROW_NUMBER: Final = re.compile(rb'\br="([0-9]{1,7})"')
_COLUMN: Final = re.compile(rb"<(?:\w+:)?col\s([^>]*\bhidden=\"(?:1|true)\"[^>]*)>")
_BOUND: Final = {name: re.compile(rb"\b" + name + rb'="([0-9]{1,6})"') for name in (b"min", b"max")}
MAX_PLACES: Final = 200
"""The maximum number of merged areas, and of ranges of hidden rows or columns, that are listed."""
_MAX_COLUMN: Final = 16_384


class NumberStyles(msgspec.Struct, frozen=True):
    """The format code of each cell style, and the year from which dates count."""

    codes: tuple[str, ...]
    is_1904: bool

    def code(self, style: int) -> str:
        return self.codes[style] if 0 <= style < len(self.codes) else GENERAL

    def display(self, value: float, style: int) -> str | None:
        """Return the displayed text, or None if it is the bare number."""
        code = self.code(style)
        return None if code in (GENERAL, "@") else display_number(value, code, is_1904=self.is_1904)


def number_styles(root: XmlNode | None, *, is_1904: bool) -> NumberStyles:
    """Return the styles in `styles.xml`, which was read with the tags numFmt, cellXfs and xf."""
    if root is None:
        return NumberStyles((), is_1904)
    custom = {node.get("numFmtId"): node.get("formatCode") for node in root.all("x:numFmt")}
    codes: list[str] = []
    for styles in root.all("x:cellXfs"):
        for node in styles.all("x:xf"):
            number = node.get("numFmtId")
            codes.append(custom.get(number) or BUILT_IN.get(whole_number(number), GENERAL))
    return NumberStyles(tuple(codes), is_1904)


def displayed_cells(data: bytes, styles: NumberStyles, first_row: int, last_row: int) -> list[PlacedText]:
    """Return the cells of rows `first_row` to `last_row` (from 0) whose displayed text differs from their bare
    value."""
    wanted = {number for number, code in enumerate(styles.codes) if code not in (GENERAL, "@")}
    if not wanted:
        return []
    placed: list[PlacedText] = []
    for row, column, style, text in _numbers(data):
        if row > last_row:
            break
        if row < first_row or style not in wanted or column >= MAX_COLUMNS:
            continue
        try:
            shown = styles.display(float(text), style)
        except ValueError:
            continue
        if shown is not None:
            placed.append((row, column, shown))
    return placed


def _numbers(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield row, column, style and characters of each cell that has a number and a style."""
    columns: dict[bytes, int] = {}
    for found in _CELL.finditer(data):
        attributes = found[1]
        style = _STYLE.search(attributes)
        if style is None or _OTHER_TYPE.search(attributes):
            continue
        place = _PLACE.search(attributes)
        if place is None:
            continue
        letters = place[1]
        column = columns.get(letters)
        if column is None:
            column = columns[letters] = column_number(letters.decode())
        yield int(place[2]) - 1, column, int(style[1]), found[2]


def column_number(letters: str) -> int:
    """Return the number of a column: A → 0, Z → 25, AA → 26."""
    number = 0
    for letter in letters:
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1


def layout_lines(package: Package, part: str) -> list[str]:
    """Return the layout that the bare cells do not show: merged areas, hidden rows and columns."""
    data = package.archive.read(part)
    rows = [int(found[1]) - 1 for hidden in _HIDDEN_ROW.finditer(data) if (found := _ROW_NUMBER.search(hidden[1]))]
    columns: list[int] = []
    for hidden in _COLUMN.finditer(data):
        first, last = (_BOUND[name].search(hidden[1]) for name in (b"min", b"max"))
        if first is not None:
            start = min(int(first[1]), _MAX_COLUMN)
            columns.extend(range(start - 1, min(int(last[1]) if last else start, _MAX_COLUMN)))
    merged = [found[1].decode() for found in _MERGED.finditer(data)]
    return described_layout(merged, rows, columns)


def described_layout(merged: list[str], hidden_rows: list[int], hidden_columns: list[int]) -> list[str]:
    """Return lines such as `[merged cells: A1:C1, B4:B6]`, `[hidden rows: 5-9]`, `[hidden columns: C-E]`; the arguments
    count from 0."""
    rows = [f"{first + 1}-{last + 1}" if last > first else str(first + 1) for first, last in _stretches(hidden_rows)]
    columns = [
        f"{column_name(first)}-{column_name(last)}" if last > first else column_name(first)
        for first, last in _stretches(hidden_columns)
    ]
    named = (("merged cells", merged), ("hidden rows", rows), ("hidden columns", columns))
    return [f"[{what}: {_list_places(places)}]" for what, places in named if places]


def _list_places(places: list[str]) -> str:
    more = len(places) - MAX_PLACES
    return ", ".join(places[:MAX_PLACES]) + (f" and {more} more" if more > 0 else "")


def _stretches(numbers: list[int]) -> Iterator[tuple[int, int]]:
    first = last = -2
    for number in sorted(set(numbers)):
        if number == last + 1:
            last = number
            continue
        if first >= 0:
            yield first, last
        first = last = number
    if first >= 0:
        yield first, last
