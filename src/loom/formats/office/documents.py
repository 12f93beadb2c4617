"""One shape for all office files that we read ourselves: how many pages, which pictures, what text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias, assert_never

import msgspec

from loom.formats.facts import Limits
from loom.formats.office.docx import docx_text
from loom.formats.office.odf import check_not_encrypted, odp_slides, odt_text
from loom.formats.office.ooxml import Package, Pictures
from loom.formats.office.pptx import Presentation
from loom.formats.office.sheet_extras import sheet_extras
from loom.formats.office.sheets import Spreadsheet

Family: TypeAlias = Literal["docx", "pptx", "xlsx", "xlsb", "odt", "odp", "ods", "xls"]
PICTURE_FOLDERS: Final = ("xl/media/", "pictures/")


class Window(msgspec.Struct, frozen=True):
    """Pages counted from one, inclusive; `is_selected`: they were asked for by number."""

    first: int
    last: int
    is_selected: bool


class Opened(msgspec.Struct, frozen=True):
    """`pages` are slides or sheets; None for a text, which has no pages until a program lays it out."""

    pages: int | None
    package: Package | None
    pictures: Callable[[], Pictures]
    text: Callable[[Window], str]


def open_document(family: Family, data: bytes, *, name: str, limits: Limits) -> Opened:
    match family:
        case "docx":
            return _text_document(Package(data, name=name, limits=limits), docx_text)
        case "odt":
            return _text_document(_open_odf(data, name, limits), odt_text)
        case "pptx":
            return _presentation(Package(data, name=name, limits=limits))
        case "odp":
            return _open_presentation(_open_odf(data, name, limits))
        case "xlsx":
            return _workbook(data, name, limits, Package(data, name=name, limits=limits))
        case "xlsb":
            return _sheets_only(data, name, limits, Package(data, name=name, limits=limits))
        case "ods":
            return _sheets_only(data, name, limits, _open_odf(data, name, limits))
        case "xls":
            return _sheets_only(data, name, limits, None)
        case _:
            assert_never(family)


def _open_odf(data: bytes, name: str, limits: Limits) -> Package:
    package = Package(data, name=name, limits=limits)
    check_not_encrypted(package)
    return package


def _text_document(package: Package, read: Callable[[Package, Pictures], str]) -> Opened:
    pictures = Pictures()
    text = read(package, pictures)
    return Opened(pages=None, package=package, pictures=lambda: pictures, text=lambda _window: text)


def _presentation(package: Package) -> Opened:
    presentation = Presentation(package)
    count = len(presentation.slides)

    def pictures() -> Pictures:
        found = Pictures()
        presentation.text(1, count, found)
        return found

    return Opened(
        pages=count,
        package=package,
        pictures=pictures,
        text=lambda window: presentation.text(window.first, window.last, Pictures()),
    )


def _open_presentation(package: Package) -> Opened:
    pictures = Pictures()
    slides = odp_slides(package, pictures)
    return Opened(
        pages=len(slides),
        package=package,
        pictures=lambda: pictures,
        text=lambda window: "\n\n".join(slides[window.first - 1 : window.last]),
    )


def _workbook(data: bytes, name: str, limits: Limits, package: Package) -> Opened:
    book = Spreadsheet(data, name=name, limits=limits, package=package)
    pictures = Pictures()
    extras = sheet_extras(package, pictures)

    def text(window: Window) -> str:
        found = book.texts(window.first, window.last, is_selected=window.is_selected)
        after = extras[window.first - 1 : window.last]
        return "\n\n".join(f"{sheet}\n{extra}" if extra else sheet for sheet, extra in zip(found, after, strict=True))

    def checked() -> Pictures:
        book.listed()  # our own list of the sheets does not tell whether they can be read
        return pictures

    return Opened(pages=len(book.sheets), package=package, pictures=checked, text=text)


def _sheets_only(data: bytes, name: str, limits: Limits, package: Package | None) -> Opened:
    """Workbooks of which only calamine knows the layout: their pictures are listed in the order of the container."""
    book = Spreadsheet(data, name=name, limits=limits, package=None)
    pictures = Pictures()
    for part in package.archive.names if package else ():
        if part.lower().startswith(PICTURE_FOLDERS):
            pictures.number(part)

    def text(window: Window) -> str:
        return "\n\n".join(book.texts(window.first, window.last, is_selected=window.is_selected))

    return Opened(pages=len(book.sheets), package=package, pictures=lambda: pictures, text=text)
