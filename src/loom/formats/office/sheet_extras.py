"""The content of an .xlsx workbook besides its cells: images, text boxes, charts, comments and links, by sheet."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from loom.formats.office import text_marks
from loom.formats.office.equations import Equations
from loom.formats.office.ooxml import R_EMBED, R_ID, Package, Pictures
from loom.formats.office.runs import RunReader
from loom.formats.office.sheet_display import layout_lines
from loom.formats.office.xlsx_cells import sheet_parts
from loom.formats.office.xml_names import Attributes, value
from loom.formats.office.xml_reader import MAX_XML_BYTES, XmlReader

_COMMENT_TAGS: Final = ("x:authors", "x:comment", "x:text", "x:r")
_COMMENT_WORDS: Final = ("x:author", "x:t")
MAX_COMMENTS: Final = 1_000
MAX_LINKS: Final = 1_000
_MAX_PLACE: Final = 24
_LINKS: Final = b"<hyperlinks"


class SheetExtras(msgspec.Struct, frozen=True):
    """The lines that follow the cells of a sheet, and the links of cells: (`A1`, URL)."""

    lines: list[str]
    links: list[tuple[str, str]]

    def after(self, text: str) -> str:
        """Return the cells with the lines that follow them, without URLs that are already the text of a cell."""
        cells = " | ".join(text.splitlines()).split(" | ") if self.links else ()
        said = {cell.rstrip("/") for cell in cells}
        links = [f"[link {place}] {target}" for place, target in self.links if target.rstrip("/") not in said]
        return "\n".join([text, *self.lines, *links])


def sheet_extras(package: Package, pictures: Pictures) -> list[SheetExtras]:
    """Return the extras of each sheet; `pictures` receives the images in the order of the sheets."""
    extras: list[SheetExtras] = []
    drawing = _DrawingReader(package, pictures)
    for number, sheet in enumerate(sheet_parts(package)[0], 1):
        lines: list[str] = []
        if sheet.part:
            lines.extend(layout_lines(package, sheet.part))
            for part in package.related_parts(sheet.part, "drawing"):
                drawing.read(part, number)
                lines.extend(drawing.lines)
            for part in package.related_parts(sheet.part, "comments"):
                lines.extend(_comments(package, part))
        extras.append(SheetExtras(lines, _links(package, sheet.part) if sheet.part else []))
    return extras


def _links(package: Package, part: str) -> list[tuple[str, str]]:
    outside = {key: found.target for key, found in package.relations(part).items() if found.kind == "hyperlink"}
    if not outside or package.archive.size_bytes(part) > MAX_XML_BYTES:
        return []
    found: list[tuple[str, str]] = []

    def link(attributes: Attributes) -> None:
        place, target = attributes.get("ref", "")[:_MAX_PLACE], outside.get(value(attributes, R_ID), "")
        if text_marks.is_web_address(target) and len(found) < MAX_LINKS:
            found.append((place, target))

    # They follow the cells, of which there may be millions.
    package.read(part, XmlReader({"x:hyperlink": link}, {}, trim=lambda data: data[max(0, data.rfind(_LINKS)) :]))
    return found


def _comments(package: Package, part: str) -> list[str]:
    root = package.tree(part, tags=_COMMENT_TAGS, words=_COMMENT_WORDS)
    authors = [author.text for node in root.all("x:authors") for author in node.children]
    lines: list[str] = []
    for node in root.all("x:comment")[:MAX_COMMENTS]:
        place = node.get("authorId")
        author = authors[int(place)].strip() if place.isdecimal() and int(place) < len(authors) else ""
        text = text_marks.one_line(" ".join(child.text for child in node.all("x:text")))
        if text:
            lines.append(f"[comment {node.get('ref')[:12]}] {f'{author}: ' if author else ''}{text}")
    return lines


class _DrawingReader(RunReader):
    """Reads the drawings of sheets one after the other; `lines` are those of the last one."""

    fallback_is_better: ClassVar = frozenset({"xdr14", "aink", "am3d"})
    """Ink and 3D models."""
    words: ClassVar = ("a:t", "m:t")

    def __init__(self, package: Package, pictures: Pictures) -> None:
        super().__init__(package)
        self.lines: list[str] = []
        self._number = 0
        self._pictures = pictures
        self._alt = ""
        self._pieces: list[str] = []

    def read(self, part: str, number: int) -> None:
        self.lines = []
        self._part, self._number = part, number
        self._package.read(part, self._xml)

    def _reader(self) -> XmlReader:
        equations = Equations(lambda: self._pieces)
        return self._made_reader(
            {"xdr:cNvPr": self._properties, "a:blip": self._picture, **equations.starts},
            {"a:p": self._start_paragraph, **equations.opens},
            {"a:p": self._end_paragraph, **equations.ends},
        )

    def _properties(self, attributes: Attributes) -> None:
        self._alt = attributes.get("descr", "") or attributes.get("title", "")

    def _picture(self, attributes: Attributes) -> None:
        part = self._package.target(self._part, value(attributes, R_EMBED))
        number = self._pictures.number(part, page=self._number)
        self.lines.append(text_marks.picture_mark(number, self._alt))

    def _show(self, lines: list[str]) -> None:
        self.lines.extend(lines)

    def _start_paragraph(self) -> None:
        self._pieces = []

    def _say(self, text: str) -> None:
        self._pieces.append(text)

    def _end_paragraph(self) -> None:
        if text := "".join(self._pieces).strip():
            self.lines.append(text)
