"""Words that are drawn in images, read by the engines that are installed."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest
from PIL import Image

from formats import made_pdfs
from loom.content.media import Media, digest_of
from loom.content.recipes import Page
from loom.errors import ExtraMissing, TooLarge, Unreadable
from loom.formats import ocr
from loom.formats.facts import IntakeLimits
from loom.formats.ocr.reading_order import Word, in_reading_order
from loom.formats.pdf import render_pdf
from loom.formats.worker import current_pool
from made import make_sample, run

LIMITS = IntakeLimits(ocr_seconds=120)


def note() -> Path:
    """A sheet with two columns, by ImageMagick."""

    def build(path: Path) -> None:
        left = "-annotate", "+40+60", "Apples are red\\nPears are green"
        right = "-annotate", "+560+60", "Monday is first\\nFriday is last"
        run(made_pdfs.CONVERT, "-size", "960x200", "xc:white", "-pointsize", "36", *left, *right, path)

    return make_sample("note.png", build)


@pytest.fixture
def no_rapidocr(monkeypatch) -> None:
    """A Python in which the extra is not installed."""
    monkeypatch.setitem(sys.modules, "rapidocr", None)


def test_rapidocr_reads_the_columns_one_after_the_other():
    assert ocr.is_available() == "rapidocr"

    assert ocr.read_picture(note().read_bytes(), LIMITS).split("\n") == [
        "Apples are red",
        "Pears are green",
        "",
        "Monday is first",
        "Friday is last",
    ]


def test_a_page_that_was_scanned_upside_down_is_read_from_its_top():
    turned = make_sample("note-turned.png", lambda path: run(made_pdfs.CONVERT, note(), "-rotate", "180", path))

    assert ocr.read_picture(turned.read_bytes(), LIMITS) == ocr.read_picture(note().read_bytes(), LIMITS)


@pytest.mark.parametrize("size", ["40x20", "30x400", "4000x24"])
def test_an_image_of_an_extreme_shape_is_read(size):
    """The engine's input has multiples of 32 pixels on each side; a narrow image must not become an empty one."""
    path = make_sample(
        f"extreme-{size}.png",
        lambda path: run(
            made_pdfs.CONVERT, "-size", size, "xc:white", "-pointsize", "16", "-annotate", "+4+16", "Hi", path
        ),
    )

    assert ocr.read_picture(path.read_bytes(), LIMITS) in ("Hi", "")


def test_a_scanned_page_of_a_pdf_is_read_from_its_picture():
    data = made_pdfs.scanned_pages().read_bytes()
    media = Media(digest=digest_of(data), media_type="application/pdf", size_bytes=len(data))
    page = render_pdf(data, media, Page(2, max_side_px=1000), IntakeLimits())

    text = ocr.read_picture(page.data, LIMITS)

    assert "Scanned sheet 2" in text
    assert "Invoice total 4711 EUR" in text


def test_the_engine_stays_in_one_bounded_process(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-sentinel")
    ocr.read_picture(note().read_bytes(), LIMITS)
    (pid,) = current_pool().pids(ocr.OCR_WORKER)

    bound = Path(f"/proc/{pid}/limits").read_text().split("Max address space")[1].split()[0]
    assert int(bound) == 3 * LIMITS.worker_memory_bytes
    assert b"sentinel" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert pid != os.getpid()
    assert "onnxruntime" not in sys.modules, "the engine is never loaded here"


def test_without_the_extra_tesseract_reads(no_rapidocr):
    assert ocr.is_available() == "tesseract"

    text = ocr.read_picture(note().read_bytes(), LIMITS)

    assert "Apples are red" in text
    assert "Friday is last" in text


def test_without_any_engine_the_error_says_what_to_install(no_rapidocr, monkeypatch):
    monkeypatch.setenv("PATH", "")

    assert ocr.is_available() == ""
    with pytest.raises(ExtraMissing, match=r"pip install 'loom-runtime\[ocr\]'"):
        ocr.read_picture(note().read_bytes(), LIMITS)


def test_a_picture_with_nothing_to_read_gives_no_text():
    blank = io.BytesIO()
    Image.new("RGBA", (300, 200), (0, 0, 0, 0)).save(blank, format="PNG")

    assert ocr.read_picture(blank.getvalue(), LIMITS) == ""


@pytest.mark.parametrize("engine", ["rapidocr", "tesseract"])
def test_what_cannot_be_read_is_a_typed_error(engine, request):
    if engine == "tesseract":
        request.getfixturevalue("no_rapidocr")

    for data in (b"", b"junk" * 100, note().read_bytes()[:400]):
        with pytest.raises(Unreadable, match="The image"):
            ocr.read_picture(data, LIMITS)
    with pytest.raises(TooLarge, match="960×200"):
        ocr.read_picture(note().read_bytes() + b"another", IntakeLimits(max_pixels=100_000))


def test_the_deadline_ends_a_reading_and_the_next_one_works(no_rapidocr):
    with pytest.raises(TooLarge, match=r"takes longer than 0\.05 s"):
        ocr.read_picture(note().read_bytes() + b"slow", IntakeLimits(ocr_seconds=0.05))

    assert "Apples" in ocr.read_picture(note().read_bytes(), LIMITS)


def test_reading_order_keeps_lines_together_and_columns_apart():
    words = [
        Word("right-2", 300, 31, 380, 51),
        Word("Title", 10, 0, 400, 20),
        Word("of", 64, 62, 80, 80),
        Word("left-1", 10, 60, 60, 80),
        Word("left-2", 10, 90, 60, 110),
        Word("right-1", 300, 61, 380, 81),
        Word("footer", 10, 200, 60, 220),
    ]
    words[0] = Word("right-2", 300, 91, 380, 111)

    assert in_reading_order(words) == "Title\n\nleft-1 of\nleft-2\n\nright-1\nright-2\n\nfooter"
    assert in_reading_order([]) == ""


def test_a_row_of_single_words_far_apart_stays_one_line():
    row = [Word("Total", 10, 0, 60, 20), Word("4711", 400, 2, 440, 22)]

    assert in_reading_order(row) == "Total 4711"
