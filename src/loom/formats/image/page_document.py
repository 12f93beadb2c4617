"""Convert a TIFF of several pages to a PDF, in the worker: its pages can then be selected, read, rendered and split."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from loom.content.media import size_label
from loom.errors import TooLarge
from loom.formats.facts import IntakeLimits
from loom.formats.image.color import to_eight_bits, to_srgb
from loom.formats.image.decode import check_pixels, decoder_errors, open_picture

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PAGES: Final = 500
_QUALITY: Final = 90
_USUAL_DPI: Final = 150.0
_LEAST_DPI, _MOST_DPI = 20.0, 2_400.0


def write_pdf(data: bytes, media_type: str, limits: IntakeLimits) -> bytes:
    """Return the PDF. Raise `TooLarge` for more than `MAX_PAGES` pages or a PDF over the limit."""
    opened = open_picture(data, media_type, limits)
    if opened.frames > MAX_PAGES:
        raise TooLarge(f"The image has {opened.frames} pages, over the limit of {MAX_PAGES}.")
    with decoder_errors():
        # Pillow accepts one set of options for all pages, and no quality for those in fax coding.
        is_fax = opened.image.mode == "1"
        options = {} if is_fax else {"quality": _QUALITY}
        pages = _pages(opened.image, opened.frames, limits, is_fax=is_fax)
        first = next(pages)
        file = io.BytesIO()
        first.save(file, "PDF", save_all=True, append_images=pages, resolution=_dpi(opened.image), **options)
    if file.tell() > limits.max_pdf_bytes:
        size, allowed = size_label(file.tell()), size_label(limits.max_pdf_bytes)
        raise TooLarge(f"The image becomes a PDF of {size} with all pages, over the limit of {allowed}.")
    return file.getvalue()


def _pages(image: Image, count: int, limits: IntakeLimits, *, is_fax: bool) -> Iterator[Image]:
    """Yield one page at a time. In a fax, black and white stays black and white, because its coding keeps it short."""
    from PIL.Image import new

    for number in range(count):
        image.seek(number)
        check_pixels(image.width, image.height, limits)
        page = image.copy()
        if page.mode != "1" or not is_fax:
            profile = image.info.get("icc_profile")
            page = to_eight_bits(page, profile)
            if page.mode in ("LA", "RGBA"):
                paper = new("RGBA", page.size, "white")
                paper.alpha_composite(page.convert("RGBA"))
                page = paper.convert("RGB")
            if profile and page.mode == "RGB":
                page = to_srgb(page, profile)
        yield page


def _dpi(image: Any) -> float:
    across = float(image.info.get("dpi", (0, 0))[0] or 0)
    return across if _LEAST_DPI <= across <= _MOST_DPI else _USUAL_DPI
