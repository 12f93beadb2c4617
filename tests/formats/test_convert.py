"""Office files through LibreOffice: converted, kept off the network, and nothing left behind."""

from __future__ import annotations

import http.server
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any

import docx
import openpyxl
import pptx
import pytest
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.oxml.ns import qn
from PIL import Image

from loom.content.media import Media, digest_of
from loom.content.recipes import Text
from loom.errors import ExtraMissing, TooLarge, Unreadable, Unsupported
from loom.formats.facts import EmbeddedPicture, IntakeLimits
from loom.formats.libreoffice import MODERN, is_available, to_office, to_pdf
from loom.formats.pdf import inspect_pdf, render_pdf
from loom.formats.worker import WorkerPool
from made import make_sample, run
from patience import PATIENCE_SECONDS

WORD = "application/msword"
POWERPOINT = "application/vnd.ms-powerpoint"
EXCEL = "application/vnd.ms-excel"
TEMPLATE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/attachedTemplate"
LIMITS = IntakeLimits()


def legacy(suffix: str) -> bytes:
    """A .doc, .ppt or .xls written by LibreOffice."""

    def build(path: Path) -> None:
        modern = path.with_name(f"sample.{suffix}x")
        if suffix == "doc":
            document = docx.Document()
            document.add_heading("Old letter")
            document.add_paragraph("Written with Word 97, naïve café.")
            document.save(str(modern))
        elif suffix == "ppt":
            deck = pptx.Presentation()
            for number in (1, 2, 3):
                slide = deck.slides.add_slide(deck.slide_layouts[5])
                slide.shapes.title.text = f"Old slide {number}"
            deck.save(str(modern))
        else:
            book = openpyxl.Workbook()
            book.active.append(["Item", "Price"])
            book.active.append(["Loom", 42.5])
            book.save(modern)
        profile = f"-env:UserInstallation={path.with_name('profile').as_uri()}"
        run("soffice", "--headless", "--norestore", profile, "--convert-to", suffix, modern.name, cwd=path.parent)
        modern.with_suffix(f".{suffix}").rename(path)

    return make_sample(f"legacy.{suffix}", build).read_bytes()


@pytest.fixture
def scratch(tmp_path, monkeypatch) -> Iterator[Path]:
    """Where temporary folders go during the test. With the pool, whose LibreOffices stay warm, all of it is gone."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with WorkerPool().use() as pool:
        yield folder
        pool.close()
    assert processes_in(folder) == []
    assert list(folder.iterdir()) == []


def processes_in(folder: Path) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(folder).encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def pdf_text(data: bytes) -> str:
    media = Media(digest=digest_of(data), media_type="application/pdf", size_bytes=len(data))
    return render_pdf(data, media, Text(), LIMITS).data.decode()


def test_legacy_files_become_pdfs_and_files_of_today_several_at_once(scratch):
    assert is_available()
    with ThreadPoolExecutor() as threads:

        def submit(*call: Any) -> Future[bytes]:
            return threads.submit(copy_context().run, *call)

        letter_pdf = submit(to_pdf, legacy("doc"), WORD, LIMITS)
        slides_pdf = submit(to_pdf, legacy("ppt"), POWERPOINT, LIMITS)
        letter = submit(to_office, legacy("doc"), WORD, MODERN[WORD], LIMITS)
        book = submit(to_office, legacy("xls"), EXCEL, MODERN[EXCEL], LIMITS)

    words = "Written with Word 97, naïve café."
    assert words in pdf_text(letter_pdf.result())
    assert "[page 3]\nOld slide 3" in pdf_text(slides_pdf.result())
    assert words in [part.text for part in docx.Document(io.BytesIO(letter.result())).paragraphs]
    assert openpyxl.load_workbook(io.BytesIO(book.result())).active["B2"].value == 42.5


def test_a_conversion_that_takes_too_long_is_ended_with_all_its_processes(scratch):
    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(TooLarge, match=r"takes longer than 0\.6 s"):
            to_pdf(legacy("ppt"), POWERPOINT, IntakeLimits(conversion_seconds=0.6))
        assert time.monotonic() - began < PATIENCE_SECONDS
        assert processes_in(scratch) == []
        assert list(scratch.iterdir()) == []


def test_a_libreoffice_that_is_killed_or_stopped_again_and_again_is_a_typed_error(scratch):
    def strike(how: signal.Signals, is_over: threading.Event) -> None:
        while not is_over.wait(0.01):
            for pid in processes_in(scratch):
                with suppress(OSError):  # it has ended since it was listed
                    if b"soffice.bin" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        os.kill(pid, how)

    def convert(how: signal.Signals, seconds: float) -> None:
        is_over = threading.Event()
        thread = threading.Thread(target=strike, args=(how, is_over))
        thread.start()
        try:
            to_pdf(legacy("ppt"), POWERPOINT, IntakeLimits(conversion_seconds=seconds))
        finally:
            is_over.set()
            thread.join()

    with pytest.raises(Unreadable, match="LibreOffice could not convert"):
        convert(signal.SIGKILL, 60)
    with pytest.raises(TooLarge, match="takes longer than 4 s"):
        convert(signal.SIGSTOP, 4)

    assert processes_in(scratch) == []
    assert list(scratch.iterdir()) == []
    assert to_pdf(legacy("doc"), WORD, LIMITS).startswith(b"%PDF"), "the next file gets another one"


def test_one_libreoffice_converts_one_file_after_the_other(scratch):
    def programs() -> list[int]:
        return [pid for pid in processes_in(scratch) if b"soffice.bin" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    to_pdf(legacy("ppt"), POWERPOINT, LIMITS)
    first = programs()
    texts = [pdf_text(to_pdf(legacy("doc"), WORD, LIMITS)) for _ in range(3)]
    with pytest.raises(Unreadable, match="LibreOffice could not convert"):
        to_pdf(legacy("doc")[:700], WORD, LIMITS)
    to_office(legacy("xls"), EXCEL, MODERN[EXCEL], LIMITS)

    assert len(first) == 1 and programs() == first, "no start for each file"
    assert len(set(texts)) == 1
    assert not list(scratch.rglob("document.*")), "no file is left with it"


def test_one_that_was_killed_between_two_files_is_replaced(scratch):
    to_pdf(legacy("doc"), WORD, LIMITS)
    for pid in processes_in(scratch):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    assert to_pdf(legacy("doc"), WORD, LIMITS).startswith(b"%PDF")


def test_it_ends_with_a_process_that_is_killed(tmp_path):
    program = (
        "import pathlib, signal, sys, os\n"
        "from loom.formats.facts import IntakeLimits\n"
        "from loom.formats.libreoffice import to_pdf\n"
        f"to_pdf(pathlib.Path(sys.argv[1]).read_bytes(), {WORD!r}, IntakeLimits())\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    letter = tmp_path / "letter.doc"
    letter.write_bytes(legacy("doc"))
    folder = tmp_path / "temporary"
    folder.mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", program, str(letter)], env=os.environ | {"TMPDIR": str(folder)}, check=False
    )
    assert ended.returncode == -signal.SIGKILL

    deadline = time.monotonic() + PATIENCE_SECONDS
    while processes_in(folder) or list(folder.glob("*/profile")):
        assert time.monotonic() < deadline, "LibreOffice outlives the process that started it"
        time.sleep(0.02)


class Canary(http.server.BaseHTTPRequestHandler):
    """Remembers every request; a document that reaches it has left the machine."""

    heard: list[str]

    def handle_one_request(self) -> None:
        self.heard.append(self.rfile.readline(65_536).decode())
        self.close_connection = True


@pytest.fixture
def canary() -> Iterator[tuple[str, list[str]]]:
    heard: list[str] = []
    handler = type("Listening", (Canary,), {"heard": heard})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", heard
        server.shutdown()
        thread.join()


def calling_home(url: str, local: Path) -> bytes:
    """A .docx that asks for its template and a picture from elsewhere, and for a picture of this machine."""
    document = docx.Document()
    document.add_paragraph("Dear reader")
    for target in (f"{url}/picture.png", local.as_uri()):
        shape = document.add_picture(str(local))
        blip = shape._inline.graphic.graphicData.pic.blipFill.blip
        del blip.attrib[qn("r:embed")]
        blip.set(qn("r:link"), document.part.relate_to(target, RELATIONSHIP_TYPE.IMAGE, is_external=True))
    settings = document.part._settings_part
    template = settings.relate_to(f"{url}/template.dotm", TEMPLATE, is_external=True)
    attached = document.settings.element.makeelement(qn("w:attachedTemplate"), {qn("r:id"): template})
    document.settings.element.insert(0, attached)
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def shown(data: bytes) -> tuple[str, tuple[EmbeddedPicture, ...]]:
    return pdf_text(data), inspect_pdf(data, "shown.pdf", LIMITS).pictures


def test_a_document_that_calls_home_reaches_nobody(canary, scratch, tmp_path, monkeypatch):
    url, heard = canary
    private = tmp_path / "private.png"
    Image.new("RGB", (90, 90), "red").save(private)
    data = calling_home(url, private)
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "plain.docx").write_bytes(data)
    command = ["soffice", "--headless", f"-env:UserInstallation={(plain / 'profile').as_uri()}", "--convert-to", "pdf"]
    subprocess.run([*command, "plain.docx"], cwd=plain, check=True, capture_output=True, timeout=60)
    assert heard, "LibreOffice left to itself fetches what the document links to"
    assert shown((plain / "plain.pdf").read_bytes())[1], "and takes in files of this machine"
    heard.clear()

    assert shown(to_pdf(data, MODERN[WORD], LIMITS)) == ("[page 1]\nDear reader\n", ())
    assert heard == []

    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in Path("/usr/bin").iterdir():
        if tool.name != "unshare":
            (tools / tool.name).symlink_to(tool)
    monkeypatch.setenv("PATH", str(tools))
    with WorkerPool().use() as pool:
        assert shown(to_pdf(data, MODERN[WORD], LIMITS)) == ("[page 1]\nDear reader\n", ())
        pool.close()
    assert heard == [], "the profile alone must keep it silent where the network cannot be taken away"


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b'<html><img src="http://127.0.0.1:1/x.png"></html>', WORD),
        (b'<?xml version="1.0"?><office:document/>', MODERN[WORD]),
        (b"PK\x03\x04 but not a legacy file", EXCEL),
        (b"", POWERPOINT),
    ],
    ids=["html-named-doc", "flat-odt-named-docx", "zip-named-xls", "empty"],
)
def test_a_file_that_is_not_what_its_type_says_never_reaches_libreoffice(data, media_type, monkeypatch):
    monkeypatch.setenv("PATH", "")

    with pytest.raises(Unreadable, match=r"is not that of a \.\w+ file"):
        to_pdf(data, media_type, LIMITS)


def test_a_damaged_file_is_unreadable_without_a_path_in_the_error(scratch):
    with pytest.raises(Unreadable, match="LibreOffice could not convert") as caught:
        to_pdf(legacy("doc")[:700], WORD, LIMITS)

    assert str(scratch) not in str(caught.value)


def test_other_types_and_sizes_are_refused():
    with pytest.raises(Unsupported, match="text/html"):
        to_pdf(b"<html>", "text/html", LIMITS)
    with pytest.raises(Unsupported, match="image/png"):
        to_office(legacy("doc"), WORD, "image/png", LIMITS)
    with pytest.raises(TooLarge, match="the limit for office files is 1 KB"):
        to_pdf(legacy("doc"), WORD, IntakeLimits(max_office_bytes=1000))


def test_without_libreoffice_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "")

    assert not is_available()
    with pytest.raises(ExtraMissing, match="apt install libreoffice-writer libreoffice-impress libreoffice-calc"):
        to_pdf(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), WORD, LIMITS)
