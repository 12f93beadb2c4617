"""Tables of a Word document while they are read: rows of cells, merged cells, frames around text, nested tables."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from loom.formats.office import text_marks
from loom.formats.office.xml_names import Attributes, keys, value
from loom.formats.office.xml_reader import whole_number

_W_VAL: Final = keys("w:val")
_MAX_SPAN: Final = 63


class Grid(msgspec.Struct, frozen=True):
    """A finished table: Markdown lines in the text, or one line per row inside the cell of another table."""

    rows: list[list[str]]


CellBlock: TypeAlias = str | Grid


def table_lines(blocks: list[CellBlock]) -> list[str]:
    lines: list[str] = []
    for block in blocks:
        lines.extend((block,) if isinstance(block, str) else ("", *text_marks.table(block.rows), ""))
    return lines


def _cell_text(blocks: list[CellBlock]) -> str:
    if len(blocks) == 1 and isinstance(blocks[0], str):
        return text_marks.cell(blocks[0])
    lines: list[str] = []
    for block in blocks:
        inner = (block,) if isinstance(block, str) else ["; ".join(filter(None, row)) for row in block.rows]
        lines.extend(line.strip("\n") for line in inner)
    return text_marks.cell("\n".join(lines))


class _Table:
    __slots__ = ("is_continued", "is_row_deleted", "plain", "row", "rows", "span")

    def __init__(self) -> None:
        self.rows: list[list[str]] = []
        self.row: list[str] = []
        self.plain: list[CellBlock] | None = []
        """The content of a table of one column (it is a frame around text); None once there are more columns."""
        self.span = 1
        self.is_continued = False
        self.is_row_deleted = False


class Tables:
    """The tables that are open at this point of the document, innermost last."""

    def __init__(self) -> None:
        self._open: list[_Table] = []
        self.in_row_properties = False

    def start(self) -> None:
        self._open.append(_Table())

    def end(self) -> list[CellBlock]:
        table = self._open.pop()
        if table.plain is not None:
            return table.plain
        return [Grid(table.rows)]

    def start_row(self) -> None:
        table = self._open[-1]
        table.row = []
        table.is_row_deleted = False

    def end_row(self) -> None:
        table = self._open[-1]
        if not table.is_row_deleted and table.row:
            table.rows.append(table.row)

    def start_row_properties(self) -> None:
        self.in_row_properties = True

    def end_row_properties(self) -> None:
        self.in_row_properties = False

    def delete_row(self) -> None:
        self._open[-1].is_row_deleted = True

    def grid_before(self, attributes: Attributes) -> None:
        self._open[-1].row.extend([""] * _span(attributes, 0))

    def start_cell(self) -> None:
        table = self._open[-1]
        table.span = 1
        table.is_continued = False

    def grid_span(self, attributes: Attributes) -> None:
        self._open[-1].span = _span(attributes, 1)

    def merge(self, attributes: Attributes) -> None:
        """Show a cell that continues the one above or before it as empty, so that columns stay aligned."""
        self._open[-1].is_continued = value(attributes, _W_VAL) != "restart"

    def end_cell(self, blocks: list[CellBlock]) -> None:
        table = self._open[-1]
        is_first = not table.row
        table.row.append("" if table.is_continued else _cell_text(blocks))
        table.row.extend([""] * (table.span - 1))
        if not is_first:
            table.plain = None
        elif table.plain is not None and not table.is_row_deleted:
            table.plain.extend(blocks)


def _span(attributes: Attributes, default: int) -> int:
    return whole_number(value(attributes, _W_VAL), default, most=_MAX_SPAN)
