"""Spreadsheets as tables: every sheet under its mark, the first rows of each, and how to go on."""

from __future__ import annotations

from functools import cache
from typing import Final

import msgspec

from loom.content.media import digest_of
from loom.errors import TooLarge
from loom.formats.facts import Limits
from loom.formats.office import marks
from loom.formats.office.delimited import csv_text
from loom.formats.office.ooxml import Package
from loom.formats.office.sheet_messages import ListSheets, ReadSheets, SheetFacts, SheetJob, SheetText
from loom.formats.office.sheet_rows import Cell, RowLines, area, row_line
from loom.formats.office.xlsx_cells import SheetPart, Workbook, needs_care, sheet_parts
from loom.formats.worker import Crew

__all__ = ["ROWS_OF_MANY", "ROWS_OF_ONE", "Spreadsheet", "csv_text"]

ROWS_OF_MANY: Final = 1_000
"""Rows of a sheet when several are read, or when none was asked for."""
ROWS_OF_ONE: Final = 20_000
"""Rows when one sheet is asked for."""
MAX_CHARACTERS: Final = 8_000_000
_LEAST_CHARACTERS: Final = 50_000


class Spreadsheet:
    """A workbook of any kind that calamine reads; `package` is there for the .xlsx family only."""

    def __init__(self, data: bytes, *, name: str, limits: Limits, package: Package | None) -> None:
        self._data = data
        self._digest = digest_of(data)
        self._name = name
        self._limits = limits
        self._package = package
        self.sheets = msgspec.msgpack.decode(self._asked(ListSheets()), type=list[SheetFacts])

    def texts(self, first: int, last: int, *, is_selected: bool) -> list[str]:
        """Sheets `first` to `last`, counted from one, each under its mark."""
        max_rows = ROWS_OF_ONE if is_selected and first == last else ROWS_OF_MANY
        numbers = range(first - 1, last)
        texts = self._texts(tuple(numbers), max_rows)
        return [_section(number + 1, self.sheets[number], texts[number], max_rows) for number in numbers]

    def _texts(self, numbers: tuple[int, ...], max_rows: int) -> dict[int, SheetText]:
        careful = self._careful(numbers)
        fast = tuple(number for number in numbers if number not in careful and not self.sheets[number].kind)
        try:
            job = ReadSheets(sheets=fast, max_rows=max_rows, max_characters=_share(numbers))
            read = msgspec.msgpack.decode(self._asked(job), type=list[SheetText]) if fast else []
        except TooLarge:
            if self._package is None:
                raise
            careful, read, fast = dict.fromkeys(numbers), [], ()
        texts = dict.fromkeys(numbers, SheetText()) | dict(zip(fast, read, strict=True))
        return texts | self._read_carefully(tuple(careful), max_rows)

    def _careful(self, numbers: tuple[int, ...]) -> dict[int, None]:
        """The sheets of which calamine would leave something out."""
        if self._package is None:
            return {}
        parts = {sheet.name: sheet.part for sheet in sheet_parts(self._package)[0]}
        ours = ((number, parts.get(self.sheets[number].name, "")) for number in numbers)
        return {number: None for number, part in ours if part and needs_care(self._package, part)}

    def _read_carefully(self, numbers: tuple[int, ...], max_rows: int) -> dict[int, SheetText]:
        if self._package is None or not numbers:
            return {}
        workbook = Workbook(self._package)
        parts = {sheet.name: sheet for sheet in workbook.sheets if sheet.part}
        return {
            number: _sheet_text(workbook, parts[self.sheets[number].name], max_rows, _share(numbers))
            for number in numbers
            if self.sheets[number].name in parts
        }

    def _asked(self, job: SheetJob) -> msgspec.Raw:
        result, _ = _crew().call(
            msgspec.msgpack.encode(job),
            self._data,
            digest=self._digest,
            name=self._name or "The workbook",
            limits=self._limits,
            seconds=self._limits.deadline_seconds,
        )
        return result


def _share(numbers: tuple[int, ...]) -> int:
    """How many characters each of these sheets may have."""
    return max(_LEAST_CHARACTERS, MAX_CHARACTERS // max(1, len(numbers)))


@cache
def _crew() -> Crew:
    return Crew("loom.formats.office.sheet_job")


def _section(number: int, sheet: SheetFacts, found: SheetText, max_rows: int) -> str:
    words = [f"sheet {number}: {marks.one_line(sheet.name)[:100]}", sheet.kind, "hidden" if sheet.is_hidden else ""]
    head = f"[{', '.join(filter(None, words))}]"
    if not found.rows:
        return head if sheet.kind else f"{head} empty"
    lines = [f"{head} {found.area}", found.text]
    if found.is_cut:
        more = f'pages="{number}" shows more' if max_rows == ROWS_OF_MANY else "save the sheet as CSV to read the rest"
        lines.append(f"[the first {found.rows} of {found.total_rows} rows; {more}]")
    return "\n".join(lines)


def _sheet_text(workbook: Workbook, sheet: SheetPart, max_rows: int, max_characters: int) -> SheetText:
    rows: list[tuple[int, list[Cell], int]] = []
    corners: list[int] = []
    total = 0

    def row(number: int, cells: list[Cell], more: int) -> None:
        nonlocal total, corners
        left = next((at for at, value in enumerate(cells) if value is not None), len(cells))
        top, low, bottom, high = corners or (number, left, number, len(cells) - 1)
        corners = [min(top, number), min(low, left), max(bottom, number), max(high, len(cells) - 1 + more)]
        total += 1
        if len(rows) < max_rows:
            rows.append((number, cells, more))

    workbook.read(sheet, row)
    if not corners:
        return SheetText()
    top, low, bottom, high = corners
    lines = RowLines(max_rows, max_characters)
    for number, cells, more in rows:
        if lines.is_full:
            break
        lines.add(number, row_line(cells[low:], more))
    return SheetText(lines.text, area((top, low), (bottom, high)), lines.rows, total, is_cut=lines.rows < total)
