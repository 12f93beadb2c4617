"""Numbers as text, for results of tools."""

from __future__ import annotations


def count_text(number: int, noun: str, plural: str = "") -> str:
    """Return `1 file` or `2,000 files`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
