"""Encode an image in steps until it fits. An image that must stay sharp is lossless as long as possible."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from loom.content.media import size_label
from loom.content.recipes import fitted_size
from loom.errors import TooLarge, Unsupported
from loom.formats.facts import ImageCharacter, Rendered
from loom.formats.image.pixels import shrink

if TYPE_CHECKING:
    from PIL.Image import Image

MATTE: Final = (255, 255, 255)
"""The color behind transparent pixels in formats that have no transparency."""
SMALLEST_SIDE_PX: Final = 64
"""A smaller image is not legible; an image that was smaller from the start is never reduced further."""
_SMALLEST_STEP: Final = 0.9
_LARGEST_STEP: Final = 0.3
_HOPELESS: Final = 6
"""If a result exceeds the limit by this factor, no further encoding at the same size is tried."""
_FEW_COLORS: Final = 256
_MANY_COLORS: Final = 32_768
_SPREAD: Final = 4
"""The approximate ratio between the lengths at the best and at the lowest quality."""
_MAX_SIDE_PX: Final = {"image/jpeg": 65_535, "image/webp": 16_383, "image/gif": 65_535}

_PNG: Final = "image/png"
_JPEG: Final = "image/jpeg"
_WEBP: Final = "image/webp"
_GIF: Final = "image/gif"


class EncodeStep(msgspec.Struct, frozen=True):
    media_type: str
    way: Literal["exact", "palette", "lossy"]
    quality: int = 0


_FINE_WEBP: Final = EncodeStep(_WEBP, "lossy", 88)
_SMALL_QUALITY: Final = 82
_EXACT: Final = (
    EncodeStep(_PNG, "exact"),
    EncodeStep(_WEBP, "exact"),
    EncodeStep(_PNG, "palette"),
    EncodeStep(_GIF, "palette"),
)
_LOSSY: Final = (
    EncodeStep(_JPEG, "lossy", 90),
    _FINE_WEBP,
    EncodeStep(_JPEG, "lossy", 82),
    EncodeStep(_JPEG, "lossy", 72),
    EncodeStep(_WEBP, "lossy", 70),
    EncodeStep(_JPEG, "lossy", 60),
    EncodeStep(_WEBP, "lossy", 50),
    EncodeStep(_JPEG, "lossy", 45),
)


def encoded_length(size_bytes: int) -> int:
    """Return the length of the base64 field, which is the length that providers limit."""
    return 4 * ((size_bytes + 2) // 3)


def encode_within(image: Image, nature: ImageCharacter, formats: tuple[str, ...], max_encoded_bytes: int) -> Rendered:
    """Return the first encoding that fits: lossless if `nature` needs it, then lower quality, then smaller size."""
    exact, lossy = _ladder(nature, formats, has_alpha=image.mode in ("LA", "RGBA"))
    rungs = exact or lossy
    scaled = image
    while True:
        rendered, least = _first_that_fits(scaled, rungs, nature, max_encoded_bytes)
        if rendered is not None:
            return rendered
        if lossy and rungs is not lossy:
            rungs = lossy
            continue
        longest = max(scaled.size)
        if longest <= SMALLEST_SIDE_PX:
            raise TooLarge(
                f"The image has no legible form as {_format_list(formats)} within {size_label(max_encoded_bytes)}.",
                hint="Allow more bytes or another format.",
            )
        # Bytes grow with the area; an estimate from the shortest form so far saves most attempts.
        step = min(_SMALLEST_STEP, max(_LARGEST_STEP, (max_encoded_bytes / least) ** 0.5))
        scaled = shrink(image, fitted_size(image.width, image.height, max(SMALLEST_SIDE_PX, round(longest * step))))


def _first_that_fits(
    image: Image, rungs: tuple[EncodeStep, ...], nature: ImageCharacter, max_encoded_bytes: int
) -> tuple[Rendered | None, int]:
    """Return the first encoding that fits, with its encoded length; or None, with the shortest encoded length tried, an
    estimate of it, or the limit if none was possible."""
    least = 0
    for rung in rungs:
        data = _encode(image, rung, nature)
        if data is None:
            continue
        length = encoded_length(len(data))
        if length <= max_encoded_bytes:
            return Rendered(data=data, media_type=rung.media_type, width=image.width, height=image.height), length
        least = min(least or length, length)
        if length > max_encoded_bytes * _HOPELESS and max(image.size) > SMALLEST_SIDE_PX:
            return None, least // _SPREAD if rung.way == "lossy" else least
    return None, least or max_encoded_bytes


def encode_small(image: Image, nature: ImageCharacter, formats: tuple[str, ...]) -> Rendered:
    """Encode an image that was made small: lossless only if that is shorter (text is no longer sharp anyway)."""
    exact, lossy = _ladder(nature, formats, has_alpha=image.mode in ("LA", "RGBA"))
    modest = [rung for rung in lossy if rung.quality <= _SMALL_QUALITY]
    if modest and image.mode == "RGB" and image.getcolors(_FEW_COLORS) is None:
        exact = ()  # several times as long; finding that out would take longer than everything else
    made = [
        Rendered(data=data, media_type=rung.media_type, width=image.width, height=image.height)
        for rung in (*exact[:1], *modest[:1])
        if (data := _encode(image, rung, nature)) is not None
    ]
    return min(made, key=lambda rendered: len(rendered.data))


def _ladder(
    nature: ImageCharacter, formats: tuple[str, ...], *, has_alpha: bool
) -> tuple[tuple[EncodeStep, ...], tuple[EncodeStep, ...]]:
    exact = tuple(rung for rung in _EXACT if rung.media_type in formats)
    lossy = tuple(rung for rung in _LOSSY if rung.media_type in formats)
    if has_alpha and _WEBP in formats:
        lossy = tuple(rung for rung in lossy if rung.media_type == _WEBP)
    elif _JPEG in formats:
        lossy = tuple(rung for rung in lossy if rung != _FINE_WEBP)
    if not exact and not lossy:
        raise Unsupported(
            f"The image cannot be written as {_format_list(formats)}.", hint="Loom writes PNG, JPEG, WebP and GIF."
        )
    loses_alpha = has_alpha and _WEBP not in formats
    if nature == "photo" and lossy and not loses_alpha:
        exact = ()
    return exact, lossy


def _format_list(formats: tuple[str, ...]) -> str:
    return ", ".join(media_type.removeprefix("image/") for media_type in formats)


def _encode(image: Image, rung: EncodeStep, nature: ImageCharacter) -> bytes | None:
    """Return None if the format cannot contain an image of this size."""
    if max(image.size) > _MAX_SIDE_PX.get(rung.media_type, 2**31 - 1):
        return None
    file = io.BytesIO()
    match rung.media_type:
        case "image/png" if rung.way == "palette":
            _to_palette(image).save(file, "PNG", compress_level=6)
        case "image/png":
            image.save(file, "PNG", compress_level=6)
        case "image/jpeg":
            subsampling = 0 if nature == "screenshot" else 2
            _flatten(image).save(file, "JPEG", quality=rung.quality, optimize=True, subsampling=subsampling)
        case "image/webp" if rung.way == "exact":
            image.save(file, "WEBP", lossless=True, quality=40, method=2, exact=False)
        case "image/webp":
            image.save(file, "WEBP", quality=rung.quality, method=2)
        case _:
            image.save(file, "GIF")
    return file.getvalue()


def _flatten(image: Image) -> Image:
    from PIL.Image import new

    if image.mode not in ("LA", "RGBA"):
        return image
    ground = new("RGB", image.size, MATTE)
    ground.paste(image.convert("RGB"), mask=image.getchannel("A"))
    return ground


def _to_palette(image: Image) -> Image:
    from PIL.Image import Quantize

    if image.mode in ("LA", "RGBA"):
        return image.convert("RGBA").quantize(256, Quantize.FASTOCTREE)
    # The better method takes many seconds if almost every pixel has a different color.
    few = image.getcolors(_MANY_COLORS) is not None
    return image.quantize(256, Quantize.MEDIANCUT if few else Quantize.FASTOCTREE)
