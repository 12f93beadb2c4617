"""What an .xlsx workbook holds beside its cells: pictures, text boxes, charts and comments, by sheet."""

from __future__ import annotations

from typing import Final

from loom.formats.office import marks
from loom.formats.office.drawings import chart_lines
from loom.formats.office.ooxml import R_EMBED, R_ID, Package, Pictures
from loom.formats.office.xlsx_cells import sheet_parts
from loom.formats.office.xml_names import Attributes, value
from loom.formats.office.xml_reader import XmlReader

_COMMENT_TAGS: Final = ("x:authors", "x:comment", "x:text", "x:r")
_COMMENT_WORDS: Final = ("x:author", "x:t")
_MAX_COMMENTS: Final = 1_000


def sheet_extras(package: Package, pictures: Pictures) -> list[str]:
    """For each sheet the lines that follow its cells; `pictures` gets the pictures in the order of the sheets."""
    extras: list[str] = []
    for number, sheet in enumerate(sheet_parts(package)[0], 1):
        lines: list[str] = []
        if sheet.part:
            for part in package.related(sheet.part, "drawing"):
                drawing = _Drawing(package, part, number, pictures)
                package.read(part, drawing.xml)
                lines.extend(drawing.lines)
            for part in package.related(sheet.part, "comments"):
                lines.extend(_comments(package, part))
        extras.append("\n".join(lines))
    return extras


def _comments(package: Package, part: str) -> list[str]:
    root = package.tree(part, tags=_COMMENT_TAGS, words=_COMMENT_WORDS)
    authors = [author.text for node in root.all("x:authors") for author in node.children]
    lines: list[str] = []
    for node in root.all("x:comment")[:_MAX_COMMENTS]:
        place = node.get("authorId")
        author = authors[int(place)].strip() if place.isdecimal() and int(place) < len(authors) else ""
        text = marks.one_line(" ".join(child.text for child in node.all("x:text")))
        if text:
            lines.append(f"[comment {node.get('ref')[:12]}] {f'{author}: ' if author else ''}{text}")
    return lines


class _Drawing:
    def __init__(self, package: Package, part: str, number: int, pictures: Pictures) -> None:
        self.lines: list[str] = []
        self._package = package
        self._part = part
        self._number = number
        self._pictures = pictures
        self._alt = ""
        self._pieces: list[str] = []
        starts = {"xdr:cNvPr": self._properties, "a:blip": self._picture, "c:chart": self._chart}
        self.xml = XmlReader(
            starts, {"a:p": self._end_paragraph}, opens={"a:p": self._start_paragraph}, words={"a:t": self._say}
        )

    def _properties(self, attributes: Attributes) -> None:
        self._alt = attributes.get("descr", "") or attributes.get("title", "")

    def _picture(self, attributes: Attributes) -> None:
        part = self._package.target(self._part, value(attributes, R_EMBED))
        number = self._pictures.number(part, page=self._number, alt=self._alt)
        self.lines.append(marks.picture_mark(number, self._alt))

    def _chart(self, attributes: Attributes) -> None:
        if part := self._package.target(self._part, value(attributes, R_ID)):
            self.lines.extend(chart_lines(self._package, part))

    def _start_paragraph(self) -> None:
        self._pieces = []

    def _say(self, text: str) -> None:
        self._pieces.append(text)

    def _end_paragraph(self) -> None:
        if text := "".join(self._pieces).strip():
            self.lines.append(text)
