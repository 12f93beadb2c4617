"""The parts of .xls workbooks that calamine does not read: number formats, merged cells, hidden rows and columns, and
locks.

BIFF is a list of records: a number, a length, that many bytes. Only the relevant records are read; damage ends the
list, and the values of calamine are used unchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from loom.formats.office.number_formats import BUILT_IN, GENERAL
from loom.formats.office.sheet_display import NumberStyles, PlacedText, described_layout
from loom.formats.office.sheet_rows import MAX_COLUMNS, area
from loom.formats.ole import MAGIC, OleError, OleFile

_BOF8, _EOF, _FILEPASS = 0x0809, 0x000A, 0x002F
_BIFF5: Final = 0x0500
_BIFF8: Final = 0x0600
_MAX_RECORDS: Final = 5_000_000
_CELL_RECORDS: Final = frozenset((0x0006, 0x00BD, 0x00FD, 0x0201, 0x0203, 0x0204, 0x0205, 0x027E))
_IGNORED_RECORD: Final = 0x08FF
_NO_NUMBER: Final = b"\xff\xff"
"""Stored in place of the number of a formula, if its result is a text, an error or a boolean."""
_LAST_COLUMN: Final = 255
ERRORS: Final = {0: "#NULL!", 7: "#DIV/0!", 15: "#VALUE!", 23: "#REF!", 29: "#NAME?", 36: "#NUM!", 42: "#N/A"}


class BiffSheet(msgspec.Struct):
    cells: list[tuple[int, int, int, float]]
    """Row, column, cell style, number."""
    errors: list[PlacedText]
    merged: list[str]
    hidden_rows: list[int]
    hidden_columns: list[int]

    def layout(self) -> list[str]:
        return described_layout(self.merged, self.hidden_rows, self.hidden_columns)


class BiffBook(msgspec.Struct, frozen=True):
    styles: NumberStyles
    sheets: list[BiffSheet]

    def displayed_cells(self, sheet: int, first_row: int, last_row: int) -> list[PlacedText]:
        """Return the cells whose displayed text differs from their bare value; rows count from 0."""
        if sheet >= len(self.sheets):
            return []
        placed = [found for found in self.sheets[sheet].errors if first_row <= found[0] <= last_row]
        for row, column, style, number in self.sheets[sheet].cells:
            if first_row <= row <= last_row and column < MAX_COLUMNS:
                shown = self.styles.display(number, style)
                if shown is not None:
                    placed.append((row, column, shown))
        return placed


def read_biff(data: bytes) -> BiffBook | None:
    """Return the workbook, or None if there is none in a supported version (BIFF 5 and 8, Excel 5.0 and
    later)."""
    stream = _workbook_stream(data)
    if stream is None:
        return None
    return _read(stream)


def is_locked(data: bytes) -> bool:
    """Return whether a workbook of any BIFF version has a password."""
    stream = _workbook_stream(data)
    if stream is None:
        return False
    for kind, _ in _records(stream, 0):
        if kind == _FILEPASS:
            return True
        if kind == _EOF:
            return False
    return False


def without_chart_cells(data: bytes) -> bytes:
    """Return the workbook without the numbers that its embedded charts repeat: calamine reads them as cells of the
    sheet around the chart."""
    stream = _workbook_stream(data)
    if stream is None or not data.startswith(MAGIC):
        return data
    changed: bytearray | None = None
    at = depth = 0
    for kind, body in _records(stream, 0):
        if kind == _BOF8:
            depth += 1
        elif kind == _EOF:
            depth = max(0, depth - 1)
        elif depth > 1 and kind in _CELL_RECORDS:
            changed = changed or bytearray(stream)
            struct.pack_into("<H", changed, at, _IGNORED_RECORD)
        at += 4 + len(body)
    if changed is None:
        return data
    try:
        container = OleFile(data)
        name = next(name for name in ("Workbook", "Book") if (name,) in container)
        return container.replace(bytes(changed), name)
    except OleError:
        return data


def _workbook_stream(data: bytes) -> bytes | None:
    if not data.startswith(MAGIC):
        return data if data[:2] in (b"\x09\x08", b"\x09\x04", b"\x09\x02", b"\x09\x00") else None
    try:
        container = OleFile(data)
        return next((container.read(name) for name in ("Workbook", "Book") if (name,) in container), None)
    except OleError:
        return None


def _records(stream: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    for _ in range(_MAX_RECORDS):
        if at + 4 > len(stream):
            return
        kind, size = struct.unpack_from("<HH", stream, at)
        yield kind, stream[at + 4 : at + 4 + size]
        at += 4 + size


def _read(stream: bytes) -> BiffBook | None:
    version = struct.unpack_from("<HHH", stream)[2] if len(stream) >= 8 else 0
    if version not in (_BIFF5, _BIFF8):
        return None
    formats: dict[int, str] = {}
    styles: list[int] = []
    offsets: list[int] = []
    is_1904 = False
    for kind, body in _records(stream, 0):
        try:
            match kind:
                case 0x002F:  # FILEPASS
                    return BiffBook(NumberStyles((), is_1904=False), [])
                case 0x0022:  # DATEMODE
                    is_1904 = body[:1] == b"\1"
                case 0x041E:  # FORMAT
                    number, code = _format(body, version)
                    formats[number] = code
                case 0x00E0:  # XF
                    styles.append(struct.unpack_from("<H", body, 2)[0])
                case 0x0085:  # BOUNDSHEET
                    offsets.append(struct.unpack_from("<I", body)[0])
                case 0x000A:  # EOF
                    break
                case _:
                    continue
        except struct.error:
            continue
    codes = tuple(formats.get(number) or BUILT_IN.get(number, GENERAL) for number in styles)
    sheets = [_sheet(stream, offset) for offset in offsets]
    return BiffBook(NumberStyles(codes, is_1904), sheets)


def _format(body: bytes, version: int) -> tuple[int, str]:
    if version == _BIFF5:
        number, length = struct.unpack_from("<HB", body)
        return number, body[3 : 3 + length].decode("latin-1")
    number, length, flags = struct.unpack_from("<HHB", body)
    if flags & 1:
        return number, body[5 : 5 + 2 * length].decode("utf-16-le", "replace")
    return number, body[5 : 5 + length].decode("latin-1")


def _sheet(stream: bytes, offset: int) -> BiffSheet:
    sheet = BiffSheet([], [], [], [], [])
    depth = 0
    for kind, body in _records(stream, offset):
        if kind == _BOF8:
            depth += 1
        elif kind == _EOF:
            depth -= 1
            if depth <= 0:
                break
        elif depth == 1:
            try:
                _record(sheet, kind, body)
            except struct.error:
                continue
    return sheet


def _record(sheet: BiffSheet, kind: int, body: bytes) -> None:
    match kind:
        case 0x0203:  # NUMBER
            sheet.cells.append(struct.unpack_from("<HHHd", body))
        case 0x0006 if body[12:14] != _NO_NUMBER:  # FORMULA
            sheet.cells.append(struct.unpack_from("<HHHd", body))
        case 0x0006 if body[6:7] == b"\2":  # FORMULA whose result is an error
            _add_error(sheet, body, body[8])
        case 0x0205 if body[7:8] == b"\1":  # BOOLERR
            _add_error(sheet, body, body[6])
        case 0x027E:  # RK
            row, column, style, packed = struct.unpack_from("<HHHI", body)
            sheet.cells.append((row, column, style, unpacked_number(packed)))
        case 0x00BD:  # MULRK
            row, column = struct.unpack_from("<HH", body)
            for place in range((len(body) - 6) // 6):
                style, packed = struct.unpack_from("<HI", body, 4 + 6 * place)
                sheet.cells.append((row, column + place, style, unpacked_number(packed)))
        case 0x0208:  # ROW
            row, flags = struct.unpack_from("<H", body)[0], struct.unpack_from("<I", body, 12)[0]
            if flags & 0x20:
                sheet.hidden_rows.append(row)
        case 0x007D:  # COLINFO
            first, last, _, _, flags = struct.unpack_from("<HHHHH", body)
            if flags & 1:
                sheet.hidden_columns.extend(range(first, min(last, _LAST_COLUMN) + 1))
        case 0x00E5:  # MERGEDCELLS
            count = struct.unpack_from("<H", body)[0]
            for place in range(min(count, (len(body) - 2) // 8)):
                top, bottom, left, right = struct.unpack_from("<HHHH", body, 2 + 8 * place)
                sheet.merged.append(area((top, left), (bottom, right)))
        case _:
            return


def _add_error(sheet: BiffSheet, body: bytes, number: int) -> None:
    row, column = struct.unpack_from("<HH", body)
    if number in ERRORS and column < MAX_COLUMNS:
        sheet.errors.append((row, column, ERRORS[number]))


def unpacked_number(packed: int) -> float:
    """Decode an RK number: 30 bits, an integer or the upper half of a double, possibly times a hundred."""
    if packed & 2:
        value = float(struct.unpack("<i", struct.pack("<I", packed & 0xFFFFFFFC))[0] >> 2)
    else:
        value = struct.unpack("<d", struct.pack("<Q", (packed & 0xFFFFFFFC) << 32))[0]
    return value / 100 if packed & 1 else value
