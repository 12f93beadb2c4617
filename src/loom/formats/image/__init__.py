"""Pictures: checked at the door by decoding them, and rendered by the picture recipes.

TIFF is decoded in a worker process: its library is the one that has crashed most often, and it prints what it finds
to standard error, which may be somebody's screen.
"""

from __future__ import annotations

from functools import cache
from typing import Final, TypeAlias

import msgspec

from loom.content.media import digest_of
from loom.content.recipes import Crop, Fit, Low, Thumb
from loom.errors import Unsupported
from loom.formats.facts import Limits, Rendered
from loom.formats.image.clean import clean
from loom.formats.image.decode import Opened, open_picture
from loom.formats.image.encode import encode_small, encode_within, encoded_length
from loom.formats.image.pixels import check, load, nature_of
from loom.formats.worker import Crew

ISOLATED: Final = frozenset(("image/tiff",))
SUBJECT: Final = "The picture"
"""How every error about a picture without a name begins."""
_THUMB_FORMATS: Final = ("image/png", "image/jpeg")
_SMALL_ENCODED_BYTES: Final = 262_144
"""A small picture with more bytes than this is encoded again, even if its sides are short enough."""


class Check(msgspec.Struct, frozen=True, tag="check"):
    """The job of the door."""


PictureRecipe: TypeAlias = Fit | Low | Crop | Thumb
ImageJob: TypeAlias = Check | PictureRecipe


class ImageFacts(msgspec.Struct, frozen=True):
    """Width and height as seen upright; the number of frames or pages."""

    width: int
    height: int
    frames: int


def check_image(data: bytes, media_type: str, limits: Limits, name: str = "") -> ImageFacts:
    """Decodes the whole first frame: what passes can be rendered. Raises `Unreadable`, `TooLarge` or `ExtraMissing`."""
    if media_type in ISOLATED:
        found, _ = _ask(Check(), data, media_type, limits, name)
        return msgspec.msgpack.decode(found, type=ImageFacts)
    return check_here(data, media_type, limits, name)


def render_image(data: bytes, media_type: str, recipe: PictureRecipe, limits: Limits) -> Rendered:
    if media_type in ISOLATED:
        found, blob = _ask(recipe, data, media_type, limits)
        return msgspec.structs.replace(msgspec.msgpack.decode(found, type=Rendered), data=blob)
    return render_here(data, media_type, recipe, limits)


def _ask(job: ImageJob, data: bytes, media_type: str, limits: Limits, name: str = "") -> tuple[msgspec.Raw, bytes]:
    return _crew().call(
        msgspec.msgpack.encode((media_type, job)),
        data,
        digest=digest_of(data),
        name=name or SUBJECT,
        limits=limits,
        seconds=limits.deadline_seconds,
    )


@cache
def _crew() -> Crew:
    return Crew("loom.formats.image.job")


def check_here(data: bytes, media_type: str, limits: Limits, name: str = "") -> ImageFacts:
    opened = open_picture(data, media_type, limits, name)
    check(opened, name)
    width, height = opened.size
    return ImageFacts(width, height, opened.frames)


def render_here(data: bytes, media_type: str, recipe: PictureRecipe, limits: Limits) -> Rendered:
    opened = open_picture(data, media_type, limits)
    match recipe:
        case Fit():
            return _fit(data, opened, recipe)
        case Crop():
            return _crop(data, opened, recipe)
        case Low():
            return _small(data, opened, recipe.side_px, recipe.formats)
        case Thumb():
            return _small(data, opened, recipe.side_px, _THUMB_FORMATS)


def _fit(data: bytes, opened: Opened, recipe: Fit) -> Rendered:
    original = opened.size
    passed = _untouched(data, opened, recipe.max_side_px, recipe.max_encoded_bytes, recipe.formats)
    if passed is not None:
        return passed
    image = load(opened, recipe.max_side_px)
    nature = nature_of(image, opened.media_type, data)
    rendered = encode_within(image, nature, recipe.formats, recipe.max_encoded_bytes)
    return _with_sizes(rendered, original)


def _crop(data: bytes, opened: Opened, recipe: Crop) -> Rendered:
    width, height = opened.size
    left, top, right, bottom = recipe.box
    box = (left, top, min(right, width), min(bottom, height))
    if left >= width or top >= height:
        raise Unsupported(
            f"The picture is {width}×{height}; the box {recipe.box} lies outside it.",
            hint="Count left, top, right and bottom in pixels of the original.",
        )
    image = load(opened, recipe.max_side_px, box)
    nature = nature_of(image, opened.media_type, data)
    rendered = encode_within(image, nature, recipe.formats, recipe.max_encoded_bytes)
    part = f"the part from ({left}, {top}) to ({box[2]}, {box[3]}) of {width}×{height}"
    sized = _with_sizes(rendered, (box[2] - left, box[3] - top))
    return msgspec.structs.replace(sized, notices=(part, *sized.notices))


def _small(data: bytes, opened: Opened, side_px: int, formats: tuple[str, ...]) -> Rendered:
    original = opened.size
    passed = _untouched(data, opened, side_px, _SMALL_ENCODED_BYTES, formats)
    if passed is not None:
        return passed
    image = load(opened, side_px)
    return _with_sizes(encode_small(image, nature_of(image, opened.media_type, data), formats), original)


def _untouched(
    data: bytes, opened: Opened, side_px: int, max_encoded: int, formats: tuple[str, ...]
) -> Rendered | None:
    """The picture as it came, less what else was in the file, when that already satisfies the recipe."""
    width, height = opened.size
    if opened.media_type not in formats or opened.orientation != 1 or max(width, height) > side_px:
        return None
    cleaned = clean(data, opened.media_type)
    if cleaned is None or encoded_length(len(cleaned)) > max_encoded:
        return None
    return Rendered(data=cleaned, media_type=opened.media_type, width=width, height=height)


def _with_sizes(rendered: Rendered, original: tuple[int, int]) -> Rendered:
    """Says both sizes when they differ, so that coordinates can be mapped back."""
    if (rendered.width, rendered.height) == original:
        return rendered
    shown = f"shown at {rendered.width}×{rendered.height}, original {original[0]}×{original[1]}"
    return msgspec.structs.replace(rendered, notices=(shown,))
