"""Camera raw images, represented by the preview that the camera embeds. They are not developed: that is work for
photographers.

Every manufacturer stores previews in another place, but all of them are JPEG images. So the largest JPEG in the file is
used, wherever it is. Lossless JPEG, the compression of raw pixels, is skipped: decoders do not read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import msgspec

from loom.content.media import Media, digest_of
from loom.content.recipes import Crop, Fit, Low, Ocr, Recipe, Thumb
from loom.errors import Unsupported
from loom.formats.builtin import IMAGE
from loom.formats.facts import Inspection, IntakeLimits, Rendered
from loom.formats.image.chunks import SOS
from loom.formats.image.exif import orientation, tiff_orientation
from loom.formats.sniff.kinds import KINDS, RAW_TYPES, FileKind, label_of

_START: Final = b"\xff\xd8\xff"
_END: Final = b"\xff\xd9"
_MAX_SEGMENTS: Final = 500
_NO_FRAMES: Final = (0xC4, 0xC8, 0xCC)
"""Tables whose marker numbers are between those of frames."""
_MAX_STARTS: Final = 2_000
_SHOWN_FRAMES: Final = (0xC0, 0xC1, 0xC2)
"""Baseline, extended and progressive. Other frames, such as the lossless ones of raw pixels, are not previews."""
_MIN_SIDE_PX: Final = 16


class CameraRawFormat:
    """Renders the preview; the stored bytes are those of the raw image."""

    recipes: tuple[type[Recipe], ...] = (Fit, Low, Crop, Thumb, Ocr)

    @cached_property
    def kinds(self) -> Mapping[str, FileKind]:
        return {media_type: KINDS[media_type] for media_type in RAW_TYPES}

    def detect(self, data: bytes, name: str) -> str | None:
        """Return None: `sniff` detects these types."""
        return None

    def inspect(self, data: bytes, media_type: str, name: str, limits: IntakeLimits) -> Inspection:
        preview = find_preview(data, media_type, name)
        # the limit of the raw image, which its size was compared with, also bounds the preview
        found = IMAGE.inspect(preview, "image/jpeg", name, _limits_for_preview(limits, preview))
        media = msgspec.structs.replace(
            found.media, digest=digest_of(data), media_type=media_type, size_bytes=len(data)
        )
        size = f"{media.width}×{media.height}"
        said = f"{name or 'The file'} is {label_of(media_type)}: its embedded preview ({size}) is used."
        return msgspec.structs.replace(found, media=media, notices=(said, *found.notices), renditions=())

    def render(self, data: bytes, media: Media, recipe: Recipe, limits: IntakeLimits) -> Rendered:
        preview = find_preview(data, media.media_type, media.name)
        shown = msgspec.structs.replace(
            media, digest=digest_of(preview), media_type="image/jpeg", size_bytes=len(preview)
        )
        return IMAGE.render(preview, shown, recipe, _limits_for_preview(limits, preview))


def _limits_for_preview(limits: IntakeLimits, preview: bytes) -> IntakeLimits:
    return msgspec.structs.replace(limits, max_image_bytes=max(limits.max_image_bytes, len(preview)))


def find_preview(data: bytes, media_type: str, name: str = "") -> bytes:
    """Return the largest embedded JPEG image, upright. Raise `Unsupported` if there is none."""
    best, best_area, at = b"", 0, data.find(_START)
    for _ in range(_MAX_STARTS):
        if at < 0:
            break
        area, pixels = _measure(data, at)
        end = data.find(_END, pixels) + len(_END) if area else at + 1
        if area and end < pixels:
            break  # truncated, and so is the rest of the file
        if area > best_area:
            best, best_area = data[at:end], area
        at = data.find(_START, end)
    if not best:
        raise Unsupported(
            f"{name or 'The file'} is {label_of(media_type)} without a preview that can be shown.",
            name=name,
            hint="Export it as JPEG and attach that.",
        )
    turned = tiff_orientation(data) if data[:2] in (b"II", b"MM") else 1
    if turned == 1 or orientation(best, "image/jpeg") != 1:
        return best
    note = b"Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1" + turned.to_bytes(2, "big") + bytes(6)
    return best[:2] + b"\xff\xe1" + (len(note) + 2).to_bytes(2, "big") + note + best[2:]


def _measure(data: bytes, start: int) -> tuple[int, int]:
    """Return the area of the JPEG image at `start` (0 if it is not a preview) and the offset of its pixels."""
    at, area = start + 2, 0
    for _ in range(_MAX_SEGMENTS):
        head = data[at : at + 9]
        if len(head) < 9 or head[0] != 0xFF or head[1] < 0xC0:
            break
        if head[1] == SOS:
            return area, at
        if 0xC0 <= head[1] <= 0xCF and head[1] not in _NO_FRAMES:
            height, width = int.from_bytes(head[5:7], "big"), int.from_bytes(head[7:9], "big")
            if head[1] not in _SHOWN_FRAMES or head[4] != 8 or min(width, height) < _MIN_SIDE_PX:
                break
            area = width * height
        at += 2 + int.from_bytes(head[2:4], "big")
    return 0, start


CAMERA_RAW: Final = CameraRawFormat()
