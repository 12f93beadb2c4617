"""Measure an image without understanding it: size, kind, colors, brightness. The same bytes give the same facts."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Final, Literal

import msgspec

from loom.errors import Unsupported
from loom.formats.facts import IntakeLimits
from loom.formats.image import ask_worker
from loom.formats.image.decode import decoder_errors, open_picture
from loom.formats.image.messages import DescribePixels
from loom.formats.image.pixels import load
from loom.formats.sniff import sniff
from loom.formats.sniff.kinds import label_of
from loom.struct_types import decode_msgpack

_SAMPLE_SIDE_PX: Final = 320
_MIN_SHARES: Final = (0.0, 0.02, 0.07, 0.07)
"""The share of the area that the first, second … color must cover to be named."""
_FLAT_COLORS: Final = 8
_FLAT_SHARE: Final = 0.6
"""A program drew an image if so few colors cover this share of it; a camera never gives such flat areas."""
_COLORS: Final = {
    "white": ("ffffff", "f6f6f4"), "light gray": ("c8c8c8", "e4e4e4"), "gray": ("808080", "708090"),
    "dark gray": ("404040",), "black": ("000000", "101014"), "red": ("ff0000", "c62828"), "maroon": ("800000",),
    "salmon": ("fa8072",), "pink": ("ffc0cb", "ff69b4"), "magenta": ("ff00ff",), "purple": ("800080",),
    "lavender": ("c8a8f0",), "dark purple": ("4b0082",), "navy": ("000080", "1f3a6e"), "blue": ("0000ff", "2563eb"),
    "light blue": ("87ceeb",), "teal": ("008080",), "turquoise": ("40e0d0",), "dark green": ("006400",),
    "green": ("008000", "00c000"), "light green": ("98ff98",), "olive": ("808000",), "yellow": ("ffff00", "ffd700"),
    "cream": ("f5f5dc",), "beige": ("d2b48c", "e0cda9"), "orange": ("ffa500",), "brown": ("8b4513", "64503c"),
}  # fmt: skip
_SAMPLES: Final = [(name, bytes.fromhex(value)) for name, values in _COLORS.items() for value in values]


class ColorShare(msgspec.Struct, frozen=True):
    name: str
    percent: int


class PixelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Width and height of the upright image. `palette` lists the colors that cover most of the area; transparent
    pixels count as white."""

    width: int
    height: int
    media_type: str
    kind: Literal["photograph", "screenshot or diagram", "plain image"]
    tone: Literal["dark", "mid-toned", "bright"]
    palette: tuple[ColorShare, ...]


def describe(data: bytes, limits: IntakeLimits = IntakeLimits()) -> PixelFacts:
    """Measure an image in a worker process. Raise `Unreadable`, `TooLarge`, `Unsupported` or `ExtraMissing`."""
    found = sniff(data)
    if found.category != "image":
        raise Unsupported(f"The bytes are {label_of(found.media_type)}, not an image.")
    result, _ = ask_worker(DescribePixels(), data, found.media_type, limits)
    return decode_msgpack(result, PixelFacts)


def describe_picture(data: bytes, media_type: str, limits: IntakeLimits) -> PixelFacts:
    """Measure an image in this process, which is a worker."""
    from PIL.Image import Resampling, alpha_composite, new

    opened = open_picture(data, media_type, limits)
    image = load(opened, 2048)
    with decoder_errors():
        image = alpha_composite(new("RGBA", image.size, "white"), image.convert("RGBA")).convert("RGB")
        size = min(_SAMPLE_SIDE_PX, image.width), min(_SAMPLE_SIDE_PX, image.height)
        # Single pixels instead of averages: a thin red line must stay red.
        sample = image.resize(size, Resampling.NEAREST)
        brightness = sum(sample.convert("L").tobytes()) / (size[0] * size[1])
        coarse = sample.point([level & 0xF8 | 0x04 for level in range(256)] * 3)
        pixels = Counter(zip(*(channel.tobytes() for channel in coarse.split()), strict=True))
        counts = Counter[str]()
        for pixel, count in pixels.items():
            counts[color_name(*pixel)] += count
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        is_drawn = sum(count for _, count in pixels.most_common(_FLAT_COLORS)) >= _FLAT_SHARE * pixels.total()
    shares = [(name, count / counts.total()) for name, count in ranked]
    return PixelFacts(
        width=opened.size[0],
        height=opened.size[1],
        media_type=media_type,
        kind="plain image" if len(ranked) == 1 else "screenshot or diagram" if is_drawn else "photograph",
        tone="dark" if brightness < 85 else "mid-toned" if brightness < 170 else "bright",
        palette=tuple(
            ColorShare(name, round(100 * share) if share == 1 else min(99, round(100 * share)))
            for (name, share), least in zip(shares, _MIN_SHARES, strict=False)
            if share >= least
        ),
    )


@lru_cache(maxsize=8192)
def color_name(red: int, green: int, blue: int) -> str:
    """Return the name of the nearest sample. Channels are weighted by human perception ("redmean")."""

    def distance(sample: tuple[str, bytes]) -> float:
        r, g, b = sample[1]
        mean = (red + r) / 512
        return (2 + mean) * (red - r) ** 2 + 4 * (green - g) ** 2 + (3 - mean) * (blue - b) ** 2

    return min(_SAMPLES, key=distance)[0]
