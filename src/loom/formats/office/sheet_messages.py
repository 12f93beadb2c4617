"""What the spreadsheet worker is asked and what it answers. Values only, shared by both sides."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class ListSheets(msgspec.Struct, frozen=True, tag="list"):
    """Names and kinds of all sheets."""


class ReadSheets(msgspec.Struct, frozen=True, tag="read"):
    """The first `max_rows` rows of these sheets, counted from 0."""

    sheets: tuple[int, ...]
    max_rows: int
    max_characters: int


SheetJob: TypeAlias = ListSheets | ReadSheets


class SheetFacts(msgspec.Struct, frozen=True):
    """`kind` is empty for a sheet of cells, and else a word: `chart`, `macros`, `dialog`."""

    name: str
    kind: str
    is_hidden: bool


class SheetText(msgspec.Struct, frozen=True):
    """The lines of a sheet; `area` is where its cells are (`B2:H120`); `is_cut`: there are more than these `rows`."""

    text: str = ""
    area: str = ""
    rows: int = 0
    total_rows: int = 0
    is_cut: bool = False
