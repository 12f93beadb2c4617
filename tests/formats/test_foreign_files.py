"""Files of other programs: read through LibreOffice or ffmpeg where those can, else named with what to do."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from pathlib import Path

import docx
import openpyxl
import pptx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.made_pdfs import make_sample, run
from loom.content.blocks import AudioBlock, DocumentBlock
from loom.content.recipes import Page, Text
from loom.errors import Unreadable, Unsupported
from loom.formats import render
from loom.formats.intake import accept
from loom.formats.office import is_spreadsheet
from loom.formats.sniff import sniff

WORDS = "The valve opened at 42 degrees"


def written_by_libreoffice(suffix: str) -> bytes:
    """A letter, a sheet or a slide that LibreOffice has saved with this suffix."""

    def build(path: Path) -> None:
        source = path.with_name(f"foreign-{suffix}.{SOURCES[suffix]}")
        match SOURCES[suffix]:
            case "docx":
                document = docx.Document()
                document.add_heading("Report", 1)
                document.add_paragraph(WORDS)
                document.save(str(source))
            case "xlsx":
                book = openpyxl.Workbook()
                book.worksheets[0].append([WORDS, 0.25])
                book.worksheets[0]["B1"].number_format = "0.00%"
                book.save(source)
            case "svg":
                text = f'<text x="20" y="60" font-size="20">{WORDS}</text>'
                source.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="400" height="100">{text}</svg>')
            case _:
                deck = pptx.Presentation()
                deck.slides.add_slide(deck.slide_layouts[5]).shapes.title.text = WORDS
                deck.save(str(source))
        profile = f"-env:UserInstallation={path.with_name(f'profile-{suffix}').as_uri()}"
        run("soffice", "--headless", "--norestore", profile, "--convert-to", suffix, source.name, cwd=path.parent)
        source.with_suffix(f".{suffix}").rename(path)

    return make_sample(f"foreign.{suffix}", build).read_bytes()


SOURCES = {"fodt": "docx", "fods": "xlsx", "fodp": "pptx", "odg": "svg"}


@pytest.mark.parametrize("suffix", SOURCES)
def test_a_file_that_only_libreoffice_reads_is_read_through_it(suffix: str) -> None:
    data = written_by_libreoffice(suffix)

    accepted = accept(data, f"report.{suffix}")

    assert isinstance(accepted.block, DocumentBlock)
    media = accepted.block.media
    if suffix == "odg":  # what must be seen is kept in a form that models see
        assert media.media_type == "application/pdf"
        assert any("kept as a PDF" in notice for notice in accepted.notices)
        data = accepted.data or b""
    else:
        assert accepted.data == data, "the file itself is kept"
        assert any("read through LibreOffice" in notice for notice in accepted.notices)
    text = render(data, media, Text()).data.decode()
    assert WORDS in text
    assert "<office" not in text
    assert render(data, media, Page(1)).media_type.startswith("image/")
    if suffix == "fodt":
        assert "# Report" in text
    if suffix == "fods":
        assert "25.00%" in text
        assert is_spreadsheet(media.media_type)


@pytest.mark.parametrize("suffix", SOURCES)
def test_a_foreign_file_that_is_cut_off_is_refused_at_the_door(suffix: str) -> None:
    data = written_by_libreoffice(suffix)

    with pytest.raises((Unreadable, Unsupported)) as raised:
        accept(data[: len(data) // 3], f"report.{suffix}")
    assert f"report.{suffix}" in str(raised.value)


NAMED = {
    "an Access database": b"\0\1\0\0Standard Jet DB\0" + bytes(200),
    "a OneNote section": bytes.fromhex("e4525c7b8cd8a74daeb15378d02996d3") + bytes(200),
    "an Outlook mailbox": b"!BDN" + bytes(200),
    "a compiled help file": b"ITSF\3\0\0\0" + bytes(200),
    "an AutoCAD drawing": b"AC1027\0\0\0" + bytes(200),
    "NetCDF data": b"CDF\1" + bytes(200),
    "HDF4 data": b"\x0e\3\x13\1" + bytes(200),
    "GRIB weather data": b"GRIB\0\0\0\2" + bytes(200),
    "FITS data": b"SIMPLE  =                    T".ljust(80) + b"BITPIX  =".ljust(80) + bytes(9_000),
    "MATLAB data": b"MATLAB 5.0 MAT-file, Platform: GLNXA64".ljust(124) + b"\0\1IM" + bytes(100),
    "an Outlook winmail.dat file": b"\x78\x9f\x3e\x22" + bytes(100),
    "a compress archive": b"\x1f\x9d\x90" + bytes(100),
}


@pytest.mark.parametrize("label", NAMED)
def test_a_kind_that_nothing_reads_is_named_with_what_to_do(label: str) -> None:
    with pytest.raises(Unsupported) as raised:
        accept(NAMED[label], "file.bin")

    assert label in raised.value.message
    assert raised.value.hint
    assert "unknown" not in raised.value.message


@given(st.text("abcdefghij \n", min_size=9_000, max_size=20_000), st.integers(10, 90))
def test_what_begins_as_text_and_goes_on_as_binary_is_never_shown_as_text(text: str, share: int) -> None:
    binary = bytes(range(128, 256)) * (1 + len(text) * share // (128 * 25))
    data = text.encode() + binary

    try:
        shown = str(accept(data, "data.txt").block)
    except Unreadable:
        shown = ""
    assert shown.count("\ufffd") <= 0.1 * len(shown)


@pytest.mark.parametrize("codec", ["gb18030", "cp932", "big5", "utf-8", "cp866"])
def test_names_inside_an_archive_are_read_in_the_encoding_they_were_packed_in(codec: str) -> None:
    names = {
        "gb18030": ["审计报告/集团邮件审计系统需求文档.doc", "二〇二一年自动巡检.txt"],
        "cp932": ["報告書/会議の議事録とまとめ.doc", "写真のリスト.txt"],
        "big5": ["報告/會議記錄與總結說明文件.doc", "圖片清單說明.txt"],
        "utf-8": ["résumé/für Köln.doc"],
        "cp866": ["Отчёты/Протокол совещания отдела.doc", "Список фотографий.txt"],
    }[codec]
    data = without_utf8_flag(names, codec)

    accepted = accept(data, "a.zip")

    assert isinstance(accepted.block, DocumentBlock)
    text = render(data, accepted.block.media, Text()).data.decode()
    for name in names:
        assert name in text


def without_utf8_flag(names: list[str], codec: str) -> bytes:
    """An archive as programs write it that do not know of Unicode."""

    class OldEntry(zipfile.ZipInfo):
        def _encodeFilenameFlags(self) -> tuple[bytes, int]:  # noqa: N802 - the name in zipfile
            return self.filename.encode(codec), self.flag_bits

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(OldEntry(name), "x")
    return buffer.getvalue()


SOUNDS = {
    "aiff": ["-c:a", "pcm_s16be"],
    "au": ["-c:a", "pcm_s16be"],
    "wma": ["-c:a", "wmav2"],
    "webm": ["-c:a", "libopus"],
}


@pytest.mark.parametrize("suffix", SOUNDS)
def test_sound_that_no_model_takes_is_kept_as_mp3(suffix: str) -> None:
    def build(path: Path) -> None:
        tone = ["-f", "lavfi", "-i", "sine=frequency=440:duration=2"]
        run("ffmpeg", "-v", "error", *tone, *SOUNDS[suffix], path.name, cwd=path.parent)

    data = make_sample(f"tone.{suffix}", build).read_bytes()

    accepted = accept(data, f"tone.{suffix}")

    assert isinstance(accepted.block, AudioBlock)
    assert accepted.block.media.media_type == "audio/mpeg"
    assert accepted.block.media.duration_seconds == pytest.approx(2, abs=0.2)
    assert accepted.notices == (f"tone.{suffix} {LABELS[suffix]}: it is kept as MP3.",)


NO_IMAGES = "contains sound and no images"
LABELS = {"aiff": "is AIFF audio", "au": "is Sun audio", "wma": NO_IMAGES, "webm": NO_IMAGES}


def test_aac_behind_a_tag_is_aac() -> None:
    def build(path: Path) -> None:
        tone = ["-f", "lavfi", "-i", "sine=frequency=440:duration=1"]
        run("ffmpeg", "-v", "error", *tone, "-c:a", "aac", "-f", "adts", path.name, cwd=path.parent)

    plain = make_sample("tone.aac", build).read_bytes()
    tag = b"ID3\4\0\0\0\0\0\x0a" + bytes(10)

    assert sniff(tag + plain, "tone.aac").media_type == "audio/aac"
    assert isinstance(accept(tag + plain, "tone.aac").block, AudioBlock)


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz"])
@pytest.mark.parametrize("lines", [3, 5_000])
def test_a_compressed_text_is_shown_as_its_text(suffix: str, lines: int) -> None:
    pack = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[suffix]
    data = pack("".join(f"row {number},{WORDS}\n" for number in range(lines)).encode())

    accepted = accept(data, f"rows.csv.{suffix}")

    assert isinstance(accepted.block, DocumentBlock)
    media = accepted.block.media
    text = render(data, media, Text()).data.decode()
    assert text.startswith("[compressed file: rows.csv, ")
    for number in range(lines):
        assert f"row {number}," in text
    if lines > 1_000:
        assert (media.pages or 0) > 1
        assert "row 0," in render(data, media, Text("1")).data.decode()


def test_a_mail_of_apple_mail_is_a_mail() -> None:
    mail = f"From: a@example.org\nTo: b@example.org\nSubject: Valve\n\n{WORDS}\n".encode()
    data = b"%-10d\n" % len(mail) + mail + b'<?xml version="1.0"?><plist><dict><key>flags</key></dict></plist>'

    accepted = accept(data, "1.emlx")

    assert isinstance(accepted.block, DocumentBlock)
    text = render(data, accepted.block.media, Text()).data.decode()
    assert "Subject: Valve" in text
    assert WORDS in text
    assert "plist" not in text
