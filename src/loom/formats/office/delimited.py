"""Delimited text (.csv, .tsv) as a table: the delimiter is found out, quotes are understood, rows are paged."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from loom.formats.office.sheet_rows import row_line

_DELIMITERS: Final = ",;\t|"
_SNIFFED_CHARACTERS: Final = 65_536
_SNIFFED_ROWS: Final = 200
_DECLARED: Final = re.compile(r"sep=([,;\t|])(?:\r\n?|\n|$)", re.IGNORECASE)
"""How Excel tells the delimiter: a line before the first row."""

csv.field_size_limit(2**31 - 1)  # texts are bounded before they come here, and one cell may be all of a text


class RowWindow(msgspec.Struct, frozen=True):
    """Some rows of a table, each as `a | b | c`; `head` is the first row of all, `total` counts every row."""

    lines: list[str]
    head: str
    total: int
    delimiter: str


def read_rows(text: str, first_row: int, max_rows: int) -> RowWindow:
    """Return rows `first_row` onwards, counted from one."""
    delimiter = delimiter_of(text)
    if declared := _DECLARED.match(text):
        text = text[declared.end() :]
    lines: list[str] = []
    head = ""
    total = 0
    for total, cells in enumerate(_rows(text, delimiter), 1):
        if total == 1:
            head = row_line(cells)
        if first_row <= total < first_row + max_rows:
            lines.append(row_line(cells))
    return RowWindow(lines, head, total, delimiter)


def delimiter_of(text: str) -> str:
    """Return the delimiter that cuts the first lines into rows of the same number of columns; a comma
    when none does."""
    if declared := _DECLARED.match(text):
        return declared[1]
    head = text[:_SNIFFED_CHARACTERS]
    if len(text) > len(head):
        head = head[: head.rfind("\n") + 1] or head
    best, best_score = ",", 0.0
    for delimiter in _DELIMITERS:
        widths = Counter(len(cells) for cells in islice(_rows(head, delimiter), _SNIFFED_ROWS) if cells)
        if not widths:
            continue
        width, times = widths.most_common(1)[0]
        score = times / widths.total() * min(width, 4) if width > 1 else 0.0
        if score > best_score:
            best, best_score = delimiter, score
    return best


def _rows(text: str, delimiter: str) -> Iterator[list[str]]:
    """A quote that never closes would swallow the rest of the text: such a text is read without quotes."""
    quoting = csv.QUOTE_NONE if '"' in text and _is_left_open(text, delimiter) else csv.QUOTE_MINIMAL
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting)


def _is_left_open(text: str, delimiter: str) -> bool:
    last: list[str] = []
    for cells in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
        last = cells or last
    return bool(last) and "\n" in last[-1] and not text.rstrip().endswith('"')
