"""The door: bytes from a person or a tool become a block, or a typed error. Nothing is stored here.

What is admitted is what will be kept: usually the bytes as they came; a picture over the size limit is kept as a copy
that fits, a damaged PDF as what could be saved of it, and both say so. A text file becomes its text.
"""

from __future__ import annotations

import msgspec

from loom.content.blocks import (
    AudioBlock,
    ContentBlock,
    Detail,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    clean_text,
    page_label,
    page_range,
)
from loom.content.media import size_label
from loom.content.recipes import Fit
from loom.errors import ContentError, MediaError, TooLarge, Unreadable, Unsupported
from loom.formats import inspect, render
from loom.formats.facts import Inspection, Limits
from loom.formats.sniff import sniff


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """`data` are the bytes that `block` refers to (None for text); the caller stores them before it uses the block."""

    block: ContentBlock
    data: bytes | None
    notices: tuple[str, ...]


def admit(
    data: bytes,
    name: str = "",
    *,
    source: str = "",
    alt: str = "",
    detail: Detail = "auto",
    pages: str = "",
    limits: Limits = Limits(),
) -> Admitted:
    """Raises a `MediaError`, or a `ContentError` where `pages` are none or not in the document."""
    inspection, kept = _inspect(data, name, limits)
    media = msgspec.structs.replace(inspection.media, source=clean_text(source))
    pages, said = _pages(inspection, pages) if pages else ("", ())
    notices = (*inspection.notices, *said)
    match inspection.category:
        case "text":
            block: ContentBlock = TextBlock(_file_text(inspection))
            return Admitted(block=block, data=None, notices=notices)
        case "image":
            block = ImageBlock(media, alt=clean_text(alt), detail=detail)
        case "pdf" | "office":
            block = DocumentBlock(media, pages=pages)
        case "audio":
            block = AudioBlock(media)
        case "unsupported":
            raise Unsupported(f"{media.label} is of a kind that Loom cannot show to a model", name=media.name)
    return Admitted(block=block, data=kept, notices=notices)


def _pages(inspection: Inspection, asked: str) -> tuple[str, tuple[str, ...]]:
    """Those of the pages asked for that there are, and what there is to say about the others."""
    first, last = page_range(asked)
    media = inspection.media
    name = media.name or "The file"
    if inspection.category not in ("pdf", "office"):
        is_paged = media.frames is not None  # of these it is said already that the first is shown
        return "", () if is_paged else (f"{name} has no pages; all of it is used",)
    count = media.pages
    if count is None or last <= count:
        return asked, ()
    if first > count:
        raise ContentError(f"{name} has {_counted(count)}; there is no page {first}.")
    used = page_label(first, count)
    return used, (f"{name} has {_counted(count)}; of {asked} only {used} is used",)


def _counted(pages: int | None) -> str:
    return "1 page" if pages == 1 else f"{pages} pages"


def _inspect(data: bytes, name: str, limits: Limits) -> tuple[Inspection, bytes]:
    try:
        return inspect(data, name, limits), data
    except Unreadable:
        rebuilt = _rebuilt(data, name, limits)
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
    fitted = inspect(copy.data, large.media.name, limits)
    said = (
        f"{large.media.name or 'the picture'} has {size_label(len(data))}, over the limit of "
        f"{size_label(limits.max_image_bytes)}: a copy of {size_label(len(copy.data))}, "
        f"{copy.width}×{copy.height}, is used"
    )
    return msgspec.structs.replace(fitted, notices=(said, *large.notices)), copy.data


def _rebuilt(data: bytes, name: str, limits: Limits) -> tuple[Inspection, bytes] | None:
    """A PDF that had to be written anew, if there is more in it than blank pages: those would hide what was lost."""
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
    name = found.media.name or "the PDF"
    said = f"{name} is damaged: what could be saved of it ({_counted(found.media.pages)}) is used; more may be missing"
    return msgspec.structs.replace(found, notices=(said, *found.notices)), copy


def _file_text(inspection: Inspection) -> str:
    text = inspection.text or ""
    if not text.strip():
        raise Unreadable(
            f"{inspection.media.name or 'the text'} holds nothing but white space", name=inspection.media.name
        )
    return f"[file: {inspection.media.name}]\n{text}" if inspection.media.name else text
