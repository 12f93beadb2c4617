"""Intake: bytes from a user or a tool become a block, or a typed error. Nothing is stored here.

The accepted bytes are usually the original bytes. An image over the size limit is replaced by a copy that fits, a
damaged PDF by the part that could be recovered; both add a notice. A text file becomes its text.
"""

from __future__ import annotations

from typing import Final

import msgspec

from loom.content.blocks import (
    AudioBlock,
    ContentBlock,
    Detail,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    VideoBlock,
    clean_text,
    page_label,
    page_range,
)
from loom.content.media import size_label
from loom.content.recipes import Fit, Low
from loom.errors import ContentError, MediaError, TooLarge, Unreadable, Unsupported
from loom.formats import inspect, render
from loom.formats.facts import Inspection, IntakeLimits, MadeRendition
from loom.formats.file_names import clean_name
from loom.formats.sniff import sniff
from loom.formats.sniff.kinds import label_of

_CONVERTED_SOUND: Final = frozenset(
    ("audio/aiff", "audio/amr", "audio/basic", "video/x-ms-asf", "video/webm", "video/matroska")
)
"""Types of audio that are converted to MP3. The video types are converted if they contain only audio: browsers record
voice messages as WebM."""


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """`data` are the bytes that `block` refers to (None for text); the caller stores them before it uses the block.

    `renditions` were made from the same decoding; the caller may put them into its cache of derived bytes.
    """

    block: ContentBlock
    data: bytes | None
    notices: tuple[str, ...]
    renditions: tuple[MadeRendition, ...] = ()


def accept(
    data: bytes,
    name: str = "",
    *,
    source: str = "",
    alt: str = "",
    detail: Detail = "auto",
    pages: str = "",
    limits: IntakeLimits = IntakeLimits(),
    recipes: tuple[Fit | Low, ...] = (),
    password: str = "",
) -> Accepted:
    """Accept one file. An image is decoded and hashed once, and rendered by `recipes` at the same time.

    A PDF that needs a `password` is stored without it; the password itself is not stored.

    Raise a `MediaError`, or a `ContentError` if `pages` is invalid or outside the document.
    """
    data, changed = _unlock(data, name, limits, password)
    data, converted = _convert_audio(data, name, limits)
    inspection, kept = _inspect(data, name, limits, recipes)
    notices = converted or inspection.notices  # the notice about the conversion replaces the one about the extension
    inspection = msgspec.structs.replace(inspection, notices=(*changed, *notices))
    media = msgspec.structs.replace(inspection.media, source=clean_text(source))
    pages, said = _pages(inspection, pages) if pages else ("", ())
    notices = (*inspection.notices, *said)
    match inspection.category:
        case "text":
            block: ContentBlock = TextBlock(_file_text(inspection))
            return Accepted(block=block, data=None, notices=notices)
        case "image":
            block = ImageBlock(media, alt=clean_text(alt), detail=detail)
        case "pdf" | "office":
            block = DocumentBlock(media, pages=pages)
        case "audio":
            block = AudioBlock(media)
        case "video":
            block = VideoBlock(media)
        case "unsupported":
            raise Unsupported(f"{media.label} is of a type that Loom cannot send to a model", name=media.name)
    return Accepted(block=block, data=kept, notices=notices, renditions=inspection.renditions)


def _unlock(data: bytes, name: str, limits: IntakeLimits, password: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the bytes without a password, and a notice about it. Raise `Encrypted` if the password is wrong."""
    if not password or len(data) > limits.max_pdf_bytes or sniff(data, name).category != "pdf":
        return data, ()
    from loom.formats.pdf.unlock import unlock_pdf

    if b"/Encrypt" not in data:
        return data, ()
    unlocked = unlock_pdf(data, password, name=clean_name(name), limits=limits)
    return unlocked, (f"{clean_name(name) or 'The PDF'} was unlocked: a copy without the password is kept.",)


def _convert_audio(data: bytes, name: str, limits: IntakeLimits) -> tuple[bytes, tuple[str, ...]]:
    """Return audio of a type that no model accepts as MP3, if ffmpeg is installed."""
    kind = sniff(data, name).media_type
    if kind not in _CONVERTED_SOUND or len(data) > limits.max_audio_bytes:
        return data, ()
    from loom.formats.video import has_only_sound, is_available, take_sound

    if not is_available() or not has_only_sound(data, name, limits):
        return data, ()
    sound = take_sound(data, clean_name(name), limits)
    what = "contains sound and no images" if kind.startswith("video/") else f"is {label_of(kind)}"
    return sound, (f"{clean_name(name) or 'The recording'} {what}: it is kept as MP3.",)


def _pages(inspection: Inspection, asked: str) -> tuple[str, tuple[str, ...]]:
    """Return the part of the range `asked` that exists, and a notice about the rest."""
    first, last = page_range(asked)
    media = inspection.media
    name = media.name or "The file"
    if inspection.category not in ("pdf", "office"):
        is_paged = media.frames is not None  # there is already a notice that only the first page is shown
        return "", () if is_paged else (f"{name} has no pages; all of it is used.",)
    count = media.pages
    if count is None or last <= count:
        return asked, ()
    if first > count:
        raise ContentError(f"{name} has {_page_count(count)}; page {first} does not exist.")
    used = page_label(first, count)
    return used, (f"{name} has {_page_count(count)}; of {asked} only {used} is used.",)


def _page_count(pages: int | None) -> str:
    return "1 page" if pages == 1 else f"{pages} pages"


def _inspect(data: bytes, name: str, limits: IntakeLimits, recipes: tuple[Fit | Low, ...]) -> tuple[Inspection, bytes]:
    try:
        found = inspect(data, name, limits, recipes)
        if found.media.media_type == "image/tiff" and (found.media.frames or 1) > 1:
            return _pages_to_pdf(data, found, limits)
        if found.category == "office" and (drawn := _drawing_to_pdf(data, found, limits)) is not None:
            return drawn
        return found, data
    except Unreadable:
        rebuilt = _rebuild_pdf(data, name, limits)
        if rebuilt is None:
            raise
        return rebuilt
    except TooLarge:
        roomy = msgspec.structs.replace(limits, max_image_bytes=limits.max_oversize_bytes)
        if len(data) <= limits.max_image_bytes or len(data) > roomy.max_image_bytes:
            raise
        large = inspect(data, name, roomy)
        if large.category != "image":
            raise
    copy = render(data, large.media, Fit(max_encoded_bytes=limits.max_image_bytes), roomy)
    fitted = inspect(copy.data, large.media.name, limits, recipes)
    said = (
        f"{large.media.name or 'The image'} has {size_label(len(data))}, over the limit of "
        f"{size_label(limits.max_image_bytes)}: a copy of {size_label(len(copy.data))}, "
        f"{copy.width}×{copy.height}, is used."
    )
    return msgspec.structs.replace(fitted, notices=(said, *large.notices)), copy.data


def _pages_to_pdf(data: bytes, found: Inspection, limits: IntakeLimits) -> tuple[Inspection, bytes]:
    """Convert a TIFF of several pages to a PDF, so that each page can be selected, seen and read.

    If that fails, the first page is used, and a notice has the reason.
    """
    from loom.formats.image import pages_as_pdf
    from loom.formats.pdf import inspect_pdf

    name = found.media.name
    try:
        copy = pages_as_pdf(data, found.media.media_type, limits, name)
        document = inspect_pdf(copy, name, limits)
    except MediaError as error:
        return msgspec.structs.replace(found, notices=(*found.notices, error.message)), data
    said = f"{name or 'The image'} has {found.media.frames} pages: it is kept as a PDF of them."
    return msgspec.structs.replace(document, notices=(said, *document.notices)), copy


def _drawing_to_pdf(data: bytes, found: Inspection, limits: IntakeLimits) -> tuple[Inspection, bytes] | None:
    """Convert a drawing that only LibreOffice reads to a PDF, so that models see it. Return None for any other
    document."""
    from loom.formats.office import draw_as_pdf
    from loom.formats.pdf import inspect_pdf

    copy = draw_as_pdf(data, found.media, limits)
    if copy is None:
        return None
    document = inspect_pdf(copy, found.media.name, limits)
    said = f"{found.media.name or 'The file'} is {label_of(found.media.media_type)}: it is kept as a PDF."
    return msgspec.structs.replace(document, notices=(said, *document.notices)), copy


def _rebuild_pdf(data: bytes, name: str, limits: IntakeLimits) -> tuple[Inspection, bytes] | None:
    """Return a PDF that had to be rewritten, or None if all its pages are blank: those would hide the loss."""
    if sniff(data, name).category != "pdf":
        return None
    from loom.formats.pdf.repair import repair_pdf

    copy = repair_pdf(data, name=name, limits=limits)
    if copy is None:
        return None
    try:
        found = inspect(copy, name, limits)
    except MediaError:
        return None
    if len(found.pages_without_text) == found.pages_examined and not found.pictures:
        return None
    name = found.media.name or "The PDF"
    said = f"{name} is damaged: the recovered part ({_page_count(found.media.pages)}) is used; more may be missing."
    return msgspec.structs.replace(found, notices=(said, *found.notices)), copy


def _file_text(inspection: Inspection) -> str:
    text = inspection.text or ""
    if not text.strip():
        raise Unreadable(f"{inspection.media.name or 'the text'} contains only white space", name=inspection.media.name)
    return f"[file: {inspection.media.name}]\n{text}" if inspection.media.name else text
