"""What people call a colour: one name each, by lightness, strength and hue in OKLCh, where equal steps look equal."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

_GREY_CHROMA: Final = 0.04
_DARK_GREY_CHROMA: Final = 0.028
_WARM_GREY_CHROMA: Final = 0.018
"""Up to here a colour passes for grey; the eye is stricter with dark and with warm ones."""
_TINTED_CHROMA: Final = 0.085
_GREYS: Final = ((0.27, "black"), (0.48, "dark grey"), (0.72, "grey"), (0.93, "light grey"), (1.01, "white"))

# Hue in degrees up to which a name holds → (dark, middle, light), with the lightness that separates them.
_HUES: Final = (
    (14.0, 0.45, 0.66, ("maroon", "crimson", "pink")),
    (41.0, 0.42, 0.72, ("maroon", "red", "salmon")),
    (78.0, 0.58, 0.86, ("brown", "orange", "peach")),
    (118.0, 0.68, 0.975, ("olive", "yellow", "light yellow")),
    (165.0, 0.45, 0.88, ("dark green", "green", "light green")),
    (212.0, 0.62, 0.86, ("teal", "turquoise", "light turquoise")),
    (290.0, 0.42, 0.72, ("navy", "blue", "light blue")),
    (318.0, 0.38, 0.74, ("dark purple", "purple", "lavender")),
    (348.0, 0.45, 0.74, ("purple", "magenta", "pink")),
    (361.0, 0.45, 0.66, ("maroon", "crimson", "pink")),
)
_NEAR_WHITE: Final = ((0.97, "white"), (0.9, "cream"), (0.72, "beige"), (0.5, "tan"), (0.0, "brown"))
"""Weak warm colours by lightness: paper, skin, sand, wood."""


@lru_cache(maxsize=8192)
def colour_name(red: int, green: int, blue: int) -> str:
    lightness, chroma, hue = oklch(red, green, blue)
    if lightness < 0.18:
        return "black"
    warm = 30 <= hue < 115
    grey = _WARM_GREY_CHROMA if warm else _DARK_GREY_CHROMA if lightness < 0.4 else _GREY_CHROMA
    if chroma < grey:
        return next(name for most, name in _GREYS if lightness < most)
    if warm and chroma < _TINTED_CHROMA:
        return next(name for least, name in _NEAR_WHITE if lightness >= least)
    dark, light, names = next((low, high, names) for most, low, high, names in _HUES if hue < most)
    return names[0] if lightness < dark else names[1] if lightness < light else names[2]


@lru_cache(maxsize=8192)
def oklch(red: int, green: int, blue: int) -> tuple[float, float, float]:
    """sRGB bytes → lightness 0–1, chroma, hue in degrees (Björn Ottosson's OKLab, in polar form)."""
    r, g, b = _linear(red), _linear(green), _linear(blue)
    long = math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b)
    middle = math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b)
    short = math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b)
    lightness = 0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short
    a = 1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short
    other = 0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short
    return lightness, math.hypot(a, other), math.degrees(math.atan2(other, a)) % 360


def _linear(byte: int) -> float:
    value = byte / 255
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
