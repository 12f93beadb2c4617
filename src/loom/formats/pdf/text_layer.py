"""Whether the text layer of a page can be read: fonts without a table of their letters give signs that mean nothing."""

from __future__ import annotations

import unicodedata
from typing import Final

_LEAST_CHARACTERS: Final = 40
"""Shorter texts tell too little."""
_SAMPLE_CHARACTERS: Final = 4_000
_MEANINGLESS: Final = frozenset(("Cc", "Cn", "Co", "Cs"))
"""Controls, unassigned, private use and halves of pairs."""
_MOST_MEANINGLESS: Final = 0.2
_LEAST_WORDLIKE: Final = 0.4
"""Letters and digits among all signs. Tables of contents with dotted lines have half."""
_VOWELS: Final = frozenset("aeiouyAEIOUY")
_LEAST_LETTERS: Final = 120
_LEAST_VOWELS: Final = 0.16
"""Of the letters of a Latin text: languages have 0.3 and more, letters that were shifted in the alphabet less."""


def is_gibberish(text: str) -> bool:
    """Return whether a text layer says nothing, so that the page is better read from its picture."""
    signs = [char for char in text[:_SAMPLE_CHARACTERS] if not char.isspace()]
    if len(signs) < _LEAST_CHARACTERS:
        return False
    count = len(signs)
    meaningless = sum(char == "\ufffd" or unicodedata.category(char) in _MEANINGLESS for char in signs)
    if meaningless > count * _MOST_MEANINGLESS:
        return True
    wordlike = sum(unicodedata.category(char)[0] in "LMN" for char in signs)
    if wordlike < count * _LEAST_WORDLIKE and not _is_ruled(signs):
        return True
    latin = [char for char in signs if char.isascii() and char.isalpha()]
    if len(latin) < max(_LEAST_LETTERS, count * 0.6):
        return False
    return sum(char in _VOWELS for char in latin) < len(latin) * _LEAST_VOWELS


def _is_ruled(signs: list[str]) -> bool:
    """Dots, dashes and lines that lead from one column to the next."""
    return sum(char in ".·…-_–—=|" for char in signs) > len(signs) * 0.5
