"""The images inside a PDF: counted once each, in the order of the pages, and extracted as stored."""

from __future__ import annotations

import ctypes
import hashlib
import io
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from loom.errors import TooLarge, Unreadable, Unsupported
from loom.formats.facts import EmbeddedPicture, Rendered
from loom.formats.pdf.pdfium import library, raw_functions

_SMALLEST_SIDE_PX: Final = 8
"""Smaller ones are the slivers and dots that programs draw lines and shadows with."""
_MAX_ON_A_PAGE: Final = 500
_MAX_OBJECTS: Final = 20_000
"""A drawing of a million strokes contains no image that is worth checking each of them."""
_FIRST_OBJECTS: Final = 100
_MAX_DEPTH: Final = 5


class PdfImage(NamedTuple):
    facts: EmbeddedPicture
    image: Any


def list_pictures(page: Any, page_number: int, seen: set[bytes]) -> Iterator[PdfImage]:
    """Yield the images of a page that are not in `seen` yet; a logo on every page is one image."""
    for image in islice(_images(page), _MAX_ON_A_PAGE):
        try:
            width, height = image.get_px_size()
            stored = bytes(image.get_data())
            filters = image.get_filters(skip_simple=True)
        except library().PdfiumError:
            continue  # drawn without data that could be extracted
        key = hashlib.sha256(stored).digest() + f"{width}×{height}".encode()
        if min(width, height) < _SMALLEST_SIDE_PX or key in seen:
            continue
        seen.add(key)
        media_type = "image/jpeg" if filters == ["DCTDecode"] else "image/png"
        facts = EmbeddedPicture(number=len(seen), page=page_number, media_type=media_type, width=width, height=height)
        yield PdfImage(facts, image)


def has_pictures(page: Any) -> bool:
    """Return whether the page contains an image."""
    return next(_images(page), None) is not None


def shows_color(page: Any, tolerance: int) -> bool:
    """Return whether text or areas among the first objects of the page have a color. False is not conclusive."""
    pdfium = raw_functions()
    filled = (pdfium.FPDF_PAGEOBJ_TEXT, pdfium.FPDF_PAGEOBJ_PATH)
    red, green, blue, alpha = (ctypes.c_uint() for _ in range(4))
    for item in islice(_drawn_objects(page), _FIRST_OBJECTS):
        if pdfium.FPDFPageObj_GetType(item) in filled and pdfium.FPDFPageObj_GetFillColor(
            item, red, green, blue, alpha
        ):
            shades = (red.value, green.value, blue.value)
            if alpha.value and max(shades) - min(shades) > tolerance:
                return True
    return False


def _drawn_objects(page: Any) -> Iterator[Any]:
    """Yield the objects of the page, also inside its forms, in drawing order."""
    pdfium = raw_functions()
    return _objects(page, pdfium.FPDFPage_CountObjects, pdfium.FPDFPage_GetObject, _MAX_DEPTH)


def _images(page: Any) -> Iterator[Any]:
    pdfium = raw_functions()
    for item in islice(_drawn_objects(page), _MAX_OBJECTS):
        if pdfium.FPDFPageObj_GetType(item) == pdfium.FPDF_PAGEOBJ_IMAGE:
            yield library().PdfObject(item, page=page, pdf=page.pdf)


def _objects(parent: Any, count: Any, get: Any, depth: int) -> Iterator[Any]:
    pdfium = raw_functions()
    for index in range(count(parent)):
        item = get(parent, index)
        yield item
        if depth and pdfium.FPDFPageObj_GetType(item) == pdfium.FPDF_PAGEOBJ_FORM:
            yield from _objects(item, pdfium.FPDFFormObj_CountObjects, pdfium.FPDFFormObj_GetObject, depth - 1)


def take_picture(numbered_pages: Iterator[tuple[int, Any]], number: int, max_pixels: int) -> Rendered:
    seen: set[bytes] = set()
    for page_number, page in numbered_pages:
        if page is None:
            continue
        for facts, image in list_pictures(page, page_number, seen):
            if facts.number == number:
                return _take(image, facts, max_pixels)
    has = "1 image" if len(seen) == 1 else f"{len(seen)} images"
    raise Unsupported(f"contains {has}; image {number} does not exist")


def _take(image: Any, facts: EmbeddedPicture, max_pixels: int) -> Rendered:
    width, height = facts.width or 0, facts.height or 0
    if facts.media_type == "image/jpeg":
        stored = bytes(image.get_data(decode_simple=True))
        if stored.startswith(b"\xff\xd8\xff"):
            return Rendered(data=stored, media_type="image/jpeg", width=width, height=height)
    if width * height > max_pixels:
        raise TooLarge(f"contains an image of {width}×{height} pixels, more than {max_pixels / 1e6:.0f} million")
    try:
        drawn = image.get_bitmap(render=_is_masked(image, max_pixels)).to_pil()
    except library().PdfiumError:
        raise Unreadable(f"contains an image on page {facts.page} that cannot be read") from None
    out = io.BytesIO()
    drawn.save(out, format="PNG", compress_level=3)
    return Rendered(data=out.getvalue(), media_type="image/png", width=drawn.width, height=drawn.height)


def _is_masked(image: Any, max_pixels: int) -> bool:
    """Return whether its transparency must be rendered into it, and can be: pdfium renders it at the scale of its
    longer side."""
    if not raw_functions().FPDFPageObj_HasTransparency(image):
        return False
    left, bottom, right, top = image.get_bounds()
    across, up = abs(right - left), abs(top - bottom)
    if min(across, up) < 0.01:
        return False
    width, height = image.get_px_size()
    scale = max(width, height) / min(across, up)
    return across * up * scale * scale <= 4 * max_pixels
