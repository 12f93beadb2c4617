"""The reading order of text boxes: columns are kept apart and lines together, also on a skewed page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

_COLUMN_GAP_HEIGHTS: Final = 1.5
"""A gap between columns is wider than this many line heights; a gap between words is narrower."""


_LEAST_IN_COLUMN: Final = 3
_MOST_CROSSING: Final = 0.2
"""A share of all pieces: if more of them cross a gap, it is not a gap between columns."""


class Word(msgspec.Struct, frozen=True):
    """A piece of text and its box, in pixels from the top left."""

    text: str
    left: float
    top: float
    right: float
    bottom: float

    @property
    def middle(self) -> float:
        return (self.top + self.bottom) / 2


Quad: TypeAlias = Sequence[Sequence[float]]
"""The corners of a piece of text: top left, top right, bottom right, bottom left."""
_WIDE: Final = 4.0
"""Pieces of text this many times wider than high give the angle of a page; shorter ones are measured too roughly."""
_MOST_SKEWED: Final = math.radians(20)


def straighten(pieces: Sequence[tuple[str, Quad]]) -> list[Word]:
    """Rotate the corners of all pieces back by the skew angle of the page, and return upright boxes.

    Boxes around skewed lines overlap one another and close the gap between columns.
    """
    angle = skew([quad for _, quad in pieces])
    cosine, sine = math.cos(-angle), math.sin(-angle)
    words: list[Word] = []
    for text, quad in pieces:
        turned = [(x * cosine - y * sine, x * sine + y * cosine) for x, y in quad]
        left, right = sorted(((turned[0][0] + turned[3][0]) / 2, (turned[1][0] + turned[2][0]) / 2))
        top, bottom = sorted(((turned[0][1] + turned[1][1]) / 2, (turned[2][1] + turned[3][1]) / 2))
        words.append(Word(text, left, top, right, bottom))
    return words


def skew(quads: Sequence[Quad]) -> float:
    """Return the angle of the text in radians: the median over wide pieces, each weighted by its width."""
    measured: list[tuple[float, float]] = []
    for top_left, top_right, bottom_right, bottom_left in quads:
        across = (top_right[0] + bottom_right[0] - top_left[0] - bottom_left[0]) / 2
        down = (top_right[1] + bottom_right[1] - top_left[1] - bottom_left[1]) / 2
        height = math.dist(top_left, bottom_left)
        if across > _WIDE * height > 0:
            measured.append((math.atan2(down, across), across))
    half = sum(width for _, width in measured) / 2
    for angle, width in sorted(measured):
        half -= width
        if half <= 0:
            return angle if abs(angle) <= _MOST_SKEWED else 0.0
    return 0.0


def in_reading_order(words: list[Word]) -> str:
    """Return the text with one line for each line of words, and an empty line between columns and blocks."""
    if not words:
        return ""
    heights = sorted(word.bottom - word.top for word in words)
    height = max(1.0, heights[len(heights) // 2])
    return "\n\n".join(_lines(block) for block in _blocks(words, height))


def _blocks(words: list[Word], height: float) -> list[list[Word]]:
    """Split at the gaps that cross all words, horizontal gaps first, then vertical, until there is none left."""
    rows = _cut([(word.top, word.bottom, word) for word in words], 1.5 * height)
    if len(rows) > 1:
        return [block for row in rows for block in _blocks(row, height)]
    columns = _cut([(word.left, word.right, word) for word in words], _COLUMN_GAP_HEIGHTS * height)
    if len(columns) > 1 and all(len(column) > 1 for column in columns):
        return [block for column in columns for block in _blocks(column, height)]
    spanned = _under_headings(words, _COLUMN_GAP_HEIGHTS * height)
    return [words] if spanned is None else [block for part in spanned for block in _blocks(part, height)]


def _under_headings(words: list[Word], gap: float) -> list[list[Word]] | None:
    """Return columns that a few pieces cross, such as a heading close above them: those pieces divide the page into
    bands.

    Return None if there are no such columns.
    """
    best: tuple[int, float] | None = None
    for word in words:
        middle = word.right + gap / 2
        crossing = sum(other.left < middle < other.right for other in words)
        if best is None or crossing < best[0]:
            right = sum(other.left >= middle for other in words)
            is_clear = all(other.left >= word.right + gap or other.left < middle for other in words)
            if is_clear and right >= _LEAST_IN_COLUMN and len(words) - right - crossing >= _LEAST_IN_COLUMN:
                best = crossing, middle
    if best is None or not 0 < best[0] <= len(words) * _MOST_CROSSING:
        return None
    middle = best[1]
    crossing = sorted((word for word in words if word.left < middle < word.right), key=lambda word: word.middle)
    rest = [word for word in words if word not in crossing]
    parts: list[list[Word]] = []
    for heading in crossing:
        parts.append([word for word in rest if word.middle < heading.middle])
        parts.append([heading])
        rest = [word for word in rest if word.middle >= heading.middle]
    return [part for part in (*parts, rest) if part]


def _cut(spans: list[tuple[float, float, Word]], gap: float) -> list[list[Word]]:
    groups: list[list[Word]] = []
    reach = float("-inf")
    for start, end, word in sorted(spans, key=lambda span: span[0]):
        if start - reach > gap:
            groups.append([])
        groups[-1].append(word)
        reach = max(reach, end)
    return groups


def _lines(words: list[Word]) -> str:
    """Join words to lines: a word whose middle is within the current line belongs to it."""
    lines: list[list[Word]] = []
    for word in sorted(words, key=lambda word: word.middle):
        if lines and word.top < lines[-1][-1].middle < word.bottom and lines[-1][-1].top < word.middle:
            lines[-1].append(word)
        else:
            lines.append([word])
    return "\n".join(" ".join(word.text for word in sorted(line, key=lambda word: word.left)) for line in lines)
