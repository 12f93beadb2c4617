"""Equations of office files on one line, in a notation that keeps their meaning: (a+b)c, √[3](8), ∑_(i=1)^(n) i."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from loom.formats.office.xml_names import Attributes, keys, value
from loom.formats.office.xml_scan import OnEnd, OnStart

_M_VAL: Final = keys("m:val")
_OBJECTS: Final = {
    "m:d": ("(", "|", ")"),
    "m:nary": ("∫", "", ""),
    "m:rad": ("√", "", ""),
    "m:f": ("", "/", ""),
    "m:m": ("", "; ", ""),
    "m:mr": ("", ", ", ""),
    "m:eqArr": ("", "; ", ""),
    "m:acc": ("", "", "\N{COMBINING CIRCUMFLEX ACCENT}"),
    "m:bar": ("", "", "\N{COMBINING LOW LINE}"),
    "m:func": ("", "", ""),
    "m:limUpp": ("", "", ""),
}
"""The text before the first argument, between two arguments and at the end, unless the properties override it."""
_ARGUMENTS: Final = {
    "m:e": ("", ""),
    "m:num": ("(", ")"),
    "m:den": ("(", ")"),
    "m:sub": ("_(", ")"),
    "m:sup": ("^(", ")"),
    "m:deg": ("[", "]"),
    "m:lim": ("_(", ")"),
    "m:fName": ("", ""),
}
_SPECIAL: Final = {
    ("m:rad", "m:e"): ("(", ")"),
    ("m:nary", "m:e"): (" ", ""),
    ("m:func", "m:e"): (" ", ""),
    ("m:limUpp", "m:lim"): ("^(", ")"),
}
_ROW: Final = "m:mr"
_ACCENTS: Final = ("m:acc", "m:bar")
_OVERLINE: Final = "\N{COMBINING OVERLINE}"
_NO_BAR: Final = "¦"
"""The separator of two expressions above one another without a line: n¦k."""


class _Object:
    """A part of an equation whose arguments are being read; the content of an argument is an object without a kind."""

    __slots__ = ("closing", "count", "ending", "first", "kind", "lead", "separator")

    def __init__(self, kind: str, first: int, closing: str = "") -> None:
        self.kind = kind
        self.first = first
        self.closing = closing
        self.lead, self.separator, self.ending = _OBJECTS.get(kind, ("", "", ""))
        self.count = 0


class Equations:
    """The handlers for the tags of equations; `pieces` returns the text pieces of the open paragraph."""

    def __init__(self, pieces: Callable[[], list[str]]) -> None:
        self._pieces = pieces
        self._open = [_Object("", 0)]
        self.starts: dict[str, OnStart] = {
            "m:begChr": self._beginning,
            "m:sepChr": self._separator,
            "m:endChr": self._end_character,
            "m:chr": self._character,
            "m:pos": self._position,
            "m:type": self._type,
        }
        self.opens: dict[str, OnEnd] = {}
        self.ends: dict[str, OnEnd] = {}
        for name in _OBJECTS:
            self.opens[name], self.ends[name] = self._starts_object(name), self._end_object
        for name in _ARGUMENTS:
            self.opens[name], self.ends[name] = self._starts_argument(name), self._end_argument

    def _starts_object(self, name: str) -> OnEnd:
        def start() -> None:
            if name == _ROW:  # the argument of a matrix
                self._next()
            self._open.append(_Object(name, len(self._pieces())))

        return start

    def _starts_argument(self, name: str) -> OnEnd:
        def start() -> None:
            self._next()
            pieces = self._pieces()
            opening, closing = _SPECIAL.get((self._open[-1].kind, name), _ARGUMENTS[name])
            pieces.append(opening)
            self._open.append(_Object("", len(pieces), closing))

        return start

    def _next(self) -> None:
        owner = self._open[-1]
        self._pieces().append(owner.separator if owner.count else owner.lead)
        owner.count += 1

    def _end_argument(self) -> None:
        """End an argument. Empty arguments (an integral without limits) leave no mark."""
        argument, pieces = self._open.pop(), self._pieces()
        if len(pieces) == argument.first:
            pieces.pop()
        else:
            pieces.append(argument.closing)

    def _end_object(self) -> None:
        closed, pieces = self._open.pop(), self._pieces()
        if closed.kind in _ACCENTS:
            inner = "".join(pieces[closed.first :])
            pieces[closed.first :] = [inner if len(inner) == 1 else f"({inner})"]
        pieces.append(closed.ending if closed.count else closed.lead + closed.ending)

    def _beginning(self, attributes: Attributes) -> None:
        self._open[-1].lead = value(attributes, _M_VAL)

    def _separator(self, attributes: Attributes) -> None:
        self._open[-1].separator = value(attributes, _M_VAL)

    def _end_character(self, attributes: Attributes) -> None:
        self._open[-1].ending = value(attributes, _M_VAL)

    def _character(self, attributes: Attributes) -> None:
        owner = self._open[-1]
        if owner.kind == "m:nary":
            owner.lead = value(attributes, _M_VAL)
        elif owner.kind == "m:acc":
            owner.ending = value(attributes, _M_VAL)

    def _position(self, attributes: Attributes) -> None:
        if self._open[-1].kind == "m:bar" and value(attributes, _M_VAL) == "top":
            self._open[-1].ending = _OVERLINE

    def _type(self, attributes: Attributes) -> None:
        if self._open[-1].kind == "m:f" and value(attributes, _M_VAL) == "noBar":
            self._open[-1].separator = _NO_BAR
