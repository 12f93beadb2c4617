"""The parts of .xlsb workbooks that calamine does not read: number formats, errors, merged cells, hidden rows and
columns.

The parts of such a workbook are lists of records: a number and a length with seven bits per byte, then that many bytes.
Damage ends a list, and the values of calamine are used unchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from loom.formats.office.biff import ERRORS, BiffBook, BiffSheet, unpacked_number
from loom.formats.office.number_formats import BUILT_IN, GENERAL
from loom.formats.office.ooxml import Package
from loom.formats.office.sheet_display import NumberStyles
from loom.formats.office.sheet_rows import MAX_COLUMNS, area

_WORKBOOK: Final = "xl/workbook.bin"
_LAST_COLUMN: Final = 16_383
_HIDDEN_ROW: Final = 0x10


def read_xlsb(package: Package) -> BiffBook:
    """Return the styles and sheets of a workbook, in the order of its sheets."""
    part = package.main_part(_WORKBOOK)
    is_1904 = False
    sheets: list[str] = []
    for kind, body in _records(package.archive.read(part)):
        match kind:
            case 153:  # properties of the workbook
                is_1904 = bool(body[0] & 1) if body else False
            case 156:  # a sheet: its state, its number, the id of its relation
                sheets.append(package.target(part, _text(body, 8)))
            case _:
                continue
    codes = tuple(
        code for styles in package.related_parts(part, "styles") for code in _codes(package.archive.read(styles))
    )
    read = [_sheet(package.archive.read(sheet)) if sheet else BiffSheet([], [], [], [], []) for sheet in sheets]
    return BiffBook(NumberStyles(codes, is_1904), read)


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        kind, at = _read_varint(data, at, 2)
        size, at = _read_varint(data, at, 4)
        yield kind, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int, longest: int) -> tuple[int, int]:
    """Return a number with seven bits per byte, and the offset after it."""
    number = 0
    for place in range(longest):
        if at >= len(data):
            break
        byte = data[at]
        number |= (byte & 0x7F) << (7 * place)
        at += 1
        if byte < 0x80:
            break
    return number, at


def _text(body: bytes, at: int) -> str:
    if at + 4 > len(body):
        return ""
    (length,) = struct.unpack_from("<I", body, at)
    return body[at + 4 : at + 4 + 2 * min(length, len(body))].decode("utf-16-le", "replace")


def _codes(styles: bytes) -> list[str]:
    """Return the number format of each cell style."""
    custom: dict[int, str] = {}
    codes: list[str] = []
    is_of_cells = False
    for kind, body in _records(styles):
        match kind:
            case 44 if len(body) > 2:  # a number format
                custom[struct.unpack_from("<H", body)[0]] = _text(body, 2)
            case 617 | 618:  # the styles of cells begin, and end
                is_of_cells = kind == 617
            case 47 if is_of_cells and len(body) >= 4:
                number = struct.unpack_from("<H", body, 2)[0]
                codes.append(custom.get(number) or BUILT_IN.get(number, GENERAL))
            case _:
                continue
    return codes


def _sheet(data: bytes) -> BiffSheet:
    sheet = BiffSheet([], [], [], [], [])
    row = 0
    for kind, body in _records(data):
        try:
            match kind:
                case 0:  # a row begins
                    (row,) = struct.unpack_from("<I", body)
                    if body[11] & _HIDDEN_ROW:
                        sheet.hidden_rows.append(row)
                case 2 | 3 | 5 | 9 | 11:
                    _cell(sheet, row, kind, body)
                case 60:  # columns of one width
                    first, last = struct.unpack_from("<II", body)
                    if body[16] & 1:
                        sheet.hidden_columns.extend(range(first, min(last, _LAST_COLUMN) + 1))
                case 176:
                    top, bottom, left, right = struct.unpack_from("<IIII", body)
                    sheet.merged.append(area((top, left), (bottom, right)))
                case _:
                    continue
        except (struct.error, IndexError):
            continue
    return sheet


def _cell(sheet: BiffSheet, row: int, kind: int, body: bytes) -> None:
    """Add a number (packed, integer, or of a formula) or an error (typed in, or of a formula)."""
    column, style = struct.unpack_from("<II", body)
    style &= 0xFFFFFF
    if kind == 2:
        sheet.cells.append((row, column, style, unpacked_number(struct.unpack_from("<I", body, 8)[0])))
    elif kind in (5, 9):
        sheet.cells.append((row, column, style, struct.unpack_from("<d", body, 8)[0]))
    elif body[8] in ERRORS and column < MAX_COLUMNS:
        sheet.errors.append((row, column, ERRORS[body[8]]))
