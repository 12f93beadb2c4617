"""A bar chart as a picture: the smallest chart that is good to look at, drawn without a plotting package."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from loom.errors import ContentError

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

MAX_BARS: Final = 40
_WIDTH: Final = 720
_HEIGHT: Final = 420
_LEFT, _TOP, _RIGHT, _BOTTOM = 64, 72, 28, 48
_PAPER, _INK, _FAINT, _BAR = "#ffffff", "#1f2937", "#d1d5db", "#2563eb"
_GRID_LINES: Final = 4
_LARGEST: Final = 1e15


def draw_bars(values: Sequence[float], title: str = "", labels: Sequence[str] = ()) -> bytes:
    """Return a PNG of 720×420: one bar for each value, from left to right, with its number. The same input, the same
    bytes."""
    if not values or len(values) > MAX_BARS:
        raise ContentError(f"a bar chart takes 1 to {MAX_BARS} values, not {len(values)}")
    if not all(abs(value) <= _LARGEST for value in values):
        raise ContentError(f"a bar chart takes numbers up to {_LARGEST:g} only")
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (_WIDTH, _HEIGHT), _PAPER)
    draw = ImageDraw.Draw(image)
    _write(draw, (_LEFT, 24), title[:60] or "Bars", 22, anchor="la")
    low, high, step = _scale(min(0.0, *values), max(0.0, *values))
    _grid(draw, low, high, step)
    slot = (_WIDTH - _LEFT - _RIGHT) / len(values)
    zero = _height_of(0.0, low, high)
    size = 14 if len(values) <= 12 else 10
    for at, value in enumerate(values):
        left, top = _LEFT + slot * at + slot * 0.15, _height_of(value, low, high)
        draw.rectangle((left, min(top, zero), left + slot * 0.7, max(top, zero)), fill=_BAR)
        middle = left + slot * 0.35
        _write(draw, (middle, min(top, zero) - 4), f"{value:g}", size, anchor="ms")
        label = labels[at] if at < len(labels) else str(at + 1)
        _write(draw, (middle, _HEIGHT - _BOTTOM + 8), label[:12], size, anchor="ma")
    out = io.BytesIO()
    image.quantize(64).save(out, format="PNG", optimize=True)
    return out.getvalue()


def _scale(low: float, high: float) -> tuple[float, float, float]:
    """Round borders and a round step between the lines: 1, 2 or 5 times a power of ten."""
    span = (high - low) or 1.0
    raw = span / _GRID_LINES
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= raw * 0.999)
    return math.floor(low / step) * step, max(math.ceil(high / step) * step, step if low == 0 else 0.0), step


def _height_of(value: float, low: float, high: float) -> float:
    return _HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)


def _grid(draw: ImageDraw, low: float, high: float, step: float) -> None:
    for line in range(round((high - low) / step) + 1):
        value = low + line * step
        y = _height_of(value, low, high)
        draw.line((_LEFT, y, _WIDTH - _RIGHT, y), fill=_INK if abs(value) < step / 1e6 else _FAINT)
        _write(draw, (_LEFT - 10, y), f"{value:g}", 12, anchor="rm")


def _write(draw: ImageDraw, at: tuple[float, float], text: str, size: int, anchor: str) -> None:
    from PIL import ImageFont

    draw.text(at, text, fill=_INK, font=ImageFont.load_default(size), anchor=anchor)
