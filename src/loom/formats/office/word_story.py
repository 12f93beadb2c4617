"""One part of a Word document that contains paragraphs (the body, a header, all footnotes), read in one pass.

Insertions are kept and deletions left out; fields show their result; one of several alternative contents is used.
"""

from __future__ import annotations

import posixpath
from functools import cached_property
from typing import ClassVar, Final

from loom.formats.office import text_marks
from loom.formats.office.equations import Equations
from loom.formats.office.ooxml import R_EMBED, R_ID, Package, Pictures
from loom.formats.office.runs import RunReader
from loom.formats.office.symbols import symbol
from loom.formats.office.word_fields import Fields
from loom.formats.office.word_styles import Numbering, Styles, list_level
from loom.formats.office.word_tables import CellBlock, Tables, table_lines
from loom.formats.office.xml_names import Attributes, keys, value
from loom.formats.office.xml_reader import XmlReader, whole_number
from loom.formats.office.xml_scan import OnEnd, OnStart

_W_VAL: Final = keys("w:val")
_W_ID: Final = keys("w:id")
_W_AUTHOR: Final = keys("w:author")
_W_FONT: Final = keys("w:font")
_W_CHAR: Final = keys("w:char")
_MAX_HEADING: Final = 6
_FIXED: Final = {"w:tab": "\t", "w:ptab": "\t", "w:br": "\n", "w:cr": "\n", "w:noBreakHyphen": "-"}
_LEFT_OUT: Final = (
    "w:moveFrom", "w:pPrChange", "w:rPrChange", "w:tblPrChange", "w:trPrChange", "w:tcPrChange", "w:sectPrChange",
    "w:sdtPr", "w:tabs",
)  # fmt: skip
_DELETION: Final = "w:del"
_BESIDE: Final = {"w:pPr": _DELETION, "w:trPr": _DELETION}
"""If nothing is deleted, it makes no difference whether a tag is among the properties."""


class WordContext:
    """The shared state of the parts of one document: styles, running numbers, images, and the notes in order of
    reference."""

    def __init__(self, package: Package, main: str, pictures: Pictures) -> None:
        self.package = package
        self.pictures = pictures
        self._main = main
        self.cited: dict[str, dict[str, str]] = {"footnotes": {}, "endnotes": {}, "comments": {}}
        self.margins: dict[str, str] = {}

    @cached_property
    def styles(self) -> Styles:
        return Styles.read(self.package, self.package.related_parts(self._main, "styles"))

    @cached_property
    def numbering(self) -> Numbering:
        return Numbering.read(self.package, self.package.related_parts(self._main, "numbering"), self.styles)

    def cite(self, kind: str, note: str) -> str:
        """Return the marker of a note in the text, which is also the marker before the note's text at the end."""
        cited = self.cited[kind]
        pattern = {"footnotes": "[^{}]", "endnotes": "[^e{}]", "comments": "[comment {}]"}[kind]
        return cited.setdefault(note, pattern.format(len(cited) + 1))


class _Paragraph:
    __slots__ = ("after", "alt", "is_merged", "is_shown", "level", "num_id", "outline", "pieces", "style")

    def __init__(self, pieces: list[str]) -> None:
        self.pieces = pieces
        self.after: list[CellBlock] = []
        self.style = ""
        self.num_id = ""
        self.level: int | None = None
        self.outline: int | None = None
        self.is_merged = False
        self.alt = ""
        self.is_shown = False


class StoryReader(RunReader):
    """Reads the parts of one document, one after the other.

    After `read`, `blocks` are the part's paragraphs and tables, `notes` the texts of its footnotes or comments by id.
    """

    fallback_is_better: ClassVar = frozenset({"wpi", "aink", "am3d"})
    """Ink and 3D models."""
    words: ClassVar = ("w:t", "m:t", "a:t")

    def __init__(self, context: WordContext) -> None:
        self._tables = Tables()
        self._fields = Fields(self._pieces)
        super().__init__(context.package)
        self.blocks: list[CellBlock] = []
        self.notes: dict[str, str] = {}
        self.is_document = False
        self._context = context
        self._stray = self._paragraph = _Paragraph([])
        """Receives text outside paragraphs; a valid document has none."""
        self._carried: _Paragraph | None = None
        """A paragraph whose end was deleted: the next one continues its text."""
        self._saved: list[tuple[list[CellBlock], _Paragraph]] = []
        self._reading = ""
        self._reading_first = 0
        self._note = ("", "")
        self._in_properties = False

    def read(self, part: str) -> None:
        self.blocks, self.notes = [], {}
        self._stray = self._paragraph = _Paragraph([])
        self._carried = None
        self._fields.clear()
        self._part = part
        self._package.read(part, self._xml)
        self._flush()

    def _reader(self) -> XmlReader:
        fields, equations = self._fields, Equations(self._pieces)
        left_out: dict[str, OnEnd] = dict.fromkeys(_LEFT_OUT, self._skip_element)
        return self._made_reader(
            self._starts() | fields.starts | equations.starts,
            self._open_handlers() | fields.opens | equations.opens | left_out,
            self._end_handlers() | fields.ends | equations.ends,
            words=fields.words,
            skipped=(*_LEFT_OUT, _DELETION),
            beside=_BESIDE,
        )

    def _pieces(self) -> list[str]:
        return self._paragraph.pieces

    def _starts(self) -> dict[str, OnStart]:
        starts: dict[str, OnStart] = {
            "w:pStyle": self._style,
            "w:numId": self._num_id,
            "w:ilvl": self._level,
            "w:outlineLvl": self._outline,
            "w:sym": self._symbol,
            "w:hyperlink": self._start_link,
            "w:altChunk": self._embedded_document,
            "w:headerReference": self._header,
            "w:footerReference": self._footer,
            "w:gridBefore": self._tables.grid_before,
            "w:gridSpan": self._tables.grid_span,
            "w:vMerge": self._tables.merge,
            "w:hMerge": self._tables.merge,
            "wp:docPr": self._drawing_properties,
            "pic:cNvPr": self._drawing_properties,
            "v:shape": self._shape,
            "v:textpath": self._text_path,
            "a:blip": self._blip,
            "v:imagedata": self._image_data,
        }
        for kind in ("footnote", "endnote", "comment"):
            starts[f"w:{kind}"] = self._start_note
            starts[f"w:{kind}Reference"] = self._cites(f"{kind}s")
        return starts

    def _open_handlers(self) -> dict[str, OnEnd]:
        opens: dict[str, OnEnd] = {
            "w:document": self._document,
            "w:p": self._start_paragraph,
            "w:pPr": self._start_properties,
            _DELETION: self._deletion,
            "w:txbxContent": self._open,
            "w:tbl": self._start_table,
            "w:tr": self._tables.start_row,
            "w:trPr": self._tables.start_row_properties,
            "w:tc": self._start_cell,
            "w:drawing": self._start_drawing,
            "w:rt": self._start_reading,
        }
        for name, text in _FIXED.items():
            opens[name] = self._writes(text)
        return opens

    def _end_handlers(self) -> dict[str, OnEnd]:
        return {
            "w:p": self._end_paragraph,
            "w:pPr": self._end_properties,
            "w:hyperlink": self._fields.end_link,
            "w:txbxContent": self._end_text_box,
            "w:tbl": self._end_table,
            "w:tr": self._tables.end_row,
            "w:trPr": self._tables.end_row_properties,
            "w:tc": self._end_cell,
            "w:footnote": self._end_note,
            "w:endnote": self._end_note,
            "w:comment": self._end_note,
            "w:drawing": self._end_drawing,
            "w:rt": self._end_reading,
            "w:rubyBase": self._end_base,
        }

    def _document(self) -> None:
        self.is_document = True

    def _start_paragraph(self) -> None:
        carried, self._carried = self._carried, None
        self._paragraph = _Paragraph(carried.pieces if carried else [])

    def _end_paragraph(self) -> None:
        paragraph = self._paragraph
        self._paragraph = self._stray
        self._fields.end_paragraph()
        if paragraph.is_merged and not paragraph.after:
            self._carried = paragraph
            return
        self._add(paragraph)

    def _flush(self) -> None:
        """Add a carried paragraph as a block of its own, if no other paragraph follows it."""
        carried, self._carried = self._carried, None
        if carried:
            self._add(carried)

    def _add(self, paragraph: _Paragraph) -> None:
        prefix = self._prefix(paragraph)
        if text := "".join(paragraph.pieces).strip():
            self.blocks.append(prefix + text)
        self.blocks.extend(paragraph.after)

    def _prefix(self, paragraph: _Paragraph) -> str:
        heading, num_id, level = paragraph.outline, paragraph.num_id, paragraph.level
        if paragraph.style:
            look = self._context.styles.look(paragraph.style)
            heading = look.heading if heading is None else heading
            if not num_id:
                num_id = look.num_id
                level = look.level if level is None else level
        if not num_id and not heading:
            return ""
        level = level or 0
        marker = self._context.numbering.marker(num_id, level) if num_id else ""
        if heading:
            return f"\n{'#' * min(heading, _MAX_HEADING)} {'' if marker == '- ' else marker}"
        return "  " * level + marker if marker else ""

    def _start_properties(self) -> None:
        self._in_properties = True

    def _end_properties(self) -> None:
        self._in_properties = False

    def _style(self, attributes: Attributes) -> None:
        self._paragraph.style = value(attributes, _W_VAL)

    def _num_id(self, attributes: Attributes) -> None:
        self._paragraph.num_id = value(attributes, _W_VAL)

    def _level(self, attributes: Attributes) -> None:
        self._paragraph.level = list_level(value(attributes, _W_VAL))

    def _outline(self, attributes: Attributes) -> None:
        level = whole_number(value(attributes, _W_VAL), 9)
        self._paragraph.outline = level + 1 if level < 9 else 0

    def _say(self, text: str) -> None:
        if not self._fields.is_code:
            self._paragraph.pieces.append(text)

    def _show(self, lines: list[str]) -> None:
        self._paragraph.after.extend(lines)
        self._paragraph.is_shown = True

    def _writes(self, text: str) -> OnEnd:
        return lambda: self._paragraph.pieces.append(text)

    def _symbol(self, attributes: Attributes) -> None:
        self._paragraph.pieces.append(symbol(value(attributes, _W_FONT), value(attributes, _W_CHAR)))

    def _start_link(self, attributes: Attributes) -> None:
        relation = self._package.relations(self._part).get(value(attributes, R_ID))
        self._fields.start_link(relation.target if relation and relation.is_external else "")

    def _embedded_document(self, attributes: Attributes) -> None:
        """Handle an embedded document of another type, which Word would import when it opens this one."""
        name = posixpath.basename(self._package.target(self._part, value(attributes, R_ID)))
        self._flush()
        self.blocks.append(f"[embedded document {name}, not shown]" if name else "[embedded document, not shown]")

    def _start_reading(self) -> None:
        self._reading_first = len(self._paragraph.pieces)

    def _end_reading(self) -> None:
        """Take the ruby text out of the paragraph: it precedes its base characters in the file and follows them in the
        text."""
        pieces = self._paragraph.pieces
        self._reading = "".join(pieces[self._reading_first :])
        del pieces[self._reading_first :]

    def _end_base(self) -> None:
        if self._reading:
            self._paragraph.pieces.append(f"({self._reading})")
            self._reading = ""

    def _skip_element(self) -> None:
        self._xml.skip()

    def _deletion(self) -> None:
        if self._in_properties:
            self._paragraph.is_merged = True
        elif self._tables.in_row_properties:
            self._tables.delete_row()
        else:
            self._xml.skip()

    def _open(self) -> None:
        self._saved.append((self.blocks, self._paragraph))
        self.blocks = []
        self._paragraph = self._stray

    def _close(self) -> list[CellBlock]:
        self._flush()
        inner = self.blocks
        self.blocks, self._paragraph = self._saved.pop()
        return inner

    def _end_text_box(self) -> None:
        inner = self._close()
        self._paragraph.after.extend(inner)
        self._paragraph.is_shown = True

    def _start_note(self, attributes: Attributes) -> None:
        self._note = (value(attributes, _W_ID), value(attributes, _W_AUTHOR))
        self._open()

    def _end_note(self) -> None:
        note, author = self._note
        text = text_marks.join_blocks(table_lines(self._close()))
        self.notes[note] = f"{author}: {text}" if author and text else text

    def _cites(self, kind: str) -> OnStart:
        def reference(attributes: Attributes) -> None:
            self._paragraph.pieces.append(self._context.cite(kind, value(attributes, _W_ID)))

        return reference

    def _header(self, attributes: Attributes) -> None:
        self._margin(attributes, "header")

    def _footer(self, attributes: Attributes) -> None:
        self._margin(attributes, "footer")

    def _margin(self, attributes: Attributes, kind: str) -> None:
        if part := self._package.target(self._part, value(attributes, R_ID)):
            self._context.margins[part] = kind

    def _start_cell(self) -> None:
        self._tables.start_cell()
        self._open()

    def _end_cell(self) -> None:
        self._tables.end_cell(self._close())

    def _start_table(self) -> None:
        self._flush()
        self._tables.start()

    def _end_table(self) -> None:
        self.blocks.extend(self._tables.end())

    def _start_drawing(self) -> None:
        self._paragraph.alt = ""
        self._paragraph.is_shown = False

    def _drawing_properties(self, attributes: Attributes) -> None:
        if alt := attributes.get("descr", "") or attributes.get("title", ""):
            self._paragraph.alt = alt

    def _shape(self, attributes: Attributes) -> None:
        self._paragraph.alt = attributes.get("alt", "")

    def _text_path(self, attributes: Attributes) -> None:
        self._paragraph.pieces.append(attributes.get("string", ""))

    def _blip(self, attributes: Attributes) -> None:
        self._picture(value(attributes, R_EMBED))

    def _image_data(self, attributes: Attributes) -> None:
        self._picture(value(attributes, R_ID))

    def _picture(self, relation_id: str) -> None:
        paragraph = self._paragraph
        part = self._package.target(self._part, relation_id)
        number = self._context.pictures.number(part)
        paragraph.pieces.append(text_marks.picture_mark(number, paragraph.alt))
        paragraph.is_shown = True
        paragraph.alt = ""

    def _end_drawing(self) -> None:
        """End a drawing. If nothing else of it can be shown, its alternative text is."""
        paragraph = self._paragraph
        if paragraph.alt and not paragraph.is_shown:
            paragraph.pieces.append(f"[drawing: {text_marks.one_line(paragraph.alt)}]")
