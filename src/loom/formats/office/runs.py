"""The common base of slides and Word documents: text runs, drawings, and alternatives of both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import ClassVar, Final

from loom.formats.office.drawings import chart_lines, diagram_lines
from loom.formats.office.ooxml import R_ID, Package
from loom.formats.office.xml_names import Attributes, keys, value
from loom.formats.office.xml_reader import Trim, XmlReader
from loom.formats.office.xml_scan import OnCharacters, OnEnd, OnStart

_R_DATA: Final = keys("r:dm")
_SKIPPED: Final = ("mc:Choice", "mc:Fallback")


class RunReader(ABC):
    """Reads the parts of a package, one after the other; `_part` is the current one."""

    fallback_is_better: ClassVar[frozenset[str]]
    """Requirements of a choice that cannot be rendered: its fallback contains an image that can."""
    words: ClassVar[tuple[str, ...]]

    def __init__(self, package: Package) -> None:
        self._package = package
        self._part = ""
        self._choices: list[bool] = []
        """For each open alternative: whether one of its choices was used."""
        self._xml = self._reader()

    @abstractmethod
    def _reader(self) -> XmlReader:
        """Return the reader, created once with `_made_reader`."""

    @abstractmethod
    def _say(self, text: str) -> None:
        """Handle the text of a run."""

    @abstractmethod
    def _show(self, lines: list[str]) -> None:
        """Handle the lines of a chart or a diagram."""

    def _made_reader(
        self,
        starts: Mapping[str, OnStart],
        opens: Mapping[str, OnEnd],
        ends: Mapping[str, OnEnd],
        *,
        words: Mapping[str, OnCharacters] | None = None,
        skipped: Collection[str] = (),
        telling: Mapping[str, str] | None = None,
        beside: Mapping[str, str] | None = None,
        trim: Trim | None = None,
    ) -> XmlReader:
        drawn = {"c:chart": self._chart, "cx:chart": self._chart, "dgm:relIds": self._diagram}
        return XmlReader(
            {**starts, **drawn, "mc:Choice": self._choice},
            {**ends, "mc:AlternateContent": self._end_alternatives},
            opens={**opens, "mc:AlternateContent": self._start_alternatives, "mc:Fallback": self._fallback},
            words={**dict.fromkeys(self.words, self._say), **(words or {})},
            skipped=(*_SKIPPED, *skipped),
            telling=telling,
            beside=beside,
            trim=trim,
        )

    def _start_alternatives(self) -> None:
        self._choices.append(False)

    def _end_alternatives(self) -> None:
        self._choices.pop()

    def _choice(self, attributes: Attributes) -> None:
        is_better = not self.fallback_is_better.intersection(attributes.get("Requires", "").split())
        if self._choices and not self._choices[-1] and is_better:
            self._choices[-1] = True
        else:
            self._xml.skip()

    def _fallback(self) -> None:
        if self._choices and self._choices[-1]:
            self._xml.skip()

    def _chart(self, attributes: Attributes) -> None:
        if part := self._package.target(self._part, value(attributes, R_ID)):
            self._show(chart_lines(self._package, part))

    def _diagram(self, attributes: Attributes) -> None:
        if part := self._package.target(self._part, value(attributes, _R_DATA)):
            self._show(diagram_lines(self._package, part))
