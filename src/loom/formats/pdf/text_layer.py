"""Whether the text layer of a page is readable: fonts without a character table give characters without meaning."""

from __future__ import annotations

import unicodedata
from collections import Counter
from typing import Final

_LEAST_CHARACTERS: Final = 40
"""Shorter texts are not enough to decide."""
_SAMPLE_CHARACTERS: Final = 4_000
_MEANINGLESS: Final = frozenset(("Cc", "Cn", "Co", "Cs"))
"""Controls, unassigned, private use and surrogates."""
_MOST_MEANINGLESS: Final = 0.2
_LEAST_WORDLIKE: Final = 0.4
"""The minimum share of letters and digits among all characters. Tables of contents with dotted lines have half."""
_VOWELS: Final = "aeiouyAEIOUY"
_LEAST_LETTERS: Final = 120
_LEAST_VOWELS: Final = 0.16
"""The minimum share of vowels among the letters of a Latin text: languages have 0.3 and more, letters shifted in the
alphabet less."""


def is_gibberish(text: str) -> bool:
    """Return whether a text layer is meaningless, so that OCR is the better way to read the page."""
    signs = Counter("".join(text[:_SAMPLE_CHARACTERS].split()))
    count = signs.total()
    if count < _LEAST_CHARACTERS:
        return False
    kinds = {char: unicodedata.category(char) for char in signs}
    meaningless = sum(number for char, number in signs.items() if char == "\ufffd" or kinds[char] in _MEANINGLESS)
    if meaningless > count * _MOST_MEANINGLESS:
        return True
    wordlike = sum(number for char, number in signs.items() if kinds[char][0] in "LMN")
    if wordlike < count * _LEAST_WORDLIKE and not _is_ruled(signs):
        return True
    latin = sum(number for char, number in signs.items() if char.isascii() and char.isalpha())
    if latin < max(_LEAST_LETTERS, count * 0.6):
        return False
    return sum(signs[vowel] for vowel in _VOWELS) < latin * _LEAST_VOWELS


def _is_ruled(signs: Counter[str]) -> bool:
    """Return whether the text consists of dots, dashes and lines that lead from one column to the next."""
    return sum(signs[char] for char in ".·…-_–—=|") > signs.total() * 0.5
