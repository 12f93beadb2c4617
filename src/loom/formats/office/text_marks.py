"""Documents as plain text: the markers that every reader of office files writes in the same way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

_SPACE_RUN: Final = re.compile(r"[ \t\r\f\v]+")
_LINK_SCHEMES: Final = ("http://", "https://", "mailto:")
_MAX_LINK: Final = 500
_BLANK_LINES: Final = re.compile(r"\n{3,}")


def picture_mark(number: int | None, alt: str) -> str:
    """Return `[image 2: a red barn]`. The number is the argument of `look`; an image that cannot be shown has
    none."""
    head = "[image" if number is None else f"[image {number}"
    words = one_line(alt)
    return f"{head}: {words}]" if words else f"{head}]"


def is_web_address(target: str) -> bool:
    """Return whether a link target is a web page or a mailbox, and short enough to be shown."""
    return target.startswith(_LINK_SCHEMES) and len(target) <= _MAX_LINK


def link(target: str, shown: str) -> str:
    """Return the text that follows a link: its target, unless the link text contains it."""
    is_said = target.removeprefix("mailto:").rstrip("/") in shown
    return f" ({target})" if shown and not is_said and is_web_address(target) else ""


def one_line(text: str) -> str:
    return " ".join(text.split())


def cell(text: str) -> str:
    """Return the text of a table cell on one line; a line break inside it is `<br>`, as in Markdown."""
    if text.isprintable() and "|" not in text:
        return text.strip()
    if "|" in text:
        text = text.replace("|", "\\|")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\t" in text or "  " in text:
        text = _SPACE_RUN.sub(" ", text)
    text = text.strip()
    return text.replace("\n", "<br>") if "\n" in text else text


def row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of escaped cells as Markdown lines; the line after the first row makes it a table for every
    reader."""
    kept = [cells for cells in rows if any(cells)]
    if not kept:
        return []
    width = max(map(len, kept))
    lines = [row((*cells, *[""] * (width - len(cells)))) for cells in kept]
    return [lines[0], row(["---"] * width), *lines[1:]]


def join_blocks(blocks: Iterable[str]) -> str:
    """Return the blocks, with at most one blank line between them."""
    text = "\n".join(blocks).strip("\n")
    return _BLANK_LINES.sub("\n\n", text) if "\n\n\n" in text else text


UNKNOWN_SYMBOL: Final = "\N{REPLACEMENT CHARACTER}"
