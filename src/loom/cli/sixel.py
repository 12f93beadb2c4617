"""A picture as Sixel: six rows of pixels at a time, one colour after another, runs written short."""

from __future__ import annotations

import importlib
import io
import re
from collections.abc import Iterator
from typing import Any, Final

_COLOURS: Final = 128
_BAND: Final = 6
_ZERO: Final = 0x3F
_RUN: Final = re.compile(rb"(.)\1{3,}", re.DOTALL)


def sixels(png: bytes) -> str:
    """The escape sequence that draws a PNG; transparent parts lie on white, as in pictures for models."""
    pillow: Any = importlib.import_module("PIL.Image")
    with pillow.open(io.BytesIO(png)) as opened:
        image = opened.convert("RGBA")
    paper = pillow.new("RGBA", image.size, "white")
    flat = pillow.alpha_composite(paper, image).convert("RGB").quantize(_COLOURS)
    width, height = flat.size
    palette: list[int] = flat.getpalette()
    used = max(flat.tobytes(), default=0) + 1
    colours = "".join(f"#{at};2;{_shares(palette[3 * at : 3 * at + 3])}" for at in range(used))
    bands = "-".join(_bands(flat.tobytes(), width, height))
    return f'\x1bPq"1;1;{width};{height}{colours}{bands}\x1b\\'


def _shares(colour: list[int]) -> str:
    """Red, green and blue in hundredths."""
    return ";".join(str(round(value * 100 / 255)) for value in colour)


def _bands(pixels: bytes, width: int, height: int) -> Iterator[str]:
    for top in range(0, height, _BAND):
        columns: dict[int, bytearray] = {}
        for row in range(min(_BAND, height - top)):
            bit = 1 << row
            start = (top + row) * width
            for x, colour in enumerate(pixels[start : start + width]):
                if colour not in columns:
                    columns[colour] = bytearray(width)
                columns[colour][x] |= bit
        yield "$".join(f"#{colour}{_encode_band(bits)}" for colour, bits in columns.items())


def _encode_band(bits: bytearray) -> str:
    """One colour of a band: a character a column, `!12~` for twelve alike, nothing for what is empty at the end."""
    characters = bytes(value + _ZERO for value in bits.rstrip(b"\0"))
    return _RUN.sub(lambda run: b"!%d%s" % (len(run[0]), run[1]), characters).decode("ascii")
