"""P9, P10, P11: measure PDF text, page images and slices, compared with other libraries.

    python -m benchmarks.formats.pdf [folder]

All cases run in every round; the time of a case is the best of its rounds for each file, summed over the files. Loom's
times include the worker process and the communication with it, in wall time and in processor time. Pass a folder with
your own PDFs to extend P9.
"""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pikepdf
import pypdf
import pypdfium2
from pdfminer.high_level import extract_text

sys.path[:0] = [str(Path(__file__).parents[2] / "tests")]

from benchmarks.formats.interleaved import processor_seconds  # noqa: E402 - as above
from formats import made_pdfs  # noqa: E402 - the samples of the tests, found through the path above
from loom.content.media import Media, digest_of  # noqa: E402 - as above
from loom.content.recipes import Page, Slice, Text  # noqa: E402 - as above
from loom.errors import LoomError  # noqa: E402 - as above
from loom.formats.facts import IntakeLimits  # noqa: E402 - as above
from loom.formats.pdf import inspect_pdf, render_pdf  # noqa: E402 - as above
from loom.formats.pdf.page_image import draw as draw_page  # noqa: E402 - as above

LIMITS = IntakeLimits()
LEAST_CPU_SECONDS = 0.3
"""Processor times below this are not printed: the system counts hundredths of a second."""
Case = Callable[[bytes, Path], object]


def main() -> None:
    logging.disable(logging.ERROR)  # pypdf and pdfminer comment on every file
    samples = [
        made_pdfs.chromium_report(),
        made_pdfs.ghostscript_book(30),
        made_pdfs.libreoffice_letter(),
        made_pdfs.object_streams(),
        made_pdfs.linearized_pdf(),
        *Path("/usr/share/doc").rglob("*.pdf"),
        *(file for folder in sys.argv[1:] for file in Path(folder).rglob("*.pdf")),
    ]
    _loom_text(samples[0].read_bytes(), samples[0])  # starts the worker, as in a process that has read a PDF before
    _show("P9 text of all pages", samples, _TEXT, base="pypdf", faster=True)
    _show(
        "P10 ten pages of text at 150 dpi",
        [made_pdfs.ghostscript_book(30)],
        _page_images("1-10"),
        base="pypdfium2 JPEG",
    )
    _show(
        "P10 ten pages by Chromium at 150 dpi",
        [made_pdfs.chromium_report()],
        _page_images("1-10"),
        base="pypdfium2 JPEG",
    )
    _show(
        "P10 ten pages in color by Chromium at 150 dpi",
        [made_pdfs.chromium_brochure()],
        _page_images("1-10"),
        base="pypdfium2 JPEG",
    )
    _show("P10 a photograph at 150 dpi", [made_pdfs.photo_page()], _page_images("1-1"), base="pypdfium2 JPEG")
    book = [made_pdfs.ghostscript_book(1000)]
    _show("P11 text of pages 1-20 of 1,000", book, _FIRST_TEXT, base="pypdfium2")
    _show("P11 slice of pages 1-20 of 1,000", book, _SLICE, base="pypdfium2")
    print("P11 growth with the length of the document (loom, ms)")
    for pages in (20, 100, 300, 1000):
        _growth(made_pdfs.ghostscript_book(pages), pages)


def _show(title: str, files: Iterable[Path], cases: dict[str, Case], *, base: str, faster: bool = False) -> None:
    totals = dict.fromkeys(cases, 0.0)
    cpu_seconds = dict.fromkeys(cases, 0.0)
    for file in files:
        data = file.read_bytes()
        best = dict.fromkeys(cases, float("inf"))
        for _ in range(5):
            for name, case in cases.items():
                before, began = processor_seconds(), time.perf_counter()
                case(data, file)
                best[name] = min(best[name], time.perf_counter() - began)
                cpu_seconds[name] += processor_seconds() - before
        totals = {name: totals[name] + best[name] for name in cases}
    unit = f"times as fast as {base}" if faster else f"times the time of {base}"
    print(f"{title} ({unit})")
    for name, seconds in totals.items():
        ratio = totals[base] / seconds if faster else seconds / totals[base]
        line = f"  {name:24} {ratio:6.2f}×  {seconds * 1000:9.1f} ms"
        if min(cpu_seconds[base], cpu_seconds[name]) > LEAST_CPU_SECONDS:
            work = cpu_seconds[base] / cpu_seconds[name] if faster else cpu_seconds[name] / cpu_seconds[base]
            line += f"   {work:6.2f}× by processor time"
        print(line, flush=True)


def _media(data: bytes, *, fresh: bool = False) -> Media:
    digest = digest_of(data + time.time_ns().to_bytes(8, "big") if fresh else data)
    return Media(digest=digest, media_type="application/pdf", size_bytes=len(data), name="bench.pdf")


def _loom_text(data: bytes, _: Path) -> object:
    """Render with a new digest, so that the file is sent to the worker and parsed each time."""
    return _result_or_error(lambda: render_pdf(data, _media(data, fresh=True), Text(), LIMITS))


def _result_or_error(call: Callable[[], object]) -> object:
    try:
        return call()
    except (LoomError, pypdf.errors.PyPdfError, pypdfium2.PdfiumError) as error:
        return error  # a refused file counts with the time until it was refused


def _pdfium_text(data: bytes, pages: int | None = None) -> str:
    document = pypdfium2.PdfDocument(data)
    count = len(document) if pages is None else pages
    return "".join(document[index].get_textpage().get_text_range() for index in range(count))


_TEXT: dict[str, Case] = {
    "pypdf": lambda data, _: _result_or_error(
        lambda: [page.extract_text() for page in pypdf.PdfReader(io.BytesIO(data)).pages]
    ),
    "pdfminer.six": lambda data, _: _result_or_error(lambda: extract_text(io.BytesIO(data))),
    "pdftotext": lambda _, file: subprocess.run(["pdftotext", str(file), "-"], check=False, capture_output=True),
    "pypdfium2, no worker": lambda data, _: _result_or_error(lambda: _pdfium_text(data)),
    "loom": _loom_text,
}
_FIRST_TEXT: dict[str, Case] = {
    "pypdfium2": lambda data, _: _pdfium_text(data, 20),
    "pypdf": lambda data, _: [page.extract_text() for page in pypdf.PdfReader(io.BytesIO(data)).pages[:20]],
    "pdftotext": lambda _, file: subprocess.run(
        ["pdftotext", "-l", "20", str(file), "-"], check=True, capture_output=True
    ),
    "loom, first time": lambda data, _: render_pdf(data, _media(data, fresh=True), Text("1-20"), LIMITS),
    "loom, document cached": lambda data, _: render_pdf(data, _media(data), Text("1-20"), LIMITS),
}


def _page_images(pages: str) -> dict[str, Case]:
    first, last = map(int, pages.split("-"))

    def in_process(data: bytes, _: Path) -> None:
        document = pypdfium2.PdfDocument(data)
        for index in range(first - 1, last):
            document[index].render(scale=150 / 72).to_pil().save(io.BytesIO(), format="JPEG")

    def poppler(kind: str) -> Case:
        def draw(_: bytes, file: Path) -> None:
            with tempfile.TemporaryDirectory() as folder:
                window = ("-r", "150", "-f", str(first), "-l", str(last))
                subprocess.run(["pdftoppm", f"-{kind}", *window, str(file), f"{folder}/page"], check=True)

        return draw

    def loom(data: bytes, _: Path) -> None:
        media = _media(data, fresh=True)
        for number in range(first, last + 1):
            render_pdf(data, media, Page(number), LIMITS)

    def no_worker(data: bytes, _: Path) -> None:
        document = pypdfium2.PdfDocument(data)
        for number in range(first, last + 1):
            draw_page(document[number - 1], Page(number), LIMITS.max_pixels)

    return {
        "pypdfium2 JPEG": in_process,
        "loom, no worker": no_worker,
        "pdftoppm JPEG": poppler("jpeg"),
        "pdftoppm PNG": poppler("png"),
        "loom": loom,
    }


def _pdfium_slice(data: bytes, _: Path) -> None:
    cut = pypdfium2.PdfDocument.new()
    cut.import_pages(pypdfium2.PdfDocument(data), list(range(20)))
    cut.save(io.BytesIO())


def _pypdf_slice(data: bytes, _: Path) -> None:
    writer = pypdf.PdfWriter()
    for page in pypdf.PdfReader(io.BytesIO(data)).pages[:20]:
        writer.add_page(page)
    writer.write(io.BytesIO())


def _pikepdf_slice(data: bytes, _: Path) -> None:
    with pikepdf.open(io.BytesIO(data)) as document, pikepdf.new() as cut:
        cut.pages.extend(document.pages[:20])
        cut.save(io.BytesIO())


_SLICE: dict[str, Case] = {
    "pypdfium2": _pdfium_slice,
    "pypdf": _pypdf_slice,
    "pikepdf": _pikepdf_slice,
    "loom, first time": lambda data, _: render_pdf(data, _media(data, fresh=True), Slice("1-20"), LIMITS),
    "loom, document cached": lambda data, _: render_pdf(data, _media(data), Slice("1-20"), LIMITS),
}


def _growth(file: Path, pages: int) -> None:
    data = file.read_bytes()
    works: dict[str, Callable[[], object]] = {
        "inspect": lambda: inspect_pdf(data, file.name, LIMITS),
        "text 1-20": lambda: render_pdf(data, _media(data), Text("1-20"), LIMITS),
        "slice 1-20": lambda: render_pdf(data, _media(data), Slice("1-20"), LIMITS),
    }
    cells: list[str] = []
    for name, work in works.items():
        times: list[float] = []
        for _ in range(5):
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
        cells.append(f"{name} {min(times) * 1000:6.1f}")
    print(f"  {pages:5} pages   {'   '.join(cells)}")


if __name__ == "__main__":
    main()
