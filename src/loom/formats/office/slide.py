"""One slide (or its notes page), read in one pass.

The title is first; the rest follows in the order of the file, which is the reading order that PowerPoint shows and
screen readers use. Positions are no better guide: placeholders inherit theirs, and designs overlap.
"""

from __future__ import annotations

from typing import ClassVar, Final

from loom.formats.office import text_marks
from loom.formats.office.equations import Equations
from loom.formats.office.ooxml import R_EMBED, R_ID, Package, Pictures
from loom.formats.office.runs import RunReader
from loom.formats.office.xml_names import Attributes, value
from loom.formats.office.xml_reader import XmlReader, whole_number
from loom.formats.office.xml_scan import OnEnd, OnStart

_TITLES: Final = frozenset({"title", "ctrTitle"})
_LISTS: Final = frozenset({"", "body", "obj"})
_NUMBER_PLACEHOLDER: Final = "sldNum"
_MAX_LEVEL: Final = 8
_NOT_A_PLACEHOLDER: Final = "-"
_TELLING: Final = {"p:cNvPr": "descr|title", "a:pPr": "lvl"}
"""Attributes without which a tag is ignored: most shapes have no alternative text, most paragraphs are on the first
level."""


class SlideReader(RunReader):
    """Reads slides one after the other; after `read`, its fields are those of the slide.

    `only` keeps the text of one kind of placeholder: the text of a notes page without its slide image.
    """

    fallback_is_better: ClassVar = frozenset({"v", "p14", "aink", "am3d"})
    """Embedded objects, ink and 3D models."""
    words: ClassVar = ("a:t", "m:t")

    def __init__(self, package: Package, pictures: Pictures, *, only: str = "") -> None:
        self._only = only
        super().__init__(package)
        self.title = ""
        self.lines: list[str] = []
        self.is_hidden = False
        self._number = 0
        self._pictures = pictures
        self._alt = ""
        self._placeholder = _NOT_A_PLACEHOLDER
        self._body: list[str] = []
        self._pieces: list[str] = []
        self._links: list[tuple[int, str]] = []
        """The index of a piece of the paragraph, and its link target."""
        self._level = 0
        self._bullet = ""
        self._counts: dict[int, int] = {}
        self._first_number = 1
        self._rows: list[list[str]] | None = None
        self._is_continued = False

    def read(self, part: str, number: int) -> None:
        self.title, self.lines, self.is_hidden = "", [], False
        self._body = []
        self._part, self._number = part, number
        self._package.read(part, self._xml)

    def _reader(self) -> XmlReader:
        starts: dict[str, OnStart] = {
            "p:sld": self._slide,
            "p:cNvPr": self._properties,
            "p:ph": self._holder,
            "a:pPr": self._paragraph_properties,
            "a:buAutoNum": self._count_element,
            "a:blip": self._picture,
            "a:hlinkClick": self._link,
            "a:tc": self._start_cell,
        }
        opens: dict[str, OnEnd] = {
            "p:grpSpPr": self._group,
            "a:p": self._start_paragraph,
            "a:buNone": self._no_bullet,
            "a:buChar": self._dash,
            "a:br": self._break,
            "a:videoFile": self._video,
            "a:audioFile": self._audio,
            "a:tbl": self._start_table,
            "a:tr": self._start_row,
        }
        ends: dict[str, OnEnd] = {
            "p:sld": self._flush,
            "a:p": self._end_paragraph,
            "a:tc": self._end_cell,
            "a:tbl": self._end_table,
        }
        for shape in ("p:sp", "p:cxnSp", "p:pic", "p:graphicFrame"):
            opens[shape], ends[shape] = self._start_shape, self._end_shape
        equations = Equations(lambda: self._pieces)
        return self._made_reader(
            starts | equations.starts,
            opens | equations.opens,
            ends | equations.ends,
            telling=_TELLING,
            trim=self._only_shapes if self._only else None,
        )

    def _only_shapes(self, data: bytes) -> bytes:
        """Return the notes page without the other shapes: the image of its slide, a date and numbers.

        Return it unchanged if a shape does not begin or name its kind in the usual way, or if there are alternatives,
        which enclose whole shapes.
        """
        kind = f'type="{self._only}"'.encode()
        _, *shapes = data.split(b"<p:sp>")
        is_usual = kind in data and len(shapes) == data.count(b"</p:sp>") and b"type='" not in data
        if not shapes or not is_usual or b"<mc:" in data:
            return data
        return b"<p:sp>".join((b"", *(shape for shape in shapes if kind in shape)))

    def _slide(self, attributes: Attributes) -> None:
        self.is_hidden = attributes.get("show", "1") in ("0", "false")

    def _group(self) -> None:
        if self._alt:
            self.lines.append(f"[group: {text_marks.one_line(self._alt)}]")

    def _start_shape(self) -> None:
        self._flush()
        self._placeholder = _NOT_A_PLACEHOLDER
        self._alt = ""
        self._counts = {}

    def _flush(self) -> None:
        """Add content outside the shapes: the image of a background."""
        self.lines.extend(self._body)
        self._body = []

    def _end_shape(self) -> None:
        body, self._body = self._body, []
        if self._only and self._placeholder != self._only:
            self._alt = ""
            return
        if self._placeholder in _TITLES and not self.title:
            self.title = " ".join(body)
        elif self._placeholder != _NUMBER_PLACEHOLDER:
            self.lines.extend(body)
        if self._alt:
            self.lines.append(f"[drawing: {text_marks.one_line(self._alt)}]")
            self._alt = ""

    def _properties(self, attributes: Attributes) -> None:
        if alt := attributes.get("descr", "") or attributes.get("title", ""):
            self._alt = alt

    def _holder(self, attributes: Attributes) -> None:
        self._placeholder = attributes.get("type", "")

    def _start_paragraph(self) -> None:
        self._pieces = []
        self._links = []
        self._level = 0
        self._bullet = "-" if self._placeholder in _LISTS and not self._only else ""

    def _paragraph_properties(self, attributes: Attributes) -> None:
        if "lvl" in attributes:
            self._level = whole_number(attributes["lvl"], most=_MAX_LEVEL)

    def _no_bullet(self) -> None:
        self._bullet = ""

    def _dash(self) -> None:
        self._bullet = "-"

    def _count_element(self, attributes: Attributes) -> None:
        self._bullet = "1."
        self._first_number = whole_number(attributes.get("startAt", ""), 1)

    def _say(self, text: str) -> None:
        self._pieces.append(text)

    def _show(self, lines: list[str]) -> None:
        self._body.extend(lines)

    def _break(self) -> None:
        self._pieces.append("\n")

    def _link(self, attributes: Attributes) -> None:
        """Open a link: the target of a run precedes its text."""
        relation = self._package.relations(self._part).get(value(attributes, R_ID))
        if relation and relation.is_external:
            self._links.append((len(self._pieces), relation.target))

    def _add_links(self) -> None:
        """Add the URLs of links. One link may consist of several runs: its URL follows the last of them."""
        links = dict(self._links)
        first = 0
        for place, target in links.items():
            if links.get(place - 1) != target:
                first = place
            if links.get(place + 1) != target and place < len(self._pieces):
                self._pieces[place] += text_marks.link(target, "".join(self._pieces[first : place + 1]))

    def _end_paragraph(self) -> None:
        if self._links:
            self._add_links()
        text = "".join(self._pieces).strip()
        self._pieces = []
        if not text:
            return
        bullet = self._next_number() if self._bullet == "1." else self._bullet
        if self._counts and self._bullet != "1.":
            self._counts = {level: count for level, count in self._counts.items() if level < self._level}
        self._body.append(f"{'  ' * self._level}{bullet} {text}" if bullet else text)

    def _next_number(self) -> str:
        """Return the next number of this level. Deeper levels restart, and so does this one after an unnumbered
        line."""
        count = self._counts.get(self._level, self._first_number - 1) + 1
        self._counts = {level: found for level, found in self._counts.items() if level < self._level}
        self._counts[self._level] = count
        return f"{count}."

    def _picture(self, attributes: Attributes) -> None:
        if self._only:
            return
        part = self._package.target(self._part, value(attributes, R_EMBED))
        number = self._pictures.number(part, page=self._number)
        self._body.append(text_marks.picture_mark(number, self._alt))
        self._alt = ""

    def _video(self) -> None:
        self._body.append("[video]")

    def _audio(self) -> None:
        self._body.append("[audio]")

    def _start_table(self) -> None:
        self._rows = []

    def _start_row(self) -> None:
        if self._rows is not None:
            self._rows.append([])

    def _start_cell(self, attributes: Attributes) -> None:
        self._body = []
        self._is_continued = "1" in (attributes.get("hMerge"), attributes.get("vMerge"))

    def _end_cell(self) -> None:
        if self._rows:
            self._rows[-1].append("" if self._is_continued else text_marks.cell("\n".join(self._body)))
        self._body = []

    def _end_table(self) -> None:
        self._body = ["", *text_marks.table(self._rows or []), ""]
        self._rows = None
