"""Raw images of cameras are shown by the preview inside them."""

from __future__ import annotations

import io
import struct

import pytest
from PIL import Image

from loom.content.blocks import ImageBlock
from loom.content.recipes import Crop, Fit, Low, Thumb
from loom.errors import MediaError, Unsupported
from loom.formats import inspect, render
from loom.formats.facts import IntakeLimits
from loom.formats.intake import accept
from loom.formats.sniff import sniff

MOSAIC = 32803
LOSSLESS = (
    b"\xff\xd8\xff\xc3\x00\x11\x0e\x10\x00\x20\x00\x03" + bytes(9) + b"\xff\xda\x00\x02" + bytes(64) + b"\xff\xd9"
)
"""How Canon and Adobe pack the pixels themselves: JPEG, but of a kind that no decoder of pictures reads."""


def jpeg(width: int, height: int, color: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), color).save(buffer, "JPEG")
    return buffer.getvalue()


def raw(maker: bytes, *, order: str = "<", turned: int = 1, extra: tuple[tuple[int, int, int], ...] = ()) -> bytes:
    """A file as cameras write it: a small thumbnail, the pixels, and a preview behind them."""
    small, large = jpeg(160, 120, "red"), jpeg(1620, 1080, "blue")
    pixels = LOSSLESS + bytes(range(256)) * 40
    name = maker + b"\0" * (8 - len(maker) % 8)
    blobs = name + small + pixels + large
    entries = [(0x0103, 3, 6), (0x0106, 3, MOSAIC), (0x010F, 2, 0), (0x0112, 3, turned), *extra]
    at = 8 + 2 + 12 * len(entries) + 4
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8)
    directory = struct.pack(order + "H", len(entries))
    for tag, kind, value in sorted(entries):
        count = len(maker) if tag == 0x010F else 1
        packed = (
            struct.pack(order + "HH", value, 0) if kind == 3 else struct.pack(order + "I", at if kind == 2 else value)
        )
        directory += struct.pack(order + "HHI", tag, kind, count) + packed
    return head + directory + bytes(4) + blobs


def canon_cr3() -> bytes:
    box = b"ftypcrx \0\0\0\1crx isom"
    return struct.pack(">I", len(box) + 4) + box + jpeg(160, 120, "red") + LOSSLESS + jpeg(1620, 1080, "blue")


FILES = {
    "a.nef": ("image/x-nikon-nef", raw(b"NIKON CORPORATION")),
    "a.arw": ("image/x-sony-arw", raw(b"SONY")),
    "a.pef": ("image/x-pentax-pef", raw(b"PENTAX", order=">")),
    "a.dng": ("image/x-adobe-dng", raw(b"Apple", extra=((0xC612, 4, 0x104),))),
    "a.cr3": ("image/x-canon-cr3", canon_cr3()),
    "a.rw2": ("image/x-panasonic-rw2", b"IIU\0" + raw(b"Panasonic")[4:]),
    "a.orf": ("image/x-olympus-orf", b"IIRO" + raw(b"OLYMPUS")[4:]),
    "a.raf": ("image/x-fuji-raf", b"FUJIFILMCCD-RAW 0201" + bytes(60) + raw(b"FUJI")),
    "a.3fr": ("image/x-dcraw", raw(b"Hasselblad")),
}


@pytest.mark.parametrize("name", FILES)
def test_the_largest_preview_is_shown(name: str) -> None:
    media_type, data = FILES[name]
    assert sniff(data, name).media_type == media_type

    admitted = accept(data, name)

    assert isinstance(admitted.block, ImageBlock)
    assert (admitted.block.media.width, admitted.block.media.height) == (1620, 1080)
    assert "its embedded preview (1620×1080) is used" in admitted.notices[0]
    assert admitted.data == data
    for recipe in (Fit(max_side_px=400), Low(), Thumb(), Crop(box=(100, 100, 500, 500))):
        shown = render(data, admitted.block.media, recipe)
        red, _, blue = Image.open(io.BytesIO(shown.data)).convert("RGB").resize((1, 1)).getpixel((0, 0))  # type: ignore[misc]
        assert blue > 200 > 50 > red, recipe


def test_a_preview_is_turned_as_the_camera_was_held() -> None:
    upright = inspect(raw(b"NIKON", turned=6), "a.nef").media
    assert (upright.width, upright.height) == (1080, 1620)


def test_a_large_one_is_kept_as_a_copy_that_fits() -> None:
    _, data = FILES["a.nef"]
    limits = IntakeLimits(max_image_bytes=len(data) - 1)
    admitted = accept(data, "a.nef", limits=limits)
    assert admitted.data is not None and len(admitted.data) < len(data)
    assert "Nikon raw image" in " ".join(admitted.notices)


def test_one_without_a_preview_says_what_to_do_and_a_tiff_stays_a_tiff() -> None:
    data = raw(b"NIKON")
    bare = data[: data.index(b"\xff\xd8\xff\xe0")] + LOSSLESS
    with pytest.raises(Unsupported, match=r"a\.nef is a Nikon raw image without a preview") as caught:
        inspect(bare, "a.nef")
    assert caught.value.hint == "Export it as JPEG and attach that."
    buffer = io.BytesIO()
    Image.new("RGB", (30, 20)).save(buffer, "TIFF")
    assert sniff(buffer.getvalue(), "a.tif").media_type == "image/tiff"


def test_damage_and_floods_of_beginnings_are_bounded() -> None:
    data = raw(b"NIKON")
    for at in range(0, 400, 7):
        spoilt = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        try:
            inspect(spoilt, "a.nef")
        except MediaError:
            continue
    flood = data[:100] + jpeg(32, 32, "red")[:200] * 200_000
    with pytest.raises(MediaError):
        inspect(flood, "a.nef", IntakeLimits(max_image_bytes=len(flood)))
