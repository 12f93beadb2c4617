"""Fields of a Word document while they are read: an instruction, then a result that is shown; fields nest.

Links keep their target. A form field has no result but a check box or a selected entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from loom.formats.office import text_marks
from loom.formats.office.xml_names import Attributes, keys, value
from loom.formats.office.xml_reader import whole_number
from loom.formats.office.xml_scan import OnCharacters, OnEnd, OnStart

_W_VAL: Final = keys("w:val")
_W_TYPE: Final = keys("w:fldCharType")
_W_INSTRUCTION: Final = keys("w:instr")
_HYPERLINK: Final = re.compile(r"""\s*HYPERLINK\s+(?:"([^"]*)"|([^\s"\\]+))""", re.IGNORECASE)
_OFF: Final = ("0", "false", "off")


class _Field:
    __slots__ = ("chosen", "entries", "first", "instruction", "is_code", "is_ticked", "pieces")

    def __init__(self, pieces: list[str]) -> None:
        self.is_code = True
        """Whether its instruction is still being read."""
        self.instruction: list[str] = []
        self.is_ticked: bool | None = None
        self.entries: list[str] = []
        self.chosen: int | None = None
        self.result_follows(pieces)

    def result_follows(self, pieces: list[str]) -> None:
        self.pieces = pieces
        self.first = len(pieces)

    @property
    def answer(self) -> str:
        if self.is_ticked is not None:
            return "☒" if self.is_ticked else "☐"
        chosen = self.chosen or 0
        return self.entries[chosen] if chosen < len(self.entries) else ""


class Fields:
    """The fields that are open at this point, innermost last; `pieces` returns the text pieces of the open
    paragraph."""

    def __init__(self, pieces: Callable[[], list[str]]) -> None:
        self.is_code = False
        """Whether text belongs to an instruction, and is not shown."""
        self._pieces = pieces
        self._open: list[_Field] = []
        self._links: list[tuple[str, int]] = []
        self.starts: dict[str, OnStart] = {
            "w:fldChar": self._mark,
            "w:fldSimple": self._start_simple,
            "w:checked": self._read_checkbox,
            "w:default": self._default,
            "w:result": self._read_choice,
            "w:listEntry": self._entry,
        }
        self.opens: dict[str, OnEnd] = {"w:checkBox": self._box}
        self.ends: dict[str, OnEnd] = {"w:fldSimple": self.end_link}
        self.words: dict[str, OnCharacters] = {"w:instrText": self._instruct}

    def clear(self) -> None:
        self._open = []
        self.is_code = False

    def end_paragraph(self) -> None:
        """End the paragraph, and with it an instruction that has no end."""
        if self.is_code:
            self._open = [field for field in self._open if not field.is_code]
            self.is_code = False

    def start_link(self, target: str) -> None:
        self._links.append((target, len(self._pieces())))

    def end_link(self) -> None:
        self._link(*self._links.pop())

    def _link(self, target: str, first: int) -> None:
        """Set `target` as the link target of the text from piece `first` on."""
        if target:
            pieces = self._pieces()
            pieces.append(text_marks.link(target, "".join(pieces[first:])))

    def _mark(self, attributes: Attributes) -> None:
        ended: _Field | None = None
        match value(attributes, _W_TYPE):
            case "begin":
                self._open.append(_Field(self._pieces()))
            case "separate" if self._open:
                self._open[-1].is_code = False
                self._open[-1].result_follows(self._pieces())
            case "end" if self._open:
                ended = self._open.pop()
            case _:
                pass
        self.is_code = any(field.is_code for field in self._open)
        if ended is not None and not self.is_code:
            self._end(ended)

    def _end(self, field: _Field) -> None:
        pieces = self._pieces()
        first = field.first if field.pieces is pieces else 0
        if len(pieces) == first:
            pieces.append(field.answer)
        self._link(_target("".join(field.instruction)), first)

    def _start_simple(self, attributes: Attributes) -> None:
        self.start_link(_target(value(attributes, _W_INSTRUCTION)))

    def _instruct(self, text: str) -> None:
        if self._open and self._open[-1].is_code:
            self._open[-1].instruction.append(text)

    def _box(self) -> None:
        if self._open:
            self._open[-1].is_ticked = False

    def _read_checkbox(self, attributes: Attributes) -> None:
        if self._open:
            self._open[-1].is_ticked = value(attributes, _W_VAL) not in _OFF

    def _read_choice(self, attributes: Attributes) -> None:
        if self._open:
            self._open[-1].chosen = whole_number(value(attributes, _W_VAL))

    def _default(self, attributes: Attributes) -> None:
        """Read the default of a form field, which precedes the state of a check box but follows the selection of a
        list."""
        if self._open and self._open[-1].is_ticked is not None:
            self._read_checkbox(attributes)
        elif self._open and self._open[-1].chosen is None:
            self._read_choice(attributes)

    def _entry(self, attributes: Attributes) -> None:
        if self._open:
            self._open[-1].entries.append(value(attributes, _W_VAL))


def _target(instruction: str) -> str:
    """Return the target of a link, or an empty string for a place in the same document (`HYPERLINK \\l`)."""
    found = _HYPERLINK.match(instruction)
    return (found[1] or found[2] or "") if found else ""
