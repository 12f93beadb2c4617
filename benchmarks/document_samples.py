"""Generate one small file of each kind that people attach, with the words that a reader must find in it."""

from __future__ import annotations

import base64
import gzip
import io
import json
import sqlite3
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path

import msgspec
from PIL import Image

LINES = [
    f"Measurement {number}: the valve opened at {number * 7} degrees in hall {number % 9}." for number in range(60)
]
WORDS = sorted({word for line in LINES for word in line.split()})


class Sample(msgspec.Struct, frozen=True):
    """A file; `words` are those that a model must be able to read."""

    name: str
    data: bytes
    words: list[str]


def recall_words(text: str, words: list[str]) -> float:
    """Return the share of `words` that `text` contains."""
    return sum(1 for word in words if word in text) / max(1, len(words))


def red_png() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 48), "red").save(buffer, "PNG")
    return buffer.getvalue()


def samples() -> list[Sample]:
    """Return all samples, in the order of the table."""
    made = [(name, make()) for name, make in _MAKERS.items()]
    return [Sample(name, data, WORDS) for name, data in made]


def _html() -> bytes:
    source = base64.b64encode(red_png()).decode()
    rows = "".join(f"<tr><td>{number}</td><td>{line}</td></tr>" for number, line in enumerate(LINES))
    return (
        "<!DOCTYPE html><html><head><title>Report</title><style>p {color: red}</style></head><body>"
        f'<h1>Report</h1><img alt="plan" src="data:image/png;base64,{source}"><table>{rows}</table></body></html>'
    ).encode()


def _rtf() -> bytes:
    body = "".join(f"{line}\\par\n" for line in LINES)
    return (r"{\rtf1\ansi{\fonttbl{\f0 Times;}}\f0 " + body + "}").encode()


def _mail() -> bytes:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "a@example.org", "b@example.org", "Report"
    message["Date"] = "Tue, 03 Nov 2026 10:00:00 +0100"
    message.set_content("\n".join(LINES))
    message.add_attachment(red_png(), maintype="image", subtype="png", filename="plan.png")
    return message.as_bytes()


def _notebook() -> bytes:
    output = {"output_type": "display_data", "data": {"image/png": base64.b64encode(red_png()).decode()}}
    cells = [
        {"cell_type": "markdown", "source": "\n".join(LINES)},
        {"cell_type": "code", "source": "plot()", "execution_count": 1, "outputs": [output]},
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


def _zip_of(parts: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _epub() -> bytes:
    chapter = "".join(f"<p>{line}</p>" for line in LINES)
    return _zip_of(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="c.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
            "c.opf": '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">'
            "<metadata><dc:title>Report</dc:title></metadata><manifest>"
            '<item id="a" href="a.xhtml" media-type="application/xhtml+xml"/></manifest>'
            '<spine><itemref idref="a"/></spine></package>',
            "a.xhtml": f'<html xmlns="http://www.w3.org/1999/xhtml"><body>{chapter}</body></html>',
        }
    )


def _zip() -> bytes:
    return _zip_of({"report.txt": "\n".join(LINES)})


def _tar() -> bytes:
    buffer = io.BytesIO()
    raw = "\n".join(LINES).encode()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("report.txt")
        entry.size = len(raw)
        archive.addfile(entry, io.BytesIO(raw))
    return gzip.compress(buffer.getvalue())


def _sqlite() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "x.db")
        database = sqlite3.connect(file)
        database.execute("CREATE TABLE report (id INTEGER, line TEXT)")
        database.executemany("INSERT INTO report VALUES (?, ?)", list(enumerate(LINES)))
        database.commit()
        database.close()
        return file.read_bytes()


def _xlsx() -> bytes:
    import openpyxl

    workbook = openpyxl.Workbook()
    for number, line in enumerate(LINES):
        workbook.worksheets[0].append([number, line])
    buffer = io.BytesIO()
    workbook.save(buffer)
    return buffer.getvalue()


def _docx() -> bytes:
    import docx

    document = docx.Document()
    for line in LINES:
        document.add_paragraph(line)
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


def _pptx() -> bytes:
    import pptx

    deck = pptx.Presentation()
    for at in range(0, len(LINES), 10):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = "Report"
        slide.placeholders[1].text_frame.text = "\n".join(LINES[at : at + 10])
    buffer = io.BytesIO()
    deck.save(buffer)
    return buffer.getvalue()


def _pdf() -> bytes:
    """Return two pages, written without a library, so that no reader is tested on its own output."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[4 0 R 6 0 R]/Count 2>>"]
    objects.append(b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>")
    for page, at in enumerate((0, 30)):
        shown = "".join(f"({line}) Tj T*\n" for line in LINES[at : at + 30])
        drawn = f"BT /F 11 Tf 20 TL 50 760 Td\n{shown}ET".encode()
        head = f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents {5 + 2 * page} 0 R"
        objects.append(f"{head}/Resources<</Font<</F 3 0 R>>>>>>".encode())
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(drawn), drawn))
    out, places = b"%PDF-1.4\n", list[int]()
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj%s endobj\n" % (number, body)
    rows = b"".join(b"%010d 00000 n \n" % place for place in places)
    start, count = len(out), len(objects) + 1
    out += b"xref\n0 %d\n0000000000 65535 f \n%strailer<</Size %d/Root 1 0 R>>" % (count, rows, count)
    return out + b"\nstartxref\n%d\n%%%%EOF\n" % start


def _drawio() -> bytes:
    cells = "".join(f'<mxCell id="{number}" value="{line}" vertex="1"/>' for number, line in enumerate(LINES))
    return f'<mxfile><diagram name="Page"><mxGraphModel><root>{cells}</root></mxGraphModel></diagram></mxfile>'.encode()


_MAKERS: dict[str, Callable[[], bytes]] = {
    "report.txt": lambda: "\n".join(LINES).encode(),
    "cyrillic.txt": lambda: ("\n".join(LINES) + "\nОтчёт будет готов в понедельник, проверка уже идёт.").encode(
        "cp1251"
    ),
    "report.csv": lambda: "".join(f"{number},{line}\n" for number, line in enumerate(LINES)).encode(),
    "report.json": lambda: json.dumps(LINES).encode(),
    "report.html": _html,
    "report.rtf": _rtf,
    "report.eml": _mail,
    "report.ipynb": _notebook,
    "report.epub": _epub,
    "report.pdf": _pdf,
    "report.docx": _docx,
    "report.pptx": _pptx,
    "report.xlsx": _xlsx,
    "report.sqlite": _sqlite,
    "report.drawio": _drawio,
    "report.zip": _zip,
    "report.tar.gz": _tar,
}
