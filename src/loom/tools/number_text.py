"""Words for numbers, as answers of tools use them."""

from __future__ import annotations


def count_text(number: int, noun: str, plural: str = "") -> str:
    """`1 file`, `2,000 files`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
