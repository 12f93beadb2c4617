"""Spreadsheets as tables: every sheet under its marker, the first rows of each, and how to read more."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from loom.content.media import digest_of
from loom.errors import TooLarge
from loom.formats.facts import IntakeLimits
from loom.formats.office import text_marks
from loom.formats.office.biff import BiffBook
from loom.formats.office.ooxml import Package
from loom.formats.office.sheet_display import PlacedText, displayed_cells
from loom.formats.office.sheet_messages import ListSheets, ReadSheets, SheetFacts, SheetJob, SheetText
from loom.formats.office.sheet_rows import RowLines, area, row_line
from loom.formats.office.xlsx_cells import SheetPart, SheetRow, Workbook, needs_care, sheet_parts, workbook_styles
from loom.formats.worker import WorkerGroup, WorkerKind, current_pool
from loom.struct_types import decode_msgpack

SHEET_WORKER: Final = WorkerKind("loom.formats.office.sheet_job")
ROWS_OF_MANY: Final = 1_000
"""The maximum number of rows of a sheet if several are read or none was selected."""
ROWS_OF_ONE: Final = 20_000
"""The maximum number of rows if one sheet was selected."""
MAX_CHARACTERS: Final = 8_000_000
_LEAST_CHARACTERS: Final = 50_000
_ROWS_LOOKED_THROUGH: Final = 20_000
"""Empty rows do not count, so the last row that is shown may be this many rows further down."""


class Spreadsheet:
    """A workbook of any kind that calamine reads; `package` exists for the .xlsx family only, `biff` for .xls and
    .xlsb."""

    def __init__(
        self, data: bytes, *, name: str, limits: IntakeLimits, package: Package | None, biff: BiffBook | None = None
    ) -> None:
        self._data = data
        self._biff = biff
        self._digest = digest_of(data)
        self._name = name
        self._limits = limits
        self._package = package
        self._parts = sheet_parts(package)[0] if package else []
        own = [SheetFacts(part.name, part.kind, part.is_hidden) for part in self._parts]
        self.sheets = own or self.list_sheets()

    def list_sheets(self) -> list[SheetFacts]:
        """Return the sheets as calamine lists them. Raise an error if it cannot open the workbook."""
        return decode_msgpack(self._call_worker(ListSheets()), list[SheetFacts])

    def layout(self, sheet: int) -> list[str]:
        """Return the merged and hidden cells of a sheet of an .xls or .xlsb file; `sheet` counts from 0."""
        return self._biff.sheets[sheet].layout() if self._biff and sheet < len(self._biff.sheets) else []

    def texts(self, first: int, last: int, *, is_selected: bool) -> list[str]:
        """Return sheets `first` to `last`, counted from one, each under its marker."""
        max_rows = ROWS_OF_ONE if is_selected and first == last else ROWS_OF_MANY
        numbers = range(first - 1, last)
        texts = self._texts(tuple(numbers), max_rows, 0)
        return [_section(number + 1, self.sheets[number], texts[number], max_rows) for number in numbers]

    def rows(self, sheet: int, first_row: int, max_rows: int) -> SheetText:
        """Return at most `max_rows` rows of a sheet from `first_row` on, both counted from one."""
        return self._texts((sheet - 1,), max_rows, first_row - 1)[sheet - 1]

    def _texts(self, numbers: tuple[int, ...], max_rows: int, first_row: int) -> dict[int, SheetText]:
        fast = tuple(number for number in numbers if not self.sheets[number].kind)
        share = max(_LEAST_CHARACTERS, MAX_CHARACTERS // max(1, len(numbers)))  # characters for each sheet
        job = ReadSheets(sheets=fast, max_rows=max_rows, max_characters=share, first_row=first_row)
        with ThreadPoolExecutor(1) as beside:
            # While calamine reads, check whether it leaves out something, or fails on a sheet that our reader can read.
            reading = beside.submit(self._read, job)
            careful = self._incomplete_sheets(numbers)
            displayed = self._displayed_texts(tuple(number for number in fast if number not in careful), job)
        if careful or any(displayed):
            fast = tuple(number for number in fast if number not in careful)
        try:
            is_other = careful or any(displayed)
            again = msgspec.structs.replace(job, sheets=fast, displayed=displayed)
            read = self._read(again) if is_other else reading.result()
        except TooLarge:
            if self._package is None:
                raise
            careful, read, fast = dict.fromkeys(numbers), [], ()
        texts = dict.fromkeys(numbers, SheetText()) | dict(zip(fast, read, strict=True))
        return texts | self._read_carefully(msgspec.structs.replace(job, sheets=tuple(careful)))

    def _displayed_texts(self, numbers: tuple[int, ...], job: ReadSheets) -> tuple[tuple[PlacedText, ...], ...]:
        """Return for each sheet the cells whose displayed text differs from their bare value."""
        if self._biff is not None:
            last = job.first_row + _ROWS_LOOKED_THROUGH + job.max_rows
            return tuple(tuple(self._biff.displayed_cells(number, job.first_row, last)) for number in numbers)
        if self._package is None or not self._parts:
            return ((),) * len(numbers)
        styles = workbook_styles(self._package)
        last = job.first_row + _ROWS_LOOKED_THROUGH + job.max_rows
        found: list[tuple[PlacedText, ...]] = []
        for number in numbers:
            part = self._parts[number].part
            data = self._package.archive.read(part) if part else b""
            found.append(tuple(displayed_cells(data, styles, job.first_row, last)))
            self._package.archive.check_time()
        return tuple(found)

    def _read(self, job: ReadSheets) -> list[SheetText]:
        return decode_msgpack(self._call_worker(job), list[SheetText]) if job.sheets else []

    def _incomplete_sheets(self, numbers: tuple[int, ...]) -> dict[int, None]:
        """Return the sheets that calamine would read incompletely."""
        if self._package is None or not self._parts:
            return {}
        ours = ((number, self._parts[number].part) for number in numbers)
        return {number: None for number, part in ours if part and needs_care(self._package, part)}

    def _read_carefully(self, job: ReadSheets) -> dict[int, SheetText]:
        if self._package is None or not job.sheets or not self._parts:
            return {}
        workbook = Workbook(self._package)
        ours = ((number, self._parts[number]) for number in job.sheets)
        return {number: _sheet_text(workbook, part, job) for number, part in ours if part.part}

    def _call_worker(self, job: SheetJob) -> msgspec.Raw:
        result, _ = worker_pool().call(
            msgspec.msgpack.encode(job),
            self._data,
            digest=self._digest,
            name=self._name or "The workbook",
            limits=self._limits,
            seconds=self._limits.deadline_seconds,
        )
        return result


def worker_pool() -> WorkerGroup:
    """Return the workers that run calamine."""
    return current_pool().group(SHEET_WORKER)


def _section(number: int, sheet: SheetFacts, found: SheetText, max_rows: int) -> str:
    words = [
        f"sheet {number}: {text_marks.one_line(sheet.name)[:100]}",
        sheet.kind,
        "hidden" if sheet.is_hidden else "",
    ]
    head = f"[{', '.join(filter(None, words))}]"
    if not found.rows:
        return head if sheet.kind else f"{head} empty"
    lines = [f"{head} {found.area}", found.text]
    if found.next_row is not None:
        more = f'pages="{number}"' if max_rows == ROWS_OF_MANY else f'pages="{number}", offset={found.next_row}'
        lines.append(f"[the first {found.rows} of {found.total_rows} rows; {more} shows more]")
    return "\n".join(lines)


def _sheet_text(workbook: Workbook, sheet: SheetPart, job: ReadSheets) -> SheetText:
    rows: list[SheetRow] = []
    corners: tuple[int, int, int, int] | None = None
    total = 0

    def row(found: SheetRow) -> None:
        nonlocal total, corners
        top, low, bottom, high = corners or (found.number, found.first, found.number, found.last)
        corners = min(top, found.number), min(low, found.first), max(bottom, found.number), max(high, found.last)
        total += 1
        if found.number >= job.first_row and len(rows) <= job.max_rows:
            rows.append(found)

    workbook.read(sheet, row)
    if corners is None:
        return SheetText()
    top, low, bottom, high = corners
    lines = RowLines(job.max_rows, job.max_characters, max(job.first_row, top))
    next_row: int | None = None
    for found in rows:
        if lines.is_full:
            next_row = found.number + 1
            break
        lines.add(found.number, row_line(found.cells[low:], found.more))
    return SheetText(lines.text, area((top, low), (bottom, high)), lines.rows, total, next_row)
