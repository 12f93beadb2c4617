"""The image recipes, run in the worker: an opened image becomes derived bytes."""

from __future__ import annotations

from typing import Final

import msgspec

from loom.content.recipes import Crop, Fit, Low, Thumb
from loom.errors import MediaError, Unsupported
from loom.formats.facts import IntakeLimits, Rendered
from loom.formats.image.color import is_srgb
from loom.formats.image.decode import OpenedImage, open_picture
from loom.formats.image.encode import encode_small, encode_within, encoded_length
from loom.formats.image.messages import ImageFacts, PictureRecipe
from loom.formats.image.metadata_removal import remove_metadata
from loom.formats.image.pixels import check, image_character, load

_THUMB_FORMATS: Final = ("image/png", "image/jpeg")
_SMALL_ENCODED_BYTES: Final = 262_144
"""A small image with more bytes than this is encoded again, even if its sides are short enough."""


_GRAY_MODES: Final = frozenset(("1", "L", "LA", "I", "F", "I;16"))


def check_picture(
    data: bytes, media_type: str, limits: IntakeLimits, recipes: tuple[PictureRecipe, ...] = ()
) -> tuple[ImageFacts, list[Rendered | None]]:
    """Decode the image once; return its facts and its renditions, None for those that are not possible."""
    opened = open_picture(data, media_type, limits)
    check(opened)
    width, height = opened.size
    made = [_render_if_possible(data, opened, recipe) for recipe in recipes]
    return ImageFacts(width, height, opened.frames), made


def _render_if_possible(data: bytes, opened: OpenedImage, recipe: PictureRecipe) -> Rendered | None:
    """Return None if the recipe fails: that does not make the image unreadable. It fails again, with its reason, when
    it is needed."""
    try:
        return render_opened(data, opened, recipe)
    except MediaError:
        return None


def render_picture(data: bytes, media_type: str, recipe: PictureRecipe, limits: IntakeLimits) -> Rendered:
    return render_opened(data, open_picture(data, media_type, limits), recipe)


def render_opened(data: bytes, opened: OpenedImage, recipe: PictureRecipe) -> Rendered:
    match recipe:
        case Fit():
            return _fit(data, opened, recipe)
        case Crop():
            return _crop(data, opened, recipe)
        case Low():
            return _render_small(data, opened, recipe.side_px, recipe.formats)
        case Thumb():
            return _render_small(data, opened, recipe.side_px, _THUMB_FORMATS)


def _fit(data: bytes, opened: OpenedImage, recipe: Fit) -> Rendered:
    original = opened.size
    untouched = _reuse_original(data, opened, recipe.max_side_px, recipe.max_encoded_bytes, recipe.formats)
    if untouched is not None:
        return untouched
    image = load(opened, recipe.max_side_px)
    nature = image_character(image, opened.media_type, data)
    rendered = encode_within(image, nature, recipe.formats, recipe.max_encoded_bytes)
    return _with_sizes(rendered, original)


def _crop(data: bytes, opened: OpenedImage, recipe: Crop) -> Rendered:
    width, height = opened.size
    left, top, right, bottom = recipe.box
    box = (left, top, min(right, width), min(bottom, height))
    if left >= width or top >= height:
        raise Unsupported(
            f"The image is {width}×{height}; the box {recipe.box} is outside it.",
            hint="Count left, top, right and bottom in pixels of the original.",
        )
    image = load(opened, recipe.max_side_px, box)
    nature = image_character(image, opened.media_type, data)
    rendered = encode_within(image, nature, recipe.formats, recipe.max_encoded_bytes)
    part = f"the part from ({left}, {top}) to ({box[2]}, {box[3]}) of {width}×{height}"
    sized = _with_sizes(rendered, (box[2] - left, box[3] - top))
    return msgspec.structs.replace(sized, notices=(part, *sized.notices))


def _render_small(data: bytes, opened: OpenedImage, side_px: int, formats: tuple[str, ...]) -> Rendered:
    original = opened.size
    untouched = _reuse_original(data, opened, side_px, _SMALL_ENCODED_BYTES, formats)
    if untouched is not None:
        return untouched
    image = load(opened, side_px)
    return _with_sizes(encode_small(image, image_character(image, opened.media_type, data), formats), original)


def _reuse_original(
    data: bytes, opened: OpenedImage, side_px: int, max_encoded: int, formats: tuple[str, ...]
) -> Rendered | None:
    """Return the original image without metadata, if that already satisfies the recipe."""
    width, height = opened.size
    if opened.media_type not in formats or opened.orientation != 1 or max(width, height) > side_px:
        return None
    if opened.profile and not is_srgb(opened.profile) and opened.image.mode not in _GRAY_MODES:
        return None  # readers ignore color profiles, so the colors must be converted
    cleaned = remove_metadata(data, opened.media_type)
    if cleaned is None or encoded_length(len(cleaned)) > max_encoded:
        return None
    return Rendered(data=cleaned, media_type=opened.media_type, width=width, height=height)


def _with_sizes(rendered: Rendered, original: tuple[int, int]) -> Rendered:
    """Include both sizes if they differ, so that coordinates can be mapped back."""
    if (rendered.width, rendered.height) == original:
        return rendered
    sizes = f"shown at {rendered.width}×{rendered.height}, original {original[0]}×{original[1]}"
    return msgspec.structs.replace(rendered, notices=(sizes,))
