"""The image library without its questions: textual-image asks the terminal what it can do, and Loom must not."""

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
    """Return the pixels of a character, as the terminal reports them without being asked."""
    try:
        packed = fcntl.ioctl(sys.__stdout__ or 1, termios.TIOCGWINSZ, bytes(8))
    except (OSError, ValueError, io.UnsupportedOperation):
        return _DEFAULT_CELL
    rows, columns, width, height = struct.unpack("HHHH", packed)
    if not (rows and columns and width >= columns and height >= rows):
        return _DEFAULT_CELL
    return width // columns, height // rows


def define_colors_first(text: str) -> str:
    """Return a text whose Sixel images define their colours before the first pixel, and not where each is first used:
    xterm draws what is above a later definition in a wrong colour."""
    return _SIXELS.sub(_move_colors, text)


def _move_colors(found: re.Match[str]) -> str:
    colors = dict.fromkeys(_COLOR.findall(found[2]))
    definitions = "".join(f"#{number}{value}" for number, value in colors)
    return found[1] + definitions + _COLOR.sub(r"#\1", found[2])


@contextmanager
def import_quietly() -> Generator[None]:
    """Import textual-image within this: it asks the terminal questions when it is imported, and Textual or the shell
    would read the replies as keys. It asks nothing where stdout is not a terminal."""
    stdout = sys.__stdout__
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        sys.__stdout__ = nowhere
        try:
            from textual_image import _terminal

            # The library caches the size of a cell on its function; it must not ask the terminal for it later, either.
            yield
            sys.__stdout__ = stdout
            vars(_terminal.get_cell_size)["_result"] = _terminal.CellSize(*cell_size())
        finally:
            sys.__stdout__ = stdout
