"""Decoded pixels: loaded near the target size, converted to eight bits and sRGB, turned upright."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from loom.content.recipes import fitted_size
from loom.formats.facts import ImageCharacter
from loom.formats.image.color import drop_empty_alpha, to_eight_bits, to_srgb
from loom.formats.image.decode import OpenedImage, decoder_errors

if TYPE_CHECKING:
    from PIL.Image import Image

_SAMPLE_PX: Final = 128
_FLAT_COLORS: Final = 8
_FLAT_SHARE: Final = 0.45
"""An image is a screenshot if its eight most frequent colors cover this share of it."""
_LOSSY_SOURCES: Final = frozenset(("image/jpeg", "image/heic", "image/avif"))

_RESIZED_MODES: Final = frozenset(("L", "RGB", "RGBA"))
_DRAFT_MARGIN: Final = 1.25
"""A JPEG is decoded at a fraction of its size only if the result is still larger than the target by this factor:
averaging makes the fraction, which blurs, and the filter that follows needs enough pixels."""
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


def check(opened: OpenedImage) -> None:
    """Decode all pixels of the first frame, and convert them if later renditions would have to."""
    with decoder_errors():
        opened.image.load()
        if opened.image.mode not in _COMMON_MODES:
            to_eight_bits(opened.image, None)


def load(opened: OpenedImage, side_px: int, box: Box | None = None) -> Image:
    """Decode an image: upright, eight bits per channel (L, LA, RGB or RGBA), sRGB, no metadata, longest side at most
    `side_px`.

    With `box` (in the upright image), decode only that part.
    """
    image = opened.image
    with decoder_errors():
        profile = opened.profile
        stored = image.size
        target = fitted_size(*stored, side_px)
        # JPEG decodes at 1/2, 1/4 or 1/8 for a fraction of the cost
        roomy = (round(target[0] * _DRAFT_MARGIN), round(target[1] * _DRAFT_MARGIN))
        is_drafted = box is None and target != stored and image.draft(None, roomy) is not None
        image.load()
        image = drop_empty_alpha(to_eight_bits(image, profile))
        if box is not None:
            image = apply_orientation(image, opened.orientation).crop(box)
        image = shrink(image, target if is_drafted else fitted_size(*image.size, side_px))
        if profile and image.mode in ("RGB", "RGBA"):
            image = to_srgb(image, profile)
        if box is None:
            image = apply_orientation(image, opened.orientation)
        image.info.clear()
    return image


def shrink(image: Image, size: tuple[int, int]) -> Image:
    """Shrink with the LANCZOS filter, which keeps small text legible; transparent pixels do not affect the colors of
    others.

    The resizer uses vector instructions: it takes half the time of Pillow's box filter.
    """
    from PIL.Image import new

    if size == image.size:
        return image
    if image.mode not in _RESIZED_MODES:
        return shrink(image.convert("RGBA"), size).convert(image.mode)
    shrunk = new(image.mode, size)
    resizer, options = _resizer()
    resizer.resize_pil(image, shrunk, options)
    return shrunk


@cache
def _resizer() -> tuple[Any, Any]:
    """Import the resizer, untyped: the package has no usable type annotations."""
    library: Any = importlib.import_module("cykooz_resizer")
    lanczos = library.ResizeAlg.convolution(library.FilterType.lanczos3)
    return library.Resizer(), library.ResizeOptions(resize_alg=lanczos, use_alpha=True)


def apply_orientation(image: Image, orientation: int) -> Image:
    from PIL.Image import Transpose

    method = _UPRIGHT.get(orientation)
    return image if method is None else image.transpose(Transpose[method])


def image_character(image: Image, media_type: str, original: bytes = b"") -> ImageCharacter:
    """Return "screenshot" if few colors cover most of the image (a drawing or a page, too). A lossy original is a
    photo."""
    from PIL.Image import Resampling

    if media_type in _LOSSY_SOURCES or (media_type == "image/webp" and b"VP8L" not in original[12:64]):
        return "photo"
    size = (min(_SAMPLE_PX, image.width), min(_SAMPLE_PX, image.height))
    sample = image.resize(size, Resampling.NEAREST)
    pixels = size[0] * size[1]
    counts = sorted((count for count, _ in sample.getcolors(pixels) or ()), reverse=True)
    return "screenshot" if sum(counts[:_FLAT_COLORS]) >= pixels * _FLAT_SHARE else "photo"
