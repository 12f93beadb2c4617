"""Line filters: change the output for terminals without color or without Unicode."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_GROUPS: Final = {
    "-": "–—‐‑─━╌▔▁▂",
    "|": "│┃╎▏▕▎▌▐",
    "+": "┌┐└┘├┤┬┴┼╭╮╰╯✔",
    "#": "█▓▊▀▄▅▆▇▣",
    ".": "…·░▒▃",
    "*": "•●",
    "o": "◐○",
    "'": "‘’",
    '"': "“”",
    "<": "«←◀",
    ">": "»→▸▶›",
    "v": "▾↓",
    "^": "↑",
    "x": "×✕",
    "!": "✖",
    "~": "≈♪",
    "=": "▤",
    "@": "◉",
}
_LIKE: Final = str.maketrans({sign: like for like, signs in _GROUPS.items() for sign in signs})


class AsciiFilter(LineFilter):
    """Draws only ASCII, also in file names and model output: signs become similar ones, letters lose their accents, and
    everything else becomes a question mark per column."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(_to_ascii(text), style, control) for text, style, control in segments]


@lru_cache(4_096)
def _to_ascii(text: str) -> str:
    if text.isascii():
        return text
    return "".join(letter if letter.isascii() else _similar_letter(letter) for letter in text.translate(_LIKE))


def _similar_letter(letter: str) -> str:
    width = cell_len(letter)
    bare = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return bare if len(bare) == width else "?" * width
