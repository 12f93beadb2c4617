"""The parts of OpenDocument workbooks (.ods) that calamine does not read: errors, long times, comments, links and
charts."""

from __future__ import annotations

import io
import re
import zipfile
from typing import Final

from loom.formats.office import text_marks
from loom.formats.office.odf_content import object_content
from loom.formats.office.ooxml import Package, Pictures
from loom.formats.office.sheet_extras import MAX_COMMENTS, MAX_LINKS, SheetExtras
from loom.formats.office.sheet_rows import column_name
from loom.formats.office.xml_names import Attributes, keys, value
from loom.formats.office.xml_reader import MAX_XML_BYTES, XmlReader, whole_number

_CONTENT: Final = "content.xml"
_KEPT: Final = ("mimetype", "META-INF/manifest.xml")
_ERROR: Final = b' office:string-value="" calcext:value-type="error"'
_SHOWN_ERROR: Final = b' calcext:value-type="error"'
"""A cell with this type and no value has its displayed text: `#N/A`."""
_SPAN: Final = re.compile(
    rb'office:value-type="time" office:time-value="(-?)PT([0-9]{1,9})H([0-9]{2})M([0-9]{2})(?:[.,][0-9]+)?S"'
)
_HOURS_OF_A_DAY: Final = 24
_NUMBER: Final = re.compile(
    rb'(<table:table-cell\b[^>]*?) office:value-type="(?:float|percentage|currency|date|time)"([^>]*[^>/])>'
    rb"(<text:p(?: [^>]*)?>([^<]+)</text:p>)"
)
"""A cell with a number and its displayed text."""
_VALUE: Final = re.compile(rb' office:(?:value|date-value|time-value|currency)="([^"]*)"| calcext:value-type="[^"]*"')
_PLAIN_VALUE: Final = re.compile(rb' office:value="(-?[0-9]{12,21})"')
_BARE: Final = re.compile(rb"-?[0-9.]+(?:E[+-]?[0-9]+)?")
_KINDS: Final = (b"float", b"percentage", b"currency", b"date", b"time")
_VALUES: Final = (b"value", b"date-value", b"time-value")
_UNUSUAL: Final = (
    re.compile(
        rb' office:value-type="(?:float|percentage|currency|date|time)"[^>]*+'
        rb"(?:(?<=/)>|>(?!<text:p(?: [^>]*+)?>[^<]++</text:p>))"
    ),
    re.compile(rb">[^<]*+office:[dtv]"),
    re.compile(rb' office:value="-?[0-9]{12}'),
)
"""A cell with a number but without a plain displayed text; the name of an attribute within text; a long integer."""
_EXTRAS: Final = (b"<office:annotation", b"<draw:object", b"<text:a ")
_TOO_LARGE: Final = "[comments, links and charts of a workbook as large as this one are not shown]"
_ROWS_REPEATED: Final = keys("table:number-rows-repeated")
_COLUMNS_REPEATED: Final = keys("table:number-columns-repeated")
_HREF: Final = keys("xlink:href")


def prepare_for_calamine(data: bytes, package: Package) -> bytes:
    """Return the workbook with errors, times beyond a day, and numbers with a displayed text as text; return it
    unchanged if it has none of these."""
    if _CONTENT not in package.archive:
        return data
    content = package.archive.read(_CONTENT)
    ready = displayed_numbers(_SPAN.sub(_span, content.replace(_ERROR, _SHOWN_ERROR)))
    if ready == content:
        return data
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for part in _KEPT:
            if part in package.archive:
                archive.writestr(part, package.archive.read(part))
        archive.writestr(_CONTENT, ready)
    return buffer.getvalue()


def displayed_numbers(content: bytes) -> bytes:
    """Return the content with each number that has a displayed text as that text."""
    is_usual = not any(pattern.search(content) for pattern in _UNUSUAL)
    return _all_displayed(content) if is_usual else displayed_one_by_one(content)


def displayed_one_by_one(content: bytes) -> bytes:
    return _NUMBER.sub(_displayed_cell, content)


def _all_displayed(content: bytes) -> bytes:
    """Return all numbers as text without looking at each: for content in which nothing is `_UNUSUAL`.

    An attribute that calamine does not know takes the place of the value.
    """
    content = content.replace(
        b' office:value-type="float" office:value="', b' office:value-type="string" hidden:value="'
    )
    for kind in _KINDS:
        if (typed := b' office:value-type="%b"' % kind) in content:
            content = content.replace(typed, b' office:value-type="string"')
    for name in _VALUES:
        if (named := b' office:%b="' % name) in content:
            content = content.replace(named, b' hidden:%b="' % name)
    return content


def _displayed_cell(found: re.Match[bytes]) -> bytes:
    """Return the cell as text: the displayed text, except for long integers that are displayed without all their
    digits."""
    head, attributes, paragraph, shown = found.groups()
    long = _PLAIN_VALUE.search(attributes)
    if long is not None and _BARE.fullmatch(shown):
        paragraph = paragraph.replace(b">" + shown + b"<", b">" + long[1] + b"<", 1)
    return b'%b office:value-type="string"%b>%b' % (head, _VALUE.sub(b"", attributes), paragraph)


def _span(found: re.Match[bytes]) -> bytes:
    sign, hours, minutes, seconds = found.groups()
    if not sign and int(hours) < _HOURS_OF_A_DAY:
        return found[0]
    return b'office:value-type="string" office:string-value="%b%d:%b:%b"' % (sign, int(hours), minutes, seconds)


def ods_extras(package: Package, sheets: int) -> list[SheetExtras]:
    """Return the lines that follow the cells of each sheet."""
    nothing = [SheetExtras([], [])] * sheets
    content = package.archive.read(_CONTENT)
    if not any(mark in content for mark in _EXTRAS):
        return nothing
    if package.archive.size_bytes(_CONTENT) > MAX_XML_BYTES:
        return [SheetExtras([_TOO_LARGE], []), *nothing][:sheets]
    reader = _ExtrasReader(package)
    package.read(_CONTENT, reader.xml)
    return [*reader.found, *nothing][:sheets]


class _ExtrasReader:
    """`found` are the extras of the sheets, in order."""

    def __init__(self, package: Package) -> None:
        self.found: list[SheetExtras] = []
        self._package = package
        self._row = self._next_row = 0
        self._column = self._next_column = 0
        self._comments = 0
        self._author: list[str] = []
        self._words: list[str] | None = None
        """The text of the open comment."""
        self.xml = XmlReader(
            {
                "table:table": self._start_sheet,
                "table:table-row": self._start_row,
                "table:table-cell": self._start_cell,
                "table:covered-table-cell": self._start_cell,
                "office:annotation": self._start_comment,
                "dc:creator": self._start_author,
                "text:p": self._start_paragraph,
                "text:a": self._link,
                "draw:object": self._object,
                "table:tracked-changes": self._skip_element,
                "table:dde-links": self._skip_element,
            },
            {"office:annotation": self._end_comment, "dc:creator": self._end_words, "text:p": self._end_words},
            is_mixed=True,
        )

    @property
    def _place(self) -> str:
        return f"{column_name(self._column)}{self._row + 1}"

    def _skip_element(self, _attributes: Attributes) -> None:
        self.xml.skip()

    def _start_sheet(self, _attributes: Attributes) -> None:
        self.found.append(SheetExtras([], []))
        self._next_row = 0

    def _start_row(self, attributes: Attributes) -> None:
        self._row = self._next_row
        self._next_row += whole_number(value(attributes, _ROWS_REPEATED), 1)
        self._next_column = 0

    def _start_cell(self, attributes: Attributes) -> None:
        self._column = self._next_column
        self._next_column += whole_number(value(attributes, _COLUMNS_REPEATED), 1)

    def _start_comment(self, _attributes: Attributes) -> None:
        self._author, self._words = [], []

    def _start_author(self, _attributes: Attributes) -> None:
        self.xml.capture(self._author.append)

    def _start_paragraph(self, _attributes: Attributes) -> None:
        if self._words is not None:
            self._words.append(" ")
            self.xml.capture(self._words.append)

    def _end_words(self) -> None:
        self.xml.release()

    def _end_comment(self) -> None:
        author, text = text_marks.one_line("".join(self._author)), text_marks.one_line("".join(self._words or ()))
        self._words = None
        self._comments += 1
        if self.found and text and self._comments <= MAX_COMMENTS:
            self.found[-1].lines.append(f"[comment {self._place}] {f'{author}: ' if author else ''}{text}")

    def _link(self, attributes: Attributes) -> None:
        target = value(attributes, _HREF)
        is_shown = self._words is None and text_marks.is_web_address(target)
        if self.found and is_shown and len(self.found[-1].links) < MAX_LINKS:
            self.found[-1].links.append((self._place, target))

    def _object(self, attributes: Attributes) -> None:
        chart = object_content(self._package, value(attributes, _HREF), Pictures())
        if self.found and chart and chart.blocks:
            self.found[-1].lines.extend(("[chart]", *chart.blocks))
