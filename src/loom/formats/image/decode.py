"""Open and decode images behind checks, inside the image worker. No other module passes untrusted bytes to decoders.

A decoder is chosen by the sniffed type, never by trying; our own readers count sizes, frames and scans before a decoder
may allocate memory; every exception of a decoder becomes `Unreadable` here and nowhere else.
"""

from __future__ import annotations

import importlib
import io
import struct
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from loom.errors import LoomError, TooLarge, Unreadable
from loom.formats.facts import IntakeLimits
from loom.formats.image import exif
from loom.formats.image.chunks import (
    SOS,
    ImageChunk,
    TooManyChunks,
    icon_parts,
    jpeg_segments,
    png_chunks,
    read_gif,
    riff_chunks,
)
from loom.formats.image.color import profile_of_primaries
from loom.formats.image.header import read_header
from loom.formats.image.heif_header import heif_primaries
from loom.formats.image.messages import MEMORY_SHARE
from loom.formats.sniff.kinds import label_of

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_SCANS: Final = 100
MAX_SCANNED_PIXELS: Final = 2_000_000_000
"""Progressive JPEGs have about ten scans; each additional one costs a pass over all pixels."""

# Exceptions that Pillow and libheif raised on damaged files. SystemError comes from tiles outside the image.
_DECODER_FAULTS: Final = (
    OSError,
    SyntaxError,
    ValueError,
    LookupError,
    ArithmeticError,
    EOFError,
    TypeError,
    AttributeError,
    AssertionError,
    RuntimeError,
    BufferError,
    SystemError,
    struct.error,
    zlib.error,
)


_TEXT_CHUNKS: Final = frozenset((b"tEXt", b"zTXt", b"iTXt"))
_MAX_PROFILE_BYTES: Final = 1_000_000


class OpenedImage(msgspec.Struct, frozen=True):
    """An image whose header was read. `image` is not decoded yet; `orientation` is not applied yet."""

    image: Image
    media_type: str
    orientation: int
    frames: int
    profile: bytes | None = None
    """The color profile, kept separately because loading the image removes all metadata."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the upright image."""
        width, height = self.image.size
        return (height, width) if self.orientation >= 5 else (width, height)


@contextmanager
def decoder_errors() -> Generator[None]:
    """Convert every exception of a decoder to `Unreadable`, except a lack of memory: the worker reports how much there
    is."""
    from PIL.Image import DecompressionBombError

    try:
        yield
    except LoomError:
        raise
    except DecompressionBombError as fault:
        raise TooLarge("The image has too many pixels.") from fault
    except TooManyChunks as fault:
        raise TooLarge("The image has too many parts.") from fault
    except _DECODER_FAULTS as fault:
        is_cut_off = "truncated" in str(fault).lower()
        what = "it ends too early" if is_cut_off else "it cannot be decoded (or is of an unusual type)"
        raise Unreadable(
            f"The image is damaged: {what}.",
            hint="Open it in an image editor, save it again and attach the new file.",
        ) from fault


def open_picture(data: bytes, media_type: str, limits: IntakeLimits) -> OpenedImage:
    """Open an image. Raise `TooLarge` before anything of that size is allocated."""
    header = read_header(data, media_type)
    if header.media_type != media_type:
        raise Unreadable(f"The image is {label_of(header.media_type)}, not {label_of(media_type)}.")
    check_pixels(header.width, header.height, limits)
    if media_type == "image/webp":
        _check_webp_memory(header.width * header.height, limits)
    with decoder_errors():
        frames = _count_frames(data, media_type, header.width * header.height, limits)
        image = _open(data, media_type)
        if media_type == "image/avif":
            frames = int(getattr(image, "n_frames", 1))
            turned = int(image.getexif().get(0x0112, 1))
        else:
            turned = exif.orientation(data, media_type)
    check_pixels(image.width, image.height, limits)
    if frames > limits.max_frames:
        raise _too_many("frames", frames, limits.max_frames)
    return OpenedImage(
        image, media_type, turned, frames, image.info.get("icc_profile") or _named_profile(data, media_type)
    )


def check_pixels(width: int, height: int, limits: IntakeLimits) -> None:
    if width < 1 or height < 1:
        raise Unreadable(f"The image has no area ({width}×{height}).")
    if width * height > limits.max_pixels:
        raise TooLarge(
            f"The image has {width}×{height} pixels, over the limit of {limits.max_pixels:,} in all.",
            hint="Scale it down, or crop it to the part that matters.",
        )


def _check_webp_memory(pixels: int, limits: IntakeLimits) -> None:
    """Check that WebP fits in memory: the decoder keeps four copies of all pixels, and reports damage if it gets no
    memory."""
    allowed = limits.worker_memory_bytes * MEMORY_SHARE
    if pixels * 16 > allowed:
        raise TooLarge(f"The image needs more than {allowed / 1e9:.1f} GB of memory.")


def _too_many(things: str, count: int, limit: int) -> TooLarge:
    return TooLarge(f"The image has {count:,} {things}, over the limit of {limit:,}.")


def _named_profile(data: bytes, media_type: str) -> bytes | None:
    """Return the profile of the primaries that a PNG (`cICP`), HEIC or AVIF (`colr`) gives by number."""
    match media_type:
        case "image/png":
            chunk = next((chunk for chunk in png_chunks(data) if chunk.kind in (b"cICP", b"IDAT")), None)
            if chunk is None or chunk.kind != b"cICP" or chunk.end - chunk.body < 8:
                return None
            return profile_of_primaries(data[chunk.body])
        case "image/heic" | "image/avif":
            return profile_of_primaries(heif_primaries(data))
        case _:
            return None


def _count_frames(data: bytes, media_type: str, pixels: int, limits: IntakeLimits) -> int:
    match media_type:
        case "image/gif":
            gif = read_gif(data)
            check_pixels(gif.width, gif.height, limits)
            return gif.frames
        case "image/png":
            return sum(chunk.kind == b"fcTL" for chunk in png_chunks(data)) or 1
        case "image/webp":
            return sum(chunk.kind == b"ANMF" for chunk in riff_chunks(data)) or 1
        case "image/tiff":
            return _tiff_pages(data, limits.max_frames)
        case "image/jpeg":
            scans = sum(marker == SOS for marker, _, _ in jpeg_segments(data))
            allowed = min(MAX_SCANS, MAX_SCANNED_PIXELS // pixels)
            if scans > allowed:
                raise _too_many("scans", scans, allowed)
            return 1
        case "image/x-icon":
            icon_parts(data)  # raises for PNGs that no decoder should walk
            return 1
        case _:
            return 1


def _tiff_pages(data: bytes, limit: int) -> int:
    """Count the pages by following the chain of directories; a cycle ends the count."""
    order = "<" if data[:2] == b"II" else ">"
    big = data[2:4] in (b"+\0", b"\0+")
    offset = struct.Struct(order + ("Q" if big else "I")).unpack_from
    amount = struct.Struct(order + ("Q" if big else "H")).unpack_from
    seen: set[int] = set()
    try:
        at = offset(data, 8 if big else 4)[0]
        while at and at not in seen and len(seen) <= limit:
            seen.add(at)
            count = amount(data, at)[0]
            at = offset(data, at + (8 + 20 * count if big else 2 + 12 * count))[0]
    except (struct.error, OverflowError):  # the chain points beyond the end of the file; the pages before it count
        pass
    return max(1, len(seen))


# media type → (module of Pillow, class)
_READERS: Final = {
    "image/jpeg": ("JpegImagePlugin", "JpegImageFile"),
    "image/gif": ("GifImagePlugin", "GifImageFile"),
    "image/webp": ("WebPImagePlugin", "WebPImageFile"),
    "image/bmp": ("BmpImagePlugin", "BmpImageFile"),
    "image/tiff": ("TiffImagePlugin", "TiffImageFile"),
    "image/avif": ("AvifImagePlugin", "AvifImageFile"),
    "image/jp2": ("Jpeg2KImagePlugin", "Jpeg2KImageFile"),
    "image/vnd.adobe.photoshop": ("PsdImagePlugin", "PsdImageFile"),
    "image/x-portable-anymap": ("PpmImagePlugin", "PpmImageFile"),
    "image/x-tga": ("TgaImagePlugin", "TgaImageFile"),
    "image/x-pcx": ("PcxImagePlugin", "PcxImageFile"),
    "image/x-icns": ("IcnsImagePlugin", "IcnsImageFile"),
    "image/x-sgi": ("SgiImagePlugin", "SgiImageFile"),
    "image/qoi": ("QoiImagePlugin", "QoiImageFile"),
    "image/x-dds": ("DdsImagePlugin", "DdsImageFile"),
}
_BARE_BITMAP: Final = ("BmpImagePlugin", "DibImageFile")


def _open(data: bytes, media_type: str) -> Image:
    """Open an image with Pillow's reader class directly: no registry that guesses, no global limits."""
    match media_type:
        case "image/png":
            from loom.formats.image.png_reader import open_png

            return open_png(_without_needless_chunks(data))
        case "image/x-icon":
            return _open_icon(data)
        case "image/heic":
            return _open_heif(data)
        case "image/jxl":
            return _open_jxl(data)
        case _ if media_type not in _READERS:
            raise Unreadable(f"The image is {label_of(media_type)}, which Loom cannot decode.")
        case _:
            is_bare = media_type == "image/bmp" and not data.startswith(b"BM")
            module, reader = _BARE_BITMAP if is_bare else _READERS[media_type]
            opened: Image = getattr(importlib.import_module(f"PIL.{module}"), reader)(io.BytesIO(data))
            return opened


def _without_needless_chunks(data: bytes) -> bytes:
    """Return a PNG without texts, optional chunks with a wrong checksum, and a color profile that is a decompression
    bomb.

    Browsers ignore them too. Pillow refuses the whole image because of them.
    """
    needless = [chunk for chunk in png_chunks(data) if chunk.kind[:1].islower() and _is_needless(data, chunk)]
    if not needless:
        return data
    starts = [0, *(chunk.end for chunk in needless)]
    ends = [*(chunk.start for chunk in needless), len(data)]
    return b"".join(data[start:end] for start, end in zip(starts, ends, strict=True))


def _is_needless(data: bytes, chunk: ImageChunk) -> bool:
    if chunk.kind in _TEXT_CHUNKS:
        return True
    checksum = zlib.crc32(memoryview(data)[chunk.start + 4 : chunk.end - 4])
    if checksum.to_bytes(4, "big") != data[chunk.end - 4 : chunk.end]:
        return True
    return chunk.kind == b"iCCP" and not _is_profile(data[chunk.body : chunk.end - 4])


def _is_profile(body: bytes) -> bool:
    """Return whether `body` is a valid profile: a name, a zero, the method, then the deflated profile. Pillow accepts
    at most a megabyte."""
    name, _, rest = body[:80].partition(b"\0")
    try:
        plain = zlib.decompressobj().decompress(body[len(name) + 2 :], _MAX_PROFILE_BYTES + 1)
    except zlib.error:
        return False
    return rest[:1] == b"\0" and len(plain) <= _MAX_PROFILE_BYTES


def _open_icon(data: bytes) -> Image:
    """Open an icon or a cursor. They differ in one byte; the reader for icons uses the largest image."""
    from PIL.IcoImagePlugin import IcoImageFile

    return IcoImageFile(io.BytesIO(b"\0\0\1\0" + data[4:]))


def _open_heif(data: bytes) -> Image:
    """Open HEIF. `loom.formats.image` has checked that the package is installed."""
    import pillow_heif

    return pillow_heif.HeifFile(data).to_pillow()


def _open_jxl(data: bytes) -> Image:
    """Open JPEG XL. `loom.formats.image` has checked that the package is installed."""
    plugin = importlib.import_module("pillow_jxl.JpegXLImagePlugin")
    opened: Image = plugin.JXLImageFile(io.BytesIO(data))
    return opened
