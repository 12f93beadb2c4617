"""Edits of files that the model does not know as they are, several edits at once, and undo."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom.content.blocks import ToolResult
from loom.content.media import digest_of
from loom.errors import ToolError
from loom.tools.base import Tool
from loom.tools.file_edits import edit_file, multi_edit, write_file
from loom.tools.file_read import read_file
from loom.tools.file_records import FileRecords, RecordsFiles
from loom.tools.undo import restore_files
from loom.work_types import FileChange
from tools.world import Context

READ = Tool(read_file, reads_only=True)


class Recording(Context):
    """A context of a session that keeps records."""

    def __init__(self, workspace: Path) -> None:
        super().__init__(workspace, allow=True)
        self.file_records = FileRecords()
        self.changes: list[FileChange] = []

    def may_show(self, path: Path) -> bool:
        return path.name != "unseen.txt"

    async def keep_bytes(self, data: bytes) -> str:
        self.bytes[digest_of(data)] = data
        return digest_of(data)

    async def record_change(self, change: FileChange) -> None:
        self.changes.append(change)

    async def drop_change(self, change: FileChange) -> None:
        self.changes.remove(change)


async def run(tool: Tool, context: Context, **arguments: object) -> ToolResult:
    result = await tool.run(context, arguments)
    assert isinstance(result, ToolResult)
    return result


def test_a_session_that_keeps_records_is_known_by_what_it_offers(tmp_path: Path) -> None:
    assert isinstance(Recording(tmp_path), RecordsFiles)
    assert not isinstance(Context(tmp_path), RecordsFiles)


async def test_a_file_that_was_never_read_is_held_back_once_and_shown(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("first\nsecond\n")
    context = Recording(tmp_path)
    for tool, arguments in (
        (write_file, {"path": "a.txt", "content": "all new\n"}),
        (edit_file, {"path": "b.txt", "old": "x", "new": "y"}),
    ):
        (tmp_path / "b.txt").write_text("x\n")
        before = (tmp_path / arguments["path"]).read_bytes()
        with pytest.raises(ToolError, match="was not read in this session, and nothing was changed") as caught:
            await run(tool, context, **arguments)
        assert (tmp_path / arguments["path"]).read_bytes() == before
        assert "     1\t" in str(caught.value)
        with pytest.raises(ToolError, match="an earlier call of this step was refused"):
            await run(tool, context, **arguments)
        context.file_records.begin_step()
        await run(tool, context, **arguments)
        assert (tmp_path / arguments["path"]).read_bytes() != before


async def test_a_file_that_changed_since_it_was_read_is_held_back_once_with_the_difference(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\ntwo\nthree\n")
    context = Recording(tmp_path)
    await READ.run(context, {"path": "a.txt"})
    await run(edit_file, context, path="a.txt", old="one", new="eins")
    await run(edit_file, context, path="a.txt", old="two", new="zwei")
    file.write_text("eins\nzwei\nDREI by another\n")
    with pytest.raises(ToolError, match="was changed by another program since it was read") as caught:
        await run(write_file, context, path="a.txt", content="mine\n")
    assert "-three\n+DREI by another" in str(caught.value)
    assert file.read_text() == "eins\nzwei\nDREI by another\n"
    context.file_records.begin_step()
    await run(write_file, context, path="a.txt", content="mine\n")
    assert file.read_text() == "mine\n"


async def test_a_new_file_needs_no_reading_and_is_known_afterwards(tmp_path: Path) -> None:
    context = Recording(tmp_path)
    await run(write_file, context, path="new.txt", content="a\n")
    await run(edit_file, context, path="new.txt", old="a", new="b")
    assert (tmp_path / "new.txt").read_text() == "b\n"


async def test_several_edits_are_made_in_order_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one two\nthree\n")
    context = Context(tmp_path)
    edits = [{"old": "one", "new": "1"}, {"old": "1 two", "new": "1 2"}, {"old": "e", "new": "E", "all": True}]
    result = await run(multi_edit, context, path="a.txt", edits=edits)
    assert file.read_text() == "1 2\nthrEE\n"
    assert (result.data["added"], result.data["removed"]) == (2, 2)
    with pytest.raises(ToolError, match=r"edit 2 of 2: old is not in a\.txt"):
        await run(multi_edit, context, path="a.txt", edits=[{"old": "1", "new": "x"}, {"old": "gone", "new": "y"}])
    assert file.read_text() == "1 2\nthrEE\n"
    with pytest.raises(ToolError, match="old is empty in edit 2"):
        await run(multi_edit, context, path="a.txt", edits=[{"old": "1", "new": "x"}, {"old": "", "new": "y"}])
    with pytest.raises(ToolError, match="1 to 200"):
        await run(multi_edit, context, path="a.txt", edits=[])
    assert multi_edit.preview is not None
    assert "+x 2" in multi_edit.preview(tmp_path, {"path": "a.txt", "edits": [{"old": "1", "new": "x"}]})


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        ('say("a")\nnext\n', 'say(\\"a\\")\\nnext', 'say(\\"b\\")\\nnext', 'say("b")\nnext\n'),
        ("a\tb\n", "a\\tb", "a\\tc", "a\tc\n"),
        ("a\r\nb\r\n", "a\\nb", "a\\nc", "a\r\nc\r\n"),
        ("He said “hello” and left.\n", 'He said "hello" and left', 'He said "hello" and stayed', None),
        ("it’s here\n", "it's here", "it's there", "it’s there\n"),
        ('print("a\\nb")\n', 'print("a\\nb")', 'print("a\\nc")', 'print("a\\nc")\n'),
    ],
)
async def test_escapes_and_quotation_marks_are_forgiven_and_the_file_keeps_its_own(
    text: str, old: str, new: str, after: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(text.encode())
    await run(edit_file, Context(tmp_path), path="a.txt", old=old, new=new)
    assert file.read_bytes().decode() == (after or "He said “hello” and stayed.\n")


async def test_hard_links_stay_links_to_one_file(tmp_path: Path) -> None:
    file, other = tmp_path / "a.txt", tmp_path / "b.txt"
    file.write_text("one\n")
    os.link(file, other)
    await run(edit_file, Context(tmp_path), path="a.txt", old="one", new="longer than before")
    assert other.read_text() == file.read_text() == "longer than before\n"
    assert file.stat().st_ino == other.stat().st_ino
    await run(write_file, Context(tmp_path), path="b.txt", content="s")
    assert file.read_text() == "s"


async def test_edits_of_one_file_at_once_all_survive_or_say_that_they_were_refused(tmp_path: Path) -> None:
    """Whatever runs them together: what reports success is in the file."""
    file = tmp_path / "a.txt"
    for _ in range(6):
        file.write_text("".join(f"line {number};\n" for number in range(10)))
        results = await asyncio.gather(
            *(
                edit_file.run(Context(tmp_path), {"path": "a.txt", "old": f"line {n};", "new": f"edited {n};"})
                for n in range(10)
            ),
            return_exceptions=True,
        )
        for number, result in enumerate(results):
            is_there = f"edited {number};" in file.read_text()
            assert is_there == isinstance(result, ToolResult), result


async def test_undo_brings_back_the_bytes_before_and_removes_what_was_new(tmp_path: Path) -> None:
    latin = "schön\r\n".encode("cp1252")
    (tmp_path / "a.txt").write_bytes(latin)
    context = Recording(tmp_path)
    await READ.run(context, {"path": "a.txt"})
    await run(edit_file, context, path="a.txt", old="schön", new="alt")
    await run(write_file, context, path="sub/new.txt", content="new\n")
    await run(write_file, context, path="a.txt", content="all else\n")
    assert [change.path for change in context.changes] == ["a.txt", "sub/new.txt", "a.txt"]
    said = await restore_files(tmp_path, context.changes, context.load)
    assert (tmp_path / "a.txt").read_bytes() == latin
    assert not (tmp_path / "sub/new.txt").exists()
    assert said.sentences == ("a.txt was restored", "sub/new.txt was removed: it was new")
    again = await restore_files(tmp_path, context.changes, context.load)
    assert again.sentences == ("a.txt is already as it was before", "sub/new.txt is already as it was before")
    assert not again.left


async def test_undo_leaves_alone_what_something_else_changed_since(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    context = Recording(tmp_path)
    await READ.run(context, {"path": "a.txt"})
    await run(edit_file, context, path="a.txt", old="one", new="two")
    (tmp_path / "a.txt").write_text("by hand\n")
    said = await restore_files(tmp_path, context.changes, context.load)
    assert said.sentences == ("a.txt was not changed: another program has changed or removed it since",)
    assert (said.left, said.is_changed) == ({"a.txt"}, False)
    assert (tmp_path / "a.txt").read_text() == "by hand\n"


async def test_a_change_that_could_not_be_made_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    context = Recording(tmp_path)
    await READ.run(context, {"path": "a.txt"})
    record = context.record_change

    async def record_late(change: FileChange) -> None:
        await record(change)
        (tmp_path / change.path).write_text("by hand\n")

    monkeypatch.setattr(context, "record_change", record_late)
    for tool, arguments in (
        (edit_file, {"path": "a.txt", "old": "one", "new": "two"}),
        (write_file, {"path": "new.txt", "content": "new"}),
    ):
        with pytest.raises(ToolError, match="by another program meanwhile"):
            await tool.run(context, arguments)
    assert context.changes == []


async def test_what_is_never_written_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "link").symlink_to(tmp_path)
    (tmp_path / "there.txt").write_text("x")
    for tool in (write_file, edit_file, multi_edit):
        assert tool.precheck is not None
        for path in ("../evil.txt", "../there.txt", "link/new.txt", "/etc/new.txt", "../gone/deep/new.txt"):
            with pytest.raises(ToolError, match="outside the workspace"):
                tool.precheck(Recording(workspace), {"path": path})
        tool.precheck(Recording(workspace), {"path": "fine.txt"})
        tool.precheck(Recording(workspace), {"path": "new/deep/fine.txt"})


async def test_an_unknown_file_is_refused_before_anybody_is_asked_unless_that_would_show_what_is_not_allowed(
    tmp_path: Path,
) -> None:
    for name in ("a.txt", "unseen.txt", ".env"):
        (tmp_path / name).write_text("text\n")
    for tool in (write_file, edit_file, multi_edit):
        assert tool.precheck is not None
        context = Recording(tmp_path)
        with pytest.raises(ToolError, match="was not read in this session"):
            tool.precheck(context, {"path": "a.txt"})
        tool.precheck(context, {"path": "unseen.txt"})
        tool.precheck(context, {"path": ".env"})


def test_what_is_known_of_files_outlives_the_process(tmp_path: Path) -> None:
    records = FileRecords()
    records.note(tmp_path / "a.txt", b"one\n", "one\n")
    records.note(tmp_path / "b.txt", b"two\n", "two\n")
    assert records.is_changed
    stored = records.setting()
    assert not records.is_changed
    later = FileRecords()
    later.load(stored)
    later.check(tmp_path / "a.txt", b"one\n", "one\n", "a.txt")
    with pytest.raises(ToolError, match="was changed by another program since it was read") as caught:
        later.check(tmp_path / "b.txt", b"other\n", "other\n", "b.txt")
    assert "other" in caught.value.message


STEPS = st.lists(
    st.tuples(st.sampled_from(["a.txt", "b.txt"]), st.sampled_from("xyz"), st.text("xyz\n", max_size=5)), max_size=12
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(0, 12))
def test_undoing_any_last_steps_gives_what_was_there_before_them(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, str]], kept: int
) -> None:
    workspace = tmp_path_factory.mktemp("undo")

    async def play() -> None:
        context = Recording(workspace)
        states: list[dict[str, bytes]] = []

        def state() -> dict[str, bytes]:
            return {path.name: path.read_bytes() for path in workspace.iterdir()}

        for path, old, new in steps:
            states.append(state())
            try:
                if (workspace / path).exists():
                    await run(edit_file, context, path=path, old=old, new=new, all=True)
                else:
                    await run(write_file, context, path=path, content=old + new)
            except ToolError:
                states.pop()
        states.append(state())
        first = min(kept, len(context.changes))
        await restore_files(workspace, context.changes[first:], context.load)
        assert state() == states[first]

    asyncio.run(play())
