"""`loom read PATH…`: one object a line for each path, whatever is there, and it never stops at a bad file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import docx

from cli.loom_command import Loom
from loom.testing import sample_pdf, sample_png

WEAVE = """
from loom.formats.documents import DocumentFormat
from loom.formats.documents.messages import ReadDocument
from loom.formats.sniff.kinds import FileKind

def recognise(data, name):
    return "application/x-weave" if data.startswith(b"WEAVE\\0") else None

def read_weave(data, context):
    return ReadDocument(sections=["over, under: " + data[6:].decode("ascii")])

FORMAT = DocumentFormat(
    reader="weave_format:read_weave",
    kinds={"application/x-weave": FileKind("office", "a weaving pattern", "weave")},
    recognise=recognise,
)
"""


def test_a_folder_of_odd_files_is_read_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    os.mkfifo(folder / "a-pipe")
    (folder / "bare").mkdir()
    (folder / "cut.png").write_bytes(sample_png(64, 48)[:60])
    (folder / "dangling").symlink_to("nowhere")
    (folder / "empty.png").touch()
    (folder / "fails-to-be-read").symlink_to("/proc/self/mem")
    (folder / "garbage.pdf").write_bytes(b"%PDF-1.7\n" + bytes(range(256)) * 9)
    (folder / "loop").symlink_to("loop")
    (folder / "new\nline.txt").write_text("words")
    (folder / "paper.txt").write_bytes(sample_pdf("one", "two"))
    (folder / "picture").write_bytes(sample_png(64, 48))
    paths = [str(folder), *sorted(map(str, folder.iterdir())), str(folder / "absent"), ""]
    ran = Loom(tmp_path)("read", "--json", *paths)
    assert [row["path"] for row in ran.rows] == paths
    errors = {Path(row["path"]).name: row["error"]["code"] for row in ran.rows if row["error"]}
    assert errors.keys() == {
        "odd",
        "a-pipe",
        "bare",
        "cut.png",
        "dangling",
        "fails-to-be-read",
        "garbage.pdf",
        "loop",
        "absent",
        "",
    }
    assert all(code.startswith("media.") for code in errors.values())
    shown = {Path(row["path"]).name: row["blocks"][0] for row in ran.rows if not row["error"]}
    assert shown["picture"]["media"]["width"] == 64
    assert shown["paper.txt"]["media"]["pages"] == 2
    assert "words" in shown["new\nline.txt"]["text"]
    assert ran.code == 5, "the code for files"


def test_names_that_are_not_utf_8_are_shown_as_far_as_they_can_be(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"bad\xff.txt")).write_text("words")
    paths = [str(tmp_path / os.fsdecode(name)) for name in (b"bad\xff.txt", b"absent\xfe.txt")]
    ran = Loom(tmp_path)("read", "--json", *paths)
    assert [Path(row["path"]).name for row in ran.rows] == ["bad\ufffd.txt", "absent\ufffd.txt"]
    assert "words" in ran.rows[0]["text"]
    assert "absent\ufffd.txt" in ran.rows[1]["error"]["message"]
    assert ran.code == 5


def test_what_cannot_be_attached_is_an_error(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    loom.file("tool.bin", b"\x7fELF\2\1\1" + bytes(200))
    loom.file("report.pdf", sample_pdf("one", "two"))
    ran = loom("read", "--json", "tool.bin", "report.pdf#3", "report.pdf#2-9")
    assert ran.rows[0]["error"]["code"] == "media.unsupported"
    assert ran.rows[1]["error"]["message"] == "report.pdf has 2 pages; page 3 does not exist."
    assert ran.rows[2]["notices"] == ["report.pdf has 2 pages; of 2-9 only 2 is used."]
    assert ran.code == 5


def test_what_is_said_about_the_words_of_a_document_is_shown(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    document = docx.Document()
    document.add_paragraph("All of it")
    document.save(str(tmp_path / "letter.docx"))
    ran = loom("read", "--pages", "3", str(tmp_path / "letter.docx"))
    assert "note: A text document has no pages until it is laid out" in ran.out


def test_pages_and_limits_mean_the_same_as_when_a_file_is_attached(tmp_path: Path) -> None:
    loom = Loom(tmp_path)
    (loom.home / "loom.toml").write_text("[documents]\nmax_pdf_bytes = 2000\n")
    loom.file("report.pdf", sample_pdf("one", "two", "three"))
    loom.file("large.pdf", sample_pdf(*["a page"] * 20))
    loom.file("color.txt", "a\x1b[31mred")

    ran = loom("read", "report.pdf#2", "large.pdf", "color.txt", "nowhere.txt")

    assert "[page 2]\ntwo" in ran.out and "one" not in ran.out
    assert "over the limit of 2 KB" in ran.out
    assert "␛[31mred" in ran.out and "File not found: nowhere.txt. Check the path." in ran.out


def test_a_format_of_an_installed_package_is_read(tmp_path: Path) -> None:
    """One module and an entry point: the command recognises the file, and shows what its reader makes of it."""
    site = tmp_path / "site"
    facts = site / "weave_format-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: weave-format\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[loom.formats]\nweave = weave_format:FORMAT\n")
    (site / "weave_format.py").write_text(WEAVE)
    (tmp_path / "scarf.weave").write_bytes(b"WEAVE\0two by two")
    command = [sys.executable, "-c", "from loom.cli.main import main; main()", "read", "scarf.weave"]
    environ = {**os.environ, "LOOM_HOME": str(tmp_path / "home"), "PYTHONPATH": str(site)}
    ran = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert ran.stdout == "── scarf.weave\n[document: scarf.weave, 16 bytes]\nover, under: two by two\n"
    environ["PYTHONPATH"] = ""
    refused = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert refused.returncode == 5 and "over, under" not in refused.stdout
