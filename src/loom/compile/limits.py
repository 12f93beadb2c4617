"""The recipe that fits a medium to a platform: the tightest limit that can ever apply, measured on the encoded field.

Limits that depend on the number of images apply from the first image on. Otherwise the twenty-first image would change
the bytes of the twenty before it, which would invalidate the cache and the thinking bound to them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from loom.compile import cost
from loom.compile.measure import RenderTarget
from loom.compile.policy import Policy
from loom.content.media import Media
from loom.content.recipes import Fit, Frame, Low, Page
from loom.models import Limits, Model

DEFAULT_IMAGE_BYTES: Final = 5_000_000
PAGE_TEXT_TOKENS: Final = 500
"""The assumed tokens of a page's text if it is not known."""
PAGE_BYTES: Final = 1_000_000
"""The encoded size, sufficient for a page at 150 dpi: twenty of them fit into a request of every platform."""
_LOW_BYTES: Final = 400_000
_SLICE_BYTES: Final = 20_000
"""The bytes that the pages of a document share: fonts, an index."""


def image_formats(accepts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the types that may be written for a model that accepts `accepts`. GIF is never used: platforms read only
    its first frame or refuse it."""
    return tuple(kind for kind in ("image/png", "image/jpeg", "image/webp") if kind in accepts)


def max_side_px(limits: Limits, policy: Policy) -> int:
    sides = (policy.max_side_px, limits.max_image_side_px, limits.many_images_side_px)
    return min(side for side in sides if side is not None)


def full_image(model: Model, policy: Policy, accepts: tuple[str, ...]) -> Fit:
    return _fit(model.limits, policy, accepts)


@lru_cache(maxsize=256)
def _fit(limits: Limits, policy: Policy, accepts: tuple[str, ...]) -> Fit:
    return Fit(
        max_side_px=max_side_px(limits, policy),
        max_encoded_bytes=limits.max_image_encoded_bytes or DEFAULT_IMAGE_BYTES,
        formats=image_formats(accepts),
    )


@lru_cache(maxsize=256)
def low_image(policy: Policy, accepts: tuple[str, ...]) -> Low:
    return Low(side_px=policy.low_side_px, formats=image_formats(accepts))


def page_image(number: int, model: Model, policy: Policy, accepts: tuple[str, ...]) -> Page:
    fit = full_image(model, policy, accepts)
    most = min(fit.max_encoded_bytes, PAGE_BYTES)
    return Page(number=number, max_side_px=fit.max_side_px, max_encoded_bytes=most, formats=fit.formats)


def page_images(target: RenderTarget) -> int:
    """Return how many pages of one document may be sent as images: no more than a whole request may hold."""
    each = cost.image_tokens(cost.PAGE_WIDTH_PX, cost.PAGE_HEIGHT_PX, target.model.tokens)
    counts = (target.policy.page_images, target.model.limits.max_images, target.policy.max_images)
    return min(count for count in (_count_that_fits(each, target), *counts) if count is not None)


def video_frames(target: RenderTarget) -> int:
    """Return how many frames of one video may be sent: no more than a whole request may hold."""
    side = target.policy.frame_side_px
    each = cost.image_tokens(side, side * 9 // 16, target.model.tokens)
    counts = (target.policy.video_frames, target.model.limits.max_images, target.policy.max_images)
    return min(count for count in (_count_that_fits(each, target), *counts) if count is not None)


def video_frame(at_seconds: float, target: RenderTarget, *, is_low: bool) -> Frame:
    fit = full_image(target.model, target.policy, target.model.capabilities.accepts)
    side = target.policy.low_side_px if is_low else min(fit.max_side_px, target.policy.frame_side_px)
    most = min(fit.max_encoded_bytes, PAGE_BYTES)
    return Frame(at_ms=round(at_seconds * 1000), max_side_px=side, max_encoded_bytes=most, formats=fit.formats)


def native_pages(pages: int, target: RenderTarget) -> int:
    """Return how many pages of one document are sent: as many as fit."""
    each = cost.page_tokens(target.model.tokens) + PAGE_TEXT_TOKENS
    counts = (target.model.limits.max_pages, target.policy.max_pages)
    allowed = min(count for count in (_count_that_fits(each, target), *counts) if count is not None)
    return min(pages, allowed)


def fewer_pages(pages: int) -> int:
    """Return the next smaller number of pages to try: a fifth less, so that few slices are made until one fits."""
    return pages * 4 // 5


def slice_bytes(media: Media, pages: int) -> int:
    """Return an estimate of the size of `pages` pages of a document, before they are extracted."""
    return min(media.size_bytes, media.size_bytes * pages // max(media.pages or 1, 1) + _SLICE_BYTES)


def _count_that_fits(tokens_each: int, target: RenderTarget) -> int:
    """Return how many fit into half of the window; the other half is for the conversation."""
    window = target.model.limits.context_tokens
    window = window if target.policy.max_tokens is None else min(window, target.policy.max_tokens)
    return max(window // 2 // max(tokens_each, 1), 1)


def document_bytes(target: RenderTarget) -> tuple[int | None, ...]:
    """Return the limits for the size of one encoded document. One that fills a whole request leaves no room for a
    question."""
    most = target.model.limits
    return most.max_document_encoded_bytes, most.max_request_bytes, target.policy.max_bytes


def size_bound(recipe: Fit | Low | Page | Frame, original_bytes: int) -> int:
    """Return the maximum size of derived bytes that do not exist yet."""
    most = _LOW_BYTES if isinstance(recipe, Low) else recipe.max_encoded_bytes * 3 // 4
    return most if isinstance(recipe, Page | Frame) else min(most, max(original_bytes, 1))
