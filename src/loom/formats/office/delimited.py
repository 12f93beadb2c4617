"""Delimited text (.csv, .tsv) as a table: detects the delimiter, supports quotes, and pages the rows."""

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
"""Excel's declaration of the delimiter: a line before the first row."""

csv.field_size_limit(2**31 - 1)  # texts are bounded before they are passed here, and one cell may be a whole text


class RowWindow(msgspec.Struct, frozen=True):
    """Some rows of a table, each as `a | b | c`; `head` is the first row of the table, `total` is the number of all
    rows."""

    lines: list[str]
    head: str
    total: int
    delimiter: str


def read_rows(text: str, first_row: int, max_rows: int) -> RowWindow:
    """Return rows from `first_row` on, counted from one."""
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
    """Return the declared delimiter, or the one that splits the first lines most consistently into rows of equal
    length; a comma if none does."""
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
    """Yield the rows. A text with a quote that never closes is read without quotes, or the quote would include all the
    rest."""
    quoting = csv.QUOTE_NONE if '"' in text and _is_left_open(text, delimiter) else csv.QUOTE_MINIMAL
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting)


def _is_left_open(text: str, delimiter: str) -> bool:
    last: list[str] = []
    for cells in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
        last = cells or last
    return bool(last) and "\n" in last[-1] and not text.rstrip().endswith('"')
