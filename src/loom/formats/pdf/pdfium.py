"""pdfium, as the worker uses it. Only `pdf_job` and its parts call this, inside the child process."""

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
"""A sign between words, or letters with their marks. Digits are written from left to right in Arabic too."""
_ARABIC_MARK: Final = re.compile("[\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed]")
_MAX_SPACE_EM: Final = 0.75
"""Between words of one phrase; what is further apart stands in two columns."""


@cache
def library() -> Any:
    """pypdfium2, which comes without types."""
    return importlib.import_module("pypdfium2")


@cache
def raw_functions() -> Any:
    """Return the functions of pdfium itself."""
    return importlib.import_module("pypdfium2.raw")


def pages(document: Any, first: int, last: int) -> Iterator[tuple[int, Any]]:
    """Yield each page with its number, open while it is looked at; None in place of a page that cannot be loaded."""
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
    """Return the words of a page, in the order in which they were drawn; empty when it has no text layer."""
    text_page = raw_functions().FPDFText_LoadPage(page)
    if not text_page:
        return ""
    try:
        count = max(0, raw_functions().FPDFText_CountChars(text_page))
        # pdfium counts characters but writes code units, two for some, and does not check the room it is given.
        buffer = (ctypes.c_ushort * (2 * count + 64))()
        units = raw_functions().FPDFText_GetText(text_page, 0, count, buffer)
        text = _utf16(buffer, units)
        return _clean(_reverse_arabic(text_page, text) if _ARABIC.search(text) else text)
    finally:
        raw_functions().FPDFText_ClosePage(text_page)


def _reverse_arabic(text_page: Any, text: str) -> str:
    """Arabic words that pdfium gives from their last letter to their first, as it does with those of Chromium, turned.

    Where the letters stand tells: in the order in which they are read, each is left of the one before.
    """
    units = list(map(chr, memoryview(text.encode("utf-16-le")).cast("H")))  # pdfium counts these
    for first, end in _from_the_left(text_page, "".join(units)):
        units[first:end] = units[first:end][::-1]
    return "".join(units).encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _from_the_left(text_page: Any, units: str) -> Iterator[tuple[int, int]]:
    """Yield where phrases begin and end of which each letter is right of the one before. Words with marks are left
    alone."""
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
    """Where its first and its last letter stand, where it ends, and the size of its font."""

    first: float
    last: float
    right: float
    em: float

    def goes_on(self, before: _Word) -> bool:
        return before.last <= self.first and self.first - before.right < _MAX_SPACE_EM * self.em


def _locate_word(text_page: Any, found: re.Match[str]) -> _Word | None:
    """Return None where a letter is left of the one before, stands on its head or side, or is not the one that is
    meant."""
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
    """`[field Name: Ada]` and `[note: see page 3]`: pdfium counts neither among the words of the page."""
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
    """Of the files that were put into the document, such as the data of an invoice."""
    pdfium = raw_functions()
    for index in range(min(pdfium.FPDFDoc_GetAttachmentCount(document), most)):
        attachment = pdfium.FPDFDoc_GetAttachment(document, index)
        if attachment:
            yield _read_text(pdfium.FPDFAttachment_GetName, attachment)


def _read_text(function: Any, *arguments: Any) -> str:
    """Return what a function of pdfium writes into a buffer whose size it is asked for first."""
    size_bytes = function(*arguments, None, 0)
    buffer = (ctypes.c_ushort * (size_bytes // 2 + 1))()
    function(*arguments, buffer, size_bytes)
    return _clean(_utf16(buffer, size_bytes // 2))


def _utf16(buffer: Any, units: int) -> str:
    """Return the text in front of the closing zero."""
    return bytes(memoryview(buffer).cast("B")[: 2 * max(0, units - 1)]).decode("utf-16-le", "replace")


def _clean(text: str) -> str:
    """`\\n` ends lines. U+FFFE, where pdfium took out the hyphen and the line break inside a word, goes."""
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n")).strip()
