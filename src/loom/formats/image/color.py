"""Convert the many ways to store color to the four that every reader accepts: L, LA, RGB, RGBA; eight bits, sRGB."""

from __future__ import annotations

import io
import re
from struct import Struct, error
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from PIL.Image import Image

_MAX_PROFILE_BYTES: Final = 4_194_304
_U32: Final = Struct(">I").unpack_from
_MAX_TAGS: Final = 100
_SRGB: Final = re.compile(r"(?:GIMP built-in )?sRGB(?:[ _](?!.*(?:P3|Adobe|2020|linear)).*)?", re.IGNORECASE)
"""The descriptions of sRGB itself. Other profiles contain its name too: `Display P3 Gamut with sRGB Transfer`."""


def to_eight_bits(image: Image, profile: bytes | None) -> Image:
    mode = image.mode
    transparent = "transparency" in image.info
    match mode:
        case "RGB" if transparent:
            return image.convert("RGBA")
        case "L" if transparent:
            return image.convert("LA")
        case "L" | "LA" | "RGB" | "RGBA":
            return image
        case "1":
            return image.convert("L")
        case "P":
            return image.convert("RGBA" if transparent else "RGB")
        case "PA" | "RGBa":
            return image.convert("RGBA")
        case "La":
            return image.convert("LA")
        case "CMYK":
            return _apply_profile(image, profile) or image.convert("RGB")
        case "LAB":
            return _apply_profile(image, None, space="LAB") or image.getchannel("L")
        case "I" | "F":
            return _stretch_range(image)
        case _ if mode.startswith("I;16"):  # 16 bits become 8 as in viewers: 65535 is white
            return image.convert("I").point(lambda value: value * (1 / 256)).convert("L")
        case _:
            return image.convert("RGB")


def is_srgb(profile: bytes) -> bool:
    return _SRGB.fullmatch(_description(profile)) is not None


def to_srgb(image: Image, profile: bytes) -> Image:
    """Convert the colors to sRGB, because models ignore color profiles. Transparency is unchanged."""
    if is_srgb(profile):
        return image
    converted = _apply_profile(image.convert("RGB"), profile)
    if converted is None:
        return image
    if image.mode == "RGBA":
        converted.putalpha(image.getchannel("A"))
    return converted


def _description(profile: bytes) -> str:
    """Return the description in a color profile, or an empty string if it has none."""
    try:
        for entry in range(132, 132 + 12 * min(_U32(profile, 128)[0], _MAX_TAGS), 12):
            if profile[entry : entry + 4] == b"desc":
                start, size = _U32(profile, entry + 4)[0], _U32(profile, entry + 8)[0]
                return _tag_text(profile[start : start + size]).rstrip("\0").strip()
    except error:  # truncated
        pass
    return ""


def _tag_text(tag: bytes) -> str:
    """Return the text of a tag: ASCII in profiles of version 2; in version 4, the first of several languages in
    UTF-16."""
    if tag[:4] == b"desc":
        return tag[12 : 12 + _U32(tag, 8)[0]].decode("ascii", "replace")
    if tag[:4] == b"mluc":
        size, start = _U32(tag, 20)[0], _U32(tag, 24)[0]
        return tag[start : start + size].decode("utf-16-be", "replace")
    return ""


def drop_empty_alpha(image: Image) -> Image:
    """Remove an alpha channel in which every pixel is opaque, as in many screenshots."""
    if image.mode in ("LA", "RGBA") and image.getchannel("A").getextrema() == (255, 255):
        return image.convert(image.mode[:-1])
    return image


def _apply_profile(image: Image, profile: bytes | None, space: str = "") -> Image | None:
    """Convert to sRGB by the color profile. Return None if there is no profile or it cannot be used."""
    from PIL import ImageCms

    cms: Any = ImageCms  # its annotations leave profiles untyped
    if not space and (not profile or len(profile) > _MAX_PROFILE_BYTES):
        return None
    try:
        source = cms.createProfile(space) if space else cms.ImageCmsProfile(io.BytesIO(profile or b""))
        converted = cms.profileToProfile(image, source, cms.createProfile("sRGB"), outputMode="RGB")
    except (cms.PyCMSError, OSError):  # an unusable profile gives no information about the colors
        return None
    converted.info.pop("icc_profile", None)
    return converted


def _stretch_range(image: Image) -> Image:
    """Map the lightest pixel to white and the darkest to black: 32-bit integers and floats have no fixed white."""
    numbers: Any = image.getextrema()
    low, high = numbers
    if image.mode == "I" and low >= 0 and high <= 255:
        return image.convert("L")
    scale = 255.0 / (high - low) if high > low else 0.0
    return image.convert("F").point(lambda value: value * scale - low * scale).convert("L")


# Columns of the matrix to the color space of profiles (D50), by the number of the primaries in ITU-T H.273.
_PRIMARIES: Final = {
    9: ((0.67348, 0.27904, -0.00194), (0.16566, 0.67535, 0.02998), (0.12505, 0.04561, 0.79686)),
    12: ((0.51512, 0.24120, -0.00105), (0.29198, 0.69225, 0.04189), (0.15710, 0.06657, 0.78407)),
}
_WHITE: Final = (0.96420, 1.0, 0.82491)
_SRGB_CURVE: Final = (2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045)


def profile_of_primaries(primaries: int) -> bytes | None:
    """Return a color profile with the curve of sRGB for the primaries that a file gives by number (BT.2020, Display
    P3).

    Return None for sRGB itself and for numbers without a wider gamut.
    """
    columns = _PRIMARIES.get(primaries)
    if columns is None:
        return None
    curve = b"para" + bytes(4) + b"\0\3" + bytes(2) + b"".join(map(_fixed_point, _SRGB_CURVE))
    tags = [(b"wtpt", _xyz(_WHITE))]
    tags += [(name, _xyz(column)) for name, column in zip((b"rXYZ", b"gXYZ", b"bXYZ"), columns, strict=True)]
    tags += [(name, curve) for name in (b"rTRC", b"gTRC", b"bTRC")]
    start = 132 + 12 * len(tags)
    table, body = b"", b""
    for name, content in tags:
        table += name + Struct(">II").pack(start + len(body), len(content))
        body += content
    size = start + len(body)
    header = Struct(">I4sI4s4s4s").pack(size, b"", 0x04000000, b"mntr", b"RGB ", b"XYZ ") + bytes(12) + b"acsp"
    header = header + bytes(28) + b"".join(map(_fixed_point, _WHITE))
    return header.ljust(128, b"\0") + Struct(">I").pack(len(tags)) + table + body


def _xyz(values: tuple[float, float, float]) -> bytes:
    return b"XYZ " + bytes(4) + b"".join(map(_fixed_point, values))


def _fixed_point(value: float) -> bytes:
    return Struct(">i").pack(round(value * 65_536))
