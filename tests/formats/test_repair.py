"""Damaged PDFs at the door: what can be saved is used and said so; what cannot is refused as before."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from formats import made_pdfs
from loom.content.blocks import DocumentBlock
from loom.content.media import digest_of
from loom.content.recipes import Page, Text
from loom.errors import TooLarge, Unreadable
from loom.formats import inspect, render
from loom.formats.facts import IntakeLimits
from loom.formats.intake import Accepted, accept
from loom.formats.pdf.repair import repair_pdf
from patience import PATIENCE_SECONDS


def without_root(data: bytes) -> bytes:
    """The trailer does not tell any more where the document begins; nothing else is changed."""
    bent = re.sub(rb"/Root (\d+)", rb"/Roof \1", data)
    assert bent != data
    return bent


def document(admitted: Accepted) -> DocumentBlock:
    assert isinstance(admitted.block, DocumentBlock)
    return admitted.block


def pages_of_a_sound_pdf(data: bytes, tmp_path: Path) -> int:
    """As poppler counts them; qpdf reads every stream and ends with an error where something is wrong."""
    file = tmp_path / "kept.pdf"
    file.write_bytes(data)
    subprocess.run(["qpdf", "--check", str(file)], check=True, capture_output=True)
    facts = subprocess.run(["pdfinfo", str(file)], check=True, capture_output=True, text=True)
    assert not facts.stderr
    return int(facts.stdout.split("Pages:")[1].split()[0])


@pytest.mark.parametrize(
    ("sample", "pages", "words"),
    [
        (made_pdfs.libreoffice_letter, 1, ["Schöne Grüße", "42.50"]),
        (lambda: made_pdfs.ghostscript_book(30), 30, ["Page number 1\n", "Page number 30\n"]),
        (made_pdfs.chromium_report, 12, ["walnut11", "The end"]),
    ],
)
def test_a_pdf_that_pdfium_refuses_is_rebuilt_and_kept_so(
    sample: Callable[[], Path], pages: int, words: list[str], tmp_path: Path
) -> None:
    damaged = without_root(sample().read_bytes())
    with pytest.raises(Unreadable):
        inspect(damaged, "bent.pdf")

    admitted = accept(damaged, "bent.pdf")

    noun = "1 page" if pages == 1 else f"{pages} pages"
    said = f"bent.pdf is damaged: the recovered part ({noun}) is used; more may be missing."
    assert admitted.notices[0] == said
    media, kept = document(admitted).media, admitted.data
    assert kept is not None
    assert (media.digest, media.pages, media.name) == (digest_of(kept), pages, "bent.pdf")
    text = render(kept, media, Text()).data.decode()
    assert all(word in text for word in words)
    assert render(kept, media, Page(number=pages)).width
    assert pages_of_a_sound_pdf(kept, tmp_path) == pages


@pytest.mark.parametrize(
    ("sample", "pages", "words"),
    [
        (made_pdfs.libreoffice_letter, 1, ["Schöne Grüße", "42.50"]),
        (lambda: made_pdfs.ghostscript_book(30), 30, ["Page number 1\n", "Page number 30\n"]),
        (made_pdfs.chromium_report, 12, ["walnut11", "The end"]),
        (made_pdfs.object_streams, 30, ["Page number 1\n", "Page number 30\n"]),
    ],
)
def test_a_pdf_that_lacks_its_end_loses_no_page(
    sample: Callable[[], Path], pages: int, words: list[str], tmp_path: Path
) -> None:
    whole = sample().read_bytes()
    for lost_bytes in (30, 60, 103, 150):
        admitted = accept(whole[:-lost_bytes], "cut.pdf")

        assert "cut.pdf is damaged" in admitted.notices[0]
        assert admitted.data is not None
        assert pages_of_a_sound_pdf(admitted.data, tmp_path) == document(admitted).media.pages == pages
        text = render(admitted.data, document(admitted).media, Text()).data.decode()
        assert all(word in text for word in words)


@pytest.mark.parametrize(
    ("damage", "pages"),
    [
        (lambda whole: whole[: len(whole) // 2], 5),
        (lambda whole: re.sub(rb"/Pages \d+ 0 R", b"/Pages 999 0 R", whole), 30),
        (lambda whole: re.sub(rb"/Kids\s*\[[^]]*\]", b"/Kids[]", whole), 30),
    ],
    ids=["cut-in-half", "no-tree", "empty-tree"],
)
def test_pages_that_nothing_leads_to_are_found(damage: Callable[[bytes], bytes], pages: int, tmp_path: Path) -> None:
    damaged = damage(made_pdfs.ghostscript_book(30).read_bytes())

    admitted = accept(damaged, "book.pdf")

    assert admitted.data is not None
    assert pages_of_a_sound_pdf(admitted.data, tmp_path) == document(admitted).media.pages == pages
    text = render(admitted.data, document(admitted).media, Text()).data.decode()
    assert re.findall(r"Page number (\d+)", text) == [str(number) for number in range(1, pages + 1)]


def test_a_page_that_is_found_keeps_what_its_tree_said_about_it(tmp_path: Path) -> None:
    whole = made_pdfs.assemble(
        [
            b"<</Type/Pages/Kids[2 0 R]/Count 1/MediaBox[0 0 200 100]/Resources<</Font<</F1 4 0 R>>>>>>",
            b"<</Type/Page/Parent 1 0 R/Contents 3 0 R>>",
            made_pdfs.stream(b"BT /F1 24 Tf 40 50 Td (walnut) Tj ET"),
            b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        ]
    )

    admitted = accept(whole, "tree.pdf")

    assert admitted.data is not None
    assert pages_of_a_sound_pdf(admitted.data, tmp_path) == 1
    media = document(admitted).media
    assert "walnut" in render(admitted.data, media, Text()).data.decode()
    drawn = render(admitted.data, media, Page(number=1))
    assert (drawn.width, drawn.height) == (417, 209)


def test_what_is_left_of_a_stream_that_was_cut_is_packed_anew(tmp_path: Path) -> None:
    whole = made_pdfs.object_streams().read_bytes()

    kept = repair_pdf(whole[: len(whole) * 9 // 10])

    assert kept is not None
    assert pages_of_a_sound_pdf(kept, tmp_path) == 30


def test_an_encrypted_pdf_that_lost_its_key_is_refused() -> None:
    assert repair_pdf(made_pdfs.encrypted_pdf("").read_bytes()[:-60]) is None


def test_what_is_broken_beside_the_pages_does_not_cost_them() -> None:
    """A list of bookmarks that ends in the middle: the document cannot be copied as a whole, its pages can."""
    whole = made_pdfs.assemble(
        [
            b"<</Type/Catalog/Pages 2 0 R/Outlines 6 0 R>>",
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
            made_pdfs.stream(b"BT /F1 24 Tf 40 700 Td (walnut) Tj ET"),
            b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
            b"[1 2 /",
        ]
    )
    damaged = without_root(whole)

    admitted = accept(damaged, "bookmarks.pdf")

    assert admitted.data is not None
    assert b"Outlines" not in admitted.data
    assert "walnut" in render(admitted.data, document(admitted).media, Text()).data.decode()


def test_a_pdf_of_which_only_blank_pages_are_left_is_refused() -> None:
    empty = made_pdfs.assemble(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]>>",
        ]
    )
    damaged = without_root(empty)
    assert repair_pdf(damaged) is not None

    with pytest.raises(Unreadable, match=r"blank\.pdf is not a PDF that can be read"):
        accept(damaged, "blank.pdf")


def test_what_cannot_be_rebuilt_is_refused_as_before(caplog: pytest.LogCaptureFixture) -> None:
    whole = made_pdfs.chromium_report().read_bytes()
    for damaged in (whole[: len(whole) // 2], b"%PDF-1.7\n" + b"nothing of the kind " * 50):
        with pytest.raises(Unreadable, match=r"cut\.pdf is not a PDF that can be read"):
            accept(damaged, "cut.pdf")
    assert not caplog.records, "that a broken file is broken is no news for the log"


@pytest.mark.parametrize("trailer", [b"trailer<</Root 1 0 R>>\nstartxref\n5\n%%EOF\n", b""], ids=["whole", "cut"])
def test_a_file_that_takes_too_long_to_rebuild_is_refused_in_time(trailer: bytes) -> None:
    """Hundreds of thousands of objects that have to be looked for one by one."""
    rows = b"".join(b"%d 0 obj<</Kids[%d 0 R]/Count 9/Type/Pages>>endobj\n" % (n, n + 1) for n in range(1, 300_000))
    damaged = b"%PDF-1.4\n" + rows + trailer
    began = time.monotonic()
    with pytest.raises((Unreadable, TooLarge)):
        accept(damaged, "long.pdf", limits=IntakeLimits(deadline_seconds=3))
    assert time.monotonic() - began < PATIENCE_SECONDS

    assert accept(without_root(made_pdfs.libreoffice_letter().read_bytes()), "next.pdf").notices
