"""write_file and edit_file: what is written, how it is found, and where nothing is ever written."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import threading
from functools import partial
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from loom.content.blocks import ToolResult
from loom.errors import LoomError, ToolError
from loom.tools.builtin import builtin_tools
from loom.tools.diff import unified_diff
from loom.tools.file_edits import edit_file, write_file
from loom.tools.passage_match import passages, replace_passages
from tools.world import Context, said

TOOLS = builtin_tools()


async def edit(workspace: Path, path: str, old: str, new: str, **more: object) -> str:
    return await said(edit_file, Context(workspace), path=path, old=old, new=new, **more)


def test_both_ask_first() -> None:
    assert TOOLS["write_file"].danger == TOOLS["edit_file"].danger == "ask"


async def test_a_new_file_and_its_folders_are_made_and_the_diff_says_so(tmp_path: Path) -> None:
    result = await write_file.run(Context(tmp_path), {"path": "a/b/new.txt", "content": "one\ntwo\n"})
    assert isinstance(result, ToolResult)
    assert (tmp_path / "a/b/new.txt").read_bytes() == b"one\ntwo\n"
    assert result.data["added"] == 2
    assert result.data["diff"] == "--- /dev/null\n+++ b/a/b/new.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n"


async def test_an_edit_shows_a_diff_that_the_patch_program_takes(tmp_path: Path) -> None:
    lines = [f"line {number}\n" for number in range(1, 101)]
    (tmp_path / "a.txt").write_text("".join(lines))
    (tmp_path / "copy.txt").write_text("".join(lines))
    result = await edit_file.run(
        Context(tmp_path), {"path": "a.txt", "old": "line 50\nline 51\n", "new": "fifty\nline 51\nmore\n"}
    )
    assert isinstance(result, ToolResult)
    assert (result.data["added"], result.data["removed"]) == (2, 1)
    patch = partial(subprocess.run, cwd=tmp_path, input=result.data["diff"], text=True, check=True)
    await asyncio.to_thread(patch, ["patch", "-s", "copy.txt"])
    assert (tmp_path / "copy.txt").read_text() == (tmp_path / "a.txt").read_text()


@settings(max_examples=150, deadline=None)
@given(*[st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "dd\n"]), max_size=30)] * 2, st.booleans(), st.booleans())
def test_every_diff_leads_from_one_text_to_the_other(
    before: list[str], after: list[str], cut_old: bool, cut_new: bool
) -> None:
    old = "".join(before).removesuffix("\n" if cut_old else "\0")
    new = "".join(after).removesuffix("\n" if cut_new else "\0")
    diff = unified_diff(old, new, "f")
    assert applied(old, diff.text) == new
    assert (diff.text == "") == (old == new)


def applied(old: str, diff: str) -> str:
    """A small patch program: trusts the line numbers, checks every context line."""
    lines = old.split("\n")
    source = [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    made: list[str] = []
    at = 0
    body = diff.split("\n")[2:-1] if diff else []
    for position, line in enumerate(body):
        bare = position + 1 < len(body) and body[position + 1].startswith("\\")
        text = line[1:] + ("" if bare else "\n")
        if line.startswith("@@"):
            start, _, count = line.split()[1][1:].partition(",")
            first = int(start) - (count != "0")
            made += source[at:first]
            at = first
        elif line.startswith((" ", "-")):
            assert source[at] == text
            made += [text] if line.startswith(" ") else []
            at += 1
        elif line.startswith("+"):
            made.append(text)
    return "".join(made + source[at:])


async def test_encoding_line_ends_mode_and_a_missing_last_newline_are_kept(tmp_path: Path) -> None:
    late_damage = b"ascii\n" * 2_000 + b"x\xff\n"
    cases = {
        "crlf.txt": (b"one\r\ntwo\r\nthree", "two\n", "zwei\n", b"one\r\nzwei\r\nthree"),
        "bom.txt": (b"\xef\xbb\xbfa\nb\n", "b", "ü", b"\xef\xbb\xbfa\n\xc3\xbc\n"),
        "wide.txt": ("a\nb\n".encode("utf-16"), "b", "ü", b"\xff\xfe" + "a\nü\n".encode("utf-16-le")),
        "latin.txt": ("schön\nalt\n".encode("cp1252"), "alt", "größer", "schön\ngrößer\n".encode("cp1252")),
        "damaged.txt": (b"old\n" + late_damage, "old", "new", b"new\n" + late_damage),
        "mixed.txt": (b"a\r\nb\nc\n", "b\nc", "B\nC", b"a\r\nB\nC\n"),
    }
    for name, (before, old, new, after) in cases.items():
        file = tmp_path / name
        file.write_bytes(before)
        file.chmod(0o751)
        await edit(tmp_path, name, old, new)
        assert file.read_bytes() == after, name
        assert stat.S_IMODE(file.stat().st_mode) == 0o751


async def test_a_whole_file_written_anew_keeps_its_line_ends_and_its_mark(tmp_path: Path) -> None:
    (tmp_path / "a.bat").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    await write_file.run(Context(tmp_path), {"path": "a.bat", "content": "drei\nvier\n"})
    assert (tmp_path / "a.bat").read_bytes() == b"\xef\xbb\xbfdrei\r\nvier\r\n"


_SMALL = st.text('ab\n “"', max_size=12)


@settings(max_examples=200, deadline=None)
@given(before=_SMALL, old=_SMALL, new=_SMALL, after=_SMALL, mark=st.sampled_from(["\r\n", "\r"]))
def test_an_edit_of_any_lines_gives_them_the_line_ends_of_the_file(
    before: str, old: str, new: str, after: str, mark: str
) -> None:
    text = f"a\n{before}{old}{after}\n"
    assume(old.strip("\n") and text.count(old) == 1)
    made = text.replace(old, new)

    def edited(newline: str, old: str) -> str:
        there = text.replace("\n", newline)
        return replace_passages(there, passages(there, old, new, every=False, newline=newline, name="a.txt"))

    assert edited("\n", old) == made
    assert edited(mark, old) == edited(mark, old.replace("\n", mark)) == made.replace("\n", mark)


async def test_a_line_of_a_file_with_other_line_ends_becomes_several(tmp_path: Path) -> None:
    (tmp_path / "a.bat").write_bytes(b"one\r\ntwo\r\n")
    await edit(tmp_path, "a.bat", "two", "two\nthree")
    assert (tmp_path / "a.bat").read_bytes() == b"one\r\ntwo\r\nthree\r\n"
    (tmp_path / "old.txt").write_bytes(b"one\rtwo\r")
    await edit(tmp_path, "old.txt", "one\ntwo", "1\n2")
    assert (tmp_path / "old.txt").read_bytes() == b"1\r2\r"


async def test_a_place_that_is_no_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    for path, why in (("", "^\\. is a folder"), ("dangling", "dangling is a link to a file that does not exist")):
        with pytest.raises(LoomError, match=why):
            await write_file.run(Context(tmp_path), {"path": path, "content": "x"})


async def test_cells_as_they_are_read_are_shown_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id;name\n1;Ann\n2;Bob\n")
    with pytest.raises(ToolError, match="Nearest are these lines:\n     3\t2;Bob\n"):
        await edit(tmp_path, "a.csv", "2 | Bob", "2 | Rob")


async def test_characters_that_the_encoding_lacks_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes("schön\n".encode("cp1252"))
    with pytest.raises(ToolError, match="Windows-1252, which cannot encode '漢'"):
        await edit(tmp_path, "latin.txt", "schön", "漢字")
    assert (tmp_path / "latin.txt").read_bytes() == "schön\n".encode("cp1252")


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        ("if a:\n    b = 1   \n    c\n", "    b = 1\n    c\n", "    d\n", "if a:\n    d\n"),
        ("def f():\n    if x:\n        y()\n", "if x:\n    y()", "if z:\n    w()\nelse:\n    v()", None),
        ("a:\n  b\n", "    a:\n      b", "    a:\n      c", "a:\n  c\n"),
        ("x  =  1\ny = 2\n", "x = 1\ny = 2", "x = 3", "x = 3\n"),
        ("a\r\n  b\r\nc\r\n", "b\nc", "d\ne", "a\r\n  d\r\ne\r\n"),
        ("keep\n  gone   \nkeep\n", "gone\n", "", "keep\nkeep\n"),
    ],
)
async def test_other_white_space_is_tolerated_and_new_lines_are_indented_alike(
    tmp_path: Path, before: str, old: str, new: str, after: str | None
) -> None:
    (tmp_path / "a.py").write_bytes(before.encode())
    await edit(tmp_path, "a.py", old, new)
    expected = after or "def f():\n    if z:\n        w()\n    else:\n        v()\n"
    assert (tmp_path / "a.py").read_bytes() == expected.encode()


async def test_where_the_indentation_is_not_clear_the_lines_are_shown_instead(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("if x:\n      a\n   b\n")
    with pytest.raises(ToolError, match=r"not clear how new should be indented\. It reads:\n      a\n   b"):
        await edit(tmp_path, "a.py", "a\nb\n", "c\nd\n")


async def test_several_places_are_refused_with_their_lines_unless_all_are_meant(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\ny\nx\nz\nx\n")
    with pytest.raises(ToolError, match=r"3 times, at the lines 1, 3, 5"):
        await edit(tmp_path, "a.txt", "x", "w")
    assert (tmp_path / "a.txt").read_text() == "x\ny\nx\nz\nx\n"
    assert "in 3 places" in await edit(tmp_path, "a.txt", "x", "w", all=True)
    assert (tmp_path / "a.txt").read_text() == "w\ny\nw\nz\nw\n"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("retrun total", "x", "Nearest are these lines:\n     2\t    return total"),
        ("     2\t    return total", "x", "Leave out the line numbers"),
        ("", "x", "old is empty"),
        ("\n", "x", "old is empty"),
        ("total", "total", "the same"),
    ],
)
async def test_an_edit_that_cannot_be_made_says_what_to_do(tmp_path: Path, old: str, new: str, words: str) -> None:
    (tmp_path / "a.py").write_text("def f():\n    return total\n")
    with pytest.raises(ToolError) as caught:
        await edit(tmp_path, "a.py", old, new)
    assert words in str(caught.value)


def everything(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    "asked",
    [
        *(
            "../out.txt",
            "/tmp/loom-out.txt",
            "link-out",
            "linked/out.txt",
            "linked/new/out.txt",
            "in/../../out.txt",
        ),
        *("new/../../out.txt", "../ws-secret/a.txt", "dangling", "loop", "folder", "folder/", ".", "..", "", "nul\0"),
        *("pipe", "x" * 5_000, "file/below", "~/out.txt", "\ud800"),
    ],
)
async def test_nothing_is_ever_written_outside_the_workspace(
    tmp_path: Path, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "ws"
    (workspace / "in").mkdir(parents=True)
    (workspace / "folder").mkdir()
    (workspace / "file").write_text("x")
    (tmp_path / "ws-secret").mkdir()
    (tmp_path / "target.txt").write_text("old")
    (workspace / "link-out").symlink_to(tmp_path / "target.txt")
    (workspace / "linked").symlink_to(tmp_path)
    (workspace / "dangling").symlink_to(tmp_path / "nowhere.txt")
    (workspace / "loop").symlink_to("loop")
    os.mkfifo(workspace / "pipe")
    monkeypatch.setenv("HOME", str(tmp_path))
    before = everything(tmp_path)
    for tool, more in ((write_file, {"content": "new"}), (edit_file, {"old": "old", "new": "new"})):
        with pytest.raises(LoomError):
            await tool.run(Context(workspace, allow=True), {"path": asked, **more})
    assert everything(tmp_path) == before
    assert (tmp_path / "target.txt").read_text() == "old"


async def test_a_link_inside_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("old words")
    (tmp_path / "link").symlink_to("real.txt")
    await edit(tmp_path, "link", "old", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new words"


@pytest.mark.parametrize(
    "name",
    [
        *(".env", "id_rsa", ".git/hooks/pre-commit", "sub/.git/config", "disguised"),
        *(".mcp.json", "loom.toml", ".loom/loom.yaml", "sub/.claude/settings.json", ".CLAUDE/Settings.local.json"),
        *(".claude/commands/review.md", ".opencode/command/a/b.md"),
    ],
)
async def test_secrets_and_what_starts_programs_need_a_second_word(tmp_path: Path, name: str) -> None:
    (tmp_path / "disguised").symlink_to(".env")
    (tmp_path / ".env").write_text("A=1\n")
    context = Context(tmp_path)
    with pytest.raises(ToolError, match="denied it"):
        await write_file.run(context, {"path": name, "content": "x"})
    assert context.asked
    assert (tmp_path / ".env").read_text() == "A=1\n"


async def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    from loom.tools.file_write import original, write_bytes

    (tmp_path / "a.txt").write_text("one")
    found = original(tmp_path, "a.txt")
    assert found is not None
    (tmp_path / "spare").write_text("of somebody else")
    (tmp_path / "spare").rename(tmp_path / "a.txt")
    with pytest.raises(ToolError, match="changed by another program"):
        write_bytes(tmp_path, found, b"mine")
    assert (tmp_path / "a.txt").read_text() == "of somebody else"
    assert everything(tmp_path) == [str(tmp_path / "a.txt")]


async def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    contents = ["a" * 500_000 + "\n", "b" * 400_000 + "\n"]
    (tmp_path / "a.txt").write_text(contents[0])
    seen: set[str] = set()
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            seen.add((tmp_path / "a.txt").read_text())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        for turn in range(30):
            await write_file.run(Context(tmp_path), {"path": "a.txt", "content": contents[(turn + 1) % 2]})
    finally:
        stop.set()
        thread.join()
    assert seen <= set(contents)


async def test_ten_thousand_swaps_while_editing_never_touch_what_is_outside(tmp_path: Path) -> None:
    """A folder and a file are swapped for links that lead out, all the time."""
    workspace, outside = tmp_path / "ws", tmp_path / "outside"
    (workspace / "real").mkdir(parents=True)
    outside.mkdir()
    (outside / "file.txt").write_text("count 0")
    (workspace / "real" / "file.txt").write_text("count 0")
    (workspace / "folder").symlink_to("real")
    (workspace / "link.txt").symlink_to("real/file.txt")
    swaps = 0
    done = threading.Event()

    def swap() -> None:
        nonlocal swaps
        while swaps < 10_000 and not done.is_set():
            leads_out = swaps % 2 == 0
            (workspace / "spare").symlink_to("../outside" if leads_out else "real")
            (workspace / "spare").rename(workspace / "folder")
            (workspace / "spare").symlink_to("../outside/file.txt" if leads_out else "real/file.txt")
            (workspace / "spare").rename(workspace / "link.txt")
            swaps += 1

    thread = threading.Thread(target=swap)
    thread.start()
    written = refused = 0
    try:
        while thread.is_alive():
            for path in ("folder/file.txt", "link.txt", f"folder/new{written % 7}.txt"):
                try:
                    if "new" in path:
                        await write_file.run(Context(workspace), {"path": path, "content": str(written)})
                    else:
                        await edit(workspace, path, "count", "count" if written < 0 else "count ")
                        (workspace / "real" / "file.txt").write_text("count 0")
                    written += 1
                except LoomError:
                    refused += 1
    finally:
        done.set()
        thread.join()
    assert swaps == 10_000
    assert written > 20
    assert refused > 20
    assert everything(outside) == [str(outside / "file.txt")]
    assert (outside / "file.txt").read_text() == "count 0"
    assert not [path for path in everything(workspace) if path.endswith(".loom")]


async def test_a_folder_that_cannot_be_written_gives_an_answer(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="cannot be written"):
        await write_file.run(Context(Path("/proc/self")), {"path": "new.txt", "content": "x"})
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(LoomError):
        await write_file.run(Context(tmp_path), {"path": "full", "content": "x"})


async def test_a_workspace_that_was_deleted_is_named_by_every_tool(tmp_path: Path) -> None:
    arguments = {"path": "a.txt", "content": "x", "old": "x", "new": "y", "pattern": "x", "command": "pwd"}
    for name in ("read_file", "list_files", "search_files", "write_file", "edit_file", "run_command"):
        tool = builtin_tools()[name]
        given = {key: arguments[key] for key in tool.spec.parameters["required"]}
        with pytest.raises(LoomError, match=r"workspace no longer exists|not a folder"):
            await tool.run(Context(tmp_path / "gone", allow=True), given)
