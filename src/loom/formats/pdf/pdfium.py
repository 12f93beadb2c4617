"""pdfium, as the worker uses it. Only `pdf_job` and its parts call this, inside the child process."""

from __future__ import annotations

import ctypes
import importlib
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

_CONTROLS: Final = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\ufffe\uffff]")
_MAX_ANNOTATIONS: Final = 1000


@cache
def library() -> Any:
    """pypdfium2, which comes without types."""
    return importlib.import_module("pypdfium2")


@cache
def raw() -> Any:
    """The functions of pdfium itself."""
    return importlib.import_module("pypdfium2.raw")


def pages(document: Any, first: int, last: int) -> Iterator[tuple[int, Any]]:
    """Each page with its number, open while it is looked at; None in place of a page that cannot be loaded."""
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
    """The words of a page, in the order in which they were drawn; empty when it has no text layer."""
    text_page = raw().FPDFText_LoadPage(page)
    if not text_page:
        return ""
    try:
        count = max(0, raw().FPDFText_CountChars(text_page))
        # pdfium counts characters but writes code units, two for some, and does not check the room it is given.
        buffer = (ctypes.c_ushort * (2 * count + 64))()
        units = raw().FPDFText_GetText(text_page, 0, count, buffer)
        return _clean(_utf16(buffer, units))
    finally:
        raw().FPDFText_ClosePage(text_page)


def side_notes(page: Any) -> Iterator[str]:
    """`[field Name: Ada]` and `[note: see page 3]`: pdfium counts neither among the words of the page."""
    pdfium = raw()
    for index in range(min(pdfium.FPDFPage_GetAnnotCount(page), _MAX_ANNOTATIONS)):
        annotation = pdfium.FPDFPage_GetAnnot(page, index)
        if not annotation:
            continue
        try:
            kind = pdfium.FPDFAnnot_GetSubtype(annotation)
            if kind == pdfium.FPDF_ANNOT_WIDGET and page.formenv:
                value = _answered(pdfium.FPDFAnnot_GetFormFieldValue, page.formenv, annotation)
                if value and value != "Off":
                    yield f"[field {_answered(pdfium.FPDFAnnot_GetFormFieldName, page.formenv, annotation)}: {value}]"
            elif kind in (pdfium.FPDF_ANNOT_TEXT, pdfium.FPDF_ANNOT_FREETEXT, pdfium.FPDF_ANNOT_HIGHLIGHT):
                note = _answered(pdfium.FPDFAnnot_GetStringValue, annotation, b"Contents")
                if note:
                    yield f"[note: {note}]"
        finally:
            pdfium.FPDFPage_CloseAnnot(annotation)


def _answered(function: Any, *arguments: Any) -> str:
    """What a function of pdfium writes into a buffer whose size it is asked for first."""
    size_bytes = function(*arguments, None, 0)
    buffer = (ctypes.c_ushort * (size_bytes // 2 + 1))()
    function(*arguments, buffer, size_bytes)
    return _clean(_utf16(buffer, size_bytes // 2))


def _utf16(buffer: Any, units: int) -> str:
    """The text in front of the closing zero."""
    return bytes(memoryview(buffer).cast("B")[: 2 * max(0, units - 1)]).decode("utf-16-le", "replace")


def _clean(text: str) -> str:
    """`\\n` ends lines. U+FFFE, where pdfium took out the hyphen and the line break inside a word, goes."""
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n")).strip()
