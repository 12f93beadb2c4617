"""PDF files: facts, text, pages as images, page ranges. pdfium does the work in a worker process."""

from __future__ import annotations

from typing import Final

import msgspec

from loom.content.media import Media, digest_of, size_label
from loom.content.recipes import EmbeddedImage, Page, Slice, Text, Thumb
from loom.errors import TooLarge, Unreadable
from loom.formats.facts import Inspection, IntakeLimits, Rendered
from loom.formats.file_names import clean_name
from loom.formats.pdf.messages import Inspect, PageWindow, PdfFacts, PdfJob, clamp_pages
from loom.formats.worker import WorkerKind, current_pool
from loom.struct_types import decode_msgpack

__all__ = ["PDF_WORKER", "PageWindow", "clamp_pages", "inspect_pdf", "render_pdf"]

PDF_WORKER: Final = WorkerKind("loom.formats.pdf.job", size=2)
"""Two processes, because one slow document must not delay the others."""


def inspect_pdf(data: bytes, name: str, limits: IntakeLimits) -> Inspection:
    """Return the facts of a PDF, or raise if it cannot be read.

    Text and images are searched for on the first twenty pages (`pages_examined`), so that a thousand pages cost no
    more; reading later pages (`Text`) reports which of them have no text layer.
    """
    if not data:
        raise Unreadable(f"{name or 'The PDF'} is empty.", name=name)
    if len(data) > limits.max_pdf_bytes:
        size, allowed = size_label(len(data)), size_label(limits.max_pdf_bytes)
        raise TooLarge(f"{name or 'The PDF'} is {size}; the limit for PDFs is {allowed}.", name=name)
    digest = digest_of(data)
    found, _ = _call(Inspect(), data, digest, name, limits)
    facts = decode_msgpack(found, PdfFacts)
    media = Media(digest=digest, media_type="application/pdf", size_bytes=len(data), pages=facts.pages, name=name)
    return Inspection(
        media=media,
        category="pdf",
        notices=_notices(facts),
        pages_without_text=facts.pages_without_text,
        pages_examined=facts.pages_examined,
        pictures=facts.pictures,
    )


def render_pdf(
    data: bytes, media: Media, recipe: Page | Slice | Text | Thumb | EmbeddedImage, limits: IntakeLimits
) -> Rendered:
    """Return derived bytes of a PDF. `media.digest` is the digest of `data`, which the worker caches between calls."""
    result, blob = _call(recipe, data, media.digest, media.name, limits)
    return msgspec.structs.replace(decode_msgpack(result, Rendered), data=blob)


def _call(job: PdfJob, data: bytes, digest: str, name: str, limits: IntakeLimits) -> tuple[msgspec.Raw, bytes]:
    return current_pool().call(
        PDF_WORKER,
        msgspec.msgpack.encode(job),
        data,
        digest=digest,
        name=name or "The PDF",
        limits=limits,
        seconds=limits.deadline_seconds,
    )


def _notices(facts: PdfFacts) -> tuple[str, ...]:
    notices: list[str] = []
    if facts.broken_pages:
        listed = ", ".join(map(str, facts.broken_pages))
        noun = "page" if len(facts.broken_pages) == 1 else "pages"
        notices.append(f"The PDF is damaged: {noun} {listed} of {facts.pages} cannot be read.")
    if facts.pictures_left_out:
        notices.append(f"{facts.pictures_left_out} more images are not listed.")
    if facts.attached_files:
        notices.append(_attachment_notice(facts))
    return tuple(notices)


def _attachment_notice(facts: PdfFacts) -> str:
    names = [name for name in map(clean_name, facts.attached_names) if name]
    if len(names) < facts.attached_files:
        names.append("…")
    files = "1 attached file" if facts.attached_files == 1 else f"{facts.attached_files} attached files"
    return f"The PDF contains {files} ({', '.join(names)}), which Loom does not read."
