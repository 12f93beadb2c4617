"""Office files: facts, text, images; pages through LibreOffice.

Our own readers read texts and presentations, calamine reads spreadsheets in a worker. Word and PowerPoint files from
before 2007 are converted to the current format first. Macros are never run and nothing outside the file is ever
fetched.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar, assert_never

import msgspec

from loom.content.media import Media, digest_of, size_label
from loom.content.recipes import EmbeddedImage, Page, Slice, Text, Thumb
from loom.errors import MediaError, TooLarge, Unreadable, Unsupported
from loom.formats import libreoffice
from loom.formats.facts import Inspection, IntakeLimits, Rendered
from loom.formats.office import pictures as office_pictures
from loom.formats.office import text_marks
from loom.formats.office.archive import SAVE_AGAIN, damage_reported, encrypted_error
from loom.formats.office.documents import Family, OfficeDocument, Window, open_document
from loom.formats.office.pages import conversions
from loom.formats.office.ppt import count_slides
from loom.formats.office.read_messages import ReadRows
from loom.formats.office.read_worker import inspect_in_worker, render_in_worker, rows_in_worker
from loom.formats.office.sheet_messages import SheetText
from loom.formats.pdf import inspect_pdf, render_pdf
from loom.formats.pdf.messages import clamp_pages
from loom.formats.sniff.kinds import label_of

T = TypeVar("T")
OfficeRecipe: TypeAlias = Text | EmbeddedImage | Page | Thumb | Slice

_OOXML: Final = "application/vnd.openxmlformats-officedocument."
_MS: Final = "application/vnd.ms-"
_ODF: Final = "application/vnd.oasis.opendocument."
_FAMILIES: Final[dict[str, Family]] = {
    _OOXML + "wordprocessingml.document": "docx",
    _OOXML + "wordprocessingml.template": "docx",
    _MS + "word.document.macroenabled.12": "docx",
    _OOXML + "presentationml.presentation": "pptx",
    _OOXML + "presentationml.slideshow": "pptx",
    _OOXML + "presentationml.template": "pptx",
    _MS + "powerpoint.presentation.macroenabled.12": "pptx",
    _OOXML + "spreadsheetml.sheet": "xlsx",
    _OOXML + "spreadsheetml.template": "xlsx",
    _MS + "excel.sheet.macroenabled.12": "xlsx",
    _MS + "excel.sheet.binary.macroenabled.12": "xlsb",
    _ODF + "text": "odt",
    _ODF + "presentation": "odp",
    _ODF + "spreadsheet": "ods",
    _MS + "excel": "xls",
}
_LAID_OUT: Final[dict[str, str]] = {
    "docx": _OOXML + "wordprocessingml.document",
    "pptx": _OOXML + "presentationml.presentation",
    "xlsx": _OOXML + "spreadsheetml.sheet",
}
"""Templates, slide shows and files with macros are laid out as their basic type."""
_PPT: Final = _MS + "powerpoint"
_CONVERTED: Final = {"application/msword": "WordDocument", _PPT: "PowerPoint Document"}
"""Legacy types that LibreOffice converts to current ones, with the stream that each must contain."""
_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_SHEET_FAMILIES: Final = ("xlsx", "xlsb", "ods", "xls")
_CONTROLS: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_CONTROL_BYTES: Final = bytes(set(range(32)) - set(b"\t\n\r"))
_NO_CHARACTERS: Final = ("\ufffe", "\uffff")
_ENCRYPTED: Final = ("EncryptedPackage", "EncryptedSummary")


def inspect_office(data: bytes, media_type: str, name: str, limits: IntakeLimits) -> Inspection:
    """Return the facts of a document, or raise if it cannot be read. `pages` counts slides or sheets; a text has
    none."""
    if len(data) > limits.max_office_bytes:
        size, allowed = size_label(len(data)), size_label(limits.max_office_bytes)
        raise TooLarge(f"{name or 'The document'} is {size}; the limit for office files is {allowed}.", name=name)
    media = Media(digest=digest_of(data), media_type=media_type, size_bytes=len(data), name=name)

    def inspect(content: bytes, of: Media) -> Inspection:
        return inspect_in_worker(content, of, limits)

    if media_type in libreoffice.FOREIGN:
        found = _inspect_foreign(data, media, limits)
    else:
        found = inspect(data, media) if media_type in _CONVERTED else _read(data, media, limits, inspect)
    return msgspec.structs.replace(
        found, media=msgspec.structs.replace(media, pages=found.media.pages), category="office"
    )


def _inspect_foreign(data: bytes, media: Media, limits: IntakeLimits) -> Inspection:
    """Inspect the file as LibreOffice converts it; nothing else can detect that it is damaged."""
    try:
        content, of = conversions().convert(
            data, media, media.media_type, libreoffice.FOREIGN[media.media_type], limits
        )
    except Unreadable as error:
        raise Unreadable(
            f"{media.name or 'The file'} is {label_of(media.media_type)} that LibreOffice cannot read.",
            name=media.name,
            hint="Open it in the program that made it, save it as PDF and attach that.",
        ) from error
    is_drawn = of.media_type == libreoffice.PDF
    found = inspect_pdf(content, media.name, limits) if is_drawn else inspect_in_worker(content, of, limits)
    said = f"{media.name or 'The file'} is {label_of(media.media_type)}, read through LibreOffice."
    return msgspec.structs.replace(found, notices=(said, *found.notices))


def draw_as_pdf(data: bytes, media: Media, limits: IntakeLimits) -> bytes | None:
    """Return a drawing that only LibreOffice reads as a PDF, or None for any other document."""
    if libreoffice.FOREIGN.get(media.media_type) != libreoffice.PDF:
        return None
    return conversions().convert(data, media, media.media_type, libreoffice.PDF, limits)[0]


def is_converted(media_type: str) -> bool:
    """Return whether this is a legacy type that LibreOffice converts to a current one."""
    return media_type in _CONVERTED


def inspect_legacy(data: bytes, media: Media) -> Inspection:
    """Inspect a file that LibreOffice will convert, in this process, which is a worker."""
    _check_legacy(data, media.media_type, media.name)
    pages = count_slides(data) if media.media_type == _PPT else None
    return Inspection(media=msgspec.structs.replace(media, pages=pages), category="office")


def inspect_opened(opened: OfficeDocument, media: Media) -> Inspection:
    """Inspect in this process, which is a worker."""
    with damage_reported(media.name):
        pictures = opened.pictures()
        listed = office_pictures.list_pictures(opened.package.archive, pictures.found) if opened.package else ()
    notices = opened.notices
    if opened.package and opened.package.has_macros:
        notices = (*notices, "Its macros were ignored.")
    if pictures.left_out:
        notices = (*notices, f"Only the first {len(listed)} images are listed.")
    return Inspection(
        media=msgspec.structs.replace(media, pages=opened.pages), category="office", notices=notices, pictures=listed
    )


def render_office(data: bytes, media: Media, recipe: OfficeRecipe, limits: IntakeLimits) -> Rendered:
    match recipe:
        case Text() | EmbeddedImage():
            return _read(data, media, limits, lambda content, of: _render_converted(content, of, recipe, limits))
        case Page() | Thumb() | Slice():
            source = _LAID_OUT.get(_FAMILIES.get(media.media_type, ""), media.media_type)
            return render_pdf(*conversions().convert(data, media, source, libreoffice.PDF, limits), recipe, limits)
        case _:
            assert_never(recipe)


def _render_converted(data: bytes, media: Media, recipe: Text | EmbeddedImage, limits: IntakeLimits) -> Rendered:
    if media.media_type == libreoffice.PDF:
        return render_pdf(data, media, recipe, limits)
    return render_in_worker(data, media, recipe, limits)


def render_opened(opened: OfficeDocument, media: Media, recipe: Text | EmbeddedImage, limits: IntakeLimits) -> Rendered:
    """Render in this process, which is a worker."""
    with damage_reported(media.name):
        return _text(opened, recipe) if isinstance(recipe, Text) else _picture(opened, media, recipe.number, limits)


def is_spreadsheet(media_type: str) -> bool:
    return _FAMILIES.get(libreoffice.FOREIGN.get(media_type, media_type)) in _SHEET_FAMILIES


def sheet_rows(
    data: bytes, media: Media, limits: IntakeLimits, *, pages: str, first_row: int, max_rows: int
) -> SheetText:
    """Return rows of one sheet (the first, unless `pages` selects another) from `first_row` on, counted from one."""

    def read(content: bytes, of: Media) -> SheetText:
        return rows_in_worker(content, ReadRows(of, pages, first_row, max_rows), limits)

    return _read(data, media, limits, read)


def opened_rows(opened: OfficeDocument, job: ReadRows) -> SheetText:
    """Read rows in this process, which is a worker."""
    book, name = opened.book, job.media.name
    if book is None:
        raise Unsupported(f"{name or 'The document'} has no sheets.", name=name)
    with damage_reported(name):
        sheet, last, _ = clamp_pages(job.pages or "1", len(book.sheets))
        if sheet != last:
            raise Unsupported("Rows are counted in one sheet.", name=name, hint='Name it, such as pages="2".')
        return book.rows(sheet, job.first_row, job.max_rows)


def _read(data: bytes, media: Media, limits: IntakeLimits, read: Callable[[bytes, Media], T]) -> T:
    """Read a document with our own readers. LibreOffice first converts types that they do not read, and workbooks that
    they refuse."""
    foreign = libreoffice.FOREIGN.get(media.media_type)
    if foreign is not None:
        return read(*conversions().convert(data, media, media.media_type, foreign, limits))
    modern = libreoffice.MODERN.get(media.media_type)
    if media.media_type in _CONVERTED and modern is not None:
        _check_legacy(data, media.media_type, media.name)
        return read(*conversions().convert(data, media, media.media_type, modern, limits))
    try:
        return read(data, media)
    except (Unreadable, TooLarge):
        if modern is None or not libreoffice.is_available():
            raise
        try:
            converted = conversions().convert(data, media, media.media_type, modern, limits)
        except MediaError:
            converted = None
        if converted is None:
            raise
    return read(*converted)


def _text(opened: OfficeDocument, recipe: Text) -> Rendered:
    notices: tuple[str, ...] = ()
    if opened.pages is None:
        window = Window(first=1, last=1, is_selected=False)
        if recipe.pages:
            notices = ("A text document has no pages until it is laid out: the whole text is given.",)
    else:
        first, last, notice = clamp_pages(recipe.pages, opened.pages, default=opened.pages)
        window = Window(first=first, last=last, is_selected=bool(recipe.pages))
        notices = (notice,) if notice else ()
    text = _strip_unprintable(opened.text(window)) or b"[this document contains no text]"
    return Rendered(data=text, media_type="text/plain", pages=opened.pages, notices=notices)


def _strip_unprintable(text: str) -> bytes:
    """Remove unprintable characters. Nearly all texts have none, and checking their bytes is faster than searching
    characters."""
    data = text.encode()
    if len(data.translate(None, _CONTROL_BYTES)) == len(data) and not any(found in text for found in _NO_CHARACTERS):
        return data
    return _CONTROLS.sub(text_marks.UNKNOWN_SYMBOL, text).encode()


def _picture(opened: OfficeDocument, media: Media, number: int, limits: IntakeLimits) -> Rendered:
    found = opened.pictures().found
    if opened.package is None or number > len(found):
        count = "no images" if not found else "1 image" if len(found) == 1 else f"{len(found)} images"
        raise Unsupported(
            f"{media.name or 'The document'} has {count}; image {number} does not exist.", name=media.name
        )
    return office_pictures.extract_picture(opened.package.archive, found[number - 1], name=media.name, limits=limits)


def open_office(data: bytes, media: Media, limits: IntakeLimits) -> OfficeDocument:
    """Parse in this process, which is a worker."""
    family, name = _FAMILIES.get(media.media_type), media.name
    if family is None:
        raise Unsupported(
            f"{name or 'The file'} ({media.media_type}) is not an office file that Loom reads.", name=name
        )
    if family != "xls" and data.startswith(_OLE):
        _check_unlocked(data, name)
        raise Unreadable(f"{name or 'The document'} does not match its file type.", name=name, hint=SAVE_AGAIN)
    with damage_reported(name):
        return open_document(family, data, name=name, limits=limits)


def _check_legacy(data: bytes, media_type: str, name: str) -> None:
    _check_unlocked(data, name)
    if not data.startswith(_OLE) or _CONVERTED[media_type].encode("utf-16-le") not in data:
        raise Unreadable(f"{name or 'The document'} is damaged: its main part is missing.", name=name, hint=SAVE_AGAIN)


def _check_unlocked(data: bytes, name: str) -> None:
    """Raise if the document has a password: it is then encrypted inside an OLE container."""
    if any(stream.encode("utf-16-le") in data for stream in _ENCRYPTED):
        raise encrypted_error(name)
