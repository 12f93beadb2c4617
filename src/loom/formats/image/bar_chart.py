"""A bar chart as an image, drawn without a plotting package."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Final

from loom.errors import ContentError

MAX_BARS: Final = 40
_WIDTH: Final = 720
_HEIGHT: Final = 420
_MARGIN: Final = 48
_MAX_VALUE: Final = 1e15


def draw_bars(values: Sequence[float]) -> bytes:
    """Return a PNG of 720×420 pixels: one bar for each value, from left to right, with its number. The same input gives
    the same bytes. Raise `ContentError` for too many or too large values."""
    if not values or len(values) > MAX_BARS:
        raise ContentError(f"a bar chart takes 1 to {MAX_BARS} values, not {len(values)}")
    if not all(abs(value) <= _MAX_VALUE for value in values):
        raise ContentError(f"a bar chart takes numbers up to {_MAX_VALUE:g} only")
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (_WIDTH, _HEIGHT), "white")
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(14 if len(values) <= 12 else 10)
    low, high = min(0.0, *values), max(0.0, *values)
    scale = (_HEIGHT - 2 * _MARGIN) / ((high - low) or 1.0)
    slot = (_WIDTH - 2 * _MARGIN) / len(values)
    zero = _MARGIN + high * scale
    for at, value in enumerate(values):
        left, top = _MARGIN + slot * (at + 0.15), zero - value * scale
        draw.rectangle((left, min(top, zero), left + slot * 0.7, max(top, zero)), fill="#2563eb")
        draw.text((left + slot * 0.35, min(top, zero) - 4), f"{value:g}", fill="#1f2937", font=font, anchor="ms")
    draw.line((_MARGIN, zero, _WIDTH - _MARGIN, zero), fill="#1f2937")
    out = io.BytesIO()
    image.quantize(64).save(out, format="PNG", optimize=True)
    return out.getvalue()
