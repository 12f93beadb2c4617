"""The order in which boxes of words are read: columns apart, lines together."""

from __future__ import annotations

from typing import Final

import msgspec

_COLUMN_GAP_HEIGHTS: Final = 1.5
"""A gap between columns is wider than this many line heights; one between words is narrower."""


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


def in_reading_order(words: list[Word]) -> str:
    """Text with a line for each line, and an empty line between columns and blocks."""
    if not words:
        return ""
    heights = sorted(word.bottom - word.top for word in words)
    height = max(1.0, heights[len(heights) // 2])
    return "\n\n".join(_lines(block) for block in _blocks(words, height))


def _blocks(words: list[Word], height: float) -> list[list[Word]]:
    """Cut at the gaps that go all the way through, across first, then down, until there is none left."""
    rows = _cut([(word.top, word.bottom, word) for word in words], 1.5 * height)
    if len(rows) > 1:
        return [block for row in rows for block in _blocks(row, height)]
    columns = _cut([(word.left, word.right, word) for word in words], _COLUMN_GAP_HEIGHTS * height)
    if len(columns) > 1 and all(len(column) > 1 for column in columns):
        return [block for column in columns for block in _blocks(column, height)]
    return [words]


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
    """A word whose middle lies within the line so far belongs to it."""
    lines: list[list[Word]] = []
    for word in sorted(words, key=lambda word: word.middle):
        if lines and word.top < lines[-1][-1].middle < word.bottom and lines[-1][-1].top < word.middle:
            lines[-1].append(word)
        else:
            lines.append([word])
    return "\n".join(" ".join(word.text for word in sorted(line, key=lambda word: word.left)) for line in lines)
