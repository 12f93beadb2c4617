"""The wrapper around pdfium. Only `job` and the modules that it uses call this, inside the child process."""

from __future__ import annotations

import ctypes
import importlib
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

_CONTROLS: Final = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\ufffe\uffff]")
_MAX_ANNOTATIONS: Final = 1000
_ARABIC: Final = re.compile("[\u0620-\u06ff]")
_ARABIC_WORD: Final = re.compile("[\u060c\u061b\u061f]|[\u0610-\u061a\u0620-\u065f\u066e-\u06ef\u06fa-\u06ff]+")
"""Punctuation between words, or letters with their marks. Digits are written from left to right in Arabic too."""
_ARABIC_MARK: Final = re.compile("[\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed]")
_MAX_SPACE_EM: Final = 0.75
"""The maximum space between words of one phrase; words further apart are in two columns."""


@cache
def library() -> Any:
    """Import pypdfium2, which has no type annotations."""
    return importlib.import_module("pypdfium2")


@cache
def raw_functions() -> Any:
    """Return pdfium's C functions."""
    return importlib.import_module("pypdfium2.raw")


def open_document(data: bytes, password: str | None = None) -> Any:
    """Open a PDF. Raise `PdfiumError` with the reason.

    For a document without pages, pdfium reports the error of an earlier document, such as a missing password. So an
    empty document is opened first: it leaves the error of a file that is not a PDF.
    """
    raw_functions().FPDF_LoadMemDocument64(b"", 0, None)
    return library().PdfDocument(data, password=password)


def pages(document: Any, first: int, last: int) -> Iterator[tuple[int, Any]]:
    """Yield each page with its number, open only while the caller uses it; None for a page that cannot be loaded."""
    for number in range(first, last + 1):
        try:
            page = document[number - 1]
        except library().PdfiumError:
            yield number, None
            continue
        try:
            yield number, page
        finally:
            page.close()


def drawn_text(page: Any) -> str:
    """Return the text of a page in drawing order; empty if it has no text layer."""
    text_page = raw_functions().FPDFText_LoadPage(page)
    if not text_page:
        return ""
    try:
        count = max(0, raw_functions().FPDFText_CountChars(text_page))
        # pdfium counts characters but writes code units, two for some, and does not check the size of the buffer.
        buffer = (ctypes.c_ushort * (2 * count + 64))()
        units = raw_functions().FPDFText_GetText(text_page, 0, count, buffer)
        text = _utf16(buffer, units)
        return _clean(_reverse_arabic(text_page, text) if _ARABIC.search(text) else text)
    finally:
        raw_functions().FPDFText_ClosePage(text_page)


def _reverse_arabic(text_page: Any, text: str) -> str:
    """Reverse Arabic words that pdfium returns from the last letter to the first, as it does in PDFs of Chromium.

    The positions of the letters decide: in reading order, each is left of the previous one.
    """
    units = list(map(chr, memoryview(text.encode("utf-16-le")).cast("H")))  # pdfium counts UTF-16 code units
    for first, end in _from_the_left(text_page, "".join(units)):
        units[first:end] = units[first:end][::-1]
    return "".join(units).encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _from_the_left(text_page: Any, units: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of phrases in which each letter is right of the previous one. Words with marks are left
    unchanged."""
    first, end, rises = 0, 0, False
    before: _Word | None = None
    for found in _ARABIC_WORD.finditer(units):
        word = None if _ARABIC_MARK.search(found[0]) else _locate_word(text_page, found)
        if word is not None:
            if before is None or units[end : found.start()] not in ("", " ") or not word.goes_on(before):
                if rises:
                    yield first, end
                first, rises = found.start(), False
            end, rises = found.end(), rises or word.first < word.last
        before = word
    if rises:
        yield first, end


class _Word(NamedTuple):
    """The positions of its first and last letters, its right edge, and its font size."""

    first: float
    last: float
    right: float
    em: float

    def goes_on(self, before: _Word) -> bool:
        return before.last <= self.first and self.first - before.right < _MAX_SPACE_EM * self.em


def _locate_word(text_page: Any, found: re.Match[str]) -> _Word | None:
    """Return the position of a word; None if a letter is left of the previous one, is rotated, or does not match the
    text."""
    pdfium, x, y = raw_functions(), ctypes.c_double(), ctypes.c_double()
    start = pdfium.FPDFText_GetCharIndexFromTextIndex(text_page, found.start())
    matrix = pdfium.FS_MATRIX()
    if not pdfium.FPDFText_GetMatrix(text_page, start, matrix) or matrix.a <= abs(matrix.b):
        return None
    places: list[float] = []
    for index, unit in enumerate(found[0], start):
        if pdfium.FPDFText_GetUnicode(text_page, index) != ord(unit):
            return None
        if not pdfium.FPDFText_GetCharOrigin(text_page, index, x, y) or (places and x.value < places[-1]):
            return None
        places.append(x.value)
    box = pdfium.FS_RECTF()
    pdfium.FPDFText_GetLooseCharBox(text_page, start + len(places) - 1, box)
    return _Word(places[0], places[-1], box.right, matrix.a * pdfium.FPDFText_GetFontSize(text_page, start))


def side_notes(page: Any) -> Iterator[str]:
    """Yield `[field Name: Ada]` and `[note: see page 3]`: pdfium does not include them in the text of the page."""
    pdfium = raw_functions()
    for index in range(min(pdfium.FPDFPage_GetAnnotCount(page), _MAX_ANNOTATIONS)):
        annotation = pdfium.FPDFPage_GetAnnot(page, index)
        if not annotation:
            continue
        try:
            kind = pdfium.FPDFAnnot_GetSubtype(annotation)
            if kind == pdfium.FPDF_ANNOT_WIDGET and page.formenv:
                value = _read_text(pdfium.FPDFAnnot_GetFormFieldValue, page.formenv, annotation)
                if value and value != "Off":
                    yield f"[field {_read_text(pdfium.FPDFAnnot_GetFormFieldName, page.formenv, annotation)}: {value}]"
            elif kind not in (pdfium.FPDF_ANNOT_LINK, pdfium.FPDF_ANNOT_POPUP, pdfium.FPDF_ANNOT_WIDGET):
                note = _read_text(pdfium.FPDFAnnot_GetStringValue, annotation, b"Contents")
                if note:
                    yield f"[note: {note}]"
        finally:
            pdfium.FPDFPage_CloseAnnot(annotation)


def attached_names(document: Any, most: int) -> Iterator[str]:
    """Yield the names of the files attached to the document, such as the data of an invoice."""
    pdfium = raw_functions()
    for index in range(min(pdfium.FPDFDoc_GetAttachmentCount(document), most)):
        attachment = pdfium.FPDFDoc_GetAttachment(document, index)
        if attachment:
            yield _read_text(pdfium.FPDFAttachment_GetName, attachment)


def _read_text(function: Any, *arguments: Any) -> str:
    """Return the text that a pdfium function writes into a buffer; a first call returns the size of the buffer."""
    size_bytes = function(*arguments, None, 0)
    buffer = (ctypes.c_ushort * (size_bytes // 2 + 1))()
    function(*arguments, buffer, size_bytes)
    return _clean(_utf16(buffer, size_bytes // 2))


def _utf16(buffer: Any, units: int) -> str:
    """Return the text before the closing zero."""
    return bytes(memoryview(buffer).cast("B")[: 2 * max(0, units - 1)]).decode("utf-16-le", "replace")


def _clean(text: str) -> str:
    """Normalize line ends to `\\n`. Remove U+FFFE, which pdfium writes for a hyphen and line break inside a word."""
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n")).strip()
