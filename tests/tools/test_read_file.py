"""read_file: what a model gets of a file, and when a person is asked first."""

from __future__ import annotations

import os
import threading
import tracemalloc
import zipfile
from collections.abc import Sequence
from pathlib import Path

import openpyxl
import pytest

from loom.content.blocks import AudioBlock, ContentBlock, DocumentBlock, ImageBlock, TextBlock
from loom.content.messages import text_of
from loom.errors import ContentError, TooLarge, ToolError, Unreadable, Unsupported
from loom.formats.facts import IntakeLimits
from loom.formats.intake import accept
from loom.testing import sample_pdf, sample_png, sample_wav
from loom.tools.file_read import numbered_lines, page_sentence, read_file
from loom.tools.workspace import is_sensitive


class Context:
    def __init__(self, workspace: Path, *, allow: bool = False) -> None:
        self.workspace = workspace
        self.limits = IntakeLimits()
        self.asked: list[str] = []
        self._allow = allow

    async def attach(self, data: bytes, *, name: str, source: str, pages: str = "") -> Sequence[ContentBlock]:
        return [accept(data, name, source=source, pages=pages, limits=self.limits).block]

    async def approve(self, action: str, *, why: str) -> None:
        self.asked.append(f"{action}: {why}")
        if not self._allow:
            raise ToolError("the user denied it")


async def test_text_comes_with_line_numbers_and_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("\n".join(f"line {n}" for n in range(1, 101)))
    (block,) = await read_file(Context(tmp_path), "log.txt", offset=11, limit=3)
    assert text_of(block).splitlines() == [
        "    11\tline 11",
        "    12\tline 12",
        "    13\tline 13",
        "(log.txt: lines 11–13 of 100; next: offset=14)",
    ]


async def test_lines_are_counted_as_other_tools_count_them(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes(b"one\x0c\r\ntwo\xe2\x80\xa8and\rthree\x1c\nfour")
    (block,) = await read_file(Context(tmp_path), "log.txt", offset=3)
    assert text_of(block) == "     3\tthree\x1c\n     4\tfour\n(log.txt: lines 3–4 of 4)"


def test_a_long_log_takes_little_more_memory_than_its_text() -> None:
    log = b"ab\n" * 3_000_000
    tracemalloc.start()
    try:
        shown = numbered_lines(log, "log", IntakeLimits(), offset=2_999_999, limit=None, media_type="text/plain")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert shown.text.startswith("2999999\tab\n3000000\tab\n")
    assert peak < 2 * len(log)


async def test_a_name_that_is_not_utf_8_is_shown_as_far_as_it_can_be(tmp_path: Path) -> None:
    for name, data in ((b"\xff.png", b"<!doctype html><html></html>"), (b"\xfe.bin", b"\x7fELF" + bytes(99))):
        (tmp_path / os.fsdecode(name)).write_bytes(data)
    said, _ = await read_file(Context(tmp_path), os.fsdecode(b"\xff.png"))
    assert text_of(said) == "(\ufffd.png is HTML (by its bytes), attached as text.)"
    (block,) = await read_file(Context(tmp_path), os.fsdecode(b"\xfe.bin"))
    assert "is an ELF program" in text_of(block)


async def test_a_text_asked_for_pages_says_that_it_has_none(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words")
    said, lines = await read_file(Context(tmp_path), "a.txt", pages="3")
    assert (text_of(said), text_of(lines)) == ("(a.txt has no pages)", "     1\twords")


async def test_a_short_text_needs_no_hint(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("only\nthis\n")
    (block,) = await read_file(Context(tmp_path), "a.txt")
    assert text_of(block) == "     1\tonly\n     2\tthis"


async def test_an_empty_file_says_so(tmp_path: Path) -> None:
    for name in ("a.txt", "a.png"):
        (tmp_path / name).write_text("")
        (block,) = await read_file(Context(tmp_path), name)
        assert text_of(block) == f"({name} is empty)"


async def test_one_read_gives_at_most_a_megabyte(tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("\n".join("x" * 999 for _ in range(3_000)))
    (block,) = await read_file(Context(tmp_path), "big.txt", limit=100_000)
    assert len(text_of(block)) <= 1_000_200
    assert "next: offset=" in text_of(block)


async def test_a_line_longer_than_one_read_is_cut_and_said(tmp_path: Path) -> None:
    (tmp_path / "min.js").write_text("y" * 2_000_000)
    (block,) = await read_file(Context(tmp_path), "min.js")
    assert "longer than one read" in text_of(block)


async def test_a_table_comes_as_numbered_rows_of_cells(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('name,says\nAna,"a, ""b"""\nBo,"two\nlines"\n')
    (block,) = await read_file(Context(tmp_path), "a.csv")
    assert text_of(block).splitlines() == [
        "     1\tname | says",
        '     2\tAna | a, "b"',
        "     3\tBo | two<br>lines",
        "(a.csv is a table: its cells are separated by commas)",
    ]
    (tmp_path / "a.tsv").write_text("x\ty\n1\t2,5\n")
    (block,) = await read_file(Context(tmp_path), "a.tsv")
    assert "     2\t1 | 2,5" in text_of(block)


async def test_rows_of_a_table_are_paged_and_every_page_says_what_the_columns_are(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id;name\n" + "".join(f"{n};n{n}\n" for n in range(2, 30_001)), "utf-16")
    (block,) = await read_file(Context(tmp_path), "a.csv", offset=25_001, limit=2)
    assert text_of(block).splitlines() == [
        " 25001\t25001 | n25001",
        " 25002\t25002 | n25002",
        "(a.csv is a table: its cells are separated by semicolons)",
        "(row 1: id | name)",
        "(a.csv: rows 25001–25002 of 30000; next: offset=25003)",
    ]
    with pytest.raises(ToolError, match="30000 rows; row 30001 is past its end"):
        await read_file(Context(tmp_path), "a.csv", offset=30_001)


async def test_rows_of_a_sheet_are_paged(tmp_path: Path) -> None:
    workbook = openpyxl.Workbook(write_only=True)
    workbook.create_sheet("First").append(["little"])
    sheet = workbook.create_sheet("Long")
    for number in range(1, 3_001):
        sheet.append([number, f"n{number}"])
    workbook.save(tmp_path / "a.xlsx")
    context = Context(tmp_path)
    (block,) = await read_file(context, "a.xlsx", pages="2", offset=2_998, limit=2)
    assert text_of(block).splitlines() == [
        "2998 | n2998",
        "2999 | n2999",
        "(a.xlsx: 2 rows from row 2998 on; the cells are in A1:B3000; next: offset=3000)",
    ]
    (block,) = await read_file(context, "a.xlsx", limit=5)
    assert text_of(block).splitlines()[0] == "little"
    with pytest.raises(ToolError, match="nothing in row 2 "):
        await read_file(context, "a.xlsx", offset=2)
    with pytest.raises(Unsupported, match="one sheet"):
        await read_file(context, "a.xlsx", pages="1-2", offset=2)


async def test_a_large_file_needs_approval(tmp_path: Path) -> None:
    (tmp_path / "big.log").write_text("a line of a log\n" * 700_000)
    context = Context(tmp_path)
    with pytest.raises(ToolError, match="denied it"):
        await read_file(context, "big.log")
    assert context.asked == ["read big.log: it is large (11 MB)"]
    (block,) = await read_file(Context(tmp_path, allow=True), "big.log", offset=700_000)
    assert text_of(block).splitlines()[0] == "700000\ta line of a log"


async def test_pictures_documents_and_sound_come_as_blocks(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(sample_png(30, 20))
    (tmp_path / "a.pdf").write_bytes(sample_pdf("one", "two"))
    (tmp_path / "a.wav").write_bytes(sample_wav())
    context = Context(tmp_path)
    kinds = [type((await read_file(context, name))[0]) for name in ("a.png", "a.pdf", "a.wav")]
    assert kinds == [ImageBlock, DocumentBlock, AudioBlock]


async def test_a_long_document_is_shown_twenty_pages_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "report.pdf").write_bytes(sample_pdf(*[f"page {n}" for n in range(1, 48)]))
    context = Context(tmp_path)
    first, said = await read_file(context, "report.pdf")
    assert isinstance(first, DocumentBlock)
    assert first.pages == "1-20"
    assert text_of(said) == 'report.pdf: pages 1–20 of 47; next: pages="21-40"'
    later, said = await read_file(context, "report.pdf", pages="41-60")
    assert isinstance(later, DocumentBlock)
    assert later.pages == "41-47"
    assert text_of(said) == "report.pdf: pages 41–47 of 47"
    with pytest.raises(ContentError, match="47 pages; page 60 does not exist"):
        await read_file(context, "report.pdf", pages="60-70")


def test_a_very_long_document_is_announced_at_the_first_read() -> None:
    said = page_sentence("book.pdf", 1, 20, 400)
    assert said.startswith('book.pdf: pages 1–20 of 400; next: pages="21-40"')
    assert "long document" in said
    assert "long document" not in page_sentence("book.pdf", 21, 40, 400)


async def test_a_binary_is_described_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "tool").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 20)
    (block,) = await read_file(Context(tmp_path), "tool")
    assert isinstance(block, TextBlock)
    assert block.text.startswith("[tool is an ELF program (application/x-elf, 5 KB); Loom supports ")


async def test_a_text_with_the_name_of_a_picture_says_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "fake.png").write_text("<!doctype html><html><body>not a picture</body></html>")
    said, lines = await read_file(Context(tmp_path), "fake.png")
    assert text_of(said) == "(fake.png is HTML (by its bytes), attached as text.)"
    assert text_of(lines).startswith("     1\t<!doctype")


async def test_a_damaged_pdf_comes_as_what_could_be_saved_of_it(tmp_path: Path) -> None:
    whole = sample_pdf("first", "second")
    (tmp_path / "bent.pdf").write_bytes(whole.replace(b"/Root", b"/Roof"))

    (block,) = await read_file(Context(tmp_path), "bent.pdf")

    assert isinstance(block, DocumentBlock)
    assert block.media.pages == 2


async def test_a_damaged_picture_is_an_error_and_not_a_block(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(sample_png(30, 20)[:60])
    with pytest.raises(Unreadable):
        await read_file(Context(tmp_path), "a.png")


@pytest.mark.parametrize(
    "asked",
    ["../secret.txt", "/etc/passwd", "inside/../../secret.txt", "link-out", "linked-folder/secret.txt", "~/secret.txt"],
)
async def test_a_file_outside_the_workspace_needs_approval(
    tmp_path: Path, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "ws"
    (workspace / "inside").mkdir(parents=True)
    outside = tmp_path / "secret.txt"
    outside.write_text("hidden")
    (workspace / "link-out").symlink_to(outside)
    (workspace / "linked-folder").symlink_to(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    context = Context(workspace)
    with pytest.raises(ToolError, match="denied it"):
        await read_file(context, asked)
    assert "outside the workspace" in context.asked[0]


async def test_a_sibling_folder_with_the_same_beginning_is_outside(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws-secret").mkdir()
    (tmp_path / "ws-secret" / "a.txt").write_text("hidden")
    with pytest.raises(ToolError, match="denied it"):
        await read_file(Context(tmp_path / "ws"), "../ws-secret/a.txt")


async def test_a_link_that_stays_inside_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("fine")
    (tmp_path / "link").symlink_to("real.txt")
    (block,) = await read_file(Context(tmp_path), "link")
    assert "fine" in text_of(block)


@pytest.mark.parametrize("name", [".env", "id_rsa", "server.pem", "credentials.json", ".netrc", "prod.env.local.key"])
async def test_a_file_that_may_hold_secrets_needs_approval_under_any_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("TOKEN=1")
    (tmp_path / "harmless.txt").symlink_to(name)
    for asked in (name, "harmless.txt"):
        context = Context(tmp_path)
        with pytest.raises(ToolError, match="denied it"):
            await read_file(context, asked)
        assert "secrets" in context.asked[0]


def test_names_that_are_sensitive_are_so_wherever_they_are() -> None:
    assert is_sensitive(Path("/home/a/.ssh/config"))
    assert is_sensitive(Path("/x/.aws/config"))
    assert not is_sensitive(Path("/x/environment.md"))
    assert not is_sensitive(Path("/x/keyboard.png"))


async def test_an_approved_file_is_read(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TOKEN=1")
    (block,) = await read_file(Context(tmp_path, allow=True), ".env")
    assert "TOKEN=1" in text_of(block)


async def test_pipes_devices_folders_and_absent_files_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for asked in ("pipe", "folder", "loop", "dangling", "zero", "absent", "nul\0byte", "x" * 5000, "a\n\u202e.png"):
        with pytest.raises(Unreadable):
            await read_file(Context(tmp_path, allow=True), asked)


async def test_a_sparse_giant_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    with (tmp_path / "giant.bin").open("wb") as file:
        file.truncate(100 * 10**9)
    with pytest.raises(TooLarge):
        await read_file(Context(tmp_path, allow=True), "giant.bin")


async def test_a_link_swapped_while_reading_never_leaks(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (tmp_path / "secret.txt").write_text("the secret")
    (workspace / "real.txt").write_text("harmless")
    target = workspace / "file.txt"
    target.symlink_to("real.txt")
    stop = threading.Event()

    def swap() -> None:
        for turn in range(100_000):
            if stop.is_set():
                return
            spare = workspace / "spare"
            spare.symlink_to("../secret.txt" if turn % 2 else "real.txt")
            spare.rename(target)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(1_500):
            try:
                (block,) = await read_file(Context(workspace), "file.txt")
            except ToolError:
                continue
            assert "the secret" not in text_of(block)
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(("offset", "limit", "pages"), [(0, None, ""), (1, 0, ""), (-3, 5, "")])
async def test_odd_numbers_get_an_explanation(tmp_path: Path, offset: int, limit: int | None, pages: str) -> None:
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(ToolError, match="count lines from 1"):
        await read_file(Context(tmp_path), "a.txt", offset=offset, limit=limit, pages=pages)


@pytest.mark.parametrize("pages", ["0", "5-2", "a-b", "1,2", "-3", "1-2-3"])
async def test_odd_pages_get_an_explanation(tmp_path: Path, pages: str) -> None:
    (tmp_path / "a.pdf").write_bytes(sample_pdf("x"))
    with pytest.raises(ContentError, match=r"(?i)pages"):
        await read_file(Context(tmp_path), "a.pdf", pages=pages)


async def test_line_behind_the_end_gets_an_explanation(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo")
    with pytest.raises(ToolError, match="2 lines"):
        await read_file(Context(tmp_path), "a.txt", offset=3)


async def test_a_file_inside_an_archive_is_read_by_its_path(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bundle.zip", "w") as archive:
        archive.writestr("docs/notes.txt", "first\nsecond\n")
    (block,) = await read_file(Context(tmp_path), "bundle.zip", member="docs/notes.txt", offset=2)
    assert "     2\tsecond" in text_of(block)
