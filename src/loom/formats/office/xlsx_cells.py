"""Cells of an .xlsx sheet, one row at a time, with content that calamine leaves out or cannot store.

calamine is ten times faster, but returns errors (`#N/A`) and formulas without a stored value as empty cells, and
allocates the whole area of a sheet, so that two cells far apart need terabytes. This reader keeps only the rows that
are shown.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Final

import msgspec

from loom.formats.office.ooxml import R_ID, Package
from loom.formats.office.sheet_display import NumberStyles, column_number, number_styles
from loom.formats.office.sheet_rows import MAX_COLUMNS, Cell
from loom.formats.office.xml_names import Attributes, value
from loom.formats.office.xml_reader import XmlReader, whole_number

_PREFIX: Final = re.compile(rb"<([A-Za-z]\w*):worksheet[\s>]")
"""As the OpenXML SDK writes a sheet: `<x:worksheet>`."""
_LONGEST_HEAD: Final = 4096
_FIRST_CELL: Final = re.compile(rb"<c[\s/>][^<]*")
_ADDRESS: Final = re.compile(rb"""\sr=["']""")
_ERROR: Final = b't="e"'
_FORMULA: Final = b"<f"
_WITHOUT_VALUE: Final = re.compile(rb"/f>(?:</c>|<v/>|<v></v>|<v />)")
_EMPTY_VALUE: Final = b"/f><v></v>"
_CELL: Final = b"<c "
_LONGEST_FORMULA: Final = 65_536
"""In bytes; Excel allows 8192 characters."""
_TEXT_RESULT: Final = b't="str"'
_EMPTY_AT_THE_END: Final = b"/></c>"
_SHARED_WITHOUT_VALUE: Final = re.compile(rb"<f [^<>]*/></c>")
_TEXT: Final = "str"
_ESCAPED: Final = re.compile(r"_x(?![Dd][89A-Fa-f])([0-9A-Fa-f]{4})_")
"""Surrogates (D800 to DFFF) are not characters."""
_PLACE: Final = re.compile(r"([A-Z]{1,3})([0-9]{1,7})")
_WORKBOOK_TAGS: Final = ("x:workbookPr", "x:sheet")
_KINDS: Final = {"chartsheet": "chart", "dialogsheet": "dialog", "xlMacrosheet": "macros", "xlIntlMacrosheet": "macros"}
_STYLE_TAGS: Final = ("x:numFmt", "x:cellXfs", "x:xf")


class SheetRow(msgspec.Struct, frozen=True):
    """A row with its number and the first and last column that are not empty, all counted from 0.

    `cells` begin with column 0; `more` counts those beyond the last shown column.
    """

    number: int
    cells: list[Cell]
    more: int
    first: int
    last: int


class SheetPart(msgspec.Struct, frozen=True):
    """`kind` is empty for a sheet of cells, otherwise `chart`, `macros` or `dialog`."""

    name: str
    part: str
    kind: str
    is_hidden: bool


def sheet_parts(package: Package) -> tuple[list[SheetPart], bool]:
    """Return the sheets in the order of their tabs, and whether dates count from 1904."""
    main = package.main_part("xl/workbook.xml")
    root = package.tree(main, tags=_WORKBOOK_TAGS)
    parts: list[SheetPart] = []
    for node in root.all("x:sheet"):
        relation_id = value(node.attributes, R_ID)
        relation = package.relations(main).get(relation_id)
        kind = _KINDS.get(relation.kind, "") if relation else ""
        is_hidden = node.get("state") in ("hidden", "veryHidden")
        parts.append(SheetPart(node.get("name"), package.target(main, relation_id), kind, is_hidden))
    return parts, any(node.get("date1904") in ("1", "true") for node in root.all("x:workbookPr"))


def needs_care(package: Package, part: str) -> bool:
    """Return whether a sheet has errors, formulas without a stored value, or cells without an address."""
    data = package.archive.read(part)
    if (prefix := _PREFIX.search(data, 0, _LONGEST_HEAD)) is not None:
        data = data.replace(b"<%b:" % prefix[1], b"<").replace(b"</%b:" % prefix[1], b"</")
    if (cell := _FIRST_CELL.search(data)) is not None and _ADDRESS.search(cell[0]) is None:
        return True
    return _ERROR in data or (_FORMULA in data and _has_formula_alone(data))


def _has_formula_alone(data: bytes) -> bool:
    """Return whether a formula has no stored value. Two searches that begin with a rare word take a third of the time
    of one."""
    if any(not _is_empty_text(data, found) for found in _WITHOUT_VALUE.finditer(data)):
        return True
    return _EMPTY_AT_THE_END in data and _SHARED_WITHOUT_VALUE.search(data) is not None


def _is_empty_text(data: bytes, found: re.Match[bytes]) -> bool:
    """Return whether the stored value of a formula is an empty text."""
    if found[0] != _EMPTY_VALUE:
        return False
    cell = data.rfind(_CELL, max(0, found.start() - _LONGEST_FORMULA), found.start())
    return cell >= 0 and _TEXT_RESULT in data[cell : data.find(b">", cell)]


class Workbook:
    """The shared data of the sheets of a workbook: strings and number formats."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.sheets, is_1904 = sheet_parts(package)
        main = package.main_part("xl/workbook.xml")
        self._strings = _Strings()
        for part in package.related_parts(main, "sharedStrings")[:1]:
            package.read(part, self._strings.xml)
        styles = package.related_parts(main, "styles")
        root = package.tree(styles[0], tags=_STYLE_TAGS) if styles else None
        self.styles = number_styles(root, is_1904=is_1904)

    def read(self, sheet: SheetPart, row: Callable[[SheetRow], None]) -> None:
        """Call `row` for each row that is not empty."""
        self.package.read(sheet.part, _Cells(self, row).xml)

    def string(self, index: str) -> str:
        return self._strings.found[whole_number(index)]

    def number(self, text: str, style: str) -> Cell:
        number = float(text)
        shown = self.styles.display(number, whole_number(style))
        return number if shown is None else shown


def workbook_styles(package: Package) -> NumberStyles:
    """Return the number formats of a workbook, without its cells and strings."""
    styles = package.related_parts(package.main_part("xl/workbook.xml"), "styles")
    root = package.tree(styles[0], tags=_STYLE_TAGS) if styles else None
    return number_styles(root, is_1904=sheet_parts(package)[1])


class _Strings:
    def __init__(self) -> None:
        self.found: list[str] = []
        self._pieces: list[str] = []
        self.xml = XmlReader(
            {},
            {"x:si": self._end},
            opens={"x:si": self._start, "x:rPh": self._skip_element},
            words={"x:t": self._say},
            skipped=("x:rPh",),
        )

    def _start(self) -> None:
        self._pieces = []

    def _end(self) -> None:
        self.found.append(_unescape("".join(self._pieces)))

    def _say(self, text: str) -> None:
        self._pieces.append(text)

    def _skip_element(self) -> None:
        self.xml.skip()


class _Cells:
    """Reads one sheet. Cells and rows without an address follow the previous one."""

    def __init__(self, workbook: Workbook, row: Callable[[SheetRow], None]) -> None:
        self._workbook = workbook
        self._give = row
        self._row = -1
        self._column = -1
        self._cells: list[Cell] = []
        self._more = 0
        self._first = self._last = -1
        self._kind = ""
        self._style = ""
        self._value: list[str] = []
        self._formula: list[str] = []
        self.xml = XmlReader(
            {"x:row": self._start_row, "x:c": self._start_cell},
            {"x:row": self._end_row, "x:c": self._end_cell},
            opens={"x:rPh": self._skip_element},
            words={"x:v": self._say, "x:t": self._say, "x:f": self._say_formula},
            skipped=("x:rPh",),
        )

    def _start_row(self, attributes: Attributes) -> None:
        self._row = whole_number(attributes.get("r", ""), self._row + 2) - 1
        self._column = -1
        self._cells = []
        self._more = 0
        self._first = self._last = -1

    def _end_row(self) -> None:
        if self._last >= 0:
            self._give(SheetRow(self._row, self._cells, self._more, self._first, self._last))

    def _start_cell(self, attributes: Attributes) -> None:
        match = _PLACE.fullmatch(attributes.get("r", ""))
        self._column = column_number(match[1]) if match else self._column + 1
        self._kind = attributes.get("t", "n")
        self._style = attributes.get("s", "")
        self._value = []
        self._formula = []

    def _say(self, text: str) -> None:
        self._value.append(text)

    def _say_formula(self, text: str) -> None:
        self._formula.append(text)

    def _skip_element(self) -> None:
        self.xml.skip()

    def _end_cell(self) -> None:
        text = "".join(self._value)
        if text or (self._value and self._kind == _TEXT):
            found = self._cell_value(text)
        else:
            found = "".join(("=", *self._formula)) if self._formula else ""
        if found == "":
            return
        if self._last < 0 or self._column < self._first:
            self._first = self._column
        self._last = max(self._last, self._column)
        if self._column >= MAX_COLUMNS:
            self._more += 1
            return
        self._cells.extend([None] * (self._column - len(self._cells)))
        self._cells[self._column :] = [found]

    def _cell_value(self, text: str) -> Cell:
        match self._kind:
            case "s":
                return self._workbook.string(text)
            case "b":
                return text.strip() in ("1", "true")
            case "n":
                return self._workbook.number(text, self._style)
            case "d":
                return _day(text)
            case _:
                return _unescape(text)


def _unescape(text: str) -> str:
    """Decode characters that XML cannot represent, which texts contain as `_x000D_`."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text) if "_x" in text else text


def _day(text: str) -> Cell:
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        return text
