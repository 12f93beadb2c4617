"""PDFs by the programs that make them, damaged ones and hostile ones: facts, text, slices, pages, pictures."""

from __future__ import annotations

import base64
import io
import random
import subprocess
import time
from pathlib import Path

import pypdfium2
import pytest
from PIL import Image, ImageChops, ImageStat

from formats import made_pdfs
from loom.content.media import Media, digest_of
from loom.content.recipes import EmbeddedImage, Page, Recipe, Slice, Text, Thumb
from loom.errors import ContentError, Encrypted, MediaError, TooLarge, Unreadable, Unsupported
from loom.formats.facts import IntakeLimits, Rendered
from loom.formats.pdf import clamp_pages, inspect_pdf, render_pdf
from patience import PATIENCE_SECONDS

LIMITS = IntakeLimits()


def media_of(data: bytes) -> Media:
    return Media(digest=digest_of(data), media_type="application/pdf", size_bytes=len(data), name="sample.pdf")


def render(data: bytes, recipe: Recipe, limits: IntakeLimits = LIMITS) -> Rendered:
    assert isinstance(recipe, Page | Slice | Text | Thumb | EmbeddedImage)
    return render_pdf(data, media_of(data), recipe, limits)


def text_of(data: bytes, pages: str = "") -> str:
    return render(data, Text(pages)).data.decode()


def opened(rendered: Rendered) -> Image.Image:
    image = Image.open(io.BytesIO(rendered.data))
    image.load()
    assert rendered.media_type == f"image/{(image.format or '').lower()}"
    assert (rendered.width, rendered.height) == image.size
    return image


def poppler_says(data: bytes, tmp_path: Path) -> tuple[int, str]:
    file = tmp_path / "slice.pdf"
    file.write_bytes(data)
    facts = subprocess.run(["pdfinfo", str(file)], check=True, capture_output=True, text=True).stdout
    words = subprocess.run(["pdftotext", str(file), "-"], check=True, capture_output=True, text=True).stdout
    return int(facts.split("Pages:")[1].split()[0]), words


@pytest.mark.parametrize(
    ("sample", "pages", "words"),
    [
        (made_pdfs.chromium_report, 12, ["Annual report 😀", "walnut11", "The end"]),
        (lambda: made_pdfs.ghostscript_book(30), 30, ["Page number 1\n", "Page number 30\n"]),
        (made_pdfs.libreoffice_letter, 1, ["Schöne Grüße", "Œuvre, naïve café, ½ €.", "42.50"]),
        (made_pdfs.linearized_pdf, 12, ["walnut2", "The end"]),
        (made_pdfs.object_streams, 30, ["Page number 17\n"]),
        (made_pdfs.joined_pdf, 14, ["walnut7"]),
        (lambda: made_pdfs.encrypted_pdf(""), 12, ["walnut7"]),
    ],
    ids=["chromium", "ghostscript", "libreoffice", "linearized", "object-streams", "pdfunite", "owner-password-only"],
)
def test_a_pdf_by_any_program_gives_its_facts_and_its_words(sample, pages, words):
    data = sample().read_bytes()

    found = inspect_pdf(data, "sample.pdf", LIMITS)
    text = text_of(data)

    assert found.category == "pdf"
    assert found.media.pages == pages
    assert found.media.digest == digest_of(data)
    assert found.media.label.startswith(f"sample.pdf, {pages} page")
    assert all(word in text for word in words)
    assert [line for line in text.splitlines() if line.startswith("[page ")][-1].startswith(f"[page {pages}")
    assert "\r" not in text
    assert "\ufffe" not in text


def test_text_is_marked_page_by_page_and_only_the_pages_asked_for_are_read():
    data = made_pdfs.ghostscript_book(30).read_bytes()

    text = text_of(data, "7-8")

    assert text.startswith("[page 7]\nPage number 7\n")
    assert "\n\n[page 8]\nPage number 8\n" in text
    assert "Page number 9" not in text
    assert text.endswith("box.\n")


def test_a_word_broken_at_the_end_of_a_line_is_whole_again():
    words = b"BT /F1 12 Tf 72 700 Td (an exam-) Tj 0 -14 Td (ple of it) Tj ET"

    assert "an example of it" in text_of(made_pdfs.one_page(made_pdfs.stream(words)))


@pytest.mark.parametrize("program", ["chromium", "libreoffice"])
def test_right_to_left_words_are_read_from_their_first_letter(program):
    """Of Arabic in Chromium's PDFs pdfium gives the last letter first; of Hebrew, and of LibreOffice's PDFs, not."""
    lines = [
        "السعر 12.50 ريال اليوم",
        "مرحبا بالعالم",
        "هذا كتاب طويل عن اللغة العربية، أليس كذلك؟",
        "في 2024 دفع ١٢٣٤ ريال USD عن بيت",
        "שלום עולם 123 abc סוף",
    ]

    data = made_pdfs.print_html(program, "".join(f'<p dir="rtl">{line}</p>' for line in lines)).read_bytes()

    assert text_of(data).splitlines() == ["[page 1]", *lines]


def test_arabic_words_among_latin_ones_keep_their_order():
    lines = ["😀 Order 42: مرحبا بالعالم costs 12.50 EUR", "The words مرحبا، بالعالم و سعر are in Arabic"]

    data = made_pdfs.print_html("chromium", "".join(f"<p>{line}</p>" for line in lines)).read_bytes()

    assert text_of(data).splitlines() == ["[page 1]", *lines]


def test_arabic_words_that_stand_on_their_head_are_read_as_before():
    turned = '<p style="transform:rotate(180deg)">مرحبا</p><p>مرحبا</p>'

    data = made_pdfs.print_html("chromium", turned).read_bytes()

    assert text_of(data).splitlines() == ["[page 1]", "مرحبا", "مرحبا"]


def test_what_was_typed_into_a_form_and_noted_beside_it_is_read_and_drawn():
    form = made_pdfs.filled_form()

    assert text_of(form) == "[page 1]\nYour name\n[field Name: Ada Lovelace]\n[note: Please check the name]\n"
    drawn, blank = opened(render(form, Page(1))).convert("L"), opened(render(made_pdfs.text_page(""), Page(1)))
    field = (320, 160, 820, 215)
    assert drawn.crop(field).getextrema()[0] < 100 < blank.convert("L").crop(field).getextrema()[0]


def test_what_reviewers_wrote_is_read_whatever_they_drew_beside_it():
    kinds = ["Underline", "StrikeOut", "Squiggly", "Caret", "Square", "Circle", "Stamp", "Ink", "Line", "Polygon"]
    kinds += ["PolyLine", "Highlight", "FreeText", "Text"]
    drawn = "".join(f"<</Type/Annot/Subtype/{kind}/Contents({kind} says)/Rect[9 9 99 99]>>" for kind in kinds)
    silent = "".join(
        f"<</Type/Annot/Subtype/{kind}/Contents(not for reading)/Rect[9 9 99 99]>>"
        for kind in ("Link", "Popup", "Widget")
    )
    page = f"/Annots[{drawn}{silent}<</Type/Annot/Subtype/Circle/Rect[9 9 99 99]>>]".encode()
    words = made_pdfs.stream(b"BT /F1 12 Tf 72 700 Td (Report) Tj ET")

    text = text_of(made_pdfs.one_page(words, page=page))

    assert text.splitlines() == ["[page 1]", "Report", *(f"[note: {kind} says]" for kind in kinds)]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("invoice.xml",), "1 attached file (invoice.xml)"),
        (("parts.csv", "préis.csv"), "2 attached files (parts.csv, préis.csv)"),
        (tuple(f"{number}.csv" for number in range(7)), "7 attached files (0.csv, 1.csv, 2.csv, 3.csv, 4.csv, …)"),
    ],
)
def test_files_attached_to_a_pdf_are_named(names, said):
    data = made_pdfs.attachments_pdf(*names).read_bytes()

    assert inspect_pdf(data, "book.pdf", LIMITS).notices == (f"The PDF contains {said}, which Loom does not read.",)


def test_scanned_pages_are_recognized_by_their_missing_text_layer():
    scan = made_pdfs.scanned_pages().read_bytes()
    mixed = made_pdfs.joined_pdf().read_bytes()

    assert inspect_pdf(scan, "scan.pdf", LIMITS).pages_without_text == (1, 2, 3)
    assert inspect_pdf(mixed, "mixed.pdf", LIMITS).pages_without_text == (1, 14)
    assert text_of(scan, "2-3") == "[page 2: no text layer]\n\n[page 3: no text layer]\n"
    assert render(mixed, Text("12-14")).pages_without_text == (14,)


def test_a_slice_holds_the_pages_asked_for_and_nothing_of_the_others(tmp_path):
    data = made_pdfs.chromium_report().read_bytes()

    cut = render(data, Slice("1-2"))
    count, words = poppler_says(cut.data, tmp_path)

    assert (cut.media_type, cut.pages, count, cut.notices) == ("application/pdf", 2, 2, ())
    assert "walnut2" in words
    plain = tmp_path / "plain.pdf"
    subprocess.run(["qpdf", "--qdf", "--object-streams=disable", str(tmp_path / "slice.pdf"), str(plain)], check=True)
    assert plain.read_bytes().count(b"/Type /Page\n") == 2, "the link on page 1 must not bring the last page along"
    assert b"/DCTDecode" not in plain.read_bytes(), "the photograph stands on the last page"


def test_a_slice_beyond_the_end_is_clamped_and_says_so(tmp_path):
    data = made_pdfs.chromium_report().read_bytes()

    cut = render(data, Slice("11-40"))

    assert cut.notices == ("The document has 12 pages: pages 11-12 instead of 11-40.",)
    assert cut.pages == poppler_says(cut.data, tmp_path)[0] == 2


def test_the_slice_of_an_encrypted_document_that_opens_without_a_password_is_plain(tmp_path):
    cut = render(made_pdfs.encrypted_pdf("").read_bytes(), Slice("3"))

    assert "walnut3" in poppler_says(cut.data, tmp_path)[1]
    assert b"/Encrypt" not in cut.data


@pytest.mark.parametrize(
    ("pages", "count", "expected"),
    [
        ("", 47, (1, 20, "")),
        ("", 3, (1, 3, "")),
        ("21-40", 47, (21, 40, "")),
        ("41-60", 47, (41, 47, "The document has 47 pages: pages 41-47 instead of 41-60.")),
        ("50-60", 47, (47, 47, "The document has 47 pages: page 47 instead of 50-60.")),
        ("9", 1, (1, 1, "The document has 1 page: page 1 instead of 9.")),
        ("1-200", 1000, (1, 200, "")),
    ],
)
def test_page_ranges_count_from_one_and_are_clamped_to_the_document(pages, count, expected):
    assert clamp_pages(pages, count) == expected


@pytest.mark.parametrize("pages", ["0", "5-3", "a", "1,2", "-3", "1" * 5000])
def test_a_page_range_that_is_none_says_how_one_looks(pages):
    with pytest.raises(ContentError, match=r"(?i)pages"):
        clamp_pages(pages, 10)


def test_a_text_page_becomes_a_sharp_gray_png_at_150_dpi():
    image = opened(render(made_pdfs.ghostscript_book(30).read_bytes(), Page(1)))

    assert image.format == "PNG"
    assert image.size == (1240, 1755)
    assert all(
        red == green == blue for _, (red, green, blue) in image.convert("RGB").getcolors(300) or [(0, (0, 1, 2))]
    )


def test_a_page_in_color_is_a_jpeg_and_nearly_exact_where_only_png_will_do() -> None:
    data = made_pdfs.chromium_brochure().read_bytes()
    document = pypdfium2.PdfDocument(data)
    original = document[0].render(scale=150 / 72).to_pil()
    made = render(data, Page(1))
    assert made.media_type == "image/jpeg"
    drawn = opened(made)
    assert drawn.size == original.size
    assert max(ImageStat.Stat(ImageChops.difference(drawn, original)).mean) < 2
    exact = opened(render(data, Page(1, formats=("image/png",)))).convert("RGB")
    assert max(high for _, high in ImageChops.difference(exact, original).getextrema()) <= 8


def test_a_photograph_becomes_a_jpeg_and_keeps_its_colors():
    image = opened(render(made_pdfs.photo_page().read_bytes(), Page(1)))

    assert image.format == "JPEG"
    assert image.mode == "RGB"


@pytest.mark.parametrize("sample", [made_pdfs.photo_page, made_pdfs.chromium_report, made_pdfs.libreoffice_letter])
@pytest.mark.parametrize("media_type", ["image/png", "image/jpeg", "image/webp"])
def test_a_page_fits_the_side_the_bytes_and_the_format_that_are_asked_for(sample, media_type):
    recipe = Page(1, max_side_px=700, max_encoded_bytes=60_000, formats=(media_type,))

    drawn = render(sample().read_bytes(), recipe)

    assert max(opened(drawn).size) <= 700
    assert len(base64.b64encode(drawn.data)) <= 60_000
    assert drawn.media_type == media_type


def test_a_page_that_fits_nowhere_or_does_not_exist_is_a_typed_error():
    photo = made_pdfs.photo_page().read_bytes()

    with pytest.raises(TooLarge, match="cannot be rendered within 100 bytes"):
        render(photo, Page(1, max_encoded_bytes=100))
    with pytest.raises(Unsupported, match="page 2 does not exist"):
        render(photo, Page(2))
    with pytest.raises(Unsupported, match="image/gif"):
        render(photo, Page(1, formats=("image/gif",)))


@pytest.mark.parametrize(
    "box", ["0 0 14400 14400", "0 0 14400 20", "0 0 3 14400", "0 0 0 0", "9 9 -4 -4", "0 0 1e30 1"]
)
def test_a_page_of_any_size_is_drawn_within_the_limit(box):
    data = made_pdfs.text_page("tiny words", media_box=box)

    image = opened(render(data, Page(1)))

    assert 1 <= max(image.size) <= 2048
    assert max(opened(render(data, Thumb(64))).size) <= 64


def test_a_thumbnail_shows_the_first_page_small():
    image = opened(render(made_pdfs.chromium_report().read_bytes(), Thumb(128)))

    assert max(image.size) == 128


def test_pictures_are_listed_once_and_come_out_as_they_were_stored():
    data = made_pdfs.joined_pdf().read_bytes()

    found = inspect_pdf(data, "joined.pdf", LIMITS).pictures

    assert [(picture.number, picture.page, picture.media_type) for picture in found] == [
        (1, 1, "image/jpeg"),
        (2, 13, "image/jpeg"),
    ]
    assert opened(render(data, EmbeddedImage(1))).size == (900, 1200)
    assert opened(render(data, EmbeddedImage(2))).size == (640, 480)
    with pytest.raises(Unsupported, match="contains 2 images; image 3 does not exist"):
        render(data, EmbeddedImage(3))


def test_a_picture_that_is_not_a_jpeg_comes_out_as_png():
    image = opened(render(made_pdfs.libreoffice_letter().read_bytes(), EmbeddedImage(1)))

    assert image.size == (320, 200)


def test_an_encrypted_pdf_says_that_it_needs_a_password():
    with pytest.raises(Encrypted, match=r"secret\.pdf needs a password") as caught:
        inspect_pdf(made_pdfs.encrypted_pdf("sesame").read_bytes(), "secret.pdf", LIMITS)

    assert caught.value.name == "secret.pdf"
    assert caught.value.hint


def test_a_pdf_over_the_limit_is_refused_unread():
    with pytest.raises(TooLarge, match=r"big\.pdf is 3 KB; the limit for PDFs is 2 KB"):
        inspect_pdf(b"%PDF" + bytes(2996), "big.pdf", IntakeLimits(max_pdf_bytes=2000))


NO_PAGES = made_pdfs.assemble([b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[]/Count 0>>"])
LOOP = made_pdfs.assemble([b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[2 0 R 2 0 R]/Count 2>>"])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"%PDF-1.7\n",
        b"hello" * 300,
        b"%PDF-1.7\n" + bytes(range(256)) * 400,
        NO_PAGES,
        LOOP,
        b"<html>not one</html>",
    ],
    ids=["empty", "header-only", "text", "garbage", "no-pages", "loop", "html"],
)
def test_what_is_no_pdf_is_unreadable(data):
    with pytest.raises(Unreadable, match=r"fake\.pdf") as caught:
        inspect_pdf(data, "fake.pdf", LIMITS)

    assert "0x" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_document_that_claims_a_million_pages_says_that_they_are_not_there():
    data = made_pdfs.assemble(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[3 0 R]/Count 50000>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]>>",
        ]
    )

    assert "cannot be read" in inspect_pdf(data, "liar.pdf", LIMITS).notices[0]
    assert text_of(data) == "[page 1: no text layer]\n\n[pages 2-50000: cannot be read]\n"


@pytest.mark.parametrize("sample", [made_pdfs.chromium_report, made_pdfs.object_streams, made_pdfs.linearized_pdf])
def test_damage_gives_a_sane_result_or_a_typed_error(sample):
    whole = sample().read_bytes()
    chance = random.Random(20_24)
    damaged = [whole[: len(whole) * tenth // 11] for tenth in range(1, 11)]
    for hits in range(1, 11):
        bent = bytearray(whole)
        for _ in range(hits * hits):
            at = chance.randrange(len(bent) - 20)
            bent[at : at + 20] = chance.randbytes(20)
        damaged.append(bytes(bent))
    outcomes = [_tried(data) for data in damaged]

    assert len(outcomes) == 20
    assert any(outcomes), "at least the lightly damaged ones can be read"


def _tried(data: bytes) -> bool:
    try:
        found = inspect_pdf(data, "sample.pdf", LIMITS)
        assert found.media.pages
        assert found.media.pages >= 1
        assert text_of(data, "1-3").startswith("[page")
        opened(render(data, Thumb()))
        return render(data, Slice("1-2")).data.startswith(b"%PDF")
    except MediaError:
        return False


def test_a_drawing_of_a_million_strokes_ends_at_the_deadline_and_the_next_job_works():
    limits = IntakeLimits(deadline_seconds=1.5)
    bomb = made_pdfs.operator_bomb(1_000_000)
    began = time.monotonic()

    with pytest.raises(TooLarge, match=r"sample\.pdf takes longer than 1\.5 s"):
        render(bomb, Page(1), limits)

    assert time.monotonic() - began < PATIENCE_SECONDS
    assert "after" in text_of(made_pdfs.text_page("after"))


@pytest.mark.parametrize(
    "bomb",
    [lambda: made_pdfs.deflate_bomb(600), lambda: made_pdfs.nested_deflate_bomb(5)],
    ids=["deflate", "nested-deflate"],
)
def test_a_bomb_is_too_large_and_this_process_does_not_grow(bomb):
    data = bomb()
    before = _resident_bytes()

    for recipe in (Text(), Page(1)):
        with pytest.raises(TooLarge):
            render(data, recipe, IntakeLimits(worker_memory_bytes=400_000_000))

    assert _resident_bytes() - before < 200_000_000
    assert "after" in text_of(made_pdfs.text_page("after"))


def test_a_picture_of_a_billion_pixels_is_not_taken_out():
    data = made_pdfs.picture_bomb(20_000)

    assert inspect_pdf(data, "bomb.pdf", LIMITS).pictures[0].width == 20_000
    with pytest.raises(TooLarge, match="20000×20000"):
        render(data, EmbeddedImage(1))


def _resident_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def test_twenty_pages_of_a_thousand_cost_what_twenty_pages_cost(tmp_path):
    data = made_pdfs.ghostscript_book(1000).read_bytes()
    found = inspect_pdf(data, "book.pdf", LIMITS)

    def seconds(pages: str) -> float:
        began = time.perf_counter()
        render(data, Text(pages))
        return time.perf_counter() - began

    few = min(seconds("1-20") for _ in range(5))
    many = min(seconds("1-200") for _ in range(3))

    assert found.media.pages == 1000
    assert found.pages_examined == 20
    assert few * 4 < many
    cut = render(data, Slice("501-520"))
    count, words = poppler_says(cut.data, tmp_path)
    assert (count, cut.pages) == (20, 20)
    assert "Page number 501\n" in words
    assert len(cut.data) < len(data) / 10
