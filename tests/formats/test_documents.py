"""Everything else that people drop: web pages, mail, books, notebooks, archives, databases, diagrams, long texts."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import random
import sqlite3
import subprocess
import tarfile
import zipfile
import zlib
from email.message import EmailMessage
from pathlib import Path
from urllib.parse import quote

import pytest
from PIL import Image

from formats.made_office import png
from loom.content.blocks import DocumentBlock, TextBlock
from loom.content.recipes import EmbeddedImage, Page, Text
from loom.errors import ExtraMissing, MediaError, TooLarge, Unreadable, Unsupported
from loom.formats import inspect, render
from loom.formats.documents.members import read_member
from loom.formats.facts import IntakeLimits
from loom.formats.intake import accept
from loom.formats.sniff import sniff

PNG = png(8, 6)
RED = base64.b64encode(PNG).decode()


def shown(data: bytes, name: str, pages: str = "", limits: IntakeLimits = IntakeLimits()) -> str:
    """What a model reads of an attached file."""
    admitted = accept(data, name, limits=limits)
    assert isinstance(admitted.block, DocumentBlock), admitted.block
    return render(data, admitted.block.media, Text(pages=pages), limits).data.decode()


def packed(parts: dict[str, bytes | str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()


# Web pages ----------------------------------------------------------------------------------------------------------


def test_a_web_page_is_read_as_text_with_links_tables_and_pictures() -> None:
    page = (
        '<!DOCTYPE html><html><head><title>Report</title><script>var x = "hidden"</script></head><body>'
        "<h1>Results</h1><p>See <a href='https://example.org/a'>the source</a>.</p>"
        "<table><tr><th>name</th><th>count</th></tr><tr><td>a</td><td>12</td></tr></table>"
        f'<img alt="a red box" src="data:image/png;base64,{RED}"></body></html>'
    ).encode()
    text = shown(page, "report.html")
    assert "# Results" in text and "[the source](https://example.org/a)" in text
    assert "name | count" in text and "a | 12" in text
    assert "hidden" not in text and "[image 1: a red box]" in text and RED[:40] not in text
    media = inspect(page, "report.html").media
    made = render(page, media, EmbeddedImage(1))
    assert (made.data, made.media_type) == (PNG, "image/png")


def test_the_source_of_a_web_page_stays_text_for_tools_that_edit_it() -> None:
    assert sniff(b"<!DOCTYPE html><p>x", "a.html").category == "text"


# RTF ----------------------------------------------------------------------------------------------------------------

RTF = (
    r"{\rtf1\ansi\ansicpg1251{\fonttbl{\f0 Times;}{\f1\fcharset238 Arial;}}"
    r"{\stylesheet{\s0 Normal;}{\s1 heading 1;}}{\*\generator Nobody;}"
    r"{\pard\s1 Title\par}\pard \f0\'cf\'f0\'e8\'e2\'e5\'f2 \f1\'e8 \u8364?\par "
    r'{\field{\*\fldinst HYPERLINK "https://example.org"}{\fldrslt our page}}\par'
    r"\trowd\intbl one\cell two\cell\row\trowd\intbl three\cell four\cell\row\pard "
    r"{\*\shppict{\pict\pngblip " + PNG.hex() + r"}}\par \ldblquote quoted\rdblquote  \emdash{} end\par}"
)


def test_rtf_is_text_with_structure() -> None:
    text = shown(RTF.encode(), "letter.rtf")
    assert text.startswith("# Title")
    assert "Привет č €" in text
    assert "our page (https://example.org)" in text
    assert "| one | two |" in text and "| three | four |" in text
    assert "[image 1]" in text and "“quoted” — end" in text
    assert "rtf1" not in text and "Nobody" not in text and "Times" not in text
    media = inspect(RTF.encode(), "letter.rtf").media
    assert render(RTF.encode(), media, EmbeddedImage(1)).data == PNG


def test_an_rtf_of_libreoffice_keeps_every_word(tmp_path: Path) -> None:
    words = [f"wörd{number}" for number in range(200)]
    source = tmp_path / "in.html"
    source.write_text(f"<meta charset=utf-8><h1>Größe</h1><p>{' '.join(words)}</p><ul><li>eins<li>zwei</ul>")
    profile = f"-env:UserInstallation={(tmp_path / 'profile').as_uri()}"
    command = ["soffice", profile, "--headless", "--convert-to", "rtf:Rich Text Format", "--outdir", str(tmp_path)]
    subprocess.run(
        [*command, "--infilter=HTML (StarWriter)", str(source)], check=True, capture_output=True, timeout=120
    )
    text = shown((tmp_path / "in.rtf").read_bytes(), "in.rtf")
    assert "Größe" in text and "eins" in text and "zwei" in text
    assert [word for word in words if word not in text] == []


# Mail ---------------------------------------------------------------------------------------------------------------


def mail() -> bytes:
    message = EmailMessage()
    message["From"], message["To"] = "Zoë Müller <zoe@example.org>", "a@example.org, b@example.org"
    message["Subject"], message["Date"] = "Größe der Kiste", "Tue, 03 Nov 2026 10:00:00 +0100"
    message.set_content("Plain words only.")
    message.add_alternative(
        '<p>Hello <b>you</b>, see <a href="https://example.org/x">this</a></p><img src="cid:box" alt="the box">',
        subtype="html",
    )
    message.get_payload(1).add_related(PNG, "image", "png", cid="<box>")
    message.add_attachment(b"id,n\n1,2\n", maintype="text", subtype="csv", filename="numbers.csv")
    message.add_attachment(b"%PDF-1.4 not really", maintype="application", subtype="pdf", filename="report.pdf")
    return message.as_bytes()


def test_a_mail_is_its_headers_its_words_and_what_is_attached() -> None:
    data = mail()
    assert sniff(data).media_type == "message/rfc822"  # also where its name is forgotten
    text = shown(data, "note.eml")
    assert text.startswith("From: Zoë Müller <zoe@example.org>\nTo: a@example.org, b@example.org\n")
    assert "Subject: Größe der Kiste" in text
    assert "see [this](https://example.org/x)" in text and "[image 1: the box]" in text
    assert "[attachment: numbers.csv, CSV, 9 bytes]" in text and "[attachment: report.pdf, PDF" in text
    assert len(text) < 600
    media = inspect(data, "note.eml").media
    assert render(data, media, EmbeddedImage(1)).data == PNG
    assert read_member(data, media, "numbers.csv").data == b"id,n\n1,2\n"
    with pytest.raises(Unreadable, match=r"contains no file 'number\.csv'"):
        read_member(data, media, "number.csv")


def test_a_mail_in_an_old_encoding_is_read_in_it() -> None:
    head = "From: a@example.org\nDate: Tue, 03 Nov 2026 10:00:00 +0100\nSubject: =?koi8-r?B?8NLJ18XU?=\n"
    head += "MIME-Version: 1.0\nContent-Type: text/plain; charset=koi8-r\nContent-Transfer-Encoding: 8bit\n\n"
    text = shown(head.encode() + "Отчёт будет готов в понедельник".encode("koi8-r"), "x.eml")
    assert "Subject: Привет" in text and "Отчёт будет готов" in text


# Notebooks, books, diagrams -----------------------------------------------------------------------------------------


def test_a_notebook_is_its_cells_and_outputs_and_its_plots_are_pictures() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Analysis\n", "words"]},
        {
            "cell_type": "code",
            "execution_count": 3,
            "source": "plot(x)",
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["42\n"]},
                {"output_type": "display_data", "data": {"image/png": RED, "text/plain": "<Figure>"}},
                {"output_type": "error", "traceback": ["\x1b[31mValueError\x1b[0m: no"]},
            ],
        },
    ]
    data = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()
    for name in ("a.ipynb", "a.json", ""):
        text = shown(data, name)
        assert "# Analysis\nwords" in text and "[cell 2, run 3]\n```python\nplot(x)\n```" in text
        assert "42" in text and "[image 1]" in text and "ValueError: no" in text and RED[:40] not in text
    assert render(data, inspect(data, "a.ipynb").media, EmbeddedImage(1)).data == PNG


def test_a_book_has_its_chapters_as_pages() -> None:
    data = packed(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container xmlns="urn:x"><rootfiles>'
            '<rootfile full-path="OEBPS/c.opf"/></rootfiles></container>',
            "OEBPS/c.opf": '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">'
            "<metadata><dc:title>The Book</dc:title><dc:creator>A. Author</dc:creator></metadata><manifest>"
            '<item id="b" href="two.xhtml" media-type="application/xhtml+xml"/>'
            '<item id="a" href="one%20a.xhtml" media-type="application/xhtml+xml"/></manifest>'
            '<spine><itemref idref="a"/><itemref idref="b"/></spine></package>',
            "OEBPS/one a.xhtml": "<html><body><h1>First</h1><p>Once upon.</p>"
            "<img src='img/x.png' alt='map'/></body></html>",
            "OEBPS/two.xhtml": "<html><body><h1>Second</h1><p>The end.</p></body></html>",
            "OEBPS/img/x.png": PNG,
        }
    )
    assert inspect(data, "b.epub").media.pages == 2
    text = shown(data, "b.epub")
    assert text.startswith("# The Book\nby A. Author") and text.index("Once upon") < text.index("The end")
    assert "[image 1: map]" in text
    assert "Once upon" not in shown(data, "b.epub", pages="2")


def test_diagrams_name_their_shapes_and_connections() -> None:
    model = (
        '<mxGraphModel><root><mxCell id="0"/><mxCell id="1" parent="0"/>'
        '<mxCell id="a" value="&lt;b&gt;Start&lt;/b&gt;" vertex="1"/><mxCell id="b" value="End" vertex="1"/>'
        '<mxCell id="e" value="then" edge="1" source="a" target="b"/></root></mxGraphModel>'
    )
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    dense = base64.b64encode(squeeze.compress(quote(model).encode()) + squeeze.flush()).decode()
    for inner in (model, dense):
        data = f'<mxfile><diagram name="Flow" id="x">{inner}</diagram></mxfile>'.encode()
        text = shown(data, "flow.drawio")
        assert text == "[page 1: Flow]\n- Start\n- End\n- Start → End: then"
    visio = packed(
        {
            "[Content_Types].xml": "<Types/>",
            "visio/document.xml": "<VisioDocument/>",
            "visio/pages/pages.xml": '<Pages xmlns="v"><Page ID="0" Name="Network"/></Pages>',
            "visio/pages/page1.xml": '<PageContents xmlns="v"><Shapes><Shape ID="1"><Text>Router</Text></Shape>'
            '<Shape ID="2"><Text>Server</Text></Shape><Shape ID="3"><Text>LAN</Text></Shape></Shapes><Connects>'
            '<Connect FromSheet="3" FromCell="BeginX" ToSheet="1"/><Connect FromSheet="3" FromCell="EndX" ToSheet="2"/>'
            "</Connects></PageContents>",
        }
    )
    assert shown(visio, "net.vsdx") == "[page 1: Network]\n- Router\n- Server\n- Router → Server: LAN"


# Archives -----------------------------------------------------------------------------------------------------------


def test_iwork_files_show_the_preview_that_they_carry() -> None:
    jpeg = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(jpeg, "JPEG")
    parts = {"Index/Document.iwa": b"xx", "preview.jpg": jpeg.getvalue()}
    data = packed(parts)
    accepted = accept(data, "letter.pages")
    assert isinstance(accepted.block, DocumentBlock)
    text = shown(data, "letter.pages")
    assert "only its preview can be read" in text and "[image 1: preview.jpg]" in text
    made = render(data, accepted.block.media, EmbeddedImage(1))
    assert (made.media_type, made.data) == ("image/jpeg", jpeg.getvalue())
    with pytest.raises(Unreadable, match="without a preview"):
        accept(packed({"Index/Document.iwa": b"xx"}), "letter.pages")


def test_archives_are_listed_and_their_files_are_read_by_path() -> None:
    parts: dict[str, bytes | str] = {"docs/read me.md": "# hello", "data/x.png": PNG, "../../evil.sh": "rm"}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in parts.items():
            entry = tarfile.TarInfo(name)
            raw = content.encode() if isinstance(content, str) else content
            entry.size = len(raw)
            tar.addfile(entry, io.BytesIO(raw))
    plain = buffer.getvalue()
    made = {"a.zip": packed(parts), "a.tar": plain, "a.tar.gz": gzip.compress(plain)}
    made |= {"a.tar.xz": lzma.compress(plain), "a.tar.bz2": bz2.compress(plain)}
    for name, data in made.items():
        text = shown(data, name)
        assert "3 files" in text and "docs/read me.md  (7 bytes)" in text, name
        media = inspect(data, name).media
        assert read_member(data, media, "docs/read me.md").data == b"# hello"
        assert read_member(data, media, "data/x.png").name == "x.png"
    log = gzip.compress(b"line\n" * 100)
    assert read_member(log, inspect(log, "app.log.gz").media, "app.log").data == b"line\n" * 100


def test_bombs_in_archives_cost_no_more_than_their_limit() -> None:
    bomb = gzip.compress(bytes(400_000_000))
    with pytest.raises(TooLarge):
        inspect(bomb, "bomb.gz")
    data = packed({"zeros": bytes(100_000_000)})
    assert "zeros  (100 MB)" in shown(data, "b.zip")
    with pytest.raises(TooLarge, match="too large to extract"):
        read_member(data, inspect(data, "b.zip").media, "zeros")
    many = packed({f"f{number}": "" for number in range(5000)})
    assert "[and 4,000 more files]" in shown(many, "m.zip")


# Tables -------------------------------------------------------------------------------------------------------------


def test_a_database_is_described_and_its_rows_come_in_pages(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    database = sqlite3.connect(file)
    database.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, photo BLOB)")
    rows = [(number, f"n|{number}", b"xy") for number in range(450)]
    database.executemany("INSERT INTO people VALUES (?, ?, ?)", rows)
    database.commit()
    database.close()
    data = file.read_bytes()
    assert inspect(data, "x.db").media.pages == 4
    first = shown(data, "x.db", pages="1")
    assert "[SQLite database: 1 table]" in first and "## table people (450 rows)\nCREATE TABLE people" in first
    third = shown(data, "x.db", pages="3")
    assert third.startswith("[table people, rows 201–400 of 450]\n| id | name | photo |")
    assert "| 200 | n\\|200 | [2 bytes] |" in third
    with pytest.raises(Unreadable, match="damaged database"):
        inspect(data[:600] + b"\xff" * 3000, "x.db")


def test_a_parquet_table_is_described_and_its_rows_come_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    buffer = io.BytesIO()
    table = pyarrow.table({"id": list(range(500)), "name": [f"n{number}" for number in range(500)]})
    parquet.write_table(table, buffer, row_group_size=150)
    data = buffer.getvalue()
    assert inspect(data, "t.parquet").media.pages == 4
    assert shown(data, "t.parquet", pages="1") == "[Parquet table: 500 rows, 2 columns]\n- id: int64\n- name: string"
    assert "| 399 | n399 |" in shown(data, "t.parquet", pages="3")
    monkeypatch.setattr("loom.formats.documents.tables.find_spec", lambda _name: None)
    with pytest.raises(ExtraMissing, match="needs pyarrow"):
        inspect(data, "t.parquet")


def test_large_json_is_described_and_paged_and_small_json_is_text() -> None:
    records = [{"id": number, "tag": "x" * 40, **({"rare": 1.5} if number % 2 else {})} for number in range(1000)]
    tight = IntakeLimits(max_text_bytes=20_000)
    for name, data in (
        ("a.json", json.dumps({"version": 1, "items": records}).encode()),
        ("a.jsonl", "\n".join(map(json.dumps, records)).encode()),
    ):
        assert isinstance(accept(data, name).block, TextBlock)
        text = shown(data, name, pages="1", limits=tight)
        assert "1,000 records" in text and "- id: whole number" in text
        assert "- rare: number, in 50% of the records" in text
        page = shown(data, name, pages="2", limits=tight)
        assert page.startswith("[records 1–200 of 1,000]\n| id | tag | rare |")


def test_a_text_over_the_limit_is_taken_and_paged() -> None:
    text = "".join(f"Zeile {number}: die Prüfung für größere Änderungen läuft später\n" for number in range(1, 200_001))
    for data in (text.encode(), text.encode("cp1252")):
        admitted = accept(data, "server.log")
        assert isinstance(admitted.block, DocumentBlock)
        media = admitted.block.media
        assert media.pages is not None and media.pages > 100
        pages = [
            render(data, media, Text(pages=str(number))).data.decode().partition("\n")[2]
            for number in (1, 2, media.pages)
        ]
        assert text.startswith(f"{pages[0]}\n{pages[1]}\n") and text.endswith(f"{pages[2]}\n")
    one_line = b"x" * 3_000_000
    assert accept(one_line, "min.js").block.media.pages == 150


# Hostile files ------------------------------------------------------------------------------------------------------


MANY_PARTS = (
    b"From: a@b\nTo: c@d\nSubject: x\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n"
    + b"--b\n\nx\n" * 50_000
)
LAUGHS = b'<!DOCTYPE m [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><mxfile><diagram>&b;</diagram></mxfile>'


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("deep.html", b"<!DOCTYPE html>" + b"<div>" * 300_000 + b"end"),
        ("deep.rtf", b"{\\rtf1 " + b"{" * 100_000 + b"x"),
        ("wide.rtf", b"{\\rtf1 " + b"\\'e4" * 500_000 + b"}"),
        ("deep.ipynb", b'{"nbformat": 4, "cells": ' + b"[" * 100_000),
        ("parts.eml", MANY_PARTS),
        ("bomb.epub", None),
        ("laughs.drawio", LAUGHS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_hostile_document_ends_in_a_text_or_a_typed_error(name: str, data: bytes | None) -> None:
    if data is None:
        data = packed({"mimetype": "application/epub+zip", "META-INF/container.xml": b"<a>" + b" " * 60_000_000})
    limits = IntakeLimits(deadline_seconds=8)
    try:
        outcome = shown(data, name, limits=limits)
    except MediaError as error:
        outcome = f"{name}: {error.code}" if name in error.message else ""
    assert outcome


def test_spoilt_documents_never_break_the_reader() -> None:
    dice = random.Random(9)
    made = {"n.eml": mail(), "l.rtf": RTF.encode(), "z.zip": packed({"a.txt": "words" * 50, "b/c.png": PNG})}
    for name, data in made.items():
        for _ in range(25):
            spoilt = bytearray(data)
            for _ in range(12):
                spoilt[dice.randrange(len(spoilt))] = dice.randrange(256)
            try:
                accept(bytes(spoilt), name)
            except MediaError:
                continue


def test_a_document_cannot_be_drawn_and_says_so() -> None:
    with pytest.raises(Unsupported, match="cannot be shown as an image"):
        render(mail(), inspect(mail(), "n.eml").media, Page(1))
