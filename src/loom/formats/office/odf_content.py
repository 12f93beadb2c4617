"""One part of an OpenDocument file, read in one pass. Text is in paragraphs, between other elements."""

from __future__ import annotations

import posixpath
import re
from typing import Final

from loom.formats.office import text_marks
from loom.formats.office.ooxml import Package, Pictures
from loom.formats.office.xml_names import Attributes, keys, value
from loom.formats.office.xml_reader import XmlReader, whole_number
from loom.formats.office.xml_scan import OnEnd, OnStart

_MAX_REPEATED: Final = 63
_MAX_SPACES: Final = 100
_MAX_HEADING: Final = 6
_OUTLINE: Final = keys("text:outline-level")
_SPACES: Final = keys("text:c")
_HREF: Final = keys("xlink:href")
_REPEATED: Final = keys("table:number-columns-repeated")
_CLASS: Final = keys("presentation:class")
_VISIBILITY: Final = keys("presentation:visibility")
_NOTE_CLASS: Final = keys("text:note-class")
_STYLE_NAME: Final = keys("style:name")
_LIST_STYLE: Final = keys("text:style-name")
_PAGE_STYLE: Final = keys("draw:style-name")
_LEVEL: Final = keys("text:level")
_NUMBER_FORMAT: Final = keys("style:num-format")
_START_VALUE: Final = keys("text:start-value")
_WHITE: Final = re.compile(r"\s+")
_PAGE_NUMBER: Final = "page-number"
_SHAPES: Final = (
    "draw:text-box", "draw:custom-shape", "draw:rect", "draw:ellipse", "draw:circle", "draw:line", "draw:polyline",
    "draw:polygon", "draw:path", "draw:connector", "draw:caption", "draw:regular-polygon", "draw:measure",
)  # fmt: skip
_LEFT_OUT: Final = ("text:tracked-changes", "office:forms", "text:sequence-decls", "dc:date", "text:note-citation")


class _List:
    __slots__ = ("count", "style")

    def __init__(self, style: str) -> None:
        self.style = style
        self.count = 0


class _Frame:
    """The target of text: the blocks of a cell, a text box, a note; `pieces` are the text pieces of its open
    paragraph."""

    __slots__ = ("after", "blocks", "is_open", "lists", "pieces", "prefix")

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self.pieces: list[str] = []
        self.after: list[str] = []
        self.prefix = ""
        self.is_open = False
        self.lists: list[_List] = []


class _Holder:
    """The frame of a drawing: its role on a slide, and the image in it."""

    __slots__ = ("alt", "is_filled", "is_picture", "kind", "number")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.is_picture = False
        self.is_filled = False
        """Whether it contains a table or an object: images after those are only previews of them."""
        self.number: int | None = None
        self.alt: list[str] = []


class OdfContent:
    """`blocks` are the text of a document, `slides` those of a presentation; notes, comments, headers and footers are
    separate."""

    def __init__(self, package: Package, pictures: Pictures, *, is_object: bool = False) -> None:
        self.slides: list[str] = []
        self.notes: list[str] = []
        self.comments: list[str] = []
        self.margins: list[str] = []
        self.formula: list[str] = []
        """The source of a formula (`a over b`), if this is one."""
        self.kinds: set[str] = set()
        """The kinds of the body: `text`, `presentation`."""
        self._package = package
        self._pictures = pictures
        self._is_object = is_object
        self._frames = [_Frame()]
        self._rows: list[list[list[str]]] = []
        self._repeats: list[int] = []
        self._authors: list[list[str]] = []
        self._links: list[tuple[str, int]] = []
        self._note_kinds: list[str] = []
        self._holders: list[_Holder] = []
        self._title = ""
        self._speech: list[str] = []
        self._in_slide = False
        self._is_hidden = False
        self._style = ""
        self._hidden_styles: set[str] = set()
        self._numbered: dict[tuple[str, int], int] = {}
        self.xml = XmlReader(self._starts(), self._end_handlers(), is_mixed=True)

    @property
    def blocks(self) -> list[str]:
        return self._frames[0].blocks

    def _starts(self) -> dict[str, OnStart]:
        starts: dict[str, OnStart] = {
            "office:text": self._add_kind("text"),
            "office:presentation": self._add_kind("presentation"),
            "style:style": self._start_style,
            "style:drawing-page-properties": self._page_properties,
            "text:list-style": self._start_style,
            "text:list-level-style-number": self._number_style,
            "text:h": self._start_heading,
            "text:p": self._start_paragraph,
            "text:s": self._spaces,
            "text:tab": self._tab,
            "text:line-break": self._line_break,
            "text:a": self._start_link,
            "text:list": self._start_list,
            "text:list-item": self._start_item,
            "text:note": self._start_note,
            "office:annotation": self._start_comment,
            "dc:creator": self._start_author,
            "table:table": self._start_table,
            "table:table-row": self._start_row,
            "table:table-cell": self._start_cell,
            "table:covered-table-cell": self._start_cell,
            "draw:page": self._start_slide,
            "draw:frame": self._start_drawing,
            "draw:image": self._image,
            "draw:object": self._object,
            "math:annotation": self._start_formula,
            "svg:title": self._start_alt,
            "svg:desc": self._start_alt,
        }
        starts |= dict.fromkeys((*_SHAPES, "presentation:notes", "style:header", "style:footer"), self._start_shape)
        return starts | dict.fromkeys(_LEFT_OUT, self._skip_element)

    def _end_handlers(self) -> dict[str, OnEnd]:
        ends: dict[str, OnEnd] = {
            "text:h": self._end_paragraph,
            "text:p": self._end_paragraph,
            "text:a": self._end_link,
            "text:list": self._end_list,
            "text:note": self._end_note,
            "office:annotation": self._end_comment,
            "dc:creator": self._resume,
            "table:table": self._end_table,
            "table:table-cell": self._end_cell,
            "table:covered-table-cell": self._end_cell,
            "draw:page": self._end_slide,
            "draw:frame": self._end_drawing,
            "math:annotation": self._resume,
            "svg:title": self._resume,
            "svg:desc": self._resume,
            "presentation:notes": self._end_speech,
            "style:header": self._end_header,
            "style:footer": self._end_footer,
        }
        return ends | dict.fromkeys(_SHAPES, self._end_shape)

    def _add_kind(self, kind: str) -> OnStart:
        return lambda _attributes: self.kinds.add(kind)

    def _skip_element(self, _attributes: Attributes) -> None:
        self.xml.release()
        self.xml.skip(then=self._resume)

    def _push(self) -> None:
        self.xml.release()
        self._frames.append(_Frame())

    def _pop(self) -> list[str]:
        blocks = self._frames.pop().blocks
        self._resume()
        return blocks

    def _resume(self) -> None:
        """Direct text to the open paragraph again, if there is one."""
        if self._frames[-1].is_open:
            self.xml.capture(self._words)
        else:
            self.xml.release()

    def _words(self, text: str) -> None:
        """Add text. White space in the file is one space; longer runs and breaks are separate elements."""
        if not text.isascii() or "  " in text or "\n" in text or "\t" in text or "\r" in text:
            text = _WHITE.sub(" ", text)
        self._frames[-1].pieces.append(text)

    def _start_style(self, attributes: Attributes) -> None:
        self._style = value(attributes, _STYLE_NAME)

    def _page_properties(self, attributes: Attributes) -> None:
        if value(attributes, _VISIBILITY) == "hidden":
            self._hidden_styles.add(self._style)

    def _number_style(self, attributes: Attributes) -> None:
        if value(attributes, _NUMBER_FORMAT):
            level = whole_number(value(attributes, _LEVEL), 1)
            self._numbered[self._style, level] = whole_number(value(attributes, _START_VALUE), 1)

    def _start_heading(self, attributes: Attributes) -> None:
        level = max(1, min(whole_number(value(attributes, _OUTLINE), 1), _MAX_HEADING))
        self._frames[-1].prefix = f"\n{'#' * level} "
        self._start_paragraph(attributes)

    def _start_paragraph(self, _attributes: Attributes) -> None:
        frame = self._frames[-1]
        frame.pieces = []
        frame.is_open = True
        self.xml.capture(self._words)

    def _end_paragraph(self) -> None:
        frame = self._frames[-1]
        frame.is_open = False
        self.xml.release()
        if text := "".join(frame.pieces).strip():
            frame.blocks.append(frame.prefix + text)
            frame.prefix = ""
        frame.blocks.extend(frame.after)
        frame.after = []
        frame.pieces = []

    def _add(self, text: str) -> None:
        """Add generated text: to the open paragraph, or as a block of its own."""
        frame = self._frames[-1]
        (frame.pieces if frame.is_open else frame.blocks).append(text)

    def _spaces(self, attributes: Attributes) -> None:
        self._add(" " * whole_number(value(attributes, _SPACES), 1, most=_MAX_SPACES))

    def _tab(self, _attributes: Attributes) -> None:
        self._add("\t")

    def _line_break(self, _attributes: Attributes) -> None:
        self._add("\n")

    def _start_link(self, attributes: Attributes) -> None:
        self._links.append((value(attributes, _HREF), len(self._frames[-1].pieces)))

    def _end_link(self) -> None:
        target, first = self._links.pop()
        shown = "".join(self._frames[-1].pieces[first:])
        if said := text_marks.link(target, shown):
            self._add(said)

    def _start_list(self, attributes: Attributes) -> None:
        lists = self._frames[-1].lists
        lists.append(_List(value(attributes, _LIST_STYLE) or (lists[-1].style if lists else "")))

    def _end_list(self) -> None:
        frame = self._frames[-1]
        frame.lists.pop()
        frame.prefix = ""

    def _start_item(self, _attributes: Attributes) -> None:
        frame = self._frames[-1]
        depth = len(frame.lists)
        listed = frame.lists[-1]
        first = self._numbered.get((listed.style, depth))
        marker = "-" if first is None else f"{first + listed.count}."
        listed.count += 1
        frame.prefix = f"{'  ' * (depth - 1)}{marker} "

    def _start_note(self, attributes: Attributes) -> None:
        kind = "e" if value(attributes, _NOTE_CLASS) == "endnote" else ""
        self._note_kinds.append(kind)
        marker = f"[^{kind}{self._note_kinds.count(kind)}]"
        self._add(marker)
        self._push()
        self._frames[-1].prefix = f"{marker} "

    def _end_note(self) -> None:
        self.notes.append("\n".join(self._pop()))

    def _start_comment(self, _attributes: Attributes) -> None:
        self._add(f"[comment {len(self._authors) + 1}]")
        self._authors.append([])
        self._push()

    def _end_comment(self) -> None:
        text = text_marks.join_blocks(self._pop())
        author = text_marks.one_line("".join(self._authors[-1]))
        self.comments.append(f"[comment {len(self._authors)}] {author}: {text}" if author else f"[comment] {text}")

    def _start_author(self, _attributes: Attributes) -> None:
        if self._authors:
            self.xml.capture(self._authors[-1].append)

    def _start_table(self, _attributes: Attributes) -> None:
        if self._holders:
            self._holders[-1].is_filled = True
        self._rows.append([])

    def _end_table(self) -> None:
        rows = self._rows.pop()
        frame = self._frames[-1]
        lines = ["; ".join(filter(None, row)) for row in rows] if self._rows else ["", *text_marks.table(rows), ""]
        (frame.after if frame.is_open else frame.blocks).extend(lines)

    def _start_row(self, _attributes: Attributes) -> None:
        if self._rows:
            self._rows[-1].append([])

    def _start_cell(self, attributes: Attributes) -> None:
        self._repeats.append(whole_number(value(attributes, _REPEATED), 1, most=_MAX_REPEATED))
        self._push()

    def _end_cell(self) -> None:
        text = text_marks.cell("\n".join(block.strip("\n") for block in self._pop()))
        repeats = self._repeats.pop()
        if self._rows and self._rows[-1]:
            self._rows[-1][-1].extend([text] * repeats)

    def _start_drawing(self, attributes: Attributes) -> None:
        self._holders.append(_Holder(value(attributes, _CLASS)))

    def _start_alt(self, _attributes: Attributes) -> None:
        alt: list[str] = []
        if self._holders:
            self._holders[-1].alt = alt
        self.xml.capture(alt.append)

    def _image(self, attributes: Attributes) -> None:
        """Read an image. A frame may contain one image in several formats; the first is the best one."""
        if self._holders and not self._holders[-1].is_picture and not self._holders[-1].is_filled:
            part = posixpath.normpath(value(attributes, _HREF))
            page = len(self.slides) + 1 if self._in_slide else 0
            self._holders[-1].is_picture = True
            self._holders[-1].number = self._pictures.number(part if part in self._package.archive else "", page=page)

    def _object(self, attributes: Attributes) -> None:
        """Read an embedded document: a chart with its title and its data as a table, or a formula."""
        if self._holders:
            self._holders[-1].is_filled = True
        inner = None if self._is_object else object_content(self._package, value(attributes, _HREF), self._pictures)
        if inner:
            frame = self._frames[-1]
            (frame.after if frame.is_open else frame.blocks).extend(inner.blocks)
            if formula := text_marks.one_line("".join(inner.formula)):
                self._add(formula)

    def _start_formula(self, _attributes: Attributes) -> None:
        self.xml.capture(self.formula.append)

    def _end_drawing(self) -> None:
        holder = self._holders.pop()
        if holder.is_picture:
            self._add(text_marks.picture_mark(holder.number, "".join(holder.alt)))

    def _start_shape(self, _attributes: Attributes) -> None:
        self._push()

    def _end_shape(self) -> None:
        blocks = self._pop()
        kind = self._holders[-1].kind if self._in_slide and self._holders else ""
        if kind == "title" and not self._title:
            self._title = text_marks.one_line(" ".join(blocks))
            return
        if kind == _PAGE_NUMBER:
            return
        frame = self._frames[-1]
        (frame.after if frame.is_open else frame.blocks).extend(blocks)

    def _start_slide(self, attributes: Attributes) -> None:
        self._in_slide = True
        self._title = ""
        self._speech = []
        self._is_hidden = value(attributes, _PAGE_STYLE) in self._hidden_styles
        self._push()

    def _end_slide(self) -> None:
        blocks = self._pop()
        number = len(self.slides) + 1
        head = f"[slide {number}, hidden]" if self._is_hidden else f"[slide {number}]"
        title = [f"# {self._title}"] if self._title else []
        speech = [f"[notes] {text_marks.join_blocks(self._speech)}"] if self._speech else []
        self.slides.append(text_marks.join_blocks([head, *title, *blocks, *speech, *self.comments]))
        self.comments = []
        self._in_slide = False

    def _end_speech(self) -> None:
        self._speech = self._pop()

    def _end_header(self) -> None:
        self._margin("header", self._pop())

    def _end_footer(self) -> None:
        self._margin("footer", self._pop())

    def _margin(self, kind: str, blocks: list[str]) -> None:
        if text := text_marks.join_blocks(blocks):
            self.margins.append(f"[{kind}] {text}")


def object_content(package: Package, address: str, pictures: Pictures) -> OdfContent | None:
    """Return the content of an embedded document."""
    part = posixpath.join(posixpath.normpath(address), "content.xml")
    if part not in package.archive:
        return None
    content = OdfContent(package, pictures, is_object=True)
    package.read(part, content.xml)
    return content
