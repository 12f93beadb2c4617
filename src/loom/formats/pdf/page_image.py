"""A PDF page as an image within limits.

A gray page becomes PNG, which is faster than JPEG and half as long; so does a page with a screenshot. A page with
colors or photographs becomes JPEG: a palette for those takes longer than everything else together.
"""

from __future__ import annotations

import importlib
import io
import math
from collections.abc import Iterator
from typing import Any, Final

from loom.content.media import size_label
from loom.content.recipes import Page
from loom.errors import TooLarge, Unsupported
from loom.formats.facts import Rendered
from loom.formats.pdf.pictures import has_pictures, shows_color

_PROBE_SIDE_PX: Final = 240
_GRAY_TOLERANCE: Final = 10
_FLAT_LEVELS: Final = 6
_FLAT_SHARE: Final = 0.5
_HEAVY_BYTES: Final = 400_000
_QUALITIES: Final = (85, 70, 50)
_SMALLEST_SIDE_PX: Final = 64
_MANY_COLORS: Final = 2_048
_PALETTE: Final = 256
_MAX_COVERAGE: Final = 1
_FAST_OCTREE: Final = 2
_NO_DITHER: Final = 0


def draw(page: Any, job: Page, max_pixels: int) -> Rendered:
    """Render at `dpi`, or smaller if the limits require it: a page of any size is rendered at the size at which it is
    used."""
    width, height = max(page.get_width(), 0.1), max(page.get_height(), 0.1)
    longest = max(width, height)
    # pdfium rounds sides up: half a pixel less keeps the longest one within the limit.
    scale = min(job.dpi / 72, (job.max_side_px - 0.5) / longest, math.sqrt(max_pixels / (width * height)))
    drawn_by_hand = not has_pictures(page)
    may_be_gray = drawn_by_hand and not shows_color(page, _GRAY_TOLERANCE)
    gray = may_be_gray and _is_gray(_bitmap(page, min(scale, _PROBE_SIDE_PX / longest)))
    while True:
        image = _bitmap(page, scale, gray=gray)
        smallest = math.inf
        for data, media_type in _encodings(image, job.formats, flat=gray if drawn_by_hand else _is_flat(image)):
            encoded_bytes = 4 * math.ceil(len(data) / 3)
            if encoded_bytes <= job.max_encoded_bytes:
                return Rendered(data=data, media_type=media_type, width=image.width, height=image.height, pages=1)
            smallest = min(smallest, encoded_bytes)
        scale *= min(0.9, max(0.5, math.sqrt(job.max_encoded_bytes / smallest)))
        if scale * longest < _SMALLEST_SIDE_PX:
            raise TooLarge(f"has a page that cannot be rendered within {size_label(job.max_encoded_bytes)}")


def _bitmap(page: Any, scale: float, *, gray: bool = False) -> Any:
    return page.render(scale=scale, grayscale=gray, rev_byteorder=True).to_pil()


def _is_gray(image: Any) -> bool:
    """Return whether a small rendering of the page is gray: rendering the large one in gray then takes half the
    time."""
    chops = importlib.import_module("PIL.ImageChops")
    red, green, blue = image.split()
    spread = (chops.difference(red, green), chops.difference(green, blue))
    return all(channel.getextrema()[1] <= _GRAY_TOLERANCE for channel in spread)


def _is_flat(image: Any) -> bool:
    """Return whether a few levels cover most of the image, as in text and lines on paper; photographs and scans have
    many."""
    levels = sorted(image.convert("L").histogram(), reverse=True)
    return sum(levels[:_FLAT_LEVELS]) >= _FLAT_SHARE * image.width * image.height


def _encodings(image: Any, formats: tuple[str, ...], *, flat: bool) -> Iterator[tuple[bytes, str]]:
    """Yield the encodings to try, best first; the later ones are smaller."""
    lossy = next((wanted for wanted in ("image/jpeg", "image/webp") if wanted in formats), "")
    if "image/png" in formats and (flat or not lossy):
        indexed = _to_palette(image)
        if indexed is not None or not lossy:
            data = _png(indexed or image)
            is_heavy = lossy and len(data) > _HEAVY_BYTES
            if is_heavy and len(smaller := _encode_lossy(image, lossy, _QUALITIES[0])) < len(data) / 2:
                yield smaller, lossy
            yield data, "image/png"
        if indexed is None and not lossy:
            yield _png(image.quantize(_PALETTE, method=_FAST_OCTREE)), "image/png"
    if lossy:
        for quality in _QUALITIES:
            yield _encode_lossy(image, lossy, quality), lossy
    elif "image/png" not in formats:
        raise Unsupported(f"has pages that can be rendered as PNG, JPEG or WebP, not as {', '.join(formats)}")


def _to_palette(image: Any) -> Any:
    """Return the image with a palette, which halves time and bytes: exact for gray, within 8 of 255 levels for most
    colors. Return None if there are too many colors (shading) for a palette."""
    if image.mode == "L":
        return image.convert("P")
    counted = image.getcolors(_MANY_COLORS)
    if counted is None:
        return None
    colors: list[tuple[int, int, int]] = [color for _, color in counted]
    if all(max(color) - min(color) <= _GRAY_TOLERANCE for color in colors):
        return image.convert("L").convert("P")
    # A palette of the colors themselves, each counted once: computing it takes no time, and rare ones are not lost.
    swatch = importlib.import_module("PIL.Image").new("RGB", (len(colors), 1))
    swatch.putdata(colors)
    return image.quantize(palette=swatch.quantize(_PALETTE, method=_MAX_COVERAGE), dither=_NO_DITHER)


def _png(image: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, format="PNG", compress_level=2)
    return out.getvalue()


def _encode_lossy(image: Any, media_type: str, quality: int) -> bytes:
    out = io.BytesIO()
    image.save(out, format="JPEG" if media_type == "image/jpeg" else "WEBP", quality=quality)
    return out.getvalue()
