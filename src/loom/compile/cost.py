"""Token estimates: images, pages and seconds by each provider's published formula, text by a ratio, both calibrated.

The length of base64 is never used.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Final, assert_never

import msgspec

from loom.content.blocks import Detail
from loom.models import TokenRule

IMAGE_PATCH_PX: Final = 28
WIDE_PATCH_PX: Final = 32
PAGE_WIDTH_PX: Final = 1_240
PAGE_HEIGHT_PX: Final = 1_754
"""An A4 page at 150 dpi, as an assumption: the size that platforms render is not published."""

_MESSAGE_TOKENS: Final = 4
_DENSE: Final = re.compile("[^\u0000-\u2e7f]+")
_SMOOTHING: Final = 0.5
_CLAMP: Final = (0.25, 32.0)
"""Some servers count the bytes of a text. Others report too few tokens, such as only those that were not cached:
trusting them would fill the window with requests that are too large."""
_MOSTLY_MEDIA: Final = 0.5


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The correction of the estimates of one model: real tokens = estimate × ratio."""

    ratio: float = 1.0
    samples: int = 0


def calibrate(before: Calibration, estimated: int, real: int, *, media: int = 0) -> Calibration:
    """Update the calibration with the usage of one answer. `estimated` is the receipt's total, this calibration
    included; `media` is its share for images, pages and audio.

    If most of the estimate is media, the ratio is not lowered below the current one (at most 1), because the next
    requests would be trimmed too late. Raising it is safe.
    """
    if estimated <= 0 or real <= 0:
        return before
    seen = before.ratio * real / estimated
    ratio = seen if before.samples == 0 else before.ratio + (seen - before.ratio) * _SMOOTHING
    if media > estimated * _MOSTLY_MEDIA:
        ratio = max(ratio, min(before.ratio, 1.0))
    return Calibration(ratio=min(max(ratio, _CLAMP[0]), _CLAMP[1]), samples=before.samples + 1)


def text_tokens(text: str, rule: TokenRule) -> int:
    """Estimate the tokens of a text: scripts without spaces take about one token per character, the rest is divided by
    the ratio."""
    if text.isascii():
        return math.ceil(len(text) / rule.chars_per_token)
    dense = sum(map(len, _DENSE.findall(text)))
    return math.ceil(dense + (len(text) - dense) / rule.chars_per_token)


def message_tokens() -> int:
    """Return what a message costs in addition to its blocks: its role and delimiters."""
    return _MESSAGE_TOKENS


@lru_cache(maxsize=1024)
def image_tokens(width: int, height: int, rule: TokenRule, detail: Detail = "auto") -> int:
    width, height = max(width, 1), max(height, 1)
    match rule.image:
        case "patches28":
            return _patches28(width, height, rule)
        case "patches32":
            return _patches32(width, height, rule, detail)
        case "tiles":
            return _tiles(width, height, rule, detail)
        case "ceiling":
            return rule.low_tokens if detail == "low" and rule.low_tokens else rule.image_tokens
        case "crops":
            return _crops(width, height, rule)
        case "flat":
            return rule.image_tokens
        case _:
            assert_never(rule.image)


def page_tokens(rule: TokenRule) -> int:
    """Return the tokens of a page of a native PDF in addition to its text: a fixed number, or those of its image."""
    return image_tokens(PAGE_WIDTH_PX, PAGE_HEIGHT_PX, rule) if rule.page_as_image else rule.page_tokens


def audio_tokens(seconds: float, rule: TokenRule) -> int:
    return math.ceil(seconds * rule.audio_tokens_per_second)


def video_tokens(seconds: float, rule: TokenRule) -> int:
    return math.ceil(seconds * rule.video_tokens_per_second)


def fitted28(width: int, height: int, rule: TokenRule) -> tuple[int, int]:
    """Return the size to which a 28-px-patch platform costs an image before counting: the largest one that fits."""

    def fits(w: int, h: int) -> bool:
        across, down = math.ceil(w / IMAGE_PATCH_PX), math.ceil(h / IMAGE_PATCH_PX)
        edge = max(across, down) * IMAGE_PATCH_PX
        return edge <= rule.max_edge_px and across * down <= rule.max_tokens

    if fits(width, height):
        return width, height
    long, short = max(width, height), min(width, height)
    low, high = 1, long
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle, max(round(middle * short / long), 1)):
            low = middle
        else:
            high = middle
    other = max(round(low * short / long), 1)
    return (low, other) if width >= height else (other, low)


def _patches28(width: int, height: int, rule: TokenRule) -> int:
    width, height = fitted28(width, height, rule)
    return math.ceil(width / IMAGE_PATCH_PX) * math.ceil(height / IMAGE_PATCH_PX)


def _patches32(width: int, height: int, rule: TokenRule, detail: Detail) -> int:
    if detail == "low" and max(width, height) > 512:
        scale = 512 / max(width, height)
        width, height = max(int(width * scale), 1), max(int(height * scale), 1)
    patches = math.ceil(width / WIDE_PATCH_PX) * math.ceil(height / WIDE_PATCH_PX)
    if rule.budget and patches > rule.budget:
        width, height = fitted32(width, height, rule.budget)
        patches = math.ceil(width / WIDE_PATCH_PX) * math.ceil(height / WIDE_PATCH_PX)
    return math.ceil(round(patches * rule.multiplier, 6))


def fitted32(width: int, height: int, budget: int) -> tuple[int, int]:
    """Return the size to which a 32-px-patch platform costs an image that exceeds its patch budget."""
    scale = math.sqrt(WIDE_PATCH_PX**2 * budget / (width * height))
    across, down = width * scale / WIDE_PATCH_PX, height * scale / WIDE_PATCH_PX
    scale *= min(math.floor(across) / across, math.floor(down) / down)
    return max(int(width * scale), 1), max(int(height * scale), 1)


def _tiles(width: int, height: int, rule: TokenRule, detail: Detail) -> int:
    """Scale the image into a square of 2048 px, then its short side to 768 px, and count tiles of 512 px."""
    if detail == "low":
        return rule.base
    scale = min(1.0, 2048 / max(width, height))
    scale *= min(1.0, 768 / (min(width, height) * scale))
    across, down = math.ceil(round(width * scale, 6) / 512), math.ceil(round(height * scale, 6) / 512)
    return rule.base + rule.per_tile * across * down


def _crops(width: int, height: int, rule: TokenRule) -> int:
    """Count a small image as one crop; split a larger one into squares of two thirds of its short side."""
    if max(width, height) <= 384:
        return rule.image_tokens
    unit = max(math.floor(min(width, height) / 1.5), 1)
    unit = min(max(unit, 256), 768)
    return rule.image_tokens * math.ceil(width / unit) * math.ceil(height / unit)
