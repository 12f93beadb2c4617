"""Markdown for a terminal, wrapped to its width while it arrives."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from loom.cli.shared.terminal import safe_text

_BOLD: Final = ("\x1b[1m", "\x1b[22m")
_ITALIC: Final = ("\x1b[3m", "\x1b[23m")
_CODE: Final = ("\x1b[36m", "\x1b[39m")
_DIM: Final = ("\x1b[2m", "\x1b[22m")

_FENCE: Final = re.compile(r"\s{0,3}(```+|~~~+)(.*)")
_HEADING: Final = re.compile(r"\s{0,3}(#{1,6})\s+(.*?)\s*#*\s*")
_RULE: Final = re.compile(r"\s{0,3}([-*_])(?:\s*\1){2,}\s*")
_ITEM: Final = re.compile(r"(\s*)([-*+]|[0-9]{1,3}[.)])(\s+)")
_QUOTE: Final = re.compile(r"\s{0,3}>\s?")
_UNDECIDED: Final = re.compile(r"\s*(?:[-*_+>\s]*|#{1,6}\s*|[0-9]{1,3}(?:[.)]\s*)?|`{1,3}|~{1,3})")
"""The beginning of a line that may yet become a heading, an item, a quote, a rule or a fence."""
_INLINE: Final = re.compile(
    r"(?<!`)(?P<ticks>`+)(?P<code>[^`\n]+)(?P=ticks)(?!`)"
    r"|(?<!\*)\*\*(?P<bold>[^\s*](?:[^*\n]*[^\s*])?)\*\*(?!\*)"
    r"|(?<!\*)\*(?P<italic>[^\s*](?:[^*\n]*[^\s*])?)\*(?!\*)"
)
_MARK: Final = re.compile(r"[`*]")
_RULE_WIDTH: Final = 40


class Markdown:
    """`feed` gives what can be written now, `finish` the rest. With a width, lines of text break between words."""

    def __init__(self, width: int = 0) -> None:
        self._wrap = Wrap(width)
        self._held = ""
        self._fence = ""
        self._inside = False
        """Whether the kind of the current line has been decided, and its beginning written."""

    def feed(self, text: str) -> str:
        self._held += safe_text(text)
        written: list[str] = []
        while (end := self._held.find("\n")) >= 0:
            line, self._held = self._held[:end], self._held[end + 1 :]
            written += [self._line(line), self._wrap.text("\n")]
            self._inside = False
        written.append(self._certain_text())
        return "".join(written)

    def finish(self) -> str:
        line, self._held = self._held, ""
        written = self._line(line) if line else ""
        self._inside = False
        return written + self._wrap.flush()

    def _line(self, line: str) -> str:
        """Return a whole line, or what is left of one that has begun."""
        if self._inside:
            return self._wrap.text(_spans(line))
        fence = _FENCE.fullmatch(line)
        if self._fence:
            if fence and fence[1].startswith(self._fence) and not fence[2].strip():
                self._fence = ""
                return self._wrap.raw(_wrap_codes(line, _DIM))
            return self._wrap.raw(_wrap_codes(line, _CODE))
        if fence:
            self._fence = fence[1]
            return self._wrap.raw(_wrap_codes(line, _DIM))
        if heading := _HEADING.fullmatch(line):
            return self._wrap.text(_wrap_codes(heading[2], _BOLD))
        if _RULE.fullmatch(line):
            return self._wrap.raw(_wrap_codes("─" * _RULE_WIDTH, _DIM))
        if line.lstrip().startswith("|"):
            return self._wrap.raw(_spans(line))
        return self._open_item(line) + self._wrap.text(_spans(self._rest(line)))

    def _certain_text(self) -> str:
        """Return the certain part of an unfinished line."""
        held = self._held
        if not held or self._fence:
            return ""
        start = ""
        if not self._inside:
            if _UNDECIDED.fullmatch(held) or _HEADING.match(held) or _FENCE.match(held) or held.lstrip()[0] == "|":
                return ""
            start, held = self._open_item(held), self._rest(held)
            self._inside = True
        certain = _certain(held)
        self._held = held[certain:]
        return start + self._wrap.text(_spans(held[:certain]))

    def _open_item(self, line: str) -> str:
        """Return how a list item or a quotation begins; the lines that follow begin below its text."""
        if item := _ITEM.match(line):
            mark = "•" if item[2] in "-*+" else item[2]
            self._wrap.indent = item.end()
            return self._wrap.text(f"{item[1]}{mark}{item[3]}")
        if _QUOTE.match(line):
            self._wrap.indent = 2
            return self._wrap.text(_wrap_codes("│", _DIM) + " ")
        return ""

    def _rest(self, line: str) -> str:
        opening = _ITEM.match(line) or _QUOTE.match(line)
        return line[opening.end() :] if opening else line


def _certain(text: str) -> int:
    """Return how much of an unfinished line may be written: up to a mark that may still be closed, so that the outcome
    does not depend on where the stream was cut."""
    at = 0
    while mark := _MARK.search(text, at):
        span = _INLINE.match(text, mark.start())
        if span and span.end() < len(text):
            at = span.end()
        elif mark[0] == "*" and text[mark.end() : mark.end() + 1].isspace():
            at = mark.end()
        else:
            return mark.start()
    return len(text)


def _spans(text: str) -> str:
    return _INLINE.sub(_span, text)


def _span(found: re.Match[str]) -> str:
    if found["code"] is not None:
        return _wrap_codes(found["code"], _CODE)
    if found["bold"] is not None:
        return _wrap_codes(found["bold"], _BOLD)
    return _wrap_codes(found["italic"], _ITALIC)


def _wrap_codes(text: str, codes: tuple[str, str]) -> str:
    return f"{codes[0]}{text}{codes[1]}" if text else ""


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
        """Return the last word, without the spaces behind it."""
        placed = self._place_word()
        self._gap = ""
        return placed

    def raw(self, line: str) -> str:
        """Return a line that is as wide as it is, such as code."""
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
