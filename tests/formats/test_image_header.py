"""Sizes from headers: right for every format and every way to write it; garbage is `Unreadable` and nothing else."""

from __future__ import annotations

import io
import random
import struct

import pillow_heif
import pytest
from PIL import Image

from formats.made_images import CONVERT, IMAGE_TYPES, sample
from loom.errors import Unreadable
from loom.formats.image.header import read_header
from made import make_sample, run


@pytest.mark.parametrize("name", IMAGE_TYPES)
def test_the_header_gives_the_size_that_the_decoder_gives(name: str) -> None:
    data = sample(name)
    header = read_header(data)
    image = pillow_heif.open_heif(data) if name.endswith(".heic") else Image.open(io.BytesIO(data))
    size = image.size[::-1] if name == "turned.avif" else image.size
    assert (header.media_type, (header.width, header.height)) == (IMAGE_TYPES[name], size)


def jpeg_parts() -> tuple[bytes, bytes]:
    """(SOI and tables, from the frame header on) of a JPEG by ImageMagick."""
    data = sample("baseline.jpg")
    at = data.index(b"\xff\xc0")
    return data[:at], data[at:]


@pytest.mark.parametrize("marker", [0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF])
def test_every_kind_of_jpeg_frame_is_read(marker: int) -> None:
    before, frame = jpeg_parts()
    header = read_header(before + bytes((0xFF, marker)) + frame[2:])
    assert (header.width, header.height) == (96, 64)


def test_fill_bytes_and_huge_segments_before_the_frame_are_skipped() -> None:
    before, frame = jpeg_parts()
    thumbnail = b"\xff\xe1" + struct.pack(">H", 65_535) + b"\xff\xc0\x00\x11" * 16_383 + b"\0"
    header = read_header(before[:2] + thumbnail * 3 + b"\xff\xff\xff" + before[2:] + b"\xff" * 7 + frame)
    assert (header.width, header.height) == (96, 64)


def test_a_jpeg_height_that_stands_after_the_first_scan_is_found() -> None:
    before, frame = jpeg_parts()
    zero_height = frame[:5] + b"\0\0" + frame[7:-2]
    header = read_header(before + zero_height + b"\xff\xdc\x00\x04\x00\x40\xff\xd9")
    assert (header.width, header.height) == (96, 64)


def test_a_top_down_bitmap_has_a_positive_height() -> None:
    data = bytearray(sample("v3.bmp"))
    data[22:26] = struct.pack("<i", -64)
    assert read_header(bytes(data)).height == 64


def test_an_icon_is_as_large_as_its_largest_picture_says_not_its_directory() -> None:
    large = make_sample(
        "large.png", lambda path: run(CONVERT, "-size", "300x200", "xc:red", path) and None
    ).read_bytes()
    directory = struct.pack("<HHH", 0, 1, 1) + struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(large), 22)
    header = read_header(directory + large)
    assert (header.width, header.height) == (300, 200)


def box(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body) + 8) + kind + body


def ispe(width: int, height: int) -> bytes:
    return box(b"ispe", struct.pack(">III", 0, width, height))


@pytest.mark.parametrize(
    ("properties", "size"),
    [
        ((2,), (4032, 3024)),
        ((2, 3), (3024, 4032)),
        ((2, 4), (4000, 3000)),
        ((2, 4, 3), (3000, 4000)),
        ((), (4032, 3024)),
    ],
    ids=["plain", "turned", "cropped", "cropped and turned", "nothing said"],
)
def test_a_heic_of_many_tiles_has_the_size_of_the_whole(properties: tuple[int, ...], size: tuple[int, int]) -> None:
    """As phones write them: items 1 and 2 are tiles, item 49 is the picture that they make up."""
    crop = box(b"clap", struct.pack(">IIIIIIII", 4000, 1, 3000, 1, 0, 1, 0, 1))
    container = box(b"ipco", ispe(512, 512) + ispe(4032, 3024) + box(b"irot", b"\1") + crop)
    whole = struct.pack(">HB", 49, len(properties)) + bytes(properties)
    associations = struct.pack(">II", 0, 3) + b"\0\1\1\x81" + b"\0\2\1\x81" + whole
    primary = box(b"pitm", struct.pack(">IH", 0, 49))
    meta = box(b"meta", bytes(4) + primary + box(b"iprp", container + box(b"ipma", associations)))
    header = read_header(box(b"ftyp", b"heic\0\0\0\0mif1heic") + box(b"free", bytes(9)) + meta)
    assert (header.media_type, header.width, header.height) == ("image/heic", *size)


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_the_rotation_of_a_heic_is_part_of_its_size(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    pillow_heif.from_pillow(Image.new("RGB", (80, 40), "red")).save(file, exif=exif.tobytes())
    header = read_header(file.getvalue())
    assert (header.width, header.height) == ((40, 80) if orientation in (6, 8) else (80, 40))


def test_a_picture_without_area_is_unreadable() -> None:
    png = sample("rgb.png")
    bmp = sample("v3.bmp")
    gif = sample("still.gif")
    for data in (png[:16] + bytes(4) + png[20:], bmp[:18] + bytes(4) + bmp[22:], gif[:6] + bytes(4) + gif[10:]):
        with pytest.raises(Unreadable, match="has no area"):
            read_header(data)


@pytest.mark.parametrize("name", IMAGE_TYPES)
def test_a_header_that_is_cut_off_is_unreadable(name: str) -> None:
    with pytest.raises(Unreadable):
        read_header(sample(name)[:9])


def test_garbage_is_unreadable_and_nothing_else() -> None:
    chance = random.Random(14)
    heads = [sample(name)[:600] for name in IMAGE_TYPES]
    refused = 0
    for _ in range(20_000):
        data = bytearray(chance.choice(heads))
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
        try:
            header = read_header(bytes(data[: chance.randrange(len(data))]))
        except Unreadable:
            refused += 1
        else:
            assert header.width > 0
            assert header.height > 0
    assert refused > 5_000
