"""The two doors: every format × every name × whole, cut off, spoilt gives the right category or a typed error."""

from __future__ import annotations

import base64
import io
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest
from PIL import Image

from formats.made_images import IMAGE_TYPES, SOUND_TYPES, VIDEO_TYPES, sample
from formats.made_office import book, deck, story
from formats.made_pdfs import chromium_report, ghostscript_book
from loom.content.blocks import DocumentBlock
from loom.content.media import Media, digest_of
from loom.content.recipes import Crop, Fit, Low, Page, Slice, Text, Thumb
from loom.errors import ContentError, ExtraMissing, MediaError, TooLarge, Unreadable, Unsupported
from loom.formats import clean_name, inspect, render, unsupported_error
from loom.formats.facts import Inspection, IntakeLimits
from loom.formats.image.svg import remove_external_references
from loom.formats.intake import accept
from loom.formats.libreoffice import MODERN
from loom.formats.sniff.kinds import KINDS
from patience import PATIENCE_SECONDS

SVG = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 200 100"><rect width="100" height="100" fill="red"/></svg>'
TEXTS = {
    "page.html": b"<!DOCTYPE html><title>404</title><p>Not found" + b" at all" * 50,
    "data.json": b'{"error": "not found", "status": 404}',
    "drawing.svg": SVG,
    "notes.md": "# Größe\n\nText with ünïcode.\n".encode() * 30,
    "wide.txt": ("Zeile mit Umlauten: äöü\n" * 30).encode("utf-16"),
}
PAPERS: dict[str, Callable[[], bytes]] = {
    "printed.pdf": lambda: chromium_report().read_bytes(),
    "set.pdf": lambda: ghostscript_book(12).read_bytes(),
}
OFFICE: dict[str, Callable[[], bytes]] = {
    **{f"story.{kind}": partial(story, kind) for kind in ("docx", "odt", "doc")},
    **{f"deck.{kind}": partial(deck, kind) for kind in ("pptx", "odp", "ppt")},
    **{f"book.{kind}": partial(book, kind) for kind in ("xlsx", "ods", "xls")},
}
CATEGORIES = (
    dict.fromkeys(IMAGE_TYPES, "image")
    | dict.fromkeys(SOUND_TYPES, "audio")
    | dict.fromkeys(VIDEO_TYPES, "video")
    | dict.fromkeys(TEXTS, "text")
    | dict.fromkeys(PAPERS, "pdf")
    | dict.fromkeys(OFFICE, "office")
    | {"page.html": "office"}  # read as a document, while its source is text for tools
)


def content(name: str) -> bytes:
    documents = PAPERS | OFFICE
    return TEXTS[name] if name in TEXTS else documents[name]() if name in documents else sample(name)


def names(name: str) -> tuple[str, ...]:
    """The right one, two wrong ones, and one without an extension."""
    stem, _, extension = name.rpartition(".")
    return name, f"{stem}.{'txt' if extension == 'png' else 'png'}", f"{stem}.mp3", stem


def gigabytes_held() -> float:
    """The most that this process ever held; what its workers may hold is bounded (`test_worker`)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_000_000


@pytest.fixture(scope="module", autouse=True)
def _memory_is_bounded() -> Iterator[None]:
    before = gigabytes_held()
    yield
    assert gigabytes_held() - before < 1


@pytest.mark.parametrize("name", CATEGORIES)
def test_a_whole_file_is_let_in_under_any_name(name: str) -> None:
    data, category = content(name), CATEGORIES[name]
    for given in names(name):
        if category == "unsupported":
            with pytest.raises(Unsupported, match="Loom supports text, images, PDF, office files, audio and video"):
                inspect(data, given)
            continue
        found = inspect(data, given)
        assert found.category == category
        assert (found.media.digest, found.media.size_bytes, found.media.name) == (digest_of(data), len(data), given)


def outcomes(data: bytes, name: str) -> set[str]:
    """Categories and refusals under every name; anything but a typed error fails the test. What is let in is shown."""
    found: set[str] = set()
    for given in names(name):
        try:
            inspection = inspect(data, given)
        except MediaError:
            found.add("refused")
            continue
        found.add(inspection.category)
        if given == name:
            show(data, inspection)
    return found


def show(data: bytes, found: Inspection) -> None:
    """An image that was let in can be shown; the words of a document are there or a typed error."""
    if found.category == "image":
        Image.open(io.BytesIO(render(data, found.media, Fit(max_side_px=64)).data)).load()
    elif found.category in ("pdf", "office") and found.media.media_type not in MODERN:
        with suppress(MediaError):
            render(data, found.media, Text())


@pytest.mark.parametrize("name", CATEGORIES)
def test_a_file_cut_off_anywhere_is_what_it_was_or_a_typed_error(name: str) -> None:
    data = content(name)
    for part in range(10):
        cut = data[: len(data) * part // 10 + part]
        assert outcomes(cut, name) <= {CATEGORIES[name], "text", "refused"}


@pytest.mark.parametrize("name", CATEGORIES)
def test_a_spoilt_file_is_what_it_was_or_a_typed_error(name: str) -> None:
    data = content(name)
    chance = random.Random(name)
    for _ in range(5):
        at = chance.randrange(len(data))
        spoilt = data[:at] + chance.randbytes(min(32, len(data) - at)) + data[at + 32 :]
        assert outcomes(spoilt, name)


def test_an_extension_that_lies_is_said() -> None:
    html = inspect(TEXTS["page.html"], "fake.png")
    assert (html.category, html.media.media_type) == ("office", "text/html")
    assert html.notices == ("fake.png is HTML (by its bytes), attached as text.",)
    assert inspect(TEXTS["data.json"], "shot.jpg").notices == ("shot.jpg is JSON (by its bytes), attached as text.",)
    jpeg = inspect(sample("baseline.jpg"), "shot.png")
    assert jpeg.media.media_type == "image/jpeg"
    assert jpeg.notices == ("shot.png is JPEG (by its bytes), attached as an image.",)
    assert inspect(sample("baseline.jpg"), "shot.jpeg").notices == ()
    assert inspect(TEXTS["notes.md"], "notes.txt").notices == ()


@pytest.mark.parametrize("asked", ["13", "13-20"])
def test_pages_that_a_document_does_not_have_are_refused(asked: str) -> None:
    with pytest.raises(ContentError, match=r"set\.pdf has 12 pages; page 13 does not exist\."):
        accept(content("set.pdf"), "set.pdf", pages=asked)


def test_pages_behind_the_end_of_a_document_are_said_to_be_missing() -> None:
    admitted = accept(content("set.pdf"), "set.pdf", pages="11-20")
    assert isinstance(admitted.block, DocumentBlock)
    assert admitted.block.pages == "11-12"
    assert admitted.notices == ("set.pdf has 12 pages; of 11-20 only 11-12 is used.",)
    assert accept(content("set.pdf"), "set.pdf", pages="11-12").notices == ()


@pytest.mark.parametrize("name", ["rgb.png", "notes.md", "tone.wav"])
def test_what_has_no_pages_says_so_when_it_is_asked_for_some(name: str) -> None:
    assert accept(content(name), name, pages="3").notices == (f"{name} has no pages; all of it is used.",)


def test_nothing_is_not_a_file() -> None:
    with pytest.raises(Unreadable, match=r"shot\.png is empty \(0 bytes\)\."):
        inspect(b"", "shot.png")
    with pytest.raises(Unreadable, match="contains no text"):
        inspect(b"\xef\xbb\xbf", "mark.txt")


def test_a_binary_is_described_and_not_shown() -> None:
    with pytest.raises(Unsupported) as caught:
        inspect(b"\x7fELF\2\1\1" + bytes(2000), "a.out")
    assert str(caught.value) == (
        "a.out is an ELF program (application/x-elf, 2 KB); "
        "Loom supports text, images, PDF, office files, audio and video. "
        "Describe what you want to know about it; commands such as strings or objdump show its content."
    )
    with pytest.raises(Unsupported, match=r"is a 7-Zip archive \(application/x-7z-compressed, 26 bytes\).*Unpack it"):
        inspect(b"7z\xbc\xaf\x27\x1c" + bytes(20), "a.7z")


def test_whatever_cannot_be_read_is_named_with_what_to_do() -> None:
    for media_type, kind in KINDS.items():
        if kind.category == "unsupported":
            assert unsupported_error(media_type, 10, "x").hint, (media_type, kind.label)


def test_what_another_program_can_convert_is_told_so() -> None:
    with pytest.raises(Unsupported, match=r"is AIFF audio .*Save it as WAV or MP3 and attach that\."):
        inspect(b"FORM\0\0\0\x20AIFF" + bytes(64), "a.aif")
    with pytest.raises(Unsupported, match=r"is a GIMP image .*Save it as PNG or JPEG and attach that\."):
        inspect(b"gimp xcf v011\0" + bytes(64), "a.xcf")


@pytest.mark.parametrize(
    ("data", "limits", "said"),
    [
        (
            b"x" * 1001,
            IntakeLimits(max_text_bytes=100, max_office_bytes=1000),
            r"big is plain text of 1 KB, over the limit of 1 KB\.",
        ),
        (
            b"\x89PNG\r\n\x1a\n" + bytes(2000),
            IntakeLimits(max_image_bytes=1000),
            "big is PNG of 2 KB, over the limit of 1 KB",
        ),
        (b"%PDF-1.4\n" + bytes(2000), IntakeLimits(max_pdf_bytes=1000), "big is PDF of 2 KB"),
        (b"fLaC" + bytes(2000), IntakeLimits(max_audio_bytes=1000), "big is FLAC of 2 KB"),
    ],
)
def test_every_category_has_its_limit(data: bytes, limits: IntakeLimits, said: str) -> None:
    with pytest.raises(TooLarge, match=said):
        inspect(data, "big", limits)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\photo.png", "photo.png"),
        ("photo\u202egnp.exe", "photognp.exe"),
        ("two\nlines\x00\x1b[31m.txt", "twolines[31m.txt"),
        ("tag\U000e0041\u2066\u200b.txt", "tag.txt"),
        ("CON", "CON"),
        ('quo"te.txt', 'quo"te.txt'),
        ("..", ""),
        ("folder/", ""),
        ("👩\u200d💻.png", "👩\u200d💻.png"),
        ("  spaced   out .txt ", "spaced out .txt"),
        ("lone\ud800.txt", "lone.txt"),
        ("", ""),
    ],
)
def test_a_name_is_only_ever_a_label(given: str, kept: str) -> None:
    assert clean_name(given) == kept
    assert inspect(b"text", given).media.name == kept


@pytest.mark.parametrize("letter", ["a", "ü", "語", "🙂"])
def test_a_long_name_is_cut_in_the_middle_of_nothing(letter: str) -> None:
    name = clean_name(letter * 400 + ".jpeg")
    assert len(name.encode()) <= 255
    assert name.endswith("….jpeg")
    assert len(clean_name("x" + letter * 400).encode()) <= 255


def test_an_old_encoding_is_said() -> None:
    found = inspect("Grüße aus Köln.".encode("latin-1") * 40, "old.txt")
    assert (found.text, found.encoding) == ("Grüße aus Köln." * 40, "windows-1252")
    assert found.notices == ("old.txt is not UTF-8; it was read as Windows-1252 (Western European).",)


# ── render ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_text_is_rendered_as_utf_8() -> None:
    found = inspect(TEXTS["wide.txt"], "wide.txt")
    rendered = render(TEXTS["wide.txt"], found.media, Text())
    assert (rendered.data.decode(), rendered.media_type) == (found.text, "text/plain")


@pytest.mark.parametrize("recipe", [Fit(), Low(), Crop(box=(0, 0, 5, 5)), Thumb(), Page(1), Slice("1-2")])
def test_what_a_recipe_cannot_make_is_said(recipe: Fit | Low | Crop | Thumb | Page | Slice) -> None:
    data = TEXTS["notes.md"]
    with pytest.raises(Unsupported, match=r"notes\.md is Markdown and cannot be"):
        render(data, inspect(data, "notes.md").media, recipe)
    sound = sample("tone.wav")
    with pytest.raises(Unsupported, match="is WAV and cannot be"):
        render(sound, inspect(sound, "tone.wav").media, recipe)


def test_bytes_that_are_not_those_of_the_medium_are_unreadable() -> None:
    media = Media(digest=digest_of(b"x"), media_type="image/png", size_bytes=1)
    with pytest.raises(Unreadable, match="is JPEG, not PNG"):
        render(sample("baseline.jpg"), media, Fit())


# ── SVG ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_svg_is_text_and_can_be_drawn() -> None:
    found = inspect(SVG, "drawing.svg")
    assert (found.category, found.media.media_type, found.text) == ("text", "image/svg+xml", SVG.decode())
    for recipe, size in (
        (Fit(), (512, 256)),
        (Fit(max_side_px=100), (100, 50)),
        (Thumb(), (256, 128)),
        (Low(), (512, 256)),
    ):
        rendered = render(SVG, found.media, recipe)
        image = Image.open(io.BytesIO(rendered.data)).convert("RGB")
        assert (image.size, rendered.width, rendered.height) == (size, *size)
        assert image.getpixel((5, 5)) == (255, 0, 0)
        assert image.getpixel((size[0] - 5, 5)) == (255, 255, 255)


@pytest.mark.parametrize(("width", "height"), [("65cm", "26cm"), ("10in", "4in"), ("500pt", "200pt"), ("100%", "100%")])
def test_an_svg_may_be_measured_in_any_unit(width: str, height: str) -> None:
    data = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 50 20"/>'.encode()
    rendered = render(data, inspect(data).media, Fit(max_side_px=500))
    assert (rendered.width, rendered.height) in ((500, 200), (500, 201))  # resvg rounds up


def test_an_svg_cannot_read_files(tmp_path: object) -> None:
    secret = f"{tmp_path}/secret.png"
    Image.new("RGB", (50, 50), "blue").save(secret)
    namespaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    for href in (secret, f"file://{secret}", "http://127.0.0.1:9/a.png", "data:image/svg+xml;base64,PHN2Zy8+"):
        for attribute in ("href", "xlink:href"):
            picture = f'<image width="50" height="50" {attribute}="{href}"/>'
            data = f'<svg {namespaces} width="50" height="50">{picture}</svg>'.encode()
            rendered = render(data, inspect(data, "spy.svg").media, Fit())
            colors = Image.open(io.BytesIO(rendered.data)).convert("RGB").getcolors()
            assert colors == [(512 * 512, (255, 255, 255))]
            assert rendered.notices[1] == "references to external files left out: 1"


def test_pictures_inside_an_svg_and_links_within_it_are_drawn() -> None:
    file = io.BytesIO()
    Image.new("RGB", (4, 4), "blue").save(file, "PNG")
    inline = base64.b64encode(file.getvalue()).decode()
    data = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="600" height="600"><defs>'
        f'<image id="i" width="300" height="600" href="data:image/png;base64,{inline}"/></defs><use href="#i"/></svg>'
    ).encode()
    rendered = render(data, inspect(data).media, Fit())
    assert Image.open(io.BytesIO(rendered.data)).convert("RGB").getpixel((100, 300)) == (0, 0, 255)


def test_namespaces_by_entities_are_expanded() -> None:
    source = '<!DOCTYPE svg [<!ENTITY ns "http://www.w3.org/2000/svg">]><svg xmlns="&ns;" width="7" height="9"/>'
    drawing = remove_external_references(source)
    assert drawing.source == '<svg xmlns="http://www.w3.org/2000/svg" width="7" height="9"></svg>'
    assert drawing.side_px == 9


@pytest.mark.parametrize(
    "source",
    [
        '<!DOCTYPE s [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]><svg>&b;</svg>',
        '<!DOCTYPE s [<!ENTITY x SYSTEM "file:///etc/passwd">]><svg>&x;</svg>',
        '<!DOCTYPE s [<!ENTITY % x SYSTEM "http://127.0.0.1:9/x.dtd"> %x;]><svg/>',
        f'<!DOCTYPE s [<!ENTITY x "{"A" * 5000}">]><svg>{"&x;" * 5000}</svg>',
        "<svg>" + "<g>" * 50_000 + "</g>" * 50_000 + "</svg>",
        "<svg>" + "<g/>" * 150_000 + "</svg>",
        "<svg><g></svg>",
        "<svg",
        "<svg>&undeclared;</svg>",
        '<svg xmlns="http://www.w3.org/2000/svg" width="0" height="0"/>',
    ],
    ids=lambda source: source[:40],
)
def test_a_hostile_svg_is_text_but_not_drawn(source: str) -> None:
    data = source.encode()
    media = Media(digest=digest_of(data), media_type="image/svg+xml", size_bytes=len(data), name="evil.svg")
    began = time.monotonic()
    with pytest.raises((Unreadable, TooLarge)) as caught:
        render(data, media, Fit())
    assert time.monotonic() - began < PATIENCE_SECONDS
    assert "root:" not in str(caught.value)


def test_a_drawing_that_takes_too_long_is_given_up() -> None:
    """Ten levels of ten uses each: ten thousand million circles."""
    levels = "".join(
        f'<g id="l{level}">{f"""<use href="#l{level - 1}" x="{level}"/>""" * 10}</g>' for level in range(1, 11)
    )
    data = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="99" height="99"><circle id="l0" r="3"/>{levels}</svg>'
    ).encode()
    media = Media(digest=digest_of(data), media_type="image/svg+xml", size_bytes=len(data))
    began = time.monotonic()
    with pytest.raises((Unreadable, TooLarge)):
        render(data, media, Fit(), IntakeLimits(deadline_seconds=1.5))
    assert time.monotonic() - began < PATIENCE_SECONDS


def test_a_drawing_with_vast_masks_is_drawn_smaller() -> None:
    """An icon of 16 px whose masks are a thousand: at 512 px each of them has a thousand million pixels."""
    masks = "".join(
        f'<mask id="m{n}"><g filter="url(#f)"><rect width="1024" height="800" fill="white"/></g></mask>'
        f'<rect mask="url(#m{n})" width="16" height="16" fill="red"/>'
        for n in range(40)
    )
    data = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><filter id="f" x="0" y="0" width="1" height="1">'
        f'<feColorMatrix values="1 0 0 0 0 0 1 0 0 0 0 0 1 0 0 0 0 0 1 0"/></filter>{masks}</svg>'
    ).encode()
    rendered = render(data, inspect(data, "icon.svg").media, Fit(), IntakeLimits(deadline_seconds=20))
    assert (rendered.width, rendered.height) == (64, 64)
    assert rendered.notices == ("drawn at 64×64",)
    assert Image.open(io.BytesIO(rendered.data)).convert("RGB").getpixel((32, 32)) == (255, 0, 0)


def test_without_the_renderer_an_svg_is_still_text() -> None:
    program = (
        "import sys; sys.modules['resvg_py'] = None\n"
        "import importlib.util; real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, package=None: None if name == 'resvg_py' else real(name, package)\n"
        "from loom.formats import inspect, render\nfrom loom.content.recipes import Fit\n"
        "from loom.errors import ExtraMissing\n"
        "data = sys.stdin.buffer.read(); found = inspect(data, 'drawing.svg'); print(found.category)\n"
        "try: render(data, found.media, Fit())\n"
        "except ExtraMissing as missing: print(missing)"
    )
    done = subprocess.run([sys.executable, "-c", program], input=SVG, capture_output=True, check=True)
    assert done.stdout.decode().split("\n")[0] == "text"
    assert done.stdout.decode().strip().endswith("pip install 'loom-runtime[svg]'")
    assert issubclass(ExtraMissing, Exception)


def test_importing_the_doors_loads_no_decoder() -> None:
    program = (
        "import sys, loom.formats; print([name for name in ('PIL', 'pypdfium2', 'resvg_py') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
