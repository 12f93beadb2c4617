"""Pictures: what comes out is upright, clean, small enough, in an accepted format, and still the picture."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib
from itertools import pairwise

import pillow_heif
import pytest
from PIL import Image, ImageCms, ImageDraw
from PIL.PngImagePlugin import PngImageFile

from formats.made_images import CLEAR, CONVERT, IMAGE_TYPES, MARKED, sample
from loom.content.recipes import DEFAULT_FORMATS, Crop, Fit, Low, Thumb
from loom.errors import ExtraMissing, MediaError, TooLarge, Unreadable, Unsupported
from loom.formats import inspect, render
from loom.formats.facts import IntakeLimits, Rendered
from loom.formats.image.chunks import MAX_PARTS
from loom.formats.image.png_reader import open_png
from made import make_sample, run

MAGIC = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/webp": b"RIFF",
    "image/gif": b"GIF8",
}
INVERSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


FULL = Fit()


def shown(data: bytes, recipe: Fit | Low | Crop | Thumb = FULL) -> tuple[Rendered, Image.Image]:
    """What a model would be shown, decoded again; its type is that of its first bytes."""
    rendered = render(data, inspect(data).media, recipe)
    assert rendered.data.startswith(MAGIC[rendered.media_type])
    image = Image.open(io.BytesIO(rendered.data))
    image.load()
    assert image.size == (rendered.width, rendered.height)
    return rendered, image


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def screenshot(width: int = 1200, height: int = 800) -> Image.Image:
    image = Image.new("RGB", (width, height), "#fafafa")
    draw = ImageDraw.Draw(image)
    for row in range(8, height - 16, 16):
        draw.text((10 + row % 5 * 8, row), f"{row}: for item in inventory[{row * 7}]: ship(item)", fill="#203040")
    return image


def photograph(width: int = 1200, height: int = 800) -> Image.Image:
    small = Image.effect_noise((width // 4, height // 4), 90)
    bands = [small.transpose(turn).resize((width, height), Image.Resampling.BICUBIC) for turn in (0, 1, 3)]
    return Image.merge("RGB", bands)


def corner_is_red(image: Image.Image) -> bool:
    """The red rectangle of MARKED stands at the top left and nowhere else."""
    rgb = image.convert("RGB")
    spots = [(3, 3), (image.width - 4, 3), (3, image.height - 4), (image.width - 4, image.height - 4)]
    reds = [rgb.getpixel(spot)[0] > 150 and rgb.getpixel(spot)[1] < 120 for spot in spots]
    return reds == [True, False, False, False]


def marked() -> Image.Image:
    path = make_sample("marked.png", lambda path: run(CONVERT, *MARKED, f"png24:{path}") and None)
    return Image.open(path).convert("RGB")


# ── what passes, and what is converted ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", IMAGE_TYPES)
@pytest.mark.parametrize("formats", [DEFAULT_FORMATS, ("image/png",), ("image/jpeg",), ("image/webp",), ("image/gif",)])
def test_every_picture_reaches_every_reader(name: str, formats: tuple[str, ...]) -> None:
    data = sample(name)
    for recipe in (Fit(formats=formats), Fit(max_side_px=24, formats=formats), Low(side_px=24, formats=formats)):
        rendered, image = shown(data, recipe)
        assert rendered.media_type in formats
        assert getattr(image, "n_frames", 1) == 1
        assert image.mode in ("1", "L", "LA", "P", "RGB", "RGBA")


@pytest.mark.parametrize("name", ["rgb.png", "baseline.jpg", "progressive.jpg", "lossy.webp", "lossless.webp"])
def test_a_clean_picture_that_fits_passes_untouched(name: str) -> None:
    once, _ = shown(sample(name))
    again, _ = shown(once.data)
    assert again.data == once.data
    assert again.notices == ()


@pytest.mark.parametrize("name", ["rgb16.png", "gray16.png", "cmyk.jpg", "moving.webp", "v3.bmp", "icon.ico"])
def test_what_many_readers_do_not_take_is_never_passed_on(name: str) -> None:
    data = sample(name)
    rendered, image = shown(data, Fit(formats=("image/png", "image/jpeg", "image/webp", "image/bmp", "image/x-icon")))
    assert rendered.data != data
    assert image.mode in ("L", "RGB", "RGBA")
    assert rendered.media_type in MAGIC


def test_animations_are_shown_by_their_first_frame() -> None:
    moving = sample("moving.gif")
    assert inspect(moving, "moving.gif").media.label == "moving.gif, 40×30, 3 frames, 213 bytes"
    for formats in (DEFAULT_FORMATS, ("image/gif",)):
        _, image = shown(moving, Fit(formats=formats))
        assert image.convert("RGB").getpixel((5, 5)) == (255, 0, 0)
    frames = [Image.new("RGB", (20, 20), color) for color in ("red", "green")]
    animated = saved(frames[0], "PNG", save_all=True, append_images=frames[1:])
    assert inspect(animated).media.frames == 2
    rendered, image = shown(animated)
    assert (image.convert("RGB").getpixel((5, 5)), b"acTL" in rendered.data) == ((255, 0, 0), False)


def test_cmyk_keeps_its_colors() -> None:
    plain = sample("cmyk.jpg")
    _, image = shown(plain)
    assert corner_is_red(image)
    assert min(image.convert("RGB").getpixel((60, 30))) > 230


def test_sixteen_bits_become_eight_without_changing_the_brightness() -> None:
    ramp = Image.new("I;16", (256, 4))
    ramp.putdata([column * 257 for _ in range(4) for column in range(256)])
    for data in (saved(ramp, "PNG"), saved(ramp, "TIFF")):
        _, image = shown(data)
        grays = list(image.convert("L").crop((0, 0, 256, 1)).get_flattened_data())
        assert max(abs(gray - column) for column, gray in enumerate(grays)) <= 1


@pytest.mark.parametrize("name", ["rgba.png", "palette-clear.png", "gray-alpha.png", "clear.webp", "v5.bmp"])
def test_transparency_stays_where_it_can_and_is_white_where_it_cannot(name: str) -> None:
    for recipe in (Fit(max_side_px=32), Fit(formats=("image/webp",)), Fit(max_side_px=32, formats=("image/png",))):
        _, kept = shown(sample(name), recipe)
        alpha = kept.convert("RGBA").getchannel("A")
        assert (alpha.getpixel((0, 0)), alpha.getpixel((kept.width // 2, kept.height // 2))) == (0, 255)
    _, flat = shown(sample(name), Fit(formats=("image/jpeg",)))
    assert min(flat.convert("RGB").getpixel((1, 1))) > 245
    assert CLEAR[1] == "64x48"


def test_transparent_pixels_lend_no_color_to_their_neighbours() -> None:
    image = Image.new("RGBA", (400, 400), (255, 0, 0, 0))
    image.paste((0, 0, 255, 255), (100, 100, 300, 300))
    _, small = shown(saved(image, "PNG"), Fit(max_side_px=50, formats=("image/png",)))
    visible = [(red, blue) for red, _, blue, alpha in small.convert("RGBA").get_flattened_data() if alpha > 20]
    assert max(red for red, _ in visible) <= 8


def test_other_color_spaces_are_converted_because_models_ignore_profiles() -> None:
    """In this profile (sRGB by LittleCMS under another name, red and green swapped) the color (200, 0, 0) is green."""
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    named = srgb.replace("sRGB".encode("utf-16-be"), "swap".encode("utf-16-be"))
    profile = named.replace(b"rXYZ", b"tXYZ").replace(b"gXYZ", b"rXYZ").replace(b"tXYZ", b"gXYZ")
    red = Image.new("RGB", (64, 64), (200, 0, 0))
    for data in (saved(red, "PNG", icc_profile=profile), saved(red, "JPEG", quality=95, icc_profile=profile)):
        _, image = shown(data, Fit(max_side_px=32))
        assert "icc_profile" not in image.info
        shade = image.convert("RGB").getpixel((10, 10))
        assert shade[1] > 180
        assert shade[0] < 40
    _, image = shown(saved(red, "PNG", icc_profile=srgb), Fit(max_side_px=32))
    assert image.convert("RGB").getpixel((10, 10)) == (200, 0, 0)


@pytest.mark.parametrize("named", ["Display P3 Gamut with sRGB Transfer", "sRGB-elle-V2-g10", "sRGB gamut, linear"])
def test_a_profile_that_only_mentions_srgb_is_converted_too(named: str) -> None:
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    profile = bytearray(srgb.replace(b"rXYZ", b"tXYZ").replace(b"gXYZ", b"rXYZ").replace(b"tXYZ", b"gXYZ"))
    entry = next(at for at in range(132, 600, 12) if profile[at : at + 4] == b"desc")
    words = named.encode("utf-16-be")
    tag = b"mluc" + struct.pack(">4xII2s2sII", 1, 12, b"en", b"US", len(words), 28) + words
    profile[entry + 4 : entry + 12] = struct.pack(">II", len(profile), len(tag))
    profile += tag
    profile[:4] = struct.pack(">I", len(profile))
    _, image = shown(
        saved(Image.new("RGB", (64, 64), (200, 0, 0)), "PNG", icc_profile=bytes(profile)), Fit(max_side_px=32)
    )
    assert image.convert("RGB").getpixel((10, 10))[1] > 180


# ── orientation and what must not leave ──────────────────────────────────────────────────────────────────────────────


def camera_exif(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010F] = "SecretCamera"
    gps = exif.get_ifd(0x8825)
    gps[1], gps[2] = "N", (50.0, 56.0, 0.0)
    return exif


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF", "HEIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_come_out_upright(orientation: int, kind: str) -> None:
    upright = marked()
    stored = upright.transpose(INVERSE[orientation]) if orientation > 1 else upright
    exif = camera_exif(orientation)
    if kind == "HEIF":
        file = io.BytesIO()
        pillow_heif.from_pillow(stored).save(file, exif=exif.tobytes(), quality=95)
        data = file.getvalue()
    else:
        data = saved(stored, kind, exif=exif, quality=95)
    media = inspect(data).media
    assert (media.width, media.height) == (80, 40)
    for recipe in (Fit(), Fit(max_side_px=60), Low(side_px=48), Thumb(side_px=40)):
        rendered, image = shown(data, recipe)
        assert image.width == 2 * image.height
        assert corner_is_red(image)
        for secret in (b"SecretCamera", b"Exif", b"EXIF", b"eXIf"):
            assert secret not in rendered.data


def test_a_box_is_cut_from_the_upright_picture() -> None:
    data = saved(marked().transpose(INVERSE[6]), "JPEG", exif=camera_exif(6), quality=95)
    rendered, image = shown(data, Crop(box=(0, 0, 20, 10)))
    assert image.size == (20, 10)
    assert image.convert("RGB").getpixel((10, 5))[1] < 60
    assert rendered.notices == ("the part from (0, 0) to (20, 10) of 80×40",)
    clipped, _ = shown(data, Crop(box=(60, 20, 500, 500), max_side_px=10))
    assert clipped.notices == ("the part from (60, 20) to (80, 40) of 80×40", "shown at 10×10, original 20×20")


@pytest.mark.parametrize("name", ["baseline.jpg", "lzw.tif"])
def test_a_box_outside_the_picture_says_how_large_it_is(name: str) -> None:
    with pytest.raises(Unsupported, match=r"The image is 96×64; the box \(200, 0, 300, 10\) is outside it\."):
        shown(sample(name), Crop(box=(200, 0, 300, 10)))


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def test_metadata_goes_without_touching_the_pixels() -> None:
    secret = b"50.9375 N, 6.9603 E"
    jpeg = sample("baseline.jpg")
    comment = b"\xff\xfe" + struct.pack(">H", len(secret) + 2) + secret
    xmp = b"http://ns.adobe.com/xap/1.0/\0" + secret
    dirty_jpeg = jpeg[:2] + comment + b"\xff\xe1" + struct.pack(">H", len(xmp) + 2) + xmp + jpeg[2:] + secret
    png = sample("rgb.png")
    dirty_png = png[:33] + chunk(b"tEXt", b"Place\0" + secret) + chunk(b"prVt", secret) + png[33:] + secret
    webp = saved(Image.open(io.BytesIO(sample("lossy.webp"))), "WEBP", exif=camera_exif(1), xmp=secret)
    gif = sample("still.gif")
    at = 13 + 3 * 256
    dirty_gif = gif[:at] + b"\x21\xfe" + bytes((len(secret),)) + secret + b"\0" + gif[at:]
    for data in (dirty_jpeg, dirty_png, webp, dirty_gif):
        before = Image.open(io.BytesIO(data)).convert("RGB").tobytes()
        rendered, image = shown(data, Fit(formats=(*DEFAULT_FORMATS, "image/gif")))
        assert secret not in rendered.data
        assert b"SecretCamera" not in rendered.data
        assert len(rendered.data) < len(data)
        assert image.convert("RGB").tobytes() == before


def test_a_png_with_a_wrong_checksum_is_written_anew() -> None:
    png = sample("rgb.png")
    at = png.index(b"IDAT")
    length = struct.unpack(">I", png[at - 4 : at])[0]
    wrong = png[: at + 4 + length] + b"\0\0\0\0" + png[at + 8 + length :]
    try:
        rendered, _ = shown(wrong)
    except Unreadable:
        return
    assert rendered.data != wrong


# ── the ladder ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_screenshot_stays_lossless_while_it_fits() -> None:
    data = saved(screenshot(), "PNG")
    exact, image = shown(data, Fit(max_side_px=1100))
    assert exact.media_type == "image/png"
    assert exact.notices == ("shown at 1100×733, original 1200×800",)
    webp, _ = shown(data, Fit(max_side_px=1100, max_encoded_bytes=len(exact.data)))
    assert (webp.media_type, b"VP8L" in webp.data[:64]) == ("image/webp", True)
    palette, image = shown(
        data, Fit(max_side_px=1100, max_encoded_bytes=len(exact.data), formats=("image/png", "image/jpeg"))
    )
    assert (palette.media_type, image.mode, image.size) == ("image/png", "P", (1100, 733))


def test_a_photograph_becomes_jpeg_and_never_png() -> None:
    for kind in ("PNG", "JPEG", "BMP", "TIFF"):
        rendered, _ = shown(saved(photograph(), kind), Fit(max_side_px=800))
        assert rendered.media_type == "image/jpeg"
    rendered, _ = shown(saved(photograph(), "PNG"), Fit(max_side_px=800, formats=("image/webp", "image/png")))
    assert (rendered.media_type, b"VP8 " in rendered.data[:16]) == ("image/webp", True)


@pytest.mark.parametrize("picture", [screenshot, photograph])
@pytest.mark.parametrize("formats", [DEFAULT_FORMATS, ("image/png",), ("image/jpeg",), ("image/png", "image/jpeg")])
def test_the_encoded_length_is_kept_whatever_it_is(picture: object, formats: tuple[str, ...]) -> None:
    data = saved(picture(600, 400), "PNG")  # type: ignore[operator]
    sides = []
    for budget in (400_000, 100_000, 40_000, 12_000):
        rendered, image = shown(data, Fit(max_encoded_bytes=budget, formats=formats))
        assert 4 * -(-len(rendered.data) // 3) <= budget
        sides.append(max(image.size))
    assert all(larger >= smaller for larger, smaller in pairwise(sides))
    assert sides[-1] >= 64


def test_what_cannot_be_legible_is_refused_in_words() -> None:
    data = saved(photograph(600, 400), "PNG")
    with pytest.raises(TooLarge, match="no legible form as jpeg within 100 bytes"):
        shown(data, Fit(max_encoded_bytes=100, formats=("image/jpeg",)))
    with pytest.raises(Unsupported, match="cannot be written as tiff"):
        shown(data, Fit(formats=("image/tiff",)))


@pytest.mark.parametrize("size", [(1, 1), (1, 20_000), (20_000, 1), (3, 5)])
def test_odd_shapes_are_fitted(size: tuple[int, int]) -> None:
    for formats in (DEFAULT_FORMATS, ("image/webp",), ("image/jpeg",)):
        rendered, image = shown(saved(Image.new("RGB", size, "navy"), "PNG"), Fit(formats=formats))
        assert max(image.size) <= 2048
        assert min(image.size) >= 1
        assert (rendered.width, rendered.height) == image.size


def test_a_small_form_of_a_screenshot_is_small() -> None:
    data = saved(screenshot(1920, 1080), "PNG")
    rendered, image = shown(data, Low())
    assert (image.size, rendered.notices) == ((512, 288), ("shown at 512×288, original 1920×1080",))
    assert len(rendered.data) < 60_000
    drawing = Image.new("RGB", (1600, 1600), "white")
    ImageDraw.Draw(drawing).rectangle((200, 200, 800, 800), fill="green")
    assert shown(saved(drawing, "PNG"), Low())[0].media_type == "image/png"


def test_three_hundred_pages_are_one_picture() -> None:
    pages = [Image.new("L", (40, 30), shade % 256) for shade in range(300)]
    data = saved(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    found = inspect(data, "scan.tif")
    assert found.media.frames == 300
    assert found.notices == ("scan.tif has 300 pages; models receive only the first.",)
    assert shown(data)[1].convert("L").getpixel((5, 5)) == 0


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["RGB", "RGBA", "L", "LA", "P", "1", "I;16"])
def test_a_large_png_has_the_pixels_that_pillow_gives(kind: str) -> None:
    noise = Image.effect_noise((1000, 700), 60)
    picture = noise.convert("I;16") if kind == "I;16" else Image.merge("RGB", [noise] * 3).convert(kind)
    file = io.BytesIO()
    picture.resize((5_000, 1_200) if kind == "1" else picture.size).save(file, "PNG")
    opened, plain = open_png(file.getvalue()), PngImageFile(io.BytesIO(file.getvalue()))
    assert (opened.size, opened.mode, opened.tobytes()) == (plain.size, plain.mode, plain.tobytes())


def test_a_large_png_that_is_cut_off_or_spoilt_is_unreadable() -> None:
    file = io.BytesIO()
    Image.effect_noise((1700, 1200), 60).convert("RGB").save(file, "PNG")
    whole = file.getvalue()
    middle = len(whole) // 2
    spoilt = whole[:middle] + bytes(byte ^ 0xFF for byte in whole[middle : middle + 400]) + whole[middle + 400 :]
    for damaged in (whole[:middle], spoilt):
        with pytest.raises(Unreadable, match=r"a\.png is damaged: "):
            inspect(damaged, "a.png")


@pytest.mark.parametrize("name", IMAGE_TYPES)
def test_a_part_of_a_picture_is_no_picture(name: str) -> None:
    data = sample(name)
    with pytest.raises(Unreadable, match=r"^part\.png is damaged"):
        inspect(data[: len(data) // 4], "part.png")


def test_too_many_pixels_are_refused_before_they_are_decoded() -> None:
    with pytest.raises(TooLarge, match=r"large\.png has 96×64 pixels, over the limit of 6,143 in all\."):
        inspect(sample("rgb.png"), "large.png", IntakeLimits(max_pixels=6143))
    assert inspect(sample("rgb.png"), "large.png", IntakeLimits(max_pixels=6144)).media.width == 96


def test_too_many_frames_are_refused() -> None:
    with pytest.raises(TooLarge, match=r"has 3 frames, over the limit of 2"):
        inspect(sample("moving.gif"), "moving.gif", IntakeLimits(max_frames=2))
    with pytest.raises(TooLarge, match=r"has 3 frames, over the limit of 2"):
        inspect(sample("pages.tif"), "pages.tif", IntakeLimits(max_frames=2))


def test_a_jpeg_of_endless_scans_is_refused() -> None:
    data = sample("progressive.jpg")
    at = data.rindex(b"\xff\xda")
    endless = data[:-2] + data[at:-2] * 200 + b"\xff\xd9"
    with pytest.raises(TooLarge, match="scans"):
        inspect(endless, "endless.jpg")


def test_heic_without_its_extra_says_how_to_get_it() -> None:
    program = (
        "import sys; sys.modules['pillow_heif'] = None\n"
        "from loom.formats import inspect\nfrom loom.errors import ExtraMissing\n"
        "try: inspect(sys.stdin.buffer.read(), 'photo.heic')\n"
        "except ExtraMissing as missing: print(missing)"
    )
    done = subprocess.run([sys.executable, "-c", program], input=sample("photo.heic"), capture_output=True, check=True)
    assert done.stdout.decode().strip().endswith("pip install 'loom-runtime[heif]'")
    assert ExtraMissing.code == "extra.missing"


# Each bomb is built and opened in a process of its own; it prints the outcome, the seconds of
# processor time and the growth of memory.
BOMB = """
import io, resource, struct, sys, time, zlib
from loom.errors import MediaError
from loom.formats import inspect
import PIL.PngImagePlugin, PIL.GifImagePlugin, PIL.JpegImagePlugin

def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

def png(width, height, *extra, depth=1, color=0):
    head = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))
    pixels = zlib.compress(bytes(min(width * height // 8 + height, 1_000_000)))
    return head + b"".join(extra) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")

def zeros(megabytes):
    squeeze = zlib.compressobj(1)
    return b"".join(squeeze.compress(bytes(1_000_000)) for _ in range(megabytes)) + squeeze.flush()

def gif(frames, screen=(10, 10), frame=(10, 10)):
    one = b"\\x21\\xf9\\x04\\0\\0\\0\\0\\0" + b"," + struct.pack("<HHHHB", 0, 0, *frame, 0) + b"\\x02\\x02\\x4c\\x01\\0"
    return b"GIF89a" + struct.pack("<HHBBB", *screen, 0x80, 0, 0) + b"\\0\\0\\0\\xff\\xff\\xff" + one * frames + b";"

def ico(picture):
    return struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(picture), 22) + picture

def tiff(width, height):
    tags = [(256, 4, width), (257, 4, height), (258, 3, 8), (259, 3, 1), (262, 3, 1), (273, 4, 8), (279, 4, 100)]
    body = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
    return b"II*\\0" + struct.pack("<I", 8) + struct.pack("<H", len(tags)) + body + bytes(200)

def bmp(width, height):
    return b"BM" + struct.pack("<IIIIiiHHIIiiII", 1000, 0, 54, 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0) + bytes(900)

def webp(sides):
    return b"RIFF" + struct.pack("<I", 30) + b"WEBPVP8X" + struct.pack("<II", 10, 0) + sides * 2 + bytes(4)

def jpeg(width, height):
    frame = b"\\xff\\xc0\\0\\x11\\x08" + struct.pack(">HH", height, width) + b"\\3\\1\\x22\\0\\2\\x11\\1\\3\\x11\\1"
    return b"\\xff\\xd8" + frame + b"\\xff\\xd9"

bomb = {
    "png": lambda: png(50_000, 50_000),
    "ztxt": lambda: png(10, 10, chunk(b"zTXt", b"a\\0\\0" + zeros(400))),
    "itxt": lambda: png(10, 10, chunk(b"iTXt", b"a\\0\\1\\0\\0\\0" + zeros(400))),
    "iccp": lambda: png(10, 10, chunk(b"iCCP", b"a\\0\\0" + zeros(400))),
    "gif10000": lambda: gif(10_000),
    "gif5001": lambda: gif(5_001),
    "gifscreen": lambda: gif(1, (65_535, 65_535)),
    "gifframe": lambda: gif(1, (1, 1), (65_535, 65_535)),
    "ico": lambda: ico(png(50_000, 50_000)),
    "bmp": lambda: bmp(60_000, -60_000),
    "tiff": lambda: tiff(100_000, 100_000),
    "webp": lambda: webp(b"\\xff\\xff\\xff"),
    "jpeg": lambda: jpeg(65_000, 65_000),
    "restarts": lambda: b"\\xff\\xd8" + b"\\xff\\xd0" * 5_000_000 + jpeg(8, 8)[2:],
    "fill": lambda: b"\\xff\\xd8" + b"\\xff" * 10_000_000 + jpeg(8, 8)[2:],
    "comments": lambda: jpeg(8, 8)[:-2] + b"\\xff\\xfe\\0\\2" * 2_500_000 + b"\\xff\\xd9",
    "chunks": lambda: png(8, 8, chunk(b"teXt", b"") * 800_000),
    "icochunks": lambda: ico(png(8, 8, chunk(b"teXt", b"") * 800_000)),
    "riff": lambda: webp(b"\\7\\0\\0")[:-4] + b"junk\\0\\0\\0\\0" * 1_200_000,
    "gifblocks": lambda: gif(1)[:-1] + b"\\x21\\xfe" + b"\\1a" * 5_000_000 + b"\\0;",
}[sys.argv[1]]()
inspect(png(8, 8))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began = time.process_time()
try:
    outcome = inspect(bomb, "bomb").media.label
except MediaError as error:
    outcome = type(error).__name__
seconds = time.process_time() - began
print(outcome, seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000)
"""


@pytest.mark.parametrize(
    ("bomb", "outcome"),
    [
        ("png", "TooLarge"),
        ("ztxt", "Unreadable"),
        ("itxt", "Unreadable"),
        ("iccp", "Unreadable"),
        ("gif10000", "TooLarge"),
        ("gif5001", "TooLarge"),
        ("gifscreen", "TooLarge"),
        ("gifframe", "TooLarge"),
        ("ico", "TooLarge"),
        ("bmp", "TooLarge"),
        ("tiff", "TooLarge"),
        ("webp", "TooLarge"),
        ("jpeg", "TooLarge"),
        ("restarts", "TooLarge"),
        ("fill", "TooLarge"),
        ("comments", "TooLarge"),
        ("chunks", "TooLarge"),
        ("icochunks", "TooLarge"),
        ("riff", "TooLarge"),
        ("gifblocks", "TooLarge"),
    ],
)
def test_a_bomb_is_refused_at_once_and_with_little_memory(bomb: str, outcome: str) -> None:
    done = subprocess.run([sys.executable, "-c", BOMB, bomb], capture_output=True, text=True, check=True)
    said, seconds, megabytes = done.stdout.split()
    assert said == outcome
    assert float(seconds) < 1
    assert float(megabytes) < 200


def test_large_pictures_of_other_programs_have_few_enough_parts() -> None:
    assert IntakeLimits().max_oversize_bytes / 8192 < MAX_PARTS  # libpng writes chunks of 8 KB
    noise = Image.effect_noise((900, 900), 90)
    frames = [noise.resize((9, 9), box=(at % 800, at // 8, at % 800 + 99, at // 8 + 99)) for at in range(4_000)]
    for kind in ("PNG", "GIF", "WEBP"):
        moving = saved(frames[0], kind, save_all=True, append_images=frames[1:])
        assert (inspect(moving).media.frames or 0) > 1_500  # WebP joins those that are alike
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes() + bytes(3_000_000)
    assert inspect(saved(noise, "JPEG", progressive=True, icc_profile=profile)).media.width == 900


@pytest.mark.parametrize("name", IMAGE_TYPES)
def test_errors_speak_of_the_file_and_not_of_us(name: str) -> None:
    data = sample(name)
    for damaged in (data[: len(data) // 4], data[:8] + b"\xff" * (len(data) - 8)):
        with pytest.raises(MediaError) as caught:
            inspect(damaged, f"../../etc/{name}")
        assert caught.value.name == name
        assert str(caught.value).startswith(name)
        assert not any(word in str(caught.value) for word in ("0x", " /", "etc", "Traceback", "Error"))
