"""The requests and responses of the PDF worker, and the parsing of page ranges. Plain values only, shared by both
sides."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import msgspec

from loom.content.blocks import page_label, page_range
from loom.content.recipes import EmbeddedImage, Page, Slice, Text, Thumb
from loom.formats.facts import EmbeddedPicture


class Inspect(msgspec.Struct, frozen=True, tag="inspect"):
    """Count the pages; search for text and images on the first ones, so that a long document costs no more."""


class PdfFacts(msgspec.Struct, frozen=True):
    pages: int
    pages_examined: int
    pages_without_text: tuple[int, ...]
    broken_pages: tuple[int, ...]
    pictures: tuple[EmbeddedPicture, ...]
    pictures_left_out: int
    attached_files: int
    attached_names: tuple[str, ...]
    """The names of the first attached files."""


PdfJob: TypeAlias = Inspect | Page | Slice | Text | Thumb | EmbeddedImage


class PageWindow(NamedTuple):
    """A range of existing pages. `notice` describes the difference from the requested range, and is empty if there is
    none."""

    first: int
    last: int
    notice: str = ""


def clamp_pages(pages: str, count: int, default: int = 20) -> PageWindow:
    """Return the range `"21-40"` within a document of `count` pages, or the first `default` pages if `pages` is empty.

    Pages count from one, inclusive. A range that begins after the end gives the last page.
    """
    if not pages.strip():
        return PageWindow(1, min(default, count))
    asked = page_range(pages)
    first, last = min(asked[0], count), min(asked[1], count)
    if (first, last) == asked:
        return PageWindow(first, last)
    has = "1 page" if count == 1 else f"{count} pages"
    shown = f"page {first}" if first == last else f"pages {page_label(first, last)}"
    return PageWindow(first, last, f"The document has {has}: {shown} instead of {page_label(*asked)}.")
