"""Measure an image without understanding it: size, kind, colours, brightness.

Nothing is recognised; the same bytes always give the same facts. Decoding and measuring (`measure`) happen in the
worker process for images.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from loom.errors import Unsupported
from loom.formats.facts import IntakeLimits
from loom.formats.image import ask_worker
from loom.formats.image.messages import ComparePixels, DescribePixels
from loom.formats.sniff import sniff
from loom.formats.sniff.kinds import label_of

PictureKind: TypeAlias = Literal["photograph", "screenshot or diagram", "plain image"]
Brightness: TypeAlias = Literal["dark", "mid-toned", "bright"]


class ColorShare(msgspec.Struct, frozen=True):
    name: str
    percent: int


class PixelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`clear_percent` says how much of the image is transparent."""

    width: int
    height: int
    media_type: str
    kind: PictureKind
    tone: Brightness
    palette: tuple[ColorShare, ...]
    frames: int = 1
    clear_percent: int = 0


def describe(data: bytes, limits: IntakeLimits = IntakeLimits()) -> PixelFacts:
    """Raises `Unreadable`, `TooLarge`, `Unsupported` or `ExtraMissing`."""
    result, _ = ask_worker(DescribePixels(), data, _image_type(data), limits)
    return msgspec.msgpack.decode(result, type=PixelFacts)


def compare(a: bytes, b: bytes, limits: IntakeLimits = IntakeLimits()) -> float | None:
    """Return how much of the area differs, in percent; None if the shapes differ. Raises what `describe` raises."""
    job = ComparePixels(first_bytes=len(a), second_type=_image_type(b))
    result, _ = ask_worker(job, a + b, _image_type(a), limits)
    return msgspec.msgpack.decode(result, type=float | None)


def _image_type(data: bytes) -> str:
    found = sniff(data)
    if found.category != "image":
        raise Unsupported(f"The bytes are {label_of(found.media_type)}, not an image.")
    return found.media_type
