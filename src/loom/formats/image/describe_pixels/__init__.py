"""What can be seen in a picture without understanding it: size, kind, colours, brightness, where the detail sits.

Pixels are counted and measured, nothing is recognised. The same bytes always give the same facts. The picture is
decoded and measured in the worker for pictures (`measure`).
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

PictureKind: TypeAlias = Literal["photograph", "screenshot or diagram", "drawing", "icon", "plain picture"]
Brightness: TypeAlias = Literal["dark", "mid-toned", "bright"]


class ColorShare(msgspec.Struct, frozen=True):
    name: str
    percent: int


class AccentColor(msgspec.Struct, frozen=True):
    """A strong colour that covers little of a plain picture, and where it is."""

    name: str
    place: str


class PixelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`detail` names the part with most of the edges; empty where they are spread evenly or there are none."""

    width: int
    height: int
    media_type: str
    kind: PictureKind
    tone: Brightness
    palette: tuple[ColorShare, ...]
    accents: tuple[AccentColor, ...] = ()
    detail: str = ""
    frames: int = 1
    clear_percent: int = 0
    """How much of it is transparent."""


class ImageDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What separates the second picture from the first."""

    first: PixelFacts
    second: PixelFacts
    changed_percent: float | None = None
    """None where their shapes differ too much to lay one over the other."""
    region: str = ""
    box: tuple[int, int, int, int] | None = None
    """Around everything that changed, in pixels of the first."""
    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


def describe(data: bytes, limits: IntakeLimits = IntakeLimits()) -> PixelFacts:
    """Raises `Unreadable`, `TooLarge`, `Unsupported` or `ExtraMissing`."""
    result, _ = ask_worker(DescribePixels(), data, _picture_type(data), limits)
    return msgspec.msgpack.decode(result, type=PixelFacts)


def compare(a: bytes, b: bytes, limits: IntakeLimits = IntakeLimits()) -> ImageDifference:
    """Raises what `look` raises."""
    job = ComparePixels(first_bytes=len(a), second_type=_picture_type(b))
    result, _ = ask_worker(job, a + b, _picture_type(a), limits)
    return msgspec.msgpack.decode(result, type=ImageDifference)


def _picture_type(data: bytes) -> str:
    found = sniff(data)
    if found.category != "image":
        raise Unsupported(f"The bytes are {label_of(found.media_type)}, not a picture.")
    return found.media_type
