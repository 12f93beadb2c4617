"""The requests and responses of the spreadsheet worker. Plain values only, shared by both sides."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class ListSheets(msgspec.Struct, frozen=True, tag="list"):
    """Request the names and kinds of all sheets."""


class ReadSheets(msgspec.Struct, frozen=True, tag="read"):
    """Request at most `max_rows` rows of these sheets, from row `first_row` on; sheets and rows are counted from 0.

    `displayed` has for each sheet the cells (row, column, text) whose displayed text differs from their bare value.
    """

    sheets: tuple[int, ...]
    max_rows: int
    max_characters: int
    first_row: int = 0
    displayed: tuple[tuple[tuple[int, int, str], ...], ...] = ()


SheetJob: TypeAlias = ListSheets | ReadSheets


class SheetFacts(msgspec.Struct, frozen=True):
    """`kind` is empty for a sheet of cells, otherwise `chart`, `macros` or `dialog`."""

    name: str
    kind: str
    is_hidden: bool


class SheetText(msgspec.Struct, frozen=True):
    """The lines of a sheet; `area` is the range of its cells (`B2:H120`).

    `next_row` is the first row after these `rows`, counted from 1; None if there are no more.
    """

    text: str = ""
    area: str = ""
    rows: int = 0
    total_rows: int = 0
    next_row: int | None = None
