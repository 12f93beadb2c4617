"""Text that is safe to show: model output and file names hold no escapes for a terminal."""

from __future__ import annotations

from typing import Final

_HARMFUL: Final = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t\r"},
    0x7F: "␡",
    **dict.fromkeys(range(0x80, 0xA0), "\N{REPLACEMENT CHARACTER}"),
    **dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}"),
    0x0D: None,
}
"""Escapes become pictures of themselves; a carriage return, which could overwrite what was read, goes; halves of
characters, as odd file names hold them, cannot be written at all."""


def safe_text(text: str) -> str:
    """Model output and file names for a terminal: nothing in it moves the cursor, sets a title or answers a query."""
    return text.translate(_HARMFUL)
