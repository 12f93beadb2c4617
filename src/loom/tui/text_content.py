"""Text as Textual content: model output, commands and diffs. None of it is read as markup or escape sequences."""

from __future__ import annotations

import re
from typing import Final

from textual.content import Content

from loom.content.terminal_safe import safe_text

_INVISIBLE: Final = re.compile("[\u202a-\u202e\u2066-\u2069\u200b-\u200f\u2060\ufeff]")
_HUNK: Final = re.compile(r"^@@ -\d+(,\d+)? \+\d+(,\d+)? @@", re.MULTILINE)


def plain_text(text: str, style: str = "") -> Content:
    """Return text to show unchanged."""
    return Content.styled(safe_text(text), style) if style else Content(safe_text(text))


def visible_text(text: str) -> str:
    """Return text with invisible characters made visible, so that the user approves exactly what runs."""
    return _INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", safe_text(text))


def one_line(text: str, width: int) -> str:
    """Return the beginning of a text on one line."""
    line = _INVISIBLE.sub("", safe_text(" ".join(text.split())))
    return line if len(line) <= width else line[: max(width - 1, 0)].rstrip() + "…"


def is_diff(text: str) -> bool:
    return _HUNK.search(text) is not None


def diff_content(text: str) -> Content:
    """Return a unified diff with colored lines; the signs stay."""
    lines = [plain_text(line, _line_style(line)) for line in visible_text(text).rstrip("\n").split("\n")]
    return Content("\n").join(lines)


def _line_style(line: str) -> str:
    match line[:1]:
        case "+":
            return "$text-muted" if line.startswith("+++") else "$success"
        case "-":
            return "$text-muted" if line.startswith("---") else "$error"
        case "@":
            return "$secondary"
        case _:
            return "$text-muted"


def sentence_of(message: str, hint: str) -> str:
    """Return a message and its hint as sentences."""
    message = message.strip()
    stop = "" if message.endswith((".", "!", "?", "…")) else "."
    return f"{message}{stop} {hint}".strip()
