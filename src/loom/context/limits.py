"""The recipe that fits a medium to a platform: the tightest limit that can ever apply, measured on the encoded field.

Count-dependent limits are applied from the first picture on. Otherwise the twenty-first picture would change the bytes
of the twenty before it: a cache lost, and thinking bound to them refused.
"""

from __future__ import annotations

from typing import Final

from loom.content.recipes import Fit, Low, Page
from loom.context.policy import Policy
from loom.models import Limits, Model

DEFAULT_IMAGE_BYTES: Final = 5_000_000
_LOW_BYTES: Final = 400_000


def image_formats(accepts: tuple[str, ...]) -> tuple[str, ...]:
    """The still-picture types that an encoder may write for this reader."""
    return tuple(kind for kind in ("image/png", "image/jpeg", "image/webp", "image/gif") if kind in accepts)


def max_side_px(limits: Limits, policy: Policy) -> int:
    sides = (policy.max_side_px, limits.max_image_side_px, limits.many_images_side_px)
    return min(side for side in sides if side is not None)


def full_image(model: Model, policy: Policy, accepts: tuple[str, ...]) -> Fit:
    return Fit(
        max_side_px=max_side_px(model.limits, policy),
        max_encoded_bytes=model.limits.max_image_encoded_bytes or DEFAULT_IMAGE_BYTES,
        formats=image_formats(accepts),
    )


def low_image(policy: Policy, accepts: tuple[str, ...]) -> Low:
    return Low(side_px=policy.low_side_px, formats=image_formats(accepts))


def page_image(number: int, model: Model, policy: Policy, accepts: tuple[str, ...]) -> Page:
    fit = full_image(model, policy, accepts)
    return Page(
        number=number, max_side_px=fit.max_side_px, max_encoded_bytes=fit.max_encoded_bytes, formats=fit.formats
    )


def fitted_size(width: int, height: int, side: int) -> tuple[int, int]:
    """What a picture of this size becomes when its longest side is held to `side`."""
    longest = max(width, height)
    if longest <= side:
        return width, height
    return max(round(width * side / longest), 1), max(round(height * side / longest), 1)


def size_bound(recipe: Fit | Low | Page, original_bytes: int) -> int:
    """How many bytes derived bytes may have before they exist."""
    most = _LOW_BYTES if isinstance(recipe, Low) else recipe.max_encoded_bytes * 3 // 4
    return most if isinstance(recipe, Page) else min(most, max(original_bytes, 1))
