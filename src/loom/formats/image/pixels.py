"""Decoded pixels: loaded near the size that is wanted, brought to eight bits and sRGB, turned upright."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from loom.formats.facts import Nature
from loom.formats.image.colour import eight_bits, to_srgb, without_empty_alpha
from loom.formats.image.decode import Opened, decoding

if TYPE_CHECKING:
    from PIL.Image import Image

_SAMPLE_PX: Final = 128
_FLAT_COLOURS: Final = 8
_FLAT_SHARE: Final = 0.45
"""A picture is a screenshot when its eight most frequent colours cover this share of it."""
_LOSSY_SOURCES: Final = frozenset(("image/jpeg", "image/heic", "image/avif"))

_COMMON_MODES: Final = frozenset(("1", "L", "LA", "P", "RGB", "RGBA", "CMYK"))
Box: TypeAlias = tuple[int, int, int, int]

_UPRIGHT: Final = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}


def fitted_size(width: int, height: int, side_px: int) -> tuple[int, int]:
    """The largest size of the same shape whose longer side is at most `side_px`; never larger than it was."""
    longest = max(width, height)
    if longest <= side_px:
        return width, height
    return max(1, round(width * side_px / longest)), max(1, round(height * side_px / longest))


def check(opened: Opened, name: str = "") -> None:
    """Decodes all pixels of the first frame, and converts those that later renderings would have to convert."""
    with decoding(opened.media_type, name):
        opened.image.load()
        if opened.image.mode not in _COMMON_MODES:
            eight_bits(opened.image, None)


def load(opened: Opened, side_px: int, box: Box | None = None) -> Image:
    """Decoded, upright, eight bits a channel (L, LA, RGB or RGBA), sRGB, no metadata, longest side at most `side_px`.

    With a box (of the upright picture), only that part.
    """
    image = opened.image
    with decoding(opened.media_type):
        profile = image.info.get("icc_profile")
        stored = image.size
        target = fitted_size(*stored, side_px)
        # JPEG decodes at 1/2, 1/4 or 1/8 for a fraction of the cost
        is_drafted = box is None and target != stored and image.draft(None, target) is not None
        image.load()
        image = without_empty_alpha(eight_bits(image, profile))
        if box is not None:
            image = turn(image, opened.orientation).crop(box)
        image = shrink(image, target if is_drafted else fitted_size(*image.size, side_px))
        if profile and image.mode in ("RGB", "RGBA"):
            image = to_srgb(image, profile)
        if box is None:
            image = turn(image, opened.orientation)
        image.info.clear()
    return image


def shrink(image: Image, size: tuple[int, int]) -> Image:
    """A box filter for the whole steps, then one smooth step. Transparent pixels lend no colour to their neighbours."""
    from PIL.Image import Resampling

    if size == image.size:
        return image
    # After a box filter the wider kernel of BICUBIC costs twice as much and shows no more.
    filtered = Resampling.HAMMING if min(image.width // size[0], image.height // size[1]) >= 2 else Resampling.BICUBIC
    premultiplied = {"LA": "La", "RGBA": "RGBa"}.get(image.mode)
    if premultiplied is None:
        return image.resize(size, filtered, reducing_gap=1.0)
    return image.convert(premultiplied).resize(size, filtered, reducing_gap=1.0).convert(image.mode)


def turn(image: Image, orientation: int) -> Image:
    from PIL.Image import Transpose

    method = _UPRIGHT.get(orientation)
    return image if method is None else image.transpose(Transpose[method])


def nature_of(image: Image, media_type: str, original: bytes = b"") -> Nature:
    """Few colours over most of the picture: a screenshot, a drawing, a page. What was lossy before is a photograph."""
    from PIL.Image import Resampling

    if media_type in _LOSSY_SOURCES or (media_type == "image/webp" and b"VP8L" not in original[12:64]):
        return "photo"
    size = (min(_SAMPLE_PX, image.width), min(_SAMPLE_PX, image.height))
    sample = image.resize(size, Resampling.NEAREST)
    pixels = size[0] * size[1]
    counts = sorted((count for count, _ in sample.getcolors(pixels) or ()), reverse=True)
    return "screenshot" if sum(counts[:_FLAT_COLOURS]) >= pixels * _FLAT_SHARE else "photo"
