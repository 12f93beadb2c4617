"""Images: checked at intake by decoding them, and rendered by the image recipes.

Every decoder runs in a worker process: decoders have crashed, hung and used a gigabyte for a file of two kilobytes, and
some print messages to standard error. `render` and `decode` run in the worker.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Final, NamedTuple

import msgspec

from loom.content.media import Media, digest_of
from loom.errors import ExtraMissing
from loom.formats.facts import Inspection, IntakeLimits, MadeRendition, Rendered
from loom.formats.image.messages import (
    MEMORY_SHARE,
    SUBJECT,
    CheckedPicture,
    CheckPicture,
    ImageFacts,
    PackedRendition,
    PagesToPdf,
    PictureJob,
    PictureRecipe,
    RenderPicture,
    unpack,
)
from loom.formats.worker import WorkerKind, current_pool
from loom.struct_types import decode_msgpack

__all__ = [
    "IMAGE_WORKER",
    "CheckedImage",
    "ImageFacts",
    "PictureRecipe",
    "ask_worker",
    "check_and_render",
    "check_image",
    "inspect_image",
    "pages_as_pdf",
    "render_image",
]

HEIC: Final = "image/heic"
JXL: Final = "image/jxl"
IMAGE_WORKER: Final = WorkerKind(
    "loom.formats.image.job", size=max(2, min(4, os.cpu_count() or 1)), memory_share=MEMORY_SHARE
)
"""At least two processes, because one slow image must not delay the others."""


def inspect_image(
    data: bytes, media_type: str, name: str, limits: IntakeLimits, recipes: tuple[PictureRecipe, ...] = ()
) -> Inspection:
    """Decode and hash an image once, and return its facts with the renditions by `recipes`."""
    checked = check_and_render(data, media_type, limits, name, recipes)
    facts = checked.facts
    many = facts.frames > 1
    notices: tuple[str, ...] = ()
    if many:
        what = "pages" if media_type == "image/tiff" else "frames"
        notices = (f"{name or 'The image'} has {facts.frames} {what}; models receive only the first.",)
    return Inspection(
        media=Media(
            digest=digest_of(data),
            media_type=media_type,
            size_bytes=len(data),
            width=facts.width,
            height=facts.height,
            frames=facts.frames if many else None,
            name=name,
        ),
        category="image",
        notices=notices,
        renditions=tuple(MadeRendition(recipe, rendered) for recipe, rendered in checked.renditions.items()),
    )


class CheckedImage(NamedTuple):
    facts: ImageFacts
    renditions: dict[PictureRecipe, Rendered]
    """Rendered while the image was decoded. A recipe that cannot be applied to the image is left out."""


def check_image(data: bytes, media_type: str, limits: IntakeLimits, name: str = "") -> ImageFacts:
    """Decode the whole first frame: an image that passes can be rendered. Raise `Unreadable`, `TooLarge` or
    `ExtraMissing`."""
    return check_and_render(data, media_type, limits, name).facts


def check_and_render(
    data: bytes, media_type: str, limits: IntakeLimits, name: str = "", recipes: tuple[PictureRecipe, ...] = ()
) -> CheckedImage:
    """Check like `check_image`, and render by `recipes` while the image is decoded."""
    result, blob = ask_worker(CheckPicture(recipes), data, media_type, limits, name)
    checked = decode_msgpack(result, CheckedPicture)
    made = zip(recipes, unpack(checked.renditions, blob, data), strict=True)
    return CheckedImage(checked.facts, {recipe: rendered for recipe, rendered in made if rendered is not None})


def render_image(data: bytes, media_type: str, recipe: PictureRecipe, limits: IntakeLimits) -> Rendered:
    """Return derived bytes. Raise `Unreadable`, `TooLarge`, `Unsupported` or `ExtraMissing`."""
    result, blob = ask_worker(RenderPicture(recipe), data, media_type, limits)
    packed = decode_msgpack(result, PackedRendition)
    (rendered,) = unpack((packed,), blob, data)
    assert rendered is not None
    return rendered


def pages_as_pdf(data: bytes, media_type: str, limits: IntakeLimits, name: str = "") -> bytes:
    """Return all pages of a TIFF as a PDF. Raise `Unreadable` or `TooLarge`."""
    return ask_worker(PagesToPdf(), data, media_type, limits, name)[1]


def ask_worker(
    job: PictureJob, data: bytes, media_type: str, limits: IntakeLimits, name: str = ""
) -> tuple[msgspec.Raw, bytes]:
    if media_type == HEIC and importlib.util.find_spec("pillow_heif") is None:
        raise ExtraMissing("HEIC images need a decoder that is not installed.", hint="pip install 'loom-runtime[heif]'")
    if media_type == JXL and importlib.util.find_spec("pillow_jxl") is None:
        raise ExtraMissing(
            "JPEG XL images need a decoder that is not installed.", hint="pip install 'loom-runtime[jxl]'"
        )
    return current_pool().call(
        IMAGE_WORKER,
        msgspec.msgpack.encode((media_type, job)),
        data,
        name=name or SUBJECT,
        limits=limits,
        seconds=limits.deadline_seconds,
    )
