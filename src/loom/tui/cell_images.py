"""Use of textual-image without its terminal queries, whose replies could be read as keys."""

from __future__ import annotations

import fcntl
import io
import os
import re
import struct
import sys
import termios
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator

_DEFAULT_CELL: Final = (10, 20)
_SIXELS: Final = re.compile(r'(\x1bP[0-9;]*q(?:"[0-9;]*)?)([^\x1b]*)')
_COLOR: Final = re.compile(r"#([0-9]+)(;2;[0-9]+;[0-9]+;[0-9]+)")


def cell_size() -> tuple[int, int]:
    """Return the size of a character cell in pixels, from the window size that the system reports, without a query to
    the terminal."""
    try:
        packed = fcntl.ioctl(sys.__stdout__ or 1, termios.TIOCGWINSZ, bytes(8))
    except (OSError, ValueError, io.UnsupportedOperation):
        return _DEFAULT_CELL
    rows, columns, width, height = struct.unpack("HHHH", packed)
    if not (rows and columns and width >= columns and height >= rows):
        return _DEFAULT_CELL
    return width // columns, height // rows


def define_colors_first(text: str) -> str:
    """Return `text` with the color definitions of Sixel images moved before the first pixel: xterm draws pixels before
    a later definition in a wrong color."""
    return _SIXELS.sub(_move_colors, text)


def _move_colors(found: re.Match[str]) -> str:
    colors = dict.fromkeys(_COLOR.findall(found[2]))
    definitions = "".join(f"#{number}{value}" for number, value in colors)
    return found[1] + definitions + _COLOR.sub(r"#\1", found[2])


@contextmanager
def import_quietly() -> Generator[None]:
    """Prevent terminal queries while textual-image is imported in this context: Textual or the shell would read the
    replies as keys. The library sends no query if stdout is not a terminal."""
    stdout = sys.__stdout__
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        sys.__stdout__ = nowhere
        try:
            from textual_image import _terminal

            # The library caches the cell size on its function; set it here, so that it sends no query for it later.
            yield
            sys.__stdout__ = stdout
            vars(_terminal.get_cell_size)["_result"] = _terminal.CellSize(*cell_size())
        finally:
            sys.__stdout__ = stdout
