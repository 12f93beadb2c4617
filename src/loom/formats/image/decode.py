"""Opens and decodes pictures behind checks. The only module that hands foreign bytes to the picture decoders.

A decoder is chosen by the sniffed type, never by trying; sizes, frames and scans are counted by our own readers before
a decoder may allocate; whatever a decoder raises becomes `Unreadable` here and nowhere else.
"""

from __future__ import annotations

import io
import struct
import threading
import warnings
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from loom.errors import ExtraMissing, LoomError, TooLarge, Unreadable
from loom.formats.facts import Limits
from loom.formats.image import exif
from loom.formats.image.chunks import SOS, TooManyParts, icon_parts, jpeg_segments, png_chunks, read_gif, riff_chunks
from loom.formats.image.header import read_header
from loom.formats.sniff.kinds import label_of

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_SCANS: Final = 100
"""Progressive JPEGs have about ten; each further one costs a pass over all pixels."""

# What Pillow and libheif have been seen to raise on damaged files. SystemError comes from tiles outside the picture.
_DECODER_FAULTS: Final = (
    OSError,
    SyntaxError,
    ValueError,
    LookupError,
    ArithmeticError,
    EOFError,
    MemoryError,
    TypeError,
    AttributeError,
    AssertionError,
    RuntimeError,
    BufferError,
    SystemError,
    struct.error,
    zlib.error,
)


class Opened(msgspec.Struct, frozen=True):
    """A picture whose header was read. `image` is not decoded yet; `orientation` is still to be applied."""

    image: Image
    media_type: str
    orientation: int
    frames: int

    @property
    def size(self) -> tuple[int, int]:
        """Width and height as seen upright."""
        width, height = self.image.size
        return (height, width) if self.orientation >= 5 else (width, height)


@contextmanager
def decoding(media_type: str, name: str = "") -> Generator[None]:
    """Every fault of a decoder becomes `Unreadable`; its warnings are not for our users."""
    from PIL.Image import DecompressionBombError

    try:
        with _quiet():
            yield
    except LoomError:
        raise
    except DecompressionBombError as fault:
        raise TooLarge(f"{name or 'The picture'} has too many pixels.", name=name) from fault
    except TooManyParts as fault:
        raise TooLarge(f"{name or 'The picture'} has too many parts.", name=name) from fault
    except _DECODER_FAULTS as fault:
        is_cut_off = "truncated" in str(fault).lower()
        what = "it ends too early" if is_cut_off else "it cannot be decoded (or is of a kind that is rare)"
        raise Unreadable(
            f"{name or 'The picture'} is damaged {label_of(media_type)}: {what}.",
            name=name,
            hint="Open it in a picture program, save it again and attach the new file.",
        ) from fault


def open_picture(data: bytes, media_type: str, limits: Limits, name: str = "") -> Opened:
    """Refuses what is too large before anything of that size is allocated."""
    header = read_header(data, name)
    if header.media_type != media_type:
        raise Unreadable(
            f"{name or 'The picture'} is {label_of(header.media_type)}, not {label_of(media_type)}.", name=name
        )
    _check_pixels(header.width, header.height, limits, name)
    with decoding(media_type, name):
        frames = _count_frames(data, media_type, limits, name)
        image = _open(data, media_type)
        if media_type == "image/avif":
            frames = int(getattr(image, "n_frames", 1))
            turned = int(image.getexif().get(0x0112, 1))
        else:
            turned = exif.orientation(data, media_type)
    _check_pixels(image.width, image.height, limits, name)
    if frames > limits.max_frames:
        raise _too_many("frames", frames, limits.max_frames, name)
    return Opened(image, media_type, turned, frames)


def _check_pixels(width: int, height: int, limits: Limits, name: str) -> None:
    if width < 1 or height < 1:
        raise Unreadable(f"{name or 'The picture'} has no area ({width}×{height}).", name=name)
    if width * height > limits.max_pixels:
        raise TooLarge(
            f"{name or 'The picture'} has {width}×{height} pixels, over the limit of {limits.max_pixels:,} in all.",
            name=name,
            hint="Scale it down or cut out the part that matters.",
        )


def _too_many(things: str, count: int, limit: int, name: str) -> TooLarge:
    return TooLarge(f"{name or 'The picture'} has {count:,} {things}, over the limit of {limit:,}.", name=name)


def _count_frames(data: bytes, media_type: str, limits: Limits, name: str) -> int:
    match media_type:
        case "image/gif":
            gif = read_gif(data)
            _check_pixels(gif.width, gif.height, limits, name)
            return gif.frames
        case "image/png":
            return sum(chunk.kind == b"fcTL" for chunk in png_chunks(data)) or 1
        case "image/webp":
            return sum(chunk.kind == b"ANMF" for chunk in riff_chunks(data)) or 1
        case "image/tiff":
            return _tiff_pages(data, limits.max_frames)
        case "image/jpeg":
            scans = sum(marker == SOS for marker, _, _ in jpeg_segments(data))
            if scans > MAX_SCANS:
                raise _too_many("scans", scans, MAX_SCANS, name)
            return 1
        case "image/x-icon":
            icon_parts(data)  # refuses the PNGs that no decoder should walk
            return 1
        case _:
            return 1


def _tiff_pages(data: bytes, limit: int) -> int:
    """Follows the chain of directories; one that returns to itself ends there."""
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
    except (struct.error, OverflowError):  # the chain points behind the end; what was found before it counts
        pass
    return max(1, len(seen))


def _open(data: bytes, media_type: str) -> Image:
    """Reader classes are used directly: no registry to guess in, no global limits."""
    match media_type:
        case "image/png":
            from loom.formats.image.png_reader import open_png

            return open_png(_without_damaged_extras(data))
        case "image/jpeg":
            from PIL.JpegImagePlugin import JpegImageFile as Reader
        case "image/gif":
            from PIL.GifImagePlugin import GifImageFile as Reader
        case "image/webp":
            from PIL.WebPImagePlugin import WebPImageFile as Reader
        case "image/bmp":
            from PIL.BmpImagePlugin import BmpImageFile as Reader
        case "image/tiff":
            from PIL.TiffImagePlugin import TiffImageFile as Reader
        case "image/avif":
            from PIL.AvifImagePlugin import AvifImageFile as Reader
        case "image/x-icon":
            return _open_icon(data)
        case "image/heic":
            return _open_heif(data)
        case _:
            raise Unreadable(f"The picture is {label_of(media_type)}, which Loom cannot decode.")
    return Reader(io.BytesIO(data))


def _without_damaged_extras(data: bytes) -> bytes:
    """Chunks that a PNG can do without (their names begin with a small letter) are left out where their checksum is
    wrong, as browsers do: a bad colour profile is no reason to refuse a whole picture."""
    damaged = [
        chunk
        for chunk in png_chunks(data)
        if chunk.kind[:1].islower()
        and zlib.crc32(memoryview(data)[chunk.start + 4 : chunk.end - 4]).to_bytes(4, "big")
        != data[chunk.end - 4 : chunk.end]
    ]
    if not damaged:
        return data
    starts = [0, *(chunk.end for chunk in damaged)]
    ends = [*(chunk.start for chunk in damaged), len(data)]
    return b"".join(data[start:end] for start, end in zip(starts, ends, strict=True))


def _open_icon(data: bytes) -> Image:
    """Icons and cursors differ in one byte; the reader for icons takes the largest picture."""
    from PIL.IcoImagePlugin import IcoImageFile

    return IcoImageFile(io.BytesIO(b"\0\0\1\0" + data[4:]))


def _open_heif(data: bytes) -> Image:
    try:
        import pillow_heif
    except ImportError as missing:
        raise ExtraMissing(
            "HEIC pictures need a decoder that is not installed.", hint="pip install 'loom-runtime[heif]'"
        ) from missing
    return pillow_heif.HeifFile(data).to_pillow()


# ── warnings ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_quiet_lock = threading.Lock()
_quiet_depth = 0
_quiet_outer: warnings.catch_warnings[None] | None = None


@contextmanager
def _quiet() -> Generator[None]:
    """Warnings of Pillow are off while any thread decodes.

    `warnings.catch_warnings` alone is not safe with several threads: the last to leave could restore the wrong state.
    """
    global _quiet_depth, _quiet_outer
    with _quiet_lock:
        if _quiet_depth == 0:
            _quiet_outer = warnings.catch_warnings()
            _quiet_outer.__enter__()
            warnings.filterwarnings("ignore", module=r"PIL\b")
        _quiet_depth += 1
    try:
        yield
    finally:
        with _quiet_lock:
            _quiet_depth -= 1
            if _quiet_depth == 0 and _quiet_outer is not None:
                _quiet_outer.__exit__(None, None, None)
                _quiet_outer = None
