"""Office files at the door: facts, limits, legacy formats, pages through LibreOffice, words for failures."""

from __future__ import annotations

import io
import threading

import pytest
from PIL import Image

from formats.made_office import (
    DOC,
    DOCX,
    LIMITS,
    PPT,
    PPTX,
    XLSX,
    container,
    deck,
    oracle_docx,
    paragraph,
    png,
    relations,
    story,
    text_of,
    word,
)
from loom.content.media import Media, digest_of
from loom.content.recipes import EmbeddedImage, Page, Slice, Text, Thumb
from loom.errors import Encrypted, TooLarge, Unreadable, Unsupported
from loom.formats.facts import IntakeLimits
from loom.formats.office import inspect_office, render_office
from loom.formats.office.ooxml import MAX_PICTURES
from loom.formats.office.ppt import count_slides
from loom.formats.sniff import sniff


def media_of(data: bytes, media_type: str, name: str = "") -> Media:
    return Media(digest=digest_of(data), media_type=media_type, size_bytes=len(data), name=name)


def test_inspecting_tells_what_a_document_is() -> None:
    found = inspect_office(oracle_docx().read_bytes(), DOCX, "harvest.docx", LIMITS)
    assert found.category == "office"
    assert found.media.media_type == DOCX
    assert found.media.name == "harvest.docx"
    assert found.media.pages is None
    assert found.media.digest == digest_of(oracle_docx().read_bytes())
    assert [(p.number, p.width, p.height) for p in found.pictures] == [(1, 40, 30)]
    assert found.notices == ()


def test_types_that_the_sniffer_gives_are_those_that_are_read() -> None:
    for data, name in (
        (story("docx"), "a.docx"),
        (story("odt"), "a.odt"),
        (deck("odp"), "a.odp"),
        (story("doc"), "a.doc"),
    ):
        kind = sniff(data, name)
        assert kind.category == "office"
        inspect_office(data, kind.media_type, name, LIMITS)


def test_macros_are_ignored_and_that_is_said() -> None:
    data = word(paragraph("text"), parts={"word/vbaProject.bin": b"macro"})
    kind = "application/vnd.ms-word.document.macroenabled.12"
    assert inspect_office(data, kind, "a.docm", LIMITS).notices == ("Its macros were ignored.",)
    assert text_of(data, kind) == "text"


def test_a_file_over_the_limit_is_refused_before_it_is_opened() -> None:
    with pytest.raises(TooLarge, match=r"big\.docx is 2 KB; the limit for office files is 1 KB") as caught:
        inspect_office(bytes(2_000), DOCX, "big.docx", IntakeLimits(max_office_bytes=1_000))
    assert caught.value.name == "big.docx"


def test_pictures_are_listed_up_to_a_bound_and_the_rest_is_said() -> None:
    count = MAX_PICTURES + 3
    body = "".join(f'<w:p><w:r><w:drawing><a:blip r:embed="p{n}"/></w:drawing></w:r></w:p>' for n in range(count))
    data = word(
        body,
        parts={f"word/media/{n}.png": png() for n in range(count)},
        relates=tuple((f"p{n}", "image", f"media/{n}.png") for n in range(count)),
    )
    found = inspect_office(data, DOCX, "", LIMITS)
    assert len(found.pictures) == MAX_PICTURES
    assert found.notices == (f"Only the first {MAX_PICTURES} images are listed.",)
    assert text_of(data, DOCX).splitlines()[-1] == "[image]"


def test_a_damaged_picture_keeps_its_number_and_does_not_cost_the_document() -> None:
    body = "".join(f'<w:p><w:r><w:drawing><a:blip r:embed="p{n}"/></w:drawing></w:r></w:p>' for n in range(2))
    relates = (("p0", "image", "media/0.png"), ("p1", "image", "media/1.png"))
    data = word(body, parts={"word/media/0.png": b"no picture", "word/media/1.png": png()}, relates=relates)
    assert [p.media_type for p in inspect_office(data, DOCX, "", LIMITS).pictures] == ["text/plain", "image/png"]
    assert render_office(data, media_of(data, DOCX), EmbeddedImage(1), LIMITS).data == b"no picture"


@pytest.mark.parametrize(("kind", "media_type"), [("doc", DOC), ("ppt", PPT)])
def test_legacy_files_are_taken_in_without_libreoffice_and_read_with_it(kind: str, media_type: str) -> None:
    data = story("doc") if kind == "doc" else deck("ppt")
    found = inspect_office(data, media_type, f"old.{kind}", LIMITS)
    assert found.media.pages == (None if kind == "doc" else 6)
    text = render_office(data, found.media, Text(), LIMITS).data.decode()
    assert ("# The orchard" if kind == "doc" else "# Title1 of the talk") in text
    assert render_office(data, found.media, EmbeddedImage(1), LIMITS).media_type.startswith("image/")


def test_a_presentation_of_before_2007_tells_how_many_slides_it_has() -> None:
    data = deck("ppt")
    slides = inspect_office(deck("pptx"), PPTX, "a.pptx", LIMITS).media.pages
    assert inspect_office(data, PPT, "a.ppt", LIMITS).media.pages == slides
    assert text_of(data, PPT).count("[slide ") == slides
    for at in range(0, len(data), 101):
        spoilt = data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        count_slides(spoilt)  # None or a number, whatever is broken


def test_a_legacy_file_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(Unreadable, match="its main part is missing"):
        inspect_office(b"<html>not a document</html>", DOC, "a.doc", LIMITS)
    with pytest.raises(Encrypted):
        inspect_office(deck("ppt") + "EncryptedSummary".encode("utf-16-le"), PPT, "a.ppt", LIMITS)


def test_a_type_that_is_no_office_type_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"a\.rtf \(text/rtf\) is not an office file"):
        inspect_office(b"{rtf1}", "text/rtf", "a.rtf", LIMITS)
    data = word(paragraph("x"))
    with pytest.raises(Unsupported, match="has no images; image 1 does not exist"):
        render_office(data, media_of(data, DOCX), EmbeddedImage(1), LIMITS)


def test_pages_thumbs_and_slices_are_drawn_by_libreoffice_once_for_all_who_ask() -> None:
    data = deck("pptx")
    media = inspect_office(data, PPTX, "talk.pptx", LIMITS).media
    made: list[bytes] = []

    def draw(number: int) -> None:
        made.append(render_office(data, media, Page(number, dpi=40), LIMITS).data)

    threads = [threading.Thread(target=draw, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 3
    for data_of_page in made:
        with Image.open(io.BytesIO(data_of_page)) as picture:
            assert picture.width > picture.height > 100
    thumb = render_office(data, media, Thumb(64), LIMITS)
    assert max(thumb.width or 0, thumb.height or 0) == 64
    assert render_office(data, media, Slice("2-3"), LIMITS).data.startswith(b"%PDF")


def test_a_document_with_macros_is_drawn_as_what_it_is_built_like() -> None:
    data = oracle_docx().read_bytes()
    media = media_of(data, "application/vnd.ms-word.document.macroenabled.12", "a.docm")
    assert render_office(data, media, Thumb(64), LIMITS).media_type.startswith("image/")


def test_errors_name_the_file_and_never_a_place_on_this_machine() -> None:
    for data, kind in ((b"PK", DOCX), (container({"a": b"b"}), PPTX), (container({"xl/workbook.xml": b"<"}), XLSX)):
        with pytest.raises(Unreadable) as caught:
            inspect_office(data, kind, "my file", LIMITS)
        assert "my file" in str(caught.value)
        assert caught.value.name == "my file"
        assert "/" not in str(caught.value).replace("word/document.xml", "")


def test_external_parts_are_never_followed() -> None:
    outside = relations(("r1", "officeDocument", "http://127.0.0.1:9/evil.xml"), external="officeDocument")
    with pytest.raises(Unreadable, match="does not match its file type"):
        text_of(container({"_rels/.rels": outside}), DOCX)
    template = relations(("r9", "attachedTemplate", "http://127.0.0.1:9/t.dotm"), external="attachedTemplate")
    data = word(paragraph("still here"), parts={"word/_rels/settings.xml.rels": template})
    assert text_of(data, DOCX) == "still here"
