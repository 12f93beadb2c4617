"""The sentences that people are owed when something is not as they think: what happened, and the next step."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from PIL import Image

from cli.loom_command import Loom, Terminal
from cli.model_server import model_server
from loom.testing import sample_pdf, sample_png

BLIND = "[models.local.capabilities]\nvision = false\nnative_pdf = false\n"


@pytest.fixture
def without_ocr(tmp_path: Path) -> dict[str, str]:
    """An environment in which no OCR engine is installed."""
    folder = tmp_path / "without"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['rapidocr'] = None\n")
    return {"PYTHONPATH": str(folder), "PATH": str(folder)}


def scan() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (300, 400), "white").save(file, "PDF")
    return file.getvalue()


def test_a_model_that_cannot_see_is_named_and_who_could_help(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("login.png", sample_png(64, 48))

    with model_server("fine") as server:
        (loom.home / "loom.toml").write_text(server.config + BLIND)
        ran = loom("-m", "local", "what is it?", "login.png")
        again = loom("-m", "local", "-c", "and now?")
        as_json = loom("-m", "local", "--json", "what is it?", "login.png")

    assert 'scripted is a text-only model; image sent as text: "[image: login.png, 64×48' in ran.err
    assert ran.err.count("\n") == 1 and ran.err.endswith("To have images described: --describe-with MODEL\n")
    assert ran.out == "fine\n" and "--describe-with" not in again.err
    assert as_json.err == "" and as_json.rows[0]["media"][0]["rendition"] == "text"


def test_a_picture_is_described_by_the_model_that_was_named(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("login.png", sample_png(64, 48))

    with model_server("fine") as server, model_server("A blue rectangle.") as eyes:
        seeing = eyes.config.replace("models.local", "models.eyes") + "[models.eyes.capabilities]\nvision = true\n"
        (loom.home / "loom.toml").write_text(server.config + BLIND + seeing)
        ran = loom("-m", "local", "--describe-with", "eyes", "what is it?", "login.png")

    assert ran.code == 0 and "--describe-with" not in ran.err
    assert len(eyes.requests) == 1 and "image_url" in str(eyes.requests[0])
    assert "A blue rectangle." in str(server.requests[0]["messages"]) and "image_url" not in str(server.requests[0])


def test_an_extension_that_lies_is_said(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("fake.png", "<!doctype html><html><body>not a picture</body></html>")

    assert "[fake.png is HTML (by its bytes), attached as text.]" in loom("-R", "fake.png", "what?").err


def test_words_hold_the_place_of_a_picture_that_ends_too_early_and_the_others_are_sent(tmp_path: Path):
    loom = Loom(tmp_path)
    file = io.BytesIO()
    Image.effect_noise((400, 400), 90).save(file, "JPEG")
    loom.file("photo.jpg", file.getvalue()[:9_000])
    loom.file("whole.png", sample_png(64, 48))

    with model_server("fine") as server:
        (loom.home / "loom.toml").write_text(server.config + "[models.local.capabilities]\nvision = true\n")
        ran = loom("-m", "local", "photo.jpg", "whole.png", "what?")
        alone = loom("-m", "local", "what?", stdin=file.getvalue()[:9_000])

    assert ran.code == 0 and ran.err == "[photo.jpg is damaged after 9 KB; a placeholder was sent.]\n"
    content = server.requests[0]["messages"][-1]["content"]
    assert content[0]["text"] == "[photo.jpg is damaged after 9 KB; it cannot be displayed]"
    assert [part["type"] for part in content].count("image_url") == 1
    assert alone.code == 0 and alone.err == "[stdin is damaged after 9 KB; a placeholder was sent.]\n"


def test_a_document_that_is_damaged_is_refused_with_the_next_step(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("report.pdf", sample_pdf("a page")[:200])

    ran = loom("-R", "report.pdf", "what?")

    assert ran.code == 5 and ran.out == ""
    assert ran.err.startswith(
        "loom: report.pdf is not a PDF that can be read, or has no pages. Save or export it again"
    )


def test_a_picture_over_the_limit_is_used_as_a_copy_and_that_can_be_refused(tmp_path: Path):
    loom = Loom(tmp_path)
    (loom.home / "loom.toml").write_text("[images]\nmax_size_bytes = 1000\n")
    loom.file("scan.png", sample_png(400, 400))

    said = loom("-R", "scan.png", "what?").err

    assert "scan.png has 3 KB, over the limit of 1 KB: a copy of" in said
    assert "is used (images.max_size_bytes). Use --no-resize to refuse instead.]" in said


def test_a_locked_pdf_names_the_option_that_opens_it(tmp_path: Path):
    from cli.test_options import locked_pdf
    from made import make_sample

    loom = Loom(tmp_path)
    loom.file("contract.pdf", make_sample("locked-quokka.pdf", locked_pdf).read_bytes())

    for words in (["contract.pdf", "what?"], ["--dry-run", "contract.pdf", "what?"]):
        ran = loom("-R", *words)
        assert ran.code == 5
        assert ran.err == "loom: contract.pdf needs a password: -a contract.pdf --password-file FILE\n", words


def test_a_scan_that_nobody_can_read_names_what_would_help(tmp_path: Path, without_ocr: dict[str, str]):
    loom = Loom(tmp_path)
    loom.file("report.pdf", scan())

    with model_server("fine") as server:
        (loom.home / "loom.toml").write_text(server.config + BLIND)
        ran = loom.process("-m", "local", "what?", "report.pdf", **without_ocr)
        searched = loom.process("sessions", "search", "--index", **without_ocr)

    assert ran.code == 0
    assert "report.pdf has no text layer and scripted is text-only. pip install 'loom-runtime[ocr]'" in ran.err
    assert searched.code == 0


def test_a_full_window_says_by_how_much_and_what_was_given_up_and_the_turn_goes_on(tmp_path: Path):
    loom = Loom(tmp_path)
    loom.file("long.txt", "word " * 2_000)

    with model_server("fine") as server:
        (loom.home / "loom.toml").write_text(server.config + BLIND + "context_tokens = 3000\n")
        ran = loom("-m", "local", "-T", "none", "long.txt", "sum up")

    assert ran.code == 0 and ran.out == "fine\n"
    full = "the window of openai-compatible/scripted is full. Reduced to fit: "
    assert re.search(rf"[\d.]+k > 2\.2k tokens: {re.escape(full)}long texts cut \(-[\d.]+k\)\.\n", ran.err), ran.err


def test_over_ssh_there_is_no_clipboard_and_two_ways_around(tmp_path: Path):
    loom = Loom(tmp_path)

    with Terminal(loom, "chat", LOOM_PLAIN="1", SSH_CONNECTION="10.0.0.1 1 10.0.0.2 22") as terminal:
        terminal.wait_for("› ")
        terminal.type("/paste\n")
        terminal.wait_for(
            "No clipboard available. Over SSH, scp the file and mention it with @, or open loom web --lan"
        )
        terminal.type("/quit\n")
        assert terminal.end() == 0
    (row,) = [row for row in loom("doctor", "--json", SSH_CONNECTION="x").rows if row["name"] == "clipboard"]
    assert row["state"] == "open" and "loom web --lan" in row["fix"]
