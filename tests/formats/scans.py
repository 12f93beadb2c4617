"""Scans that are drawn here: known words in one or two columns, skewed, with the grain of paper."""

from __future__ import annotations

import difflib
import io
import re
from functools import cache

from PIL import Image, ImageChops, ImageDraw, ImageFont

WORDS = tuple(
    re.findall(
        "[a-z]+",
        """
        the river carried small boats past old stone houses while children counted lanterns along narrow streets and
        merchants folded heavy cloth under painted signs because evening rain had begun over green hills near market
        square where every window showed warm light before people walked home with bread apples candles letters maps
        some travellers stopped beside wooden bridges listening for distant bells others watched silver fish turning
        below dark water until morning brought clear skies again across quiet fields
        """,
    )
)


def _lines(words: list[str], font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    lines, line = [], ""
    for word in words:
        longer = f"{line} {word}".strip()
        if font.getlength(longer) > width:
            lines.append(line)
            line = word
        else:
            line = longer
    return [*lines, line]


@cache
def scan(degrees: float, columns: int, lines_each: int = 24) -> tuple[bytes, str]:
    """The picture of a page, and its words in the order in which they are read."""
    font = ImageFont.load_default(30)
    width, height, margin, gap = 1240, 340 + 44 * lines_each, 110, 70
    page = Image.new("L", (width, height), 246)
    draw = ImageDraw.Draw(page)
    draw.text((margin, 90), "Notes from the river", fill=20, font=ImageFont.load_default(52))
    column = (width - 2 * margin - (columns - 1) * gap) // columns
    texts = ["Notes from the river"]
    for at in range(columns):
        words = [WORDS[(n * (7 + 4 * at) + at * 13) % len(WORDS)] for n in range(150)]
        lines = _lines(words, font, column)[:lines_each]
        for number, line in enumerate(lines):
            draw.text((margin + at * (column + gap), 220 + number * 44), line, fill=25, font=font)
        texts.append(" ".join(lines))
    page = page.rotate(degrees, Image.Resampling.BICUBIC, expand=False, fillcolor=246)
    page = ImageChops.add(page, Image.effect_noise(page.size, 12), scale=1.0, offset=-128)
    file = io.BytesIO()
    page.save(file, "PNG", compress_level=1)
    return file.getvalue(), " ".join(texts)


def order_score(found: str, wanted: str) -> float:
    """How much of the wanted sequence of words is there, in its order (1: all of it and nothing else)."""
    one, other = (re.findall(r"[a-z]+", text.lower()) for text in (wanted, found))
    return difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()
