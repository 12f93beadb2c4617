"""P12: measure reading the text of .docx, .pptx and .xlsx files: `python -m benchmarks.formats.office`.

Each file is read by Loom, by the library of its kind and by markitdown in every round, so that other load slows all
equally. A ratio of 6 means that Loom needs a sixth of the library's time: the median and the best of the rounds. Trust
the best if a core changes its speed between calls, as virtual cores do: a long call runs at both speeds, a short one
mostly at one. The libraries run with their defaults; openpyxl's faster read-only mode is also measured. Recall is the
share of the words that were written into the file. Files are written by the libraries, and again by LibreOffice, which
opens and saves them. Loom's times include the worker process and the communication with it. Each call gets bytes that
no call has read before. The lower bound is the time of the library that Loom's reader uses.
"""

from __future__ import annotations

import io
import re
import shutil
import statistics
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import docx
import openpyxl
import pptx
import python_calamine
from docx.document import Document
from docx.shared import Pt, RGBColor
from docx.table import Table, _Cell
from pptx.util import Inches
from pptx.util import Pt as SlidePt

from benchmarks.document_samples import Sample
from benchmarks.formats.interleaved import timings
from loom.content.media import Media, digest_of
from loom.content.recipes import Text
from loom.formats.facts import IntakeLimits
from loom.formats.office import render_office

ROUNDS = 21
SLOW_ROUNDS = 2
TARGETS = {"docx": 5, "pptx": 4, "xlsx": 10}
OOXML = "application/vnd.openxmlformats-officedocument."
TYPES = {
    "docx": f"{OOXML}wordprocessingml.document",
    "pptx": f"{OOXML}presentationml.presentation",
    "xlsx": f"{OOXML}spreadsheetml.sheet",
}
Reader = Callable[[bytes], str]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        makers: dict[str, Callable[[Path], str]] = {"docx": _report, "pptx": _deck, "xlsx": _workbook}
        for kind, make in makers.items():
            path = Path(folder) / f"sample.{kind}"
            wanted = set(re.findall(r"\w+", make(path)))
            files = {"by its library": path.read_bytes()}
            if shutil.which("soffice"):
                files["by LibreOffice"] = _save_by_libreoffice(path)
            for maker, data in files.items():
                _compare(f".{kind} {maker}, {len(data) / 1000:.0f} KB", kind, data, wanted)


def large_samples(folder: Path) -> list[Sample]:
    """Return a report, a deck and a workbook, with the words that were written into them."""
    found: list[Sample] = []
    for kind, make in (("docx", _report), ("pptx", _deck), ("xlsx", _workbook)):
        path = folder / f"large.{kind}"
        words = sorted(set(re.findall(r"\w+", make(path))))
        found.append(Sample(path.name, path.read_bytes(), words))
    return found


def _compare(title: str, kind: str, data: bytes, wanted: set[str]) -> None:
    peers: dict[str, dict[str, Reader]] = {
        "docx": {"python-docx": _by_python_docx},
        "pptx": {"python-pptx": _by_python_pptx},
        "xlsx": {"openpyxl": _by_openpyxl, "openpyxl, read-only mode": partial(_by_openpyxl, read_only=True)},
    }
    library = next(iter(peers[kind]))
    readers: dict[str, Reader] = {"loom": _by_loom(kind), **peers[kind], "markitdown": _by_markitdown(kind)}
    recalls = {name: len(wanted & set(re.findall(r"\w+", read(data)))) / len(wanted) for name, read in readers.items()}
    calls = {name: partial(read, data) for name, read in readers.items()}
    slow = {
        "markitdown": calls.pop("markitdown")
    }  # takes seconds per call, and would evict the CPU caches of the others
    bound_name, bound = ("calamine only", _read_cells_only) if kind == "xlsx" else ("decompression only", _unpack_only)
    seconds = timings(calls | {bound_name: partial(bound, data)}, ROUNDS) | timings(slow, SLOW_ROUNDS)
    print(f"{title} (at least {TARGETS[kind]}× {library}){'median':>18}{'best':>20}", flush=True)
    for name, taken in seconds.items():
        recall = f"recall {recalls[name]:.3f}" if name in recalls else "lower bound"
        columns = "   ".join(
            f"{of(taken) * 1000:8.1f} ms {of(seconds[library]) / of(taken):5.1f}×" for of in (statistics.median, min)
        )
        print(f"  {name:42} {columns}   {recall}", flush=True)


def _by_loom(kind: str) -> Reader:
    """Return a reader that changes the file in each call (a time in its first header), so that no cache helps."""
    limits = IntakeLimits()
    stamps = count()

    def read(data: bytes) -> str:
        data = data[:10] + next(stamps).to_bytes(4, "little") + data[14:]
        media = Media(digest=digest_of(data), media_type=TYPES[kind], size_bytes=len(data))
        return render_office(data, media, Text("1" if kind == "xlsx" else ""), limits).data.decode()

    return read


def _read_cells_only(data: bytes) -> object:
    """Read the cells with calamine in this process: the lower bound of any reader that uses it."""
    return python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(data)).get_sheet_by_index(0).to_python()


def _unpack_only(data: bytes) -> int:
    """Decompress the XML parts without parsing them: the lower bound of any reader."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return sum(len(archive.read(name)) for name in archive.namelist() if name.endswith((".xml", ".rels")))


def _by_python_docx(data: bytes) -> str:
    return "\n".join(_document_texts(docx.Document(io.BytesIO(data))))


def _document_texts(document: Document | _Cell) -> Iterator[str]:
    for item in document.iter_inner_content():
        if isinstance(item, Table):
            for row in item.rows:
                for cell in row.cells:
                    yield from _document_texts(cell)
        else:
            yield item.text


def _by_python_pptx(data: bytes) -> str:
    texts: list[str] = []

    def walk(shapes: Any) -> None:
        for shape in shapes:
            if shape.has_text_frame:
                texts.append(shape.text_frame.text)
            elif getattr(shape, "has_table", False):
                texts.extend(cell.text for row in shape.table.rows for cell in row.cells)
            elif hasattr(shape, "shapes"):
                walk(shape.shapes)

    for slide in pptx.Presentation(io.BytesIO(data)).slides:
        walk(slide.shapes)
        if slide.has_notes_slide:
            texts.append(slide.notes_slide.notes_text_frame.text)
    return "\n".join(texts)


def _by_openpyxl(data: bytes, *, read_only: bool = False) -> str:
    book = openpyxl.load_workbook(io.BytesIO(data), read_only=read_only, data_only=True)
    return "\n".join("\t".join(map(str, row)) for sheet in book for row in sheet.iter_rows(values_only=True))


def _by_markitdown(kind: str) -> Reader:
    from markitdown import MarkItDown, StreamInfo  # slow to import

    converter = MarkItDown(enable_plugins=False)
    info = StreamInfo(extension=f".{kind}")
    return lambda data: converter.convert_stream(io.BytesIO(data), stream_info=info).text_content


def _save_by_libreoffice(path: Path) -> bytes:
    out = path.parent / "again"
    profile = f"-env:UserInstallation=file://{path.parent}/profile"
    command = ["soffice", "--headless", "--norestore", profile, "--convert-to", path.suffix[1:], "--outdir", str(out)]
    subprocess.run([*command, str(path)], check=True, capture_output=True, timeout=180)
    return (out / path.name).read_bytes()


def _report(path: Path) -> str:
    """Write about forty pages of headings, formatted runs, lists and a table per chapter; return the text."""
    document = docx.Document()
    texts: list[str] = []

    def note(text: str) -> str:
        texts.append(text)
        return text

    for chapter in range(20):
        document.add_heading(note(f"Chapter {chapter} on topic{chapter}"), 1)
        for place in range(15):
            paragraph = document.add_paragraph()
            for part in range(5):
                run = paragraph.add_run(note(f"Sentence {place} of part{chapter}x{part} says something useful. "))
                run.bold = part % 2 == 0
                run.font.size = Pt(10 + part)
                run.font.name = "Arial"
                run.font.color.rgb = RGBColor(10 * part, 20, 30)
        for item in range(5):
            document.add_paragraph(note(f"bullet{chapter}n{item} to remember"), style="List Bullet")
        table = document.add_table(rows=8, cols=4)
        for row in range(8):
            for column, cell in enumerate(table.rows[row].cells):
                cell.text = note(f"cell{chapter}r{row}c{column}")
    document.save(str(path))
    return "\n".join(texts)


def _deck(path: Path) -> str:
    """Write thirty slides with formatted bullets, boxes, groups, some tables and notes; return the text."""
    deck = pptx.Presentation()
    texts: list[str] = []

    def note(text: str) -> str:
        texts.append(text)
        return text

    for number in range(30):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = note(f"Title {number} of topic{number}")
        frame = slide.placeholders[1].text_frame
        for place in range(8):
            run = (frame.paragraphs[0] if place == 0 else frame.add_paragraph()).add_run()
            run.text = note(f"point{number}n{place} explains a matter in a few words")
            run.font.size, run.font.bold = SlidePt(18), place % 2 == 0
        group = slide.shapes.add_group_shape()
        for place in range(3):
            box = group.shapes.add_textbox(Inches(place), Inches(4), Inches(2), Inches(1))
            box.text_frame.text = note(f"label{number}n{place}")
        if number % 5 == 0:
            table = slide.shapes.add_table(5, 4, Inches(1), Inches(2), Inches(6), Inches(2)).table
            for row in table.rows:
                for place, cell in enumerate(row.cells):
                    cell.text = note(f"slot{number}n{place}")
        slide.notes_slide.notes_text_frame.text = note(f"spoken words for slide{number}")
    deck.save(str(path))
    return "\n".join(texts)


def _workbook(path: Path) -> str:
    """Write 2,000 rows of numbers, names and flags; return the text."""
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    texts: list[str] = []
    for number in range(2_000):
        sheet.append([number, f"name{number}", number * 1.25, number % 2 == 0, f"city{number % 50}", number * 3])
        texts.append(f"{number} name{number} city{number % 50} {number * 3}")
    book.save(path)
    return "\n".join(texts)


if __name__ == "__main__":
    main()
