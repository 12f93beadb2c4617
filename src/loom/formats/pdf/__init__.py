"""PDFs: facts, text, pages as pictures, slices. The work is done by pdfium in a worker process."""

from __future__ import annotations

from functools import cache
from typing import Final

import msgspec

from loom.content.media import Media, digest_of, size_label
from loom.content.recipes import Page, Picture, Slice, Text, Thumb
from loom.errors import TooLarge, Unreadable
from loom.formats.facts import Inspection, Limits, Rendered
from loom.formats.names import clean_name
from loom.formats.pdf.messages import Inspect, PageWindow, PdfFacts, PdfJob, clamp_pages
from loom.formats.worker import Crew

__all__ = ["PageWindow", "clamp_pages", "inspect_pdf", "render_pdf"]

_CHILDREN: Final = 2
"""One slow document must not hold up the others."""


@cache
def _crew() -> Crew:
    return Crew("loom.formats.pdf.job", size=_CHILDREN)


def inspect_pdf(data: bytes, name: str, limits: Limits) -> Inspection:
    """Whether it is a PDF that can be read, and what it holds.

    Text and pictures are looked for on the first twenty pages (`pages_examined`), so that a thousand pages cost no
    more than those; reading later pages (`Text`) says which of them have no text layer.
    """
    if not data:
        raise Unreadable(f"{name or 'The PDF'} is empty.", name=name)
    if len(data) > limits.max_pdf_bytes:
        size, allowed = size_label(len(data)), size_label(limits.max_pdf_bytes)
        raise TooLarge(f"{name or 'The PDF'} is {size}; PDFs up to {allowed} are taken.", name=name)
    digest = digest_of(data)
    found, _ = _call(Inspect(), data, digest, name, limits)
    facts = msgspec.msgpack.decode(found, type=PdfFacts)
    media = Media(digest=digest, media_type="application/pdf", size_bytes=len(data), pages=facts.pages, name=name)
    return Inspection(
        media=media,
        category="pdf",
        notices=_notices(facts),
        pages_without_text=facts.pages_without_text,
        pages_examined=facts.pages_examined,
        pictures=facts.pictures,
    )


def render_pdf(data: bytes, media: Media, recipe: Page | Slice | Text | Thumb | Picture, limits: Limits) -> Rendered:
    """Derived bytes of a PDF. `media.digest` names `data`, which the worker keeps while it is being asked about."""
    result, blob = _call(recipe, data, media.digest, media.name, limits)
    return msgspec.structs.replace(msgspec.msgpack.decode(result, type=Rendered), data=blob)


def _call(job: PdfJob, data: bytes, digest: str, name: str, limits: Limits) -> tuple[msgspec.Raw, bytes]:
    return _crew().call(
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
        notices.append(f"{facts.pictures_left_out} more pictures are not listed.")
    if facts.attached_files:
        notices.append(_attached(facts))
    return tuple(notices)


def _attached(facts: PdfFacts) -> str:
    names = [name for name in map(clean_name, facts.attached_names) if name]
    if len(names) < facts.attached_files:
        names.append("…")
    files = "1 attached file" if facts.attached_files == 1 else f"{facts.attached_files} attached files"
    return f"The PDF holds {files} ({', '.join(names)}), which Loom does not read."
