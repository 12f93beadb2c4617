"""Scanned pages: one reading for prompts and search, and every page that was not read says why."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from formats import made_pdfs
from formats.test_ocr import note
from loom.content.media import Media, digest_of
from loom.content.recipes import Rendered, Text
from loom.errors import TooLarge
from loom.formats import ocr, render
from loom.formats.facts import IntakeLimits
from loom.formats.ocr import scanned_pages
from loom.formats.ocr.scanned_pages import has_scanned_pages, read_scanned_pages
from loom.formats.worker import WorkerPool


def scan() -> tuple[bytes, Media]:
    data = made_pdfs.scanned_pages().read_bytes()
    return data, Media(digest=digest_of(data), media_type="application/pdf", size_bytes=len(data))


def test_scanned_pages_are_read_in_their_place() -> None:
    data, media = scan()
    extracted = render(data, media, Text())
    assert has_scanned_pages(extracted.data.decode())

    read = read_scanned_pages(data, media, extracted, IntakeLimits(ocr_seconds=120)).data.decode()

    assert "[page 2, read from its image]\n" in read
    assert "Scanned sheet 2" in read
    assert not has_scanned_pages(read)


def test_a_page_whose_reading_takes_too_long_says_so_and_is_not_called_empty() -> None:
    data, media = scan()
    pool = WorkerPool()

    with pool.use():
        read = read_scanned_pages(data, media, render(data, media, Text()), IntakeLimits(ocr_seconds=0.001))
    pool.close()

    text = read.data.decode()
    assert "takes longer than 0.001 s" in text or "took longer than" in text
    assert not has_scanned_pages(text)


def test_pages_beyond_the_most_that_are_read_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanned_pages, "MAX_PAGES", 0)
    data, media = scan()

    read = read_scanned_pages(
        data, media, Rendered(data=b"[page 1: no text layer]\n", media_type="text/plain"), IntakeLimits()
    )

    assert read.data == b"[page 1: no text layer; not read: only 0 scanned pages of a document are read]\n"
    assert read.notices == ("Some scanned pages were not read: only 0 scanned pages of a document are read.",)


def test_a_timeout_is_an_error_that_says_so() -> None:
    pool = WorkerPool()
    with pool.use(), pytest.raises(TooLarge, match=r"Reading the text in the image takes longer than 0\.002 s"):
        ocr.read_picture(note().read_bytes() + b"not read before", IntakeLimits(ocr_seconds=0.002))
    pool.close()


def test_the_same_picture_is_read_once() -> None:
    pool = WorkerPool()
    data = note().read_bytes() + b"only here"
    with pool.use():
        first = ocr.read_picture(data, IntakeLimits(ocr_seconds=120))
        for pid in pool.pids():
            subprocess.run(["kill", "-9", str(pid)], check=True)
        assert ocr.read_picture(data, IntakeLimits(ocr_seconds=0.001)) == first
    pool.close()

    assert "Apples are red" in first


def test_what_fails_inside_a_worker_reaches_no_terminal(caplog: pytest.LogCaptureFixture) -> None:
    program = (
        "import msgspec\n"
        "from loom.formats import ocr\nfrom loom.formats.facts import IntakeLimits\n"
        "from loom.formats.worker import current_pool\n"
        "try: current_pool().call(ocr.OCR_WORKER, msgspec.msgpack.encode(['no engine']), b'x', name='a',"
        " limits=IntakeLimits(), seconds=60)\n"
        "except Exception as error: print(type(error).__name__)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert (done.stdout.strip(), done.stderr) == ("Unreadable", "")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
