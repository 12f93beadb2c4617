"""What can be seen in a picture, on pictures that real programs made."""

from __future__ import annotations

import io
import zlib
from pathlib import Path

import pytest
from PIL import Image

from formats.made_images import CONVERT
from loom.errors import ContentError, LoomError, TooLarge, Unreadable, Unsupported
from loom.formats.facts import IntakeLimits
from loom.formats.image.bar_chart import MAX_BARS, draw_bars
from loom.formats.image.describe_pixels import ColorShare, color_name, describe
from loom.providers.samples import samples
from made import make_sample, run

SAMPLES = {sample.name: sample.data for sample in samples()}


def drawn(name: str, *arguments: str) -> bytes:
    """A picture by ImageMagick."""

    def build(path: Path) -> None:
        run(CONVERT, *arguments, path)

    return make_sample(f"eyes-{zlib.crc32(repr(arguments).encode()):08x}-{name}", build).read_bytes()


def boxed(name: str, *boxes: str, size: str = "900x600", ground: str = "white") -> bytes:
    """Filled boxes (`red 0,0 9,9`) on a ground."""
    commands: list[str] = []
    for box in boxes:
        color, _, corners = box.partition(" ")
        commands += ["-fill", color, "-draw", f"rectangle {corners}"]
    return drawn(name, "-size", size, f"xc:{ground}", *commands, "-depth", "8")


def test_the_login_screenshot_is_seen_as_it_is() -> None:
    seen = describe(SAMPLES["login.png"])

    assert (seen.width, seen.height, seen.media_type) == (900, 500, "image/png")
    assert (seen.kind, seen.tone) == ("screenshot or diagram", "bright")
    assert [share.name for share in seen.palette] == ["white", "navy"]
    assert 78 <= seen.palette[0].percent <= 88


def test_the_receipt_is_seen_as_a_photograph() -> None:
    seen = describe(SAMPLES["receipt.jpg"])

    assert (seen.kind, seen.tone) == ("photograph", "mid-toned")
    assert seen.palette[0].name == "brown"


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("rose.png", ("rose:",), "photograph"),
        ("rose-large.jpg", ("rose:", "-resize", "900x"), "photograph"),
        ("plasma.png", ("-size", "600x400", "-seed", "5", "plasma:fractal", "-depth", "8"), "photograph"),
        ("text.png", ("-size", "600x300", "-pointsize", "24", "caption:The brown fox " * 9), "screenshot or diagram"),
        ("table.png", ("-size", "400x300", "pattern:gray50", "-scale", "400%"), "screenshot or diagram"),
        ("teal.png", ("-size", "300x200", "xc:teal"), "plain image"),
    ],
)  # fmt: skip
def test_kinds_are_told_apart(name: str, arguments: tuple[str, ...], kind: str) -> None:
    assert describe(drawn(name, *arguments)).kind == kind


@pytest.mark.parametrize(
    ("color", "name"),
    [
        ("ffffff", "white"), ("000000", "black"), ("808080", "gray"), ("c0c0c0", "light gray"), ("333333", "dark gray"),
        ("ff0000", "red"), ("c62828", "red"), ("8b0000", "maroon"), ("ffa500", "orange"), ("8b4513", "brown"),
        ("ffff00", "yellow"), ("ffd700", "yellow"), ("808000", "olive"), ("f5f5dc", "cream"), ("d2b48c", "beige"),
        ("008000", "green"), ("006400", "dark green"), ("98ff98", "light green"), ("008080", "teal"),
        ("40e0d0", "turquoise"), ("0000ff", "blue"), ("2563eb", "blue"), ("1f3a6e", "navy"), ("000080", "navy"),
        ("87ceeb", "light blue"), ("800080", "purple"), ("4b0082", "dark purple"), ("ff00ff", "magenta"),
        ("ff69b4", "pink"), ("ffc0cb", "pink"), ("fafaf8", "white"), ("708090", "gray"), ("fa8072", "salmon"),
    ],
)  # fmt: skip
def test_colors_have_the_names_that_people_use(color: str, name: str) -> None:
    assert color_name(*bytes.fromhex(color)) == name


def test_every_color_has_a_name() -> None:
    levels = range(0, 256, 15)

    assert all(color_name(r, g, b) for r in levels for g in levels for b in levels)


def test_shares_add_up_and_a_single_color_is_all_of_it() -> None:
    assert describe(boxed("one.png")).palette == (ColorShare("white", 100),)
    halves = describe(boxed("halves.png", "black 0,0 449,599")).palette
    assert halves == (ColorShare("black", 50), ColorShare("white", 50))


@pytest.mark.parametrize(("ground", "tone"), [("black", "dark"), ("gray50", "mid-toned"), ("white", "bright")])
def test_brightness_has_three_words(ground: str, tone: str) -> None:
    assert describe(boxed(f"tone-{ground}.png", ground=ground, size="40x40")).tone == tone


def test_transparent_pixels_are_white_and_the_first_frame_is_measured() -> None:
    clear = describe(
        drawn("clear.png", "-size", "200x200", "xc:none", "-fill", "blue", "-draw", "circle 100,100 100,40")
    )
    moving = describe(drawn("moving.gif", "-size", "90x80", "xc:red", "xc:lime", "xc:blue"))

    assert [share.name for share in clear.palette] == ["white", "blue"]
    assert 65 <= clear.palette[0].percent <= 80
    assert moving.palette == (ColorShare("red", 100),)


def test_a_picture_is_looked_at_upright() -> None:
    wide = drawn("wide.jpg", "-size", "300x100", "xc:white", "-fill", "red", "-draw", "rectangle 0,0 19,99")
    turned = io.BytesIO()
    tag = Image.Exif()
    tag[0x0112] = 6  # the right side of the file is the top of the picture
    Image.open(io.BytesIO(wide)).save(turned, "JPEG", exif=tag)

    assert (describe(turned.getvalue()).width, describe(turned.getvalue()).height) == (100, 300)


def test_tiff_is_looked_at_through_the_worker() -> None:
    seen = describe(drawn("page.tif", "logo:", "-compress", "LZW"))

    assert (seen.media_type, seen.width) == ("image/tiff", 640)


@pytest.mark.parametrize("size", ["1x1", "1x40", "40x1", "2x2", "3x5", "9x9"])
def test_tiny_pictures_are_no_trouble(size: str) -> None:
    data = drawn(f"tiny-{size}.png", "-size", size, "-seed", "4", "plasma:red-blue", "-depth", "8")

    assert describe(data).palette


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"not a picture at all", Unsupported),
        (SAMPLES["leaflet.pdf"], Unsupported),
        (SAMPLES["login.png"][:900], Unreadable),
        (SAMPLES["login.png"][:60], Unreadable),
        (b"\x89PNG\r\n\x1a\n", Unreadable),
        (b"", LoomError),
    ],
)
def test_what_cannot_be_decoded_is_a_typed_error(data: bytes, error: type[LoomError]) -> None:
    with pytest.raises(error):
        describe(data)


def test_a_picture_with_too_many_pixels_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(TooLarge):
        describe(SAMPLES["login.png"], IntakeLimits(max_pixels=1000))


def test_the_same_bytes_give_the_same_facts() -> None:
    assert describe(SAMPLES["receipt.jpg"]) == describe(SAMPLES["receipt.jpg"])


# ── bars ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_bars_are_drawn_as_a_picture_that_the_eyes_can_see() -> None:
    seen = describe(draw_bars([3, 5, 8, 13]))

    assert (seen.width, seen.height, seen.media_type, seen.kind) == (720, 420, "image/png", "screenshot or diagram")
    assert [share.name for share in seen.palette] == ["white", "blue"]


def test_higher_values_give_more_blue() -> None:
    low, high = describe(draw_bars([1, 10])), describe(draw_bars([10, 10]))

    assert high.palette[1].percent > low.palette[1].percent


@pytest.mark.parametrize("values", [[0], [0, 0], [-3, 5], [-1, -2], [1e-9], [1e15, 1e-15], [1] * MAX_BARS])
def test_bars_of_all_sizes_can_be_drawn(values: list[float]) -> None:
    assert describe(draw_bars(values)).width == 720


@pytest.mark.parametrize("values", [[], [1.0] * (MAX_BARS + 1), [float("nan")], [float("inf")], [1e300]])
def test_what_is_no_chart_is_refused(values: list[float]) -> None:
    with pytest.raises(ContentError):
        draw_bars(values)


def test_the_same_values_give_the_same_bytes() -> None:
    assert draw_bars([3, 5, 8]) == draw_bars([3, 5, 8])
