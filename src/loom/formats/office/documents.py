"""One interface for all office files that our own readers read: the number of pages, the images, the text."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final, Literal, TypeAlias, assert_never

import msgspec

from loom.formats.facts import IntakeLimits
from loom.formats.office.archive import encrypted_error
from loom.formats.office.biff import is_locked, read_biff, without_chart_cells
from loom.formats.office.docx import docx_text
from loom.formats.office.odf import check_not_encrypted, odp_slides, odt_text
from loom.formats.office.ods import ods_extras, prepare_for_calamine
from loom.formats.office.ooxml import Package, Pictures
from loom.formats.office.pptx import Presentation
from loom.formats.office.sheet_extras import SheetExtras, sheet_extras
from loom.formats.office.sheets import Spreadsheet
from loom.formats.office.xlsb import read_xlsb

Family: TypeAlias = Literal["docx", "pptx", "xlsx", "xlsb", "odt", "odp", "ods", "xls"]
PICTURE_FOLDERS: Final = ("xl/media/", "pictures/")
_LEFT_OUT: Final = "comments, links and charts"


class Window(msgspec.Struct, frozen=True):
    """Pages counted from one, inclusive; `is_selected` means that the caller selected them by number."""

    first: int
    last: int
    is_selected: bool


class OfficeDocument(msgspec.Struct, frozen=True):
    """`pages` are slides or sheets; None for a text, which has no pages until a program lays it out."""

    pages: int | None
    package: Package | None
    pictures: Callable[[], Pictures]
    text: Callable[[Window], str]
    book: Spreadsheet | None = None
    notices: tuple[str, ...] = ()
    """What is left out of every result."""


def open_document(family: Family, data: bytes, *, name: str, limits: IntakeLimits) -> OfficeDocument:
    match family:
        case "docx":
            return _text_document(Package(data, name=name, limits=limits), docx_text)
        case "odt":
            return _text_document(_open_odf(data, name, limits), odt_text)
        case "pptx":
            return _presentation(Package(data, name=name, limits=limits))
        case "odp":
            return _open_presentation(_open_odf(data, name, limits))
        case "xlsx" | "xlsb" | "ods" | "xls":
            book, package = _open_spreadsheet(family, data, name=name, limits=limits)
            if family == "xlsx" and package:
                return _workbook(book, package)
            return _sheets_only(book, package, family)
        case _:
            assert_never(family)


def _open_spreadsheet(
    family: Family, data: bytes, *, name: str, limits: IntakeLimits
) -> tuple[Spreadsheet, Package | None]:
    """Return the workbook, and its container if it has one."""
    if family == "xls":
        if is_locked(data):
            raise encrypted_error(name)
        cells = without_chart_cells(data)
        return Spreadsheet(cells, name=name, limits=limits, package=None, biff=read_biff(data)), None
    package = _open_odf(data, name, limits) if family == "ods" else Package(data, name=name, limits=limits)
    if family == "xlsx":
        return Spreadsheet(data, name=name, limits=limits, package=package), package
    if family == "xlsb":
        return Spreadsheet(data, name=name, limits=limits, package=None, biff=read_xlsb(package)), package
    return Spreadsheet(prepare_for_calamine(data, package), name=name, limits=limits, package=None), package


def _open_odf(data: bytes, name: str, limits: IntakeLimits) -> Package:
    package = Package(data, name=name, limits=limits)
    check_not_encrypted(package)
    return package


def _text_document(package: Package, read: Callable[[Package, Pictures], str]) -> OfficeDocument:
    pictures = Pictures()
    text = read(package, pictures)
    return OfficeDocument(pages=None, package=package, pictures=lambda: pictures, text=lambda _window: text)


def _presentation(package: Package) -> OfficeDocument:
    presentation = Presentation(package)
    pictures = Pictures()
    slides = cache(lambda: presentation.slide_texts(pictures))

    def list_pictures() -> Pictures:
        slides()
        return pictures

    return OfficeDocument(
        pages=len(presentation.slides),
        package=package,
        pictures=list_pictures,
        text=lambda window: "\n\n".join(slides()[window.first - 1 : window.last]),
    )


def _open_presentation(package: Package) -> OfficeDocument:
    pictures = Pictures()
    slides = odp_slides(package, pictures)
    return OfficeDocument(
        pages=len(slides),
        package=package,
        pictures=lambda: pictures,
        text=lambda window: "\n\n".join(slides[window.first - 1 : window.last]),
    )


def _workbook(book: Spreadsheet, package: Package) -> OfficeDocument:
    pictures = Pictures()
    extras = sheet_extras(package, pictures)

    def check_pictures() -> Pictures:
        book.list_sheets()  # our own list of the sheets does not show whether they can be read
        return pictures

    return OfficeDocument(
        pages=len(book.sheets),
        package=package,
        pictures=check_pictures,
        text=lambda window: _with_extras(book, extras, window),
        book=book,
    )


def _with_extras(book: Spreadsheet, extras: list[SheetExtras], window: Window) -> str:
    found = book.texts(window.first, window.last, is_selected=window.is_selected)
    after = extras[window.first - 1 : window.last]
    return "\n\n".join(extra.after(sheet) for sheet, extra in zip(found, after, strict=True))


def _sheets_only(book: Spreadsheet, package: Package | None, family: Family) -> OfficeDocument:
    """Open a workbook whose layout only calamine reads: its images are listed in the order of the container."""
    pictures = Pictures()
    for part in package.archive.names if package else ():
        if part.lower().startswith(PICTURE_FOLDERS):
            pictures.number(part)

    def text(window: Window) -> str:
        if family == "ods" and package:
            return _with_extras(book, ods_extras(package, len(book.sheets)), window)
        extras = [SheetExtras(book.layout(number), []) for number in range(len(book.sheets))]
        return "\n\n".join((_with_extras(book, extras, window), f"[not shown: {_LEFT_OUT}]"))

    notices = () if family == "ods" else (f"{_LEFT_OUT.capitalize()} in .{family} files are not shown.",)
    return OfficeDocument(
        pages=len(book.sheets), package=package, pictures=lambda: pictures, text=text, book=book, notices=notices
    )
