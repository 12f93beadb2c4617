"""What kind of file is this? A matrix of real files under right, wrong and no extension, with libmagic beside us."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import py_compile
import random
import sqlite3
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import docx
import magic
import openpyxl
import pptx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from formats.made_images import IMAGE_TYPES, SOUND_TYPES, VIDEO_TYPES, sample
from loom.errors import Encrypted
from loom.formats import inspect
from loom.formats.sniff import sniff
from loom.formats.sniff.kinds import KINDS, category_of
from made import make_sample, run

OOXML = "application/vnd.openxmlformats-officedocument."
ODF = "application/vnd.oasis.opendocument."
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><circle r="4"/></svg>'
PROSE = "The quick brown fox jumps over the lazy dog, twice.\nThen it sleeps.\n" * 4


def archive(*members: tuple[str, str], stored: bool = False) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED) as container:
        for name, text in members:
            container.writestr(name, text)
    return file.getvalue()


def office(document: object) -> bytes:
    file = io.BytesIO()
    document.save(file)  # type: ignore[attr-defined]
    return file.getvalue()


def legacy(extension: str, source: Callable[[], bytes], suffix: str) -> bytes:
    """A file of Office 97, written by LibreOffice."""

    def build(path: Path) -> None:
        before = path.with_suffix(f".{suffix}")
        before.write_bytes(source())
        profile = path.with_name("profile").as_uri()
        convert = ("--headless", "--norestore", "--nolockcheck", "--convert-to", extension, "--outdir", path.parent)
        run("soffice", f"-env:UserInstallation={profile}", *convert, before)

    return make_sample(f"legacy.{extension}", build).read_bytes()


def with_macros(data: bytes, folder: str, *, binary: bool = False) -> bytes:
    file = io.BytesIO(data)
    with zipfile.ZipFile(file, "a") as container:
        container.writestr(f"{folder}/workbook.bin" if binary else f"{folder}/vbaProject.bin", b"macros")
    return file.getvalue()


def word() -> bytes:
    document = docx.Document()
    document.add_paragraph("Hello")
    return office(document)


def slides() -> bytes:
    return office(pptx.Presentation())


def sheet() -> bytes:
    return office(openpyxl.Workbook())


def opendocument(kind: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as container:
        container.writestr(zipfile.ZipInfo("mimetype"), ODF + kind)
        container.writestr("content.xml", "<office/>", zipfile.ZIP_DEFLATED)
    return file.getvalue()


def tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as container:
        container.addfile(tarfile.TarInfo("empty.txt"))
    return file.getvalue()


def database() -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t (x)")
    data = connection.serialize()
    connection.close()
    return data


def pdf(junk: bytes = b"") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (20, 20), "red").save(file, "PDF")
    return junk + file.getvalue()


def bytecode() -> bytes:
    def build(path: Path) -> None:
        source = path.with_suffix(".py")
        source.write_text("x = 1\n")
        py_compile.compile(str(source), str(path), doraise=True)

    return make_sample("module.pyc", build).read_bytes()


def sample_jp2() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (20, 20), "red").save(file, "JPEG2000")
    return file.getvalue()


FILES: dict[str, tuple[str, Callable[[], bytes]]] = {
    **{
        name: (kind, lambda name=name: sample(name)) for name, kind in (IMAGE_TYPES | SOUND_TYPES | VIDEO_TYPES).items()
    },
    "doc.pdf": ("application/pdf", pdf),
    "late.pdf": ("application/pdf", lambda: pdf(b"\xef\xbb\xbfHTTP/1.1 200 OK\r\n\r\n" + b"x" * 900)),
    "a.docx": (OOXML + "wordprocessingml.document", word),
    "a.pptx": (OOXML + "presentationml.presentation", slides),
    "a.xlsx": (OOXML + "spreadsheetml.sheet", sheet),
    "a.docm": ("application/vnd.ms-word.document.macroenabled.12", lambda: with_macros(word(), "word")),
    "a.pptm": ("application/vnd.ms-powerpoint.presentation.macroenabled.12", lambda: with_macros(slides(), "ppt")),
    "a.xlsm": ("application/vnd.ms-excel.sheet.macroenabled.12", lambda: with_macros(sheet(), "xl")),
    "a.xlsb": (
        "application/vnd.ms-excel.sheet.binary.macroenabled.12",
        lambda: with_macros(sheet(), "xl", binary=True),
    ),
    "a.odt": (ODF + "text", lambda: opendocument("text")),
    "a.odp": (ODF + "presentation", lambda: opendocument("presentation")),
    "a.ods": (ODF + "spreadsheet", lambda: opendocument("spreadsheet")),
    "a.doc": ("application/msword", lambda: legacy("doc", word, "docx")),
    "a.xls": ("application/vnd.ms-excel", lambda: legacy("xls", sheet, "xlsx")),
    "a.ppt": ("application/vnd.ms-powerpoint", lambda: legacy("ppt", slides, "pptx")),
    "a.epub": (
        "application/epub+zip",
        lambda: archive(("mimetype", "application/epub+zip"), ("a.opf", "x"), stored=True),
    ),
    "a.jar": (
        "application/java-archive",
        lambda: archive(("META-INF/MANIFEST.MF", "Manifest-Version: 1.0"), ("A.class", "x")),
    ),
    "a.zip": ("application/zip", lambda: archive(("readme.txt", PROSE), ("photos/keyword/1.txt", "x"))),
    "a.tar": ("application/x-tar", tar),
    "a.gz": ("application/gzip", lambda: gzip.compress(PROSE.encode())),
    "a.bz2": ("application/x-bzip2", lambda: bz2.compress(PROSE.encode())),
    "a.xz": ("application/x-xz", lambda: lzma.compress(PROSE.encode())),
    "a.7z": ("application/x-7z-compressed", lambda: b"7z\xbc\xaf\x27\x1c\0\4" + bytes(60)),
    "a.rar": ("application/vnd.rar", lambda: b"Rar!\x1a\x07\x01\0" + bytes(60)),
    "a.zst": ("application/zstd", lambda: b"\x28\xb5\x2f\xfd\x24\x05\x29\0\0hello\x8d\x26\x0b\x2d"),
    "program": ("application/x-elf", lambda: Path("/bin/true").read_bytes()),
    "a.exe": (
        "application/vnd.microsoft.portable-executable",
        lambda: b"MZ\x90\0" + bytes(56) + struct.pack("<I", 128) + bytes(64) + b"PE\0\0\x64\x86" + bytes(200),
    ),
    "a.dylib": ("application/x-mach-binary", lambda: b"\xcf\xfa\xed\xfe\7\0\0\1\3\0\0\0\2\0\0\0" + bytes(100)),
    "A.class": ("application/java-vm", lambda: b"\xca\xfe\xba\xbe\0\0\0\x3d\0\x0d" + bytes(60)),
    "a.wasm": ("application/wasm", lambda: b"\0asm\1\0\0\0"),
    "a.sqlite": ("application/vnd.sqlite3", database),
    "a.pyc": ("application/x-python-code", bytecode),
    "a.ttf": ("font/ttf", lambda: b"\0\1\0\0\0\x10\1\0\0\4\0\0DSIG" + bytes(200)),
    "a.otf": ("font/otf", lambda: b"OTTO\0\x0a\0\x80\0\3\0\x20CFF " + bytes(200)),
    "a.woff2": ("font/woff2", lambda: b"wOF2\0\1\0\0" + bytes(80)),
    "a.psd": (
        "image/vnd.adobe.photoshop",
        lambda: b"8BPS\0\1" + bytes(6) + struct.pack(">HIIHH", 3, 9, 9, 8, 3) + bytes(40),
    ),
    "a.jp2": ("image/jp2", sample_jp2),
    "page.html": ("text/html", lambda: b"<!DOCTYPE html>\n<html><body><p>Hello</body></html>"),
    "old.html": ("text/html", lambda: b"\xef\xbb\xbf\n <!-- saved -->\n<HTML><HEAD><TITLE>x</TITLE></HEAD></HTML>"),
    "feed.xml": ("text/xml", lambda: b'<?xml version="1.0"?>\n<rss version="2.0"><channel/></rss>'),
    "plain.svg": ("image/svg+xml", SVG.encode),
    "declared.svg": ("image/svg+xml", lambda: b'<?xml version="1.0"?>\n<!-- by hand -->\n' + SVG.encode()),
    "prefixed.svg": ("image/svg+xml", lambda: b'<s:svg xmlns:s="http://www.w3.org/2000/svg"><s:g/></s:svg>'),
    "marked.svg": ("image/svg+xml", lambda: b"\xef\xbb\xbf  \n" + SVG.encode()),
    "wide.svg": ("image/svg+xml", lambda: f'<?xml version="1.0" encoding="utf-16"?>{SVG}'.encode("utf-16")),
    "doctype.svg": (
        "image/svg+xml",
        lambda: (
            b'<?xml version="1.0" standalone="no"?>\n<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" '
            b'"http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd" [<!ENTITY a "b">]>\n' + SVG.encode()
        ),
    ),
    "commented.svg": ("image/svg+xml", lambda: b"<!-- " + b"licence " * 1000 + b" -->" + SVG.encode()),
    "data.json": ("application/json", lambda: json.dumps({"a": [1, 2, {"b": None}]}, indent=1).encode()),
    "table.csv": ("text/csv", lambda: b'name,count,note\nnut,3,"a, b"\nbolt,4,\nnail,5,x\n'),
    "letter.rtf": ("text/rtf", lambda: rb"{\rtf1\ansi Hello}"),
    "run.sh": ("text/x-shellscript", lambda: b"#!/bin/sh\nset -e\necho hello\n"),
    "tool.py": ("text/x-python", lambda: b"#!/usr/bin/env python3\nimport sys\nprint(sys.argv)\n"),
    "notes.txt": ("text/plain", PROSE.encode),
    "wide.txt": ("text/plain", lambda: PROSE.encode("utf-16")),
    "old.txt": ("text/plain", lambda: "Grüße aus Köln. ".encode("latin-1") * 20),
    "noise.bin": ("application/octet-stream", lambda: random.Random(1).randbytes(3000)),
}


def wrong_names(name: str) -> list[str]:
    return [
        f"x.{extension}" for extension in ("png", "txt", "docx", "mp3", "pdf", "zip") if not name.endswith(extension)
    ]


@pytest.mark.parametrize("name", FILES)
def test_the_bytes_decide_whatever_the_name_says(name: str) -> None:
    media_type, build = FILES[name]
    data = build()
    assert sniff(data, name).media_type == media_type
    assert sniff(data).category == category_of(media_type)
    assert sniff(data).media_type == media_type
    for wrong in wrong_names(name):
        found = sniff(data, wrong)
        assert found.category == category_of(media_type)
        assert found.media_type in (media_type, "text/plain")


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("readme.md", "text/markdown"),
        ("TABLE.CSV", "text/csv"),
        ("table.tsv", "text/tab-separated-values"),
        ("module.py", "text/x-python"),
        ("conf.yaml", "application/yaml"),
        ("pyproject.toml", "application/toml"),
        ("photo.png", "text/plain"),
        ("photo.svg", "text/plain"),
        ("Makefile", "text/plain"),
    ],
)
def test_the_name_tells_kinds_of_text_apart_and_nothing_else(name: str, media_type: str) -> None:
    assert sniff(PROSE.encode(), name).media_type == media_type


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"BMW makes cars.\n", "text/plain"),
        (b"MZ is a country code.\n", "text/plain"),
        (b"II*I am a list\n", "text/plain"),
        (b"GIF87 was the first version\n", "text/plain"),
        (b"OTTO and PAR1\n", "text/plain"),
        (b"ID3 tags are not always there\n", "text/plain"),
        (b"The header is %PDF-1.7 and then follows the body.\n", "text/plain"),
        (b"PK is short for public key\n", "text/plain"),
        (b"P5 is the ticket of the payment team\nP6 follows\n", "text/plain"),
        (b"P4 server settings\n", "text/plain"),
        (b"P5 12 14 30\nP6 2 9 31\n", "text/plain"),
        (b"P5\n# by hand\n2 2\n255\n\0\x80\xff\x90", "image/x-portable-anymap"),
        (b"P4 8 1\n\xff", "image/x-portable-anymap"),
        (b"CWS 2024 planning notes\n", "text/plain"),
        (b"FWS-12: fix the bug\n", "text/plain"),
        (b"FWS\x06\x2a\x01\0\0\x78\0\5\x5f\0\0\x0f\xa0", "application/x-shockwave-flash"),
        (b"CWS\x0a\x10\x27\0\0\x78\x9c\xed\x7b\x6d", "application/x-shockwave-flash"),
        (b"The JXL format is new\n", "text/plain"),
        (b"New ftyp boxes are read\n", "text/plain"),
        (b"The jP  box\n", "text/plain"),
        (b"GIF89a is a format of pictures\n", "text/plain"),
        (b'import x\nMINIMAL = b"%PDF-1.4\\n1 0 obj\\n<< /Type /Catalog >>\\nendobj\\n"\n', "text/plain"),
        (b'#!/usr/bin/env python3\nPDF = b"""%PDF-1.4\n1 0 obj\nstartxref\n9\n%%EOF"""\n', "text/x-python"),
        (b"X-Mailer: x\n\n%PDF-1.4\n1 0 obj\n<<>>\nendobj\nstartxref\n9\n%%EOF\n", "application/pdf"),
        (b"X-Mailer: x\n\n%PDF-1.4\n%\x81\x8d\1\2\n1 0 obj\n<<>>\n", "application/pdf"),
        (b"<3 you all\n", "text/plain"),
        (b"{not json}\n", "text/plain"),
        (b'{"a": 1}\n{"a": 2}\n', "application/x-ndjson"),
        (b"[section]\nkey = value\n", "text/plain"),
        (b"\xff\xfb\x90\x64" + bytes(30), "application/octet-stream"),
        (b"<p>one</p>\n<p>two</p>\n", "text/html"),
        (b'<note xmlns="urn:x"><to/></note>', "text/xml"),
        (b"\n", "text/plain"),
        (b"\0", "application/octet-stream"),
    ],
)
def test_a_few_letters_are_not_a_signature(data: bytes, media_type: str) -> None:
    assert sniff(data).media_type == media_type


def test_an_encrypted_office_file_is_said_to_be_one() -> None:
    """Office puts an encrypted document into an OLE container, as a stream of this name."""
    plain, hidden = "WordDocument".encode("utf-16-le"), "EncryptedPackage".encode("utf-16-le")
    data = legacy("doc", word, "docx")
    at = data.index(plain)
    data = data[:at] + hidden + data[at + len(hidden) : at + 64] + struct.pack("<H", len(hidden) + 2) + data[at + 66 :]
    assert sniff(data, "secret.docx").is_encrypted
    with pytest.raises(Encrypted, match=r"secret\.docx is an encrypted Office document\. Save it without a password"):
        inspect(data, "secret.docx")


def test_a_document_cut_off_before_its_directory_is_still_named() -> None:
    data = word()
    assert sniff(data[: len(data) // 2]).media_type in (OOXML + "wordprocessingml.document", "application/zip")


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


@pytest.mark.parametrize("folder", ["word/", "xl/", "ppt/"])
def test_an_archive_with_a_folder_of_that_name_is_no_office_file(folder: str) -> None:
    assert sniff(zipped((folder + "notes.txt", b"words"), ("a.txt", b"b"))).media_type == "application/zip"


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ("word/document.xml", "wordprocessingml.document"),
        ("ppt/presentation.xml", "presentationml.presentation"),
        ("xl/workbook.xml", "spreadsheetml.sheet"),
    ],
)
def test_an_office_file_without_its_list_of_types_is_still_one(part: str, kind: str) -> None:
    """So that whoever reads it says what is wrong with it."""
    found = sniff(zipped((part, b"<x/>"), ("other/readme.txt", b"words")), "poor.zip")
    assert found.media_type == f"application/vnd.openxmlformats-officedocument.{kind}"


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_open_document_that_was_packed_again_is_still_one(method: int) -> None:
    with zipfile.ZipFile(io.BytesIO(legacy("odt", word, "docx"))) as archive:
        members = [(name, archive.read(name)) for name in sorted(archive.namelist())]
    assert members[0][0] != "mimetype"
    assert sniff(zipped(*members, method=method)).media_type == "application/vnd.oasis.opendocument.text"


ALIASES = {
    "audio/x-wav": "audio/wav",
    "audio/x-m4a": "audio/mp4",
    "application/x-sharedlib": "application/x-elf",
    "application/x-pie-executable": "application/x-elf",
    "application/x-executable": "application/x-elf",
    "application/x-dosexec": "application/vnd.microsoft.portable-executable",
    "application/x-rar": "application/vnd.rar",
    "image/vnd.microsoft.icon": "image/x-icon",
    "image/heif": "image/heic",
    "video/x-matroska": "video/matroska",
    "application/x-java-applet": "application/java-vm",
    "application/x-bytecode.python": "application/x-python-code",
    "font/sfnt": "font/ttf",
    "application/vnd.ms-opentype": "font/otf",
    "text/x-script.python": "text/x-python",
    "application/x-sqlite3": "application/vnd.sqlite3",
    "application/csv": "text/csv",
    "video/x-m4v": "video/mp4",
    "image/x-ms-bmp": "image/bmp",
}


def test_we_are_at_least_as_often_right_as_libmagic() -> None:
    oracle = magic.Magic(mime=True)
    ours = theirs = 0
    for media_type, build in FILES.values():
        data = build()
        said = oracle.from_buffer(data)
        ours += sniff(data).media_type == media_type
        theirs += ALIASES.get(said, said) == media_type
    assert ours == len(FILES)
    assert 0.7 * len(FILES) < theirs <= ours


def test_every_answer_is_a_kind_that_we_can_describe() -> None:
    chance = random.Random(3)
    starts = [build()[:2000] for _, build in FILES.values()]
    for _ in range(6000):
        data = bytearray(chance.choice(starts))
        for _ in range(chance.choice((1, 3, 9))):
            data[chance.randrange(min(len(data), 300))] = chance.choice((0, 127, 255, chance.randrange(256)))
        found = sniff(
            bytes(data[: chance.randrange(1, len(data) + 1)]), chance.choice(("", "a.docx", "b.png", "c.txt"))
        )
        assert KINDS[found.media_type].category == found.category


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.text(max_size=20))
def test_any_bytes_under_any_name_are_something(data: bytes, name: str) -> None:
    assert sniff(data, name).media_type in KINDS
