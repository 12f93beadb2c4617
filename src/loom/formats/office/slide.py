"""One slide (or its notes page), read in one pass.

The title comes first; the rest follows in the order of the file, which is the reading order that PowerPoint shows and
screen readers use. Positions are no better guide: placeholders inherit theirs, and designs overlap.
"""

from __future__ import annotations

import re
from typing import Final

from loom.formats.office import marks
from loom.formats.office.drawings import chart_lines, diagram_lines
from loom.formats.office.ooxml import R_EMBED, R_ID, Package, Pictures
from loom.formats.office.xml_names import Attributes, keys, value
from loom.formats.office.xml_reader import End, Start, XmlReader, whole_number

_R_DATA: Final = keys("r:dm")
_TITLES: Final = frozenset({"title", "ctrTitle"})
_LISTS: Final = frozenset({"", "body", "obj"})
_NUMBER_PLACEHOLDER: Final = "sldNum"
_MAX_LEVEL: Final = 8
_MAX_SPAN: Final = 63
_NOT_A_PLACEHOLDER: Final = "-"
_IDLE: Final = re.compile(
    rb"""</a:t>\s*<a:t(?:\s[^<>]*)?(?<!/)>|<p:cNvPr(?:\s+(?:id|name)="[^"<]*")*\s*/>"""
    rb"""|<a:pPr(?:\s+(?!lvl)[a-zA-Z]+="[^"<]*")*\s*(?:/>|></a:pPr>)"""
)
"""Seams between runs, shapes without alternative text, and paragraphs on the first level, as most are."""
_FALLBACK_IS_BETTER: Final = frozenset({"v", "p14", "aink", "am3d"})
"""Embedded objects, ink and 3D models: only the fallback of such a choice holds a picture that can be shown."""


class SlideReader:
    """Reads slides one after the other; after `read`, its fields are those of the slide.

    `only` keeps the text of one kind of placeholder: the words of a notes page without its slide picture.
    """

    def __init__(self, package: Package, pictures: Pictures, *, only: str = "") -> None:
        self.title = ""
        self.lines: list[str] = []
        self.is_hidden = False
        self._package = package
        self._part = ""
        self._number = 0
        self._pictures = pictures
        self._only = only
        self._alt = ""
        self._placeholder = _NOT_A_PLACEHOLDER
        self._body: list[str] = []
        self._pieces: list[str] = []
        self._level = 0
        self._bullet = ""
        self._counts: dict[int, int] = {}
        self._first_number = 1
        self._rows: list[list[str]] | None = None
        self._span = 1
        self._is_continued = False
        self._choices: list[bool] = []
        self._xml = XmlReader(self._starts(), self._ends(), idle=_IDLE)

    def read(self, part: str, number: int) -> None:
        self.title, self.lines, self.is_hidden = "", [], False
        self._body = []
        self._part, self._number = part, number
        self._package.read(part, self._xml)

    def _starts(self) -> dict[str, Start]:
        return {
            "p:sld": self._slide,
            "p:sp": self._start_shape,
            "p:cxnSp": self._start_shape,
            "p:pic": self._start_shape,
            "p:graphicFrame": self._start_shape,
            "p:cNvPr": self._properties,
            "p:grpSpPr": self._group,
            "p:ph": self._holder,
            "a:p": self._start_paragraph,
            "a:pPr": self._paragraph_properties,
            "a:buNone": self._no_bullet,
            "a:buChar": self._dash,
            "a:buAutoNum": self._counted,
            "a:t": self._start_text,
            "a:br": self._break,
            "a:blip": self._picture,
            "a:videoFile": self._video,
            "a:audioFile": self._audio,
            "a:tbl": self._start_table,
            "a:tr": self._start_row,
            "a:tc": self._start_cell,
            "c:chart": self._chart,
            "cx:chart": self._chart,
            "dgm:relIds": self._diagram,
            "mc:AlternateContent": self._start_alternatives,
            "mc:Choice": self._choice,
            "mc:Fallback": self._fallback,
            "m:t": self._start_text,
        }

    def _ends(self) -> dict[str, End]:
        return {
            "p:sld": self._flush,
            "p:sp": self._end_shape,
            "p:cxnSp": self._end_shape,
            "p:pic": self._end_shape,
            "p:graphicFrame": self._end_shape,
            "a:p": self._end_paragraph,
            "a:t": self._end_text,
            "m:t": self._end_text,
            "a:tc": self._end_cell,
            "a:tbl": self._end_table,
            "mc:AlternateContent": self._end_alternatives,
        }

    def _slide(self, attributes: Attributes) -> None:
        self.is_hidden = attributes.get("show", "1") in ("0", "false")

    def _group(self, _attributes: Attributes) -> None:
        if self._alt:
            self.lines.append(f"[group: {marks.one_line(self._alt)}]")

    def _start_shape(self, _attributes: Attributes) -> None:
        self._flush()
        self._placeholder = _NOT_A_PLACEHOLDER
        self._alt = ""
        self._counts = {}

    def _flush(self) -> None:
        """What stands outside the shapes: the picture of a background."""
        self.lines.extend(self._body)
        self._body = []

    def _end_shape(self) -> None:
        body, self._body = self._body, []
        if self._only and self._placeholder != self._only:
            return
        if self._placeholder in _TITLES and not self.title:
            self.title = " ".join(body)
        elif self._placeholder != _NUMBER_PLACEHOLDER:
            self.lines.extend(body)
        if self._alt:
            self.lines.append(f"[drawing: {marks.one_line(self._alt)}]")
            self._alt = ""

    def _properties(self, attributes: Attributes) -> None:
        self._alt = attributes.get("descr", "") or attributes.get("title", "")

    def _holder(self, attributes: Attributes) -> None:
        self._placeholder = attributes.get("type", "")

    def _start_paragraph(self, _attributes: Attributes) -> None:
        self._pieces = []
        self._level = 0
        self._bullet = "-" if self._placeholder in _LISTS and not self._only else ""

    def _paragraph_properties(self, attributes: Attributes) -> None:
        self._level = whole_number(attributes.get("lvl", ""), most=_MAX_LEVEL)

    def _no_bullet(self, _attributes: Attributes) -> None:
        self._bullet = ""

    def _dash(self, _attributes: Attributes) -> None:
        self._bullet = "-"

    def _counted(self, attributes: Attributes) -> None:
        self._bullet = "1."
        self._first_number = whole_number(attributes.get("startAt", ""), 1)

    def _start_text(self, _attributes: Attributes) -> None:
        self._xml.capture(self._pieces.append)

    def _end_text(self) -> None:
        self._xml.release()

    def _break(self, _attributes: Attributes) -> None:
        self._pieces.append("\n")

    def _end_paragraph(self) -> None:
        text = "".join(self._pieces).strip()
        self._pieces = []
        if not text:
            return
        bullet = self._next_number() if self._bullet == "1." else self._bullet
        if self._counts and self._bullet != "1.":
            self._counts = {level: count for level, count in self._counts.items() if level < self._level}
        self._body.append(f"{'  ' * self._level}{bullet} {text}" if bullet else text)

    def _next_number(self) -> str:
        """The next number of this level; deeper levels begin again, and so does this one after a line without."""
        count = self._counts.get(self._level, self._first_number - 1) + 1
        self._counts = {level: found for level, found in self._counts.items() if level < self._level}
        self._counts[self._level] = count
        return f"{count}."

    def _picture(self, attributes: Attributes) -> None:
        if self._only:
            return
        part = self._package.target(self._part, value(attributes, R_EMBED))
        number = self._pictures.number(part, page=self._number, alt=self._alt)
        self._body.append(marks.picture_mark(number, self._alt))
        self._alt = ""

    def _video(self, _attributes: Attributes) -> None:
        self._body.append("[video]")

    def _audio(self, _attributes: Attributes) -> None:
        self._body.append("[audio]")

    def _start_table(self, _attributes: Attributes) -> None:
        self._rows = []

    def _start_row(self, _attributes: Attributes) -> None:
        if self._rows is not None:
            self._rows.append([])

    def _start_cell(self, attributes: Attributes) -> None:
        self._body = []
        self._span = max(1, whole_number(attributes.get("gridSpan", ""), 1, most=_MAX_SPAN))
        self._is_continued = "1" in (attributes.get("hMerge"), attributes.get("vMerge"))

    def _end_cell(self) -> None:
        if self._rows:
            self._rows[-1].append("" if self._is_continued else marks.cell("\n".join(self._body)))
        self._body = []

    def _end_table(self) -> None:
        self._body = ["", *marks.table(self._rows or []), ""]
        self._rows = None

    def _chart(self, attributes: Attributes) -> None:
        if part := self._package.target(self._part, value(attributes, R_ID)):
            self._body.extend(chart_lines(self._package, part))

    def _diagram(self, attributes: Attributes) -> None:
        if part := self._package.target(self._part, value(attributes, _R_DATA)):
            self._body.extend(diagram_lines(self._package, part))

    def _start_alternatives(self, _attributes: Attributes) -> None:
        self._choices.append(False)

    def _end_alternatives(self) -> None:
        self._choices.pop()

    def _choice(self, attributes: Attributes) -> None:
        is_better = not _FALLBACK_IS_BETTER.intersection(attributes.get("Requires", "").split())
        if self._choices and not self._choices[-1] and is_better:
            self._choices[-1] = True
        else:
            self._xml.skip()

    def _fallback(self, _attributes: Attributes) -> None:
        if self._choices and self._choices[-1]:
            self._xml.skip()
