"""The program of the spreadsheet worker: calamine, on jobs that `sheets` sends.

A sheet of 5 KB with two cells far apart makes calamine allocate 550 GB and abort the process, so it never runs in the
main process.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, Final

import msgspec
from python_calamine import (
    CalamineError,
    CalamineSheet,
    CalamineWorkbook,
    PasswordError,
    SheetTypeEnum,
    SheetVisibleEnum,
)

from loom.errors import Encrypted, Unreadable
from loom.formats.office.sheet_messages import ListSheets, ReadSheets, SheetFacts, SheetJob, SheetText
from loom.formats.office.sheet_rows import RowLines, area, row_lines
from loom.formats.worker.held_documents import HeldDocuments
from loom.formats.worker.loop import Task, serve
from loom.struct_types import msgpack_decoder

_JOB: Final = msgpack_decoder(SheetJob)
_BLOCK_ROWS: Final = 256
_KINDS: Final = (
    (SheetTypeEnum.ChartSheet, "chart"),
    (SheetTypeEnum.DialogSheet, "dialog"),
    (SheetTypeEnum.MacroSheet, "macros"),
    (SheetTypeEnum.Vba, "macros"),
)


def run(task: Task, document: bytes | None) -> tuple[bytes, bytes] | None:
    try:
        workbook = _held.get(task, document)
        if workbook is None:
            return None
        return msgspec.msgpack.encode(_run_job(workbook, _JOB.decode(task.job))), b""
    except PasswordError:
        raise Encrypted("needs a password", hint="Save a copy without one, and use that.") from None
    except CalamineError:
        raise Unreadable("is damaged, or not a supported workbook") from None


def _open(_task: Task, data: bytes) -> CalamineWorkbook:
    return CalamineWorkbook.from_filelike(io.BytesIO(data))


def _run_job(workbook: CalamineWorkbook, job: SheetJob) -> list[SheetFacts] | list[SheetText]:
    match job:
        case ListSheets():
            return [
                SheetFacts(sheet.name, _kind(sheet.typ), sheet.visible != SheetVisibleEnum.Visible)
                for sheet in workbook.sheets_metadata
            ]
        case ReadSheets():
            displayed = job.displayed or ((),) * len(job.sheets)
            return [_text(workbook, sheet, job, shown) for sheet, shown in zip(job.sheets, displayed, strict=True)]


def _rows_from(sheet: CalamineSheet, first: int) -> Iterator[list[Any]]:
    """Yield the rows from number `first` on, counted from 0.

    Some versions of calamine yield the empty rows above the first cell, others begin with its row, which is not empty.
    """
    rows = sheet.iter_rows()
    top = sheet.start[0] if sheet.start else 0
    head = list(islice(rows, 1)) if top else []
    begins_at_top = bool(head) and any(cell != "" for cell in head[0])
    return islice(chain(head, rows), first - (top if begins_at_top else 0), None)


def _kind(found: SheetTypeEnum) -> str:
    return next((word for kind, word in _KINDS if found == kind), "")


def _text(
    workbook: CalamineWorkbook, index: int, job: ReadSheets, displayed: tuple[tuple[int, int, str], ...]
) -> SheetText:
    sheet = workbook.get_sheet_by_index(index)
    if sheet.start is None or sheet.end is None:
        return SheetText()
    where = area(sheet.start, sheet.end)
    first = max(job.first_row, sheet.start[0])
    lines = RowLines(job.max_rows, job.max_characters, first)
    rows = _rows_from(sheet, first)
    shown: dict[int, list[tuple[int, str]]] = {}
    for row, column, text in displayed:
        shown.setdefault(row, []).append((column - sheet.start[1], text))
    while block := list(islice(rows, _BLOCK_ROWS)):
        for number in range(first, first + len(block)) if shown else ():
            for column, text in shown.get(number, ()):
                if 0 <= column < len(block[number - first]):
                    block[number - first][column] = text
        if (left_out := lines.extend(first, row_lines(block))) is not None:
            return SheetText(lines.text, where, lines.rows, sheet.height, next_row=left_out + 1)
        first += len(block)
    return SheetText(lines.text, where, lines.rows, sheet.height)


_held: Final = HeldDocuments(_open, max_documents=2)


if __name__ == "__main__":
    serve(run)
