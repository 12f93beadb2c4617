"""The program of the PDF worker (`python -m loom.formats.pdf.job`): pdfium, on the jobs that `pdf` sends.

pdfium is not thread-safe, crashes on some files and uses gigabytes on others, so no other process loads it.
"""

from __future__ import annotations

import io
import time
from typing import Any, Final, assert_never

import msgspec

from loom.content.recipes import EmbeddedImage, Page, Slice, Text, Thumb
from loom.errors import Encrypted, Unreadable, Unsupported
from loom.formats.facts import EmbeddedPicture, Rendered
from loom.formats.pdf.messages import Inspect, PdfFacts, PdfJob, clamp_pages
from loom.formats.pdf.page_image import draw
from loom.formats.pdf.pdfium import attached_names, drawn_text, library, open_document, pages, raw_functions, side_notes
from loom.formats.pdf.pictures import list_pictures, take_picture
from loom.formats.pdf.text_layer import is_gibberish
from loom.formats.worker.held_documents import HeldDocuments
from loom.formats.worker.loop import Task, serve
from loom.struct_types import msgpack_decoder

EXAMINED_PAGES: Final = 20
LISTED_PICTURES: Final = 100
LISTED_ATTACHMENTS: Final = 5
MAX_TEXT_BYTES: Final = 32_000_000
_LISTED_PAGES: Final = 10
_JOB: Final = msgpack_decoder(PdfJob)


class TextOfPage(msgspec.Struct, frozen=True):
    """`is_gibberish` means that there is a text layer without meaning; `text` is empty then."""

    text: str
    notes: tuple[str, ...]
    is_gibberish: bool


class OpenPdf:
    """A parsed document. The text of its first pages is cached, because a file is usually read right after intake."""

    def __init__(self, document: Any) -> None:
        self.document = document
        self._first: dict[int, TextOfPage] = {}

    def text(self, number: int, page: Any = None) -> TextOfPage | None:
        """Return the text of a page, or None if it cannot be loaded. `page` is the page if it is already open."""
        if number not in self._first and page is None:
            return next((self.text(number, found) for _, found in pages(self.document, number, number) if found), None)
        if number in self._first:
            return self._first[number]
        text = drawn_text(page)
        bad = bool(text) and is_gibberish(text)
        read = TextOfPage("" if bad else text, tuple(side_notes(page)), is_gibberish=bad)
        if number <= EXAMINED_PAGES:
            self._first[number] = read
        return read


def run(task: Task, data: bytes | None) -> tuple[bytes, bytes] | None:
    opened = _held.get(task, data)
    if opened is None:
        return None
    job = _JOB.decode(task.job)
    try:
        if isinstance(job, Inspect):
            return msgspec.msgpack.encode(_inspect(opened, until=time.monotonic() + 0.4 * task.seconds)), b""
        made = _render(opened, job, task)
    except library().PdfiumError:
        raise Unreadable("is damaged") from None
    return msgspec.msgpack.encode(msgspec.structs.replace(made, data=b"")), made.data


def _open(_task: Task, data: bytes) -> OpenPdf:
    try:
        document = open_document(data)
    except library().PdfiumError as error:
        if error.err_code == raw_functions().FPDF_ERR_PASSWORD:
            raise Encrypted("needs a password", hint="Save a copy without one and use that.") from None
        if error.err_code == raw_functions().FPDF_ERR_SECURITY:
            raise Encrypted("is encrypted in an unknown way", hint="Save a copy without encryption.") from None
        raise Unreadable("is not a PDF that can be read, or has no pages") from None
    document.init_forms()  # without it, form values are not drawn
    return OpenPdf(document)


def _render(opened: OpenPdf, job: Page | Slice | Text | Thumb | EmbeddedImage, task: Task) -> Rendered:
    document = opened.document
    match job:
        case Text():
            return _text(opened, job, until=time.monotonic() + 0.7 * task.seconds)
        case Slice():
            return _slice(document, job)
        case Page():
            if job.number > len(document):
                raise Unsupported(f"has {len(document)} pages; page {job.number} does not exist")
            return _draw(document, job, task.limits.max_pixels)
        case Thumb():
            return _draw(document, Page(number=1, max_side_px=job.side_px), task.limits.max_pixels)
        case EmbeddedImage():
            return take_picture(pages(document, 1, len(document)), job.number, task.limits.max_pixels)
        case _:
            assert_never(job)


def _inspect(opened: OpenPdf, until: float) -> PdfFacts:
    """Examine the first pages; fewer if they are so heavy that twenty would take too long."""
    document = opened.document
    count = len(document)
    examined = 0
    without_text: list[int] = []
    broken: list[int] = []
    found: list[EmbeddedPicture] = []
    seen: set[bytes] = set()
    for number, page in pages(document, 1, min(count, EXAMINED_PAGES)):
        if page is None:
            broken.append(number)
        else:
            read = opened.text(number, page)
            if read is None or not read.text:
                without_text.append(number)
            found += [facts for facts, _ in list_pictures(page, number, seen)]
        examined = number
        if time.monotonic() > until:
            break
    if len(broken) == examined:
        raise Unreadable("is damaged: none of its first pages can be read")
    if examined < count and next(pages(document, count, count))[1] is None:
        broken.append(count)  # a document that declares more pages than it has
    return PdfFacts(
        pages=count,
        pages_examined=examined,
        pages_without_text=tuple(without_text),
        broken_pages=tuple(broken),
        pictures=tuple(found[:LISTED_PICTURES]),
        pictures_left_out=max(0, len(found) - LISTED_PICTURES),
        attached_files=max(0, raw_functions().FPDFDoc_GetAttachmentCount(document)),
        attached_names=tuple(attached_names(document, LISTED_ATTACHMENTS)),
    )


def _text(opened: OpenPdf, job: Text, until: float) -> Rendered:
    """Return the text. At the deadline or the size limit, stop with a notice: half a book is better than an error."""
    count = len(opened.document)
    first, last, notice = clamp_pages(job.pages, count, default=count)
    notices = [notice] if notice else []
    parts: list[str] = []
    without_text: list[int] = []
    gibberish: list[int] = []
    broken_from = 0
    size = 0
    for number in range(first, last + 1):
        read = opened.text(number)
        if read is None:
            broken_from = broken_from or number
            continue
        if broken_from:
            parts.append(f"[{_pages(broken_from, number - 1)}: cannot be read]")
            broken_from = 0
        if read.is_gibberish:
            gibberish.append(number)
        if read.text:
            lines = [f"[page {number}]", read.text]
        else:
            lines = [f"[page {number}: no text layer]"]
            without_text.append(number)
        parts.append("\n".join([*lines, *read.notes]))
        size += len(parts[-1])
        if number < last and (size > MAX_TEXT_BYTES or time.monotonic() > until):
            rest = _pages(number + 1, last)
            parts.append(f"[{rest}: not read, too much for one read]")
            notices.append(f"There is too much text for one read: {rest} left out.")
            last = number
            break
    if broken_from:
        parts.append(f"[{_pages(broken_from, last)}: cannot be read]")
    if gibberish:
        listed = ", ".join(map(str, gibberish[:_LISTED_PAGES])) + (", …" if len(gibberish) > _LISTED_PAGES else "")
        notices.append(
            f"The text layer of page {listed} is unreadable (its font has no character map) and was ignored."
        )
    return Rendered(
        data=("\n\n".join(parts) + "\n").encode(),
        media_type="text/plain",
        pages=last - first + 1,
        pages_without_text=tuple(without_text),
        notices=tuple(notices),
    )


def _pages(first: int, last: int) -> str:
    return f"page {first}" if first == last else f"pages {first}-{last}"


def _slice(document: Any, job: Slice) -> Rendered:
    first, last, notice = clamp_pages(job.pages, len(document))
    cut = library().PdfDocument.new()
    try:
        cut.import_pages(document, list(range(first - 1, last)))
        out = io.BytesIO()
        cut.save(out)
    finally:
        cut.close()
    return Rendered(
        data=out.getvalue(),
        media_type="application/pdf",
        pages=last - first + 1,
        notices=(notice,) if notice else (),
    )


def _draw(document: Any, job: Page, max_pixels: int) -> Rendered:
    for _, page in pages(document, job.number, job.number):
        if page is not None:
            return draw(page, job, max_pixels)
    raise Unreadable(f"is damaged: page {job.number} cannot be read")


_held: Final = HeldDocuments(_open, close=lambda opened: opened.document.close())


if __name__ == "__main__":
    library()
    serve(run)
