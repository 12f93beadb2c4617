"""What the installed decoders read is taken, and what is merely odd about a good picture does not keep it out."""

from __future__ import annotations

import importlib
import importlib.util
import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageCms, ImageStat

from formats.made_images import sample
from formats.made_pdfs import CONVERT
from loom.content.recipes import DEFAULT_FORMATS, Fit, Low, Thumb
from loom.errors import ExtraMissing, LoomError, TooLarge, Unreadable
from loom.formats import inspect, render
from loom.formats.image.color import profile_of_primaries
from loom.formats.image.jxl_header import jxl_size
from loom.formats.intake import accept
from loom.formats.sniff import sniff
from made import make_sample, run


def picture(mode: str = "RGB") -> Image.Image:
    return Image.open(io.BytesIO(sample("rgb.png"))).convert(mode)


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def shown(data: bytes, **recipe: object) -> Image.Image:
    found = render(data, inspect(data).media, Fit(**recipe))
    return Image.open(io.BytesIO(found.data)).convert("RGB")


def error(one: Image.Image, other: Image.Image) -> float:
    return max(ImageStat.Stat(ImageChops.difference(one, other)).mean)


def photoshop() -> bytes:
    red, green, blue = (band.tobytes() for band in picture().split())
    head = b"8BPS\0\1" + bytes(6) + struct.pack(">HIIHH", 3, 64, 96, 8, 3)
    return head + bytes(12) + b"\0\0" + red + green + blue


MORE = {
    "a.jp2": ("image/jp2", lambda: saved(picture(), "JPEG2000", irreversible=False)),
    "a.j2k": ("image/jp2", lambda: saved(picture(), "JPEG2000", no_jp2=True, irreversible=False)),
    "a.psd": ("image/vnd.adobe.photoshop", photoshop),
    "a.ppm": ("image/x-portable-anymap", lambda: saved(picture(), "PPM")),
    "a.pgm": ("image/x-portable-anymap", lambda: saved(picture("L"), "PPM")),
    "a.pbm": ("image/x-portable-anymap", lambda: saved(picture("1"), "PPM")),
    "a.tga": ("image/x-tga", lambda: saved(picture(), "TGA")),
    "old.tga": ("image/x-tga", lambda: saved(picture(), "TGA")[:-26]),
    "packed.tga": ("image/x-tga", lambda: saved(picture(), "TGA", rle=True)[:-26]),
    "a.dib": ("image/bmp", lambda: saved(picture(), "DIB")),
}


@pytest.mark.parametrize("name", sorted(MORE))
def test_what_the_decoder_reads_is_taken(name: str) -> None:
    media_type, make = MORE[name]
    data = make()

    admitted = accept(data, name)

    assert (admitted.block.media.media_type, admitted.notices) == (media_type, ())
    assert (admitted.block.media.width, admitted.block.media.height) == (96, 64)
    mode = {"a.pgm": "L", "a.pbm": "1"}.get(name, "RGB")
    assert error(shown(data, formats=("image/png",)), picture(mode).convert("RGB")) < 1
    for recipe in (Low(side_px=32), Thumb(32)):
        assert render(data, admitted.block.media, recipe).width == 32


@pytest.mark.parametrize("name", sorted(MORE))
def test_a_part_of_it_is_refused_with_a_sentence(name: str) -> None:
    data = MORE[name][1]()

    with pytest.raises(Exception, match=r"^cut") as raised:
        inspect(data[: len(data) // 3], "cut")
    assert "Traceback" not in str(raised.value)


@pytest.mark.parametrize("stray", [b"\0", b"\0\0\0\0", b"abc", b"\x00\xff\x00"])
def test_stray_bytes_between_the_segments_of_a_jpeg_are_skipped(stray: bytes) -> None:
    data = sample("baseline.jpg")
    at = data.index(b"\xff\xdb")
    spoilt = data[:at] + stray + data[at:]

    assert inspect(spoilt).media.width == 96
    assert error(shown(spoilt), shown(data)) == 0


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


@pytest.mark.parametrize(
    "bomb",
    [
        lambda: png_chunk(b"zTXt", b"key\0\0" + zlib.compress(bytes(30_000_000), 9)),
        lambda: png_chunk(b"iTXt", b"key\0\1\0\0\0" + zlib.compress(bytes(30_000_000), 9)),
        lambda: png_chunk(b"iCCP", b"name\0\0" + zlib.compress(bytes(30_000_000), 9)),
        lambda: png_chunk(b"iCCP", b"name\0\0not deflated"),
    ],
    ids=["zTXt", "iTXt", "iCCP", "broken iCCP"],
)
def test_a_good_png_with_a_bomb_beside_the_pixels_survives(bomb: Callable[[], bytes]) -> None:
    data = sample("rgb.png")
    loaded = data[:33] + bomb() + data[33:]

    made = render(loaded, inspect(loaded).media, Fit())

    assert error(Image.open(io.BytesIO(made.data)).convert("RGB"), picture()) == 0
    assert len(made.data) <= len(data), "what is passed on has no bomb in it"


@pytest.mark.parametrize(
    ("major", "others", "media_type"),
    [
        (b"mif1", (b"heic",), "image/heic"),
        (b"miaf", (b"mif1", b"heic"), "image/heic"),
        (b"mif2", (b"heix",), "image/heic"),
        (b"1pic", (b"mif1", b"hevc"), "image/heic"),
        (b"avio", (b"mif1",), "image/avif"),
        (b"MA1B", (b"avif", b"mif1"), "image/avif"),
        (b"miaf", (b"avif", b"mif1"), "image/avif"),
        (b"mif3", (b"avif",), "image/avif"),
        (b"isom", (b"mp41",), "video/mp4"),
    ],
)
def test_heif_and_avif_are_known_by_all_of_their_brands(major: bytes, others: tuple, media_type: str) -> None:
    brands = b"".join(others)
    data = struct.pack(">I", 16 + len(brands)) + b"ftyp" + major + bytes(4) + brands + bytes(100)

    assert sniff(data).media_type == media_type


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_wide_gamut_is_converted_also_where_the_picture_fits(kind: str) -> None:
    profile = profile_of_primaries(12)
    assert profile is not None
    options = {"lossless": True} if kind == "WEBP" else {"quality": 98, "subsampling": 0} if kind == "JPEG" else {}
    data = saved(Image.new("RGB", (60, 40), (200, 60, 40)), kind, icc_profile=profile, **options)

    red, green, blue = shown(data).getpixel((30, 20))

    # P3 (200, 60, 40) in sRGB, by the matrices of both
    assert abs(red - 216) <= 4 and abs(green - 43) <= 5 and abs(blue - 24) <= 6


def test_primaries_that_a_png_names_by_number_are_converted() -> None:
    data = saved(Image.new("RGB", (60, 40), (200, 60, 40)), "PNG")
    named = data[:33] + png_chunk(b"cICP", bytes((12, 13, 0, 1))) + data[33:]

    assert shown(data).getpixel((30, 20)) == (200, 60, 40)
    assert shown(named).getpixel((30, 20))[0] > 208


def test_a_profile_of_srgb_changes_nothing() -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    data = saved(picture(), "PNG", icc_profile=profile)

    assert error(shown(data), picture()) == 0


def jxl(width: int, height: int) -> bytes:
    plugin = importlib.import_module("pillow_jxl.JpegXLImagePlugin")
    assert plugin.JXLImageFile.format == "JXL"
    made = io.BytesIO()
    Image.effect_noise((width, height), 60).convert("RGB").save(made, "JXL")
    return made.getvalue()


@pytest.mark.parametrize("size", [(333, 217), (640, 480), (800, 450), (64, 64), (1, 3000)])
def test_a_jpeg_xl_image_is_measured_by_its_header_and_decoded(size: tuple[int, int]) -> None:
    data = jxl(*size)
    assert jxl_size(data) == size
    found = inspect(data, "photo.jxl")
    assert (found.media.media_type, found.media.width, found.media.height) == ("image/jxl", *size)
    shown = render(data, found.media, Fit(max_side_px=4000))
    assert (shown.media_type in DEFAULT_FORMATS, shown.width, shown.height) == (True, *size)


def test_a_jpeg_xl_image_that_is_cut_off_or_huge_is_refused() -> None:
    with pytest.raises(Unreadable, match=r"cut\.jxl is damaged: "):
        inspect(jxl(333, 217)[:300], "cut.jxl")
    size = (3 << 1) | ((2**30 - 1) << 3) | (1 << 33)
    with pytest.raises(TooLarge, match="pixels"):
        inspect(b"\xff\x0a" + size.to_bytes(12, "little") + bytes(100), "huge.jxl")


def test_jpeg_xl_without_its_extra_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ExtraMissing, match="JPEG XL images need a decoder") as caught:
        inspect(b"\xff\x0a" + bytes(100), "photo.jxl")
    assert "loom-runtime[jxl]" in caught.value.hint


def by_program(name: str, *options: str) -> bytes:
    """The sample, written by ImageMagick, or as QOI by ffmpeg."""

    def build(path: Path) -> None:
        source = path.with_name("source.png")
        source.write_bytes(sample("rgb.png"))
        if path.suffix == ".qoi":
            run("ffmpeg", "-loglevel", "error", "-i", source, path)
        else:
            run(CONVERT, source, *options, path)

    return make_sample(name, build).read_bytes()


OF_PROGRAMS = {
    "packed.pcx": ("image/x-pcx", ()),
    "colors.pcx": ("image/x-pcx", ("-type", "Palette")),
    "lines.pcx": ("image/x-pcx", ("-monochrome",)),
    "packed.sgi": ("image/x-sgi", ()),
    "plain.sgi": ("image/x-sgi", ("-compress", "None")),
    "texture.dds": ("image/x-dds", ("-define", "dds:compression=none")),
    "packed.dds": ("image/x-dds", ("-define", "dds:compression=dxt5", "-define", "dds:mipmaps=0")),
    "by-ffmpeg.qoi": ("image/qoi", ()),
}


@pytest.mark.parametrize("name", sorted(OF_PROGRAMS))
def test_rarer_images_of_other_programs_are_taken(name: str) -> None:
    media_type, options = OF_PROGRAMS[name]
    data = by_program(name, *options)

    admitted = accept(data, name)

    assert (admitted.block.media.media_type, admitted.notices) == (media_type, ())
    assert (admitted.block.media.width, admitted.block.media.height) == (96, 64)
    if name not in ("lines.pcx", "colors.pcx", "packed.dds"):  # those keep fewer colors
        assert error(shown(data, formats=("image/png",)), picture()) < 1
    assert render(data, admitted.block.media, Thumb(32)).width == 32
    with pytest.raises(LoomError, match=r"^cut"):
        inspect(data[: len(data) // 3], "cut")


@pytest.mark.parametrize("sides", [(16,), (16, 32, 48, 128), (32, 256), (512, 1024)])
def test_the_largest_image_of_an_apple_icon_is_taken(sides: tuple[int, ...]) -> None:
    def build(path: Path) -> None:
        sources = [path.with_name(f"{side}.png") for side in sides]
        for source, side in zip(sources, sides, strict=True):
            run(CONVERT, "-size", f"{side}x{side}", "gradient:#2060c0-#f0e0d0", f"PNG32:{source}")
        run("png2icns", path, *sources)

    data = make_sample(f"icon-{'-'.join(map(str, sides))}.icns", build).read_bytes()

    admitted = accept(data, "app.icns")

    assert (admitted.block.media.media_type, admitted.notices) == ("image/x-icns", ())
    assert (admitted.block.media.width, admitted.block.media.height) == (sides[-1], sides[-1])
    made_png = shown(data, formats=("image/png",), max_side_px=2048)
    assert made_png.size == (sides[-1], sides[-1])
    assert made_png.getpixel((0, 0)) == pytest.approx((0x20, 0x60, 0xC0), abs=10)


def test_an_apple_icon_with_a_huge_image_inside_is_refused_before_it_is_decoded() -> None:
    inner = saved(Image.new("1", (30_000, 30_000)), "PNG")
    part = b"ic07" + struct.pack(">I", len(inner) + 8) + inner
    data = b"icns" + struct.pack(">I", len(part) + 8) + part

    with pytest.raises(TooLarge, match="30000×30000"):
        inspect(data, "app.icns")
