"""What the spreadsheet worker is asked and what it answers. Values only, shared by both sides."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class ListSheets(msgspec.Struct, frozen=True, tag="list"):
    """Names and kinds of all sheets."""


class ReadSheets(msgspec.Struct, frozen=True, tag="read"):
    """At most `max_rows` rows of these sheets, from row `first_row` on; sheets and rows are counted from 0.

    `displayed` has for each sheet the cells (row, column, text) that show something else than their bare value.
    """

    sheets: tuple[int, ...]
    max_rows: int
    max_characters: int
    first_row: int = 0
    displayed: tuple[tuple[tuple[int, int, str], ...], ...] = ()


SheetJob: TypeAlias = ListSheets | ReadSheets


class SheetFacts(msgspec.Struct, frozen=True):
    """`kind` is empty for a sheet of cells, and else a word: `chart`, `macros`, `dialog`."""

    name: str
    kind: str
    is_hidden: bool


class SheetText(msgspec.Struct, frozen=True):
    """The lines of a sheet; `area` is where its cells are (`B2:H120`).

    `next_row` is the first row that is not among these `rows` any more, counted from 1; None where they are the last.
    """

    text: str = ""
    area: str = ""
    rows: int = 0
    total_rows: int = 0
    next_row: int | None = None
