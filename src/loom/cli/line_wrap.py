"""Lines broken between words while they stream. A word is held back until it is whole; escapes take no room."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_TOKEN: Final = re.compile(r"(?P<escape>\x1b\[[0-9;]*m)|(?P<end>\n)|(?P<gap>[ \t]+)|(?P<word>[^\s\x1b]+|.)", re.DOTALL)


class Wrap:
    """`text` gives what can be written now, `flush` what was held back. With no width nothing is broken."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._column = 0
        self._gap = ""
        self._word = ""
        self._word_width = 0
        self.indent = 0
        """Where the text of a list item begins, and so the lines that follow."""

    def text(self, text: str) -> str:
        if not self._width:
            return text
        written: list[str] = []
        for token in _TOKEN.finditer(text):
            if token["word"]:
                written += self._characters(token["word"])
            elif token["escape"]:
                self._word += token["escape"]
            elif token["gap"]:
                written.append(self._place_word())
                self._gap += token["gap"]
            else:
                written += [self.flush(), "\n"]
                self._column, self.indent = 0, 0
        return "".join(written)

    def flush(self) -> str:
        """The last word, without the spaces behind it."""
        placed = self._place_word()
        self._gap = ""
        return placed

    def raw(self, line: str) -> str:
        """A line that is as wide as it is, such as code."""
        written = self.flush() + line
        self._column = 0
        return written

    def _characters(self, word: str) -> list[str]:
        """A line may break on either side of a wide character: Chinese and Japanese have no spaces."""
        written: list[str] = []
        for character in word:
            wide = unicodedata.east_asian_width(character) in "WF"
            if wide and self._word_width:
                written.append(self._place_word())
            self._word += character
            self._word_width += 2 if wide else 0 if unicodedata.combining(character) else 1
            if wide:
                written.append(self._place_word())
        return written

    def _place_word(self) -> str:
        if not self._word:
            return ""
        gap, word, size = self._gap, self._word, self._word_width
        self._gap, self._word, self._word_width = "", "", 0
        if size and self._column > self.indent and self._column + len(gap) + size > self._width:
            self._column = self.indent + size
            return f"\n{' ' * self.indent}{word}"
        self._column += len(gap) + size
        return gap + word
