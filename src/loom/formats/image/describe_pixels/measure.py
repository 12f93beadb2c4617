"""Measure images, in the worker process for images: colours, brightness, edges, and how much two images differ."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from loom.formats.facts import IntakeLimits
from loom.formats.image.decode import decoder_errors, open_picture
from loom.formats.image.describe_pixels import Brightness, ColorShare, PictureKind, PixelFacts
from loom.formats.image.describe_pixels.colours import colour_name
from loom.formats.image.pixels import load

if TYPE_CHECKING:
    from PIL.Image import Image

_MAX_SIDE_PX: Final = 2048
_SAMPLE_SIDE_PX: Final = 320
_COARSE: Final = [level & 0xF8 | 0x04 for level in range(256)] * 3
"""Thirty-two levels a channel: enough to name a colour, few enough to count quickly."""
_MAX_COLOURS: Final = 1 << 17
_LEAST_SHARES: Final = (0.0, 0.02, 0.07, 0.07)
"""The share of the area that the first, second … colour must cover to be named."""
_FLAT_LEVELS: Final = 3
_HARD_LEVELS: Final = 32
_CHANGED_LEVELS: Final = 24


def describe_picture(data: bytes, media_type: str, limits: IntakeLimits) -> PixelFacts:
    """Return what can be measured in one image."""
    from PIL import ImageStat
    from PIL.Image import Resampling

    image, facts = _open(data, media_type, limits)
    scale = min(1.0, _SAMPLE_SIDE_PX / max(image.size))
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    # Single pixels, not averages: a thin red line must stay red.
    sample = image.resize(size, Resampling.NEAREST).point(_COARSE)
    counts = Counter[str]()
    for count, colour in sample.getcolors(_MAX_COLOURS) or []:
        if isinstance(colour, tuple) and len(colour) == 3:
            counts[colour_name(*colour)] += count
    total = counts.total()
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    mean = ImageStat.Stat(image.convert("L").reduce(max(1, min(image.size) // 64))).mean[0]
    tone: Brightness = "dark" if mean < 85 else "mid-toned" if mean < 170 else "bright"
    palette = tuple(
        ColorShare(name, min(99, round(100 * count / total)) if len(ranked) > 1 else 100)
        for (name, count), least in zip(ranked, _LEAST_SHARES, strict=False)
        if count >= total * least
    )
    return msgspec.structs.replace(facts, kind=_kind(image, len(ranked)), tone=tone, palette=palette)


def compare_pictures(a: bytes, a_type: str, b: bytes, b_type: str, limits: IntakeLimits) -> float | None:
    """Return how much of the area differs, in percent; None if the shapes differ."""
    from PIL import ImageChops
    from PIL.Image import Resampling

    (one, first), (other, second) = _open(a, a_type, limits), _open(b, b_type, limits)
    if not 0.98 <= (first.width * second.height) / (first.height * second.width) <= 1.02:
        return None
    size = min(one.size, other.size)
    one, other = (image if image.size == size else image.resize(size, Resampling.BICUBIC) for image in (one, other))
    red, green, blue = ImageChops.difference(one, other).split()
    largest = ImageChops.lighter(ImageChops.lighter(red, green), blue)
    return 100 * sum(largest.histogram()[_CHANGED_LEVELS:]) / (size[0] * size[1])


def _open(data: bytes, media_type: str, limits: IntakeLimits) -> tuple[Image, PixelFacts]:
    """Return the image upright, in RGB on white, at most `_MAX_SIDE_PX` long, and what is known of it so far."""
    from PIL import Image

    opened = open_picture(data, media_type, limits)
    width, height = opened.size
    image = load(opened, _MAX_SIDE_PX)
    with decoder_errors(media_type):
        clear = 0
        if image.mode in ("LA", "RGBA"):
            alpha = image.getchannel("A")
            clear = round(100 * sum(alpha.histogram()[:128]) / (image.width * image.height))
            white = Image.new("RGBA", image.size, "white")
            image = Image.alpha_composite(white, image.convert("RGBA"))
        facts = PixelFacts(
            width=width,
            height=height,
            media_type=media_type,
            kind="plain image",
            tone="bright",
            palette=(),
            frames=opened.frames,
            clear_percent=clear,
        )
        return image.convert("RGB"), facts


def _kind(image: Image, colours: int) -> PictureKind:
    """Cameras give soft differences between neighbours everywhere; programs give flat areas with hard borders."""
    from PIL import ImageChops

    grey = image.convert("L")
    width, height = grey.size
    if colours == 1 or min(width, height) < 2:
        return "plain image"
    across = ImageChops.difference(grey.crop((1, 0, width, height)), grey.crop((0, 0, width - 1, height))).histogram()
    down = ImageChops.difference(grey.crop((0, 1, width, height)), grey.crop((0, 0, width, height - 1))).histogram()
    levels = [a + b for a, b in zip(across, down, strict=True)]
    flat, hard = sum(levels[:_FLAT_LEVELS]) / sum(levels), sum(levels[_HARD_LEVELS:]) / sum(levels)
    if not hard and flat >= 0.97:
        return "plain image"
    soft = 1 - flat - hard
    return "screenshot or diagram" if flat >= 0.55 and hard >= 0.08 * (hard + soft) else "photograph"
