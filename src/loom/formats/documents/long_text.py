"""Texts that are too long for one message: read as a document with a range of lines on each page."""

from __future__ import annotations

from typing import Final

from loom.formats.documents.messages import ReadContext, ReadDocument
from loom.formats.text import decode_text, lines_of

PAGE_CHARS: Final = 20_000
_MAX_LINES: Final = 500


def read_long_text(data: bytes, context: ReadContext) -> ReadDocument:
    """Split a text into pages. Each page begins with its line numbers; a line longer than a page is split into
    several."""
    text, _, notices = decode_text(data, context.name)
    sections: list[str] = []
    page: list[str] = []
    size, first, number = 0, 1, 0
    for number, line in enumerate(lines_of(text), 1):
        for start in range(0, max(1, len(line)), PAGE_CHARS):
            piece = line[start : start + PAGE_CHARS]
            if page and (size + len(piece) > PAGE_CHARS or len(page) >= _MAX_LINES):
                sections.append(_page(page, first, number - (start == 0)))
                page, size, first = [], 0, number
            page.append(piece)
            size += len(piece) + 1
    sections.append(_page(page, first, number))
    return ReadDocument(sections=sections, is_paged=True, notices=notices)


def _page(lines: list[str], first: int, last: int) -> str:
    where = f"lines {first:,}–{last:,}" if last > first else f"line {first:,}"
    return "\n".join([f"[{where}]", *lines])
