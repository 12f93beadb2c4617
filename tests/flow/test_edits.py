"""Edits in a session: any calls of one step, files that the model does not know as they are, and undo."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flow.cut_call import cut_off, drain, open_runtime
from loom.content.blocks import TextBlock, ToolCall, ToolResult
from loom.content.messages import text_of
from loom.errors import NotFound
from loom.events import ApprovalRequested, ToolProgressed
from loom.runtime import Runtime
from loom.testing import ScriptedAnswer, ScriptedProvider, memory_runtime
from loom.tools.base import text_result, tool

MODEL = "anthropic/claude-opus-5"
START = {"a.txt": "one\ntwo\nthree\n", "b.txt": "one\n"}


def call(number: int, name: str, **arguments: Any) -> ToolCall:
    return ToolCall(f"c{number}", name, arguments)


ALLOWED = {"approval.default": "allow"}


def provider_of(runtime: Runtime) -> ScriptedProvider:
    found = runtime.models.given_providers["anthropic"]
    assert isinstance(found, ScriptedProvider)
    return found


async def talk(runtime: Runtime, folder: Path, answers: list[ScriptedAnswer], session_id: str = "") -> str:
    """Run a turn that follows a script; return the session's id."""
    provider_of(runtime).add(*answers, "Done.")
    session = await runtime.session(session_id, model=MODEL, workspace=str(folder))
    await session.send("go")
    return session.id


async def results(runtime: Runtime, session_id: str) -> list[ToolResult]:
    session = await runtime.session(session_id)
    return [result for message in await session.path() for result in message.results]


def contents(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in sorted(folder.iterdir())}


def write_all(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


PATHS = st.sampled_from(["a.txt", "b.txt", "new.txt"])
WORDS = st.sampled_from(["one", "two", "three", "four"])
COMMANDS = st.sampled_from(
    ["echo four >> a.txt", "rm -f b.txt", "mv a.txt new.txt", "cp a.txt b.txt", "sed -i s/one/two/ b.txt", "exit 3"]
)
CALLS = st.one_of(
    st.tuples(st.just("read_file"), st.fixed_dictionaries({"path": PATHS})),
    st.tuples(st.just("write_file"), st.fixed_dictionaries({"path": PATHS, "content": WORDS})),
    st.tuples(st.just("edit_file"), st.fixed_dictionaries({"path": PATHS, "old": WORDS, "new": WORDS})),
    st.tuples(
        st.just("multi_edit"),
        st.fixed_dictionaries(
            {
                "path": PATHS,
                "edits": st.lists(st.fixed_dictionaries({"old": WORDS, "new": WORDS}), min_size=1, max_size=3),
            }
        ),
    ),
    st.tuples(st.just("run_command"), st.fixed_dictionaries({"command": COMMANDS})),
)


UNSEEN = re.compile("was not read in this session|since it was read|an earlier call of this step was refused")


@settings(max_examples=40, deadline=None)
@given(made=st.lists(CALLS, min_size=1, max_size=8), is_read=st.booleans())
def test_any_calls_of_one_step_leave_the_files_that_they_leave_one_after_another(
    made: list[tuple[str, dict[str, Any]]], is_read: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Unless one is refused because the model has not seen the file: it has to read the refusal before anything changes
    that file."""
    calls = [call(number, name, **arguments) for number, (name, arguments) in enumerate(made)]
    reads: list[ScriptedAnswer] = [[call(90, "read_file", path="a.txt"), call(91, "read_file", path="b.txt")]]

    async def outcome(
        name: str, steps: list[ScriptedAnswer]
    ) -> tuple[dict[str, str], list[ToolResult], dict[str, str]]:
        folder = write_all(tmp_path_factory.mktemp(name), START)
        async with memory_runtime(ALLOWED, providers={"anthropic": ScriptedProvider([])}, tools="all") as runtime:
            session_id = await talk(runtime, folder, [*(reads if is_read else ()), *steps])
            found = (await results(runtime, session_id))[2 * is_read :]
            after = contents(folder)
            session = await runtime.session(session_id)
            if changed := await session.changes():
                await session.undo(changed[0].step)
            return after, found, contents(folder)

    after, found, undone = asyncio.run(outcome("together", [calls]))
    is_unseen = [result.is_error and UNSEEN.search(text_of(result)) is not None for result in found]
    if not any(is_unseen):
        apart = asyncio.run(outcome("apart", [[one] for one in calls]))
        assert (after, [it.is_error for it in found], undone) == (apart[0], [it.is_error for it in apart[1]], apart[2])
    if not any(name == "run_command" for name, _ in made):
        assert undone == START
        for number, (_, arguments) in enumerate(made):
            later = range(number, len(made)) if is_unseen[number] else range(0)
            edits = [at for at in later if made[at][0] != "read_file" and made[at][1]["path"] == arguments["path"]]
            assert all(is_unseen[at] for at in edits), "nothing is changed blindly"
    if all(it.is_error for it in found):
        assert after == START


async def test_files_that_the_model_does_not_know_are_refused_once_also_in_another_process(tmp_path: Path) -> None:
    folder = write_all(tmp_path / "ws", START)
    edit = {"path": "a.txt", "old": "two", "new": "2"}
    async with memory_runtime(ALLOWED, providers={"anthropic": ScriptedProvider([])}, tools="all") as runtime:
        session_id = await talk(runtime, folder, [call(1, "edit_file", **edit), call(2, "edit_file", **edit)])
        unread, done = await results(runtime, session_id)
        assert (unread.is_error, done.is_error) == (True, False)
        assert "was not read in this session" in text_of(unread)
        assert "two" in text_of(unread)
        (folder / "a.txt").write_text("one\n2\nthree\nby hand\n")
        # A fresh session object knows only what is stored.
        again = {"path": "a.txt", "old": "three", "new": "3"}
        await talk(runtime, folder, [call(3, "edit_file", **again), call(4, "edit_file", **again)], session_id)
        stale, done = (await results(runtime, session_id))[2:]
        assert (stale.is_error, done.is_error) == (True, False)
        assert "changed by another program" in text_of(stale)
        assert "by hand" in text_of(stale)
    assert (folder / "a.txt").read_text() == "one\n2\n3\nby hand\n"


async def test_a_file_that_was_mentioned_is_known(tmp_path: Path) -> None:
    folder = write_all(tmp_path / "ws", START)
    edit = call(1, "edit_file", path="a.txt", old="two", new="2")
    async with memory_runtime(
        ALLOWED, providers={"anthropic": ScriptedProvider([edit, "Done."])}, tools="all"
    ) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(folder))
        await session.send("change two in @a.txt")
        assert [result.is_error for result in await results(runtime, session.id)] == [False]


async def test_nobody_is_asked_about_an_edit_that_would_be_refused(tmp_path: Path) -> None:
    folder = write_all(tmp_path / "ws", START)
    edit = {"path": "a.txt", "old": "two", "new": "2"}
    outside = call(2, "write_file", path="../evil.txt", content="x")
    async with memory_runtime(
        providers={"anthropic": ScriptedProvider([[call(1, "edit_file", **edit), outside], "Done."])}, tools="all"
    ) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(folder))
        asked = [event async for event in session.stream("go") if isinstance(event, ApprovalRequested)]
        assert asked == []
        assert [result.is_error for result in await results(runtime, session.id)] == [True, True]


async def test_undo_goes_back_step_by_step_and_the_model_is_told(tmp_path: Path) -> None:
    folder = write_all(tmp_path / "ws", {**START, "empty.txt": ""})
    async with memory_runtime(ALLOWED, providers={"anthropic": ScriptedProvider([])}, tools="all") as runtime:
        reads: ScriptedAnswer = [call(0, "read_file", path="a.txt"), call(1, "read_file", path="empty.txt")]
        first: ScriptedAnswer = [
            call(2, "edit_file", path="a.txt", old="one", new="1"),
            call(3, "write_file", path="sub/new.txt", content="new\n"),
        ]
        second = call(4, "multi_edit", path="a.txt", edits=[{"old": "two", "new": "2"}, {"old": "three", "new": "3"}])
        third = call(5, "write_file", path="empty.txt", content="full\n")
        session_id = await talk(runtime, folder, [reads, first, second, third])
        session = await runtime.session(session_id)
        steps = await session.changes()
        assert [[change.path for change in step.changes] for step in steps] == [
            ["a.txt", "sub/new.txt"],
            ["a.txt"],
            ["empty.txt"],
        ]
        assert (await session.undo()).steps == (3,)
        assert (folder / "empty.txt").read_text() == ""
        assert [step.is_undone for step in await session.changes()] == [False, False, True]
        report = await session.undo(1)
        assert report.steps == (1, 2)
        assert (folder / "a.txt").read_text() == START["a.txt"]
        assert not (folder / "sub" / "new.txt").exists()
        with pytest.raises(NotFound, match="Nothing to undo"):
            await session.undo()
        with pytest.raises(NotFound, match="Step 9"):
            await session.undo(9)
        provider = provider_of(runtime)
        provider.add("I see.")
        await session.send("and now?")
        blocks = [block for message in provider.prompts[-1].messages for block in message.blocks]
        told = "\n".join(block.text for block in blocks if isinstance(block, TextBlock))
        assert "The user undid your changes" in told
        assert "sub/new.txt was removed" in told


async def test_undo_leaves_a_file_alone_that_something_else_changed(tmp_path: Path) -> None:
    folder = write_all(tmp_path / "ws", START)
    async with memory_runtime(ALLOWED, providers={"anthropic": ScriptedProvider([])}, tools="all") as runtime:
        steps: list[ScriptedAnswer] = [
            call(1, "read_file", path="a.txt"),
            [call(2, "edit_file", path="a.txt", old="one", new="1"), call(3, "write_file", path="c.txt", content="c")],
        ]
        session_id = await talk(runtime, folder, steps)
        (folder / "a.txt").write_text("by hand\n")
        report = await (await runtime.session(session_id)).undo()
        assert any("a.txt was not changed" in sentence for sentence in report.files)
    assert contents(folder) == {"a.txt": "by hand\n", "b.txt": "one\n"}


async def test_a_step_stays_open_while_a_file_of_it_was_left_alone(tmp_path: Path) -> None:
    folder = write_all(tmp_path / "ws", START)
    async with memory_runtime(ALLOWED, providers={"anthropic": ScriptedProvider([])}, tools="all") as runtime:
        steps: list[ScriptedAnswer] = [
            call(1, "read_file", path="a.txt"),
            call(2, "edit_file", path="a.txt", old="one", new="1"),
            call(3, "edit_file", path="a.txt", old="two", new="2"),
        ]
        session = await runtime.session(await talk(runtime, folder, steps))
        (folder / "a.txt").write_text("by hand\n")
        before = await session.path()
        report = await session.undo()
        assert report.steps == ()
        assert report.files == ("a.txt was not changed: another program has changed or removed it since",)
        assert await session.path() == before, "the model is not told of an undo that did nothing"
        assert [step.is_undone for step in await session.changes()] == [False, False]
        (folder / "a.txt").write_text("1\n2\nthree\n")
        report = await session.undo(1)
        assert (report.steps, report.files) == ((1, 2), ("a.txt was restored",)), "one sentence for each file"
    assert contents(folder) == START


@settings(max_examples=20, deadline=None)
@given(ends=st.lists(st.sampled_from(["edit", "todos", "compact"]), min_size=1, max_size=9))
def test_the_todo_list_and_undo_reach_behind_any_summaries(
    ends: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def play() -> None:
        folder = write_all(tmp_path_factory.mktemp("ws"), START)
        edits = todos = listed = 0
        async with memory_runtime(ALLOWED, providers={"anthropic": ScriptedProvider([])}, tools="all") as runtime:
            session = await runtime.session(await talk(runtime, folder, [call(0, "read_file", path="a.txt")]))
            for number, what in enumerate(ends, 1):
                if what == "compact":
                    provider_of(runtime).add("A summary.")
                    listed = todos
                    assert [event async for event in session.compact()]
                elif what == "edit":
                    old, new = f"x{edits}" if edits else "one", f"x{edits + 1}"
                    await talk(runtime, folder, [call(number, "edit_file", path="a.txt", old=old, new=new)], session.id)
                    edits += 1
                else:
                    todos = number
                    made = call(number, "update_todos", todos=[{"text": f"item {number}"}])
                    await talk(runtime, folder, [made], session.id)
            for opened in (session, await runtime.session(session.id)):
                assert len(await opened.changes()) == edits
                assert [todo.text for todo in await opened.todos()] == ([f"item {todos}"] if todos else [])
            first = text_of((await session.path())[0].blocks[0])
            assert re.findall(r"item (\d+)", first) == ([str(listed)] if listed else []), "the model reads its list"
            if edits:
                assert (await session.undo(1)).steps == tuple(range(1, edits + 1))
        assert contents(folder) == START

    asyncio.run(play())


async def test_undo_reverts_what_sub_agents_changed_together_with_their_step(tmp_path: Path) -> None:
    folder = write_all(tmp_path / "ws", START)
    async with memory_runtime(ALLOWED, providers={"anthropic": ScriptedProvider([])}, tools="all") as runtime:
        steps: list[ScriptedAnswer] = [
            call(1, "write_file", path="first.txt", content="1"),
            call(2, "ask_agent", tasks=["change a.txt"]),
            [call(3, "read_file", path="a.txt"), call(4, "write_file", path="c.txt", content="c")],
            [
                call(5, "edit_file", path="a.txt", old="one", new="1"),
                call(6, "edit_file", path="a.txt", old="two", new="2"),
            ],
            "Changed.",
        ]
        session = await runtime.session(await talk(runtime, folder, steps))
        assert contents(folder)["a.txt"] == "1\n2\nthree\n"
        assert [[change.path for change in step.changes] for step in await session.changes()] == [
            ["first.txt"],
            ["c.txt", "a.txt", "a.txt"],
        ]
        assert (await session.undo()).steps == (2,)
        assert contents(folder) == {**START, "first.txt": "1"}


@pytest.mark.parametrize("continues", [False, True])
async def test_what_a_sub_agent_changed_can_be_undone_when_it_is_cut_off(tmp_path: Path, continues: bool) -> None:
    """By the user, or by the end of the process; another one then continues the turn."""
    folder = write_all(tmp_path / "ws", START)
    async with memory_runtime(ALLOWED, providers={"anthropic": ScriptedProvider([])}, tools="all") as runtime:
        provider_of(runtime).add(
            call(1, "ask_agent", tasks=["change a.txt"]),
            [call(2, "write_file", path="c.txt", content="c"), call(3, "read_file", path="a.txt")],
            call(4, "edit_file", path="a.txt", old="one", new="1"),
            call(5, "run_command", command="sleep 3600"),
            "It was cut off.",
        )
        session = await runtime.session(model=MODEL, workspace=str(folder))
        async with session.stream("go") as events:
            async for event in events:
                if isinstance(event, ToolProgressed) and event.text.endswith("run_command"):
                    await (session.leave() if continues else session.cancel())
        assert contents(folder) != START
        session = await runtime.session(session.id)
        if continues:
            assert [event async for event in session.resume()]
        results = [text_of(result) for message in await session.path() for result in message.results]
        assert len(results) == 1 and "Check before you repeat it" in results[0]
        (step,) = await session.changes()
        assert [change.path for change in step.changes] == ["c.txt", "a.txt"]
        assert (await session.undo()).steps == (1,)
        assert contents(folder) == START


UNENDED_CALLS = (
    call(2, "edit_file", path="a.txt", old="one", new="1"),
    call(2, "multi_edit", path="a.txt", edits=[{"old": "one", "new": "1"}, {"old": "two", "new": "2"}]),
    call(2, "write_file", path="a.txt", content="all new\n"),
    call(2, "write_file", path="deep/new.txt", content="new\n"),
)


@pytest.mark.parametrize("made", UNENDED_CALLS, ids=lambda made: f"{made.name}-{made.arguments['path']}")
@pytest.mark.parametrize("way", ["cancel", "leave", "kill"])
async def test_a_change_whose_call_did_not_end_can_be_undone(tmp_path: Path, way: str, made: ToolCall) -> None:
    folder = write_all(tmp_path / "ws", START)
    async with open_runtime(tmp_path, []) as runtime:
        session_id = (await runtime.session(model=MODEL, workspace=str(folder))).id
    await cut_off(tmp_path, session_id, [call(1, "read_file", path="a.txt")], made, way)
    async with open_runtime(tmp_path, ["Done."]) as runtime:
        session = await runtime.session(session_id)
        await drain(session.resume())
        (step,) = await session.changes()
        assert [change.path for change in step.changes] == [made.arguments["path"]]
        assert (await session.undo()).steps == (1,)
    assert {file.name: file.read_text() for file in folder.rglob("*") if file.is_file()} == START


@pytest.mark.parametrize("made", UNENDED_CALLS, ids=lambda made: f"{made.name}-{made.arguments['path']}")
async def test_what_a_formatter_hook_makes_of_a_file_is_shown_edited_and_undone_with_its_change(
    tmp_path: Path, made: ToolCall
) -> None:
    folder = write_all(tmp_path / "ws", START)
    path = made.arguments["path"]
    hook = {"tool": made.name, "command": f"sed -i '1s/^[^#]/# &/' {path}"}
    read = call(1, "read_file", path="a.txt")
    answers: list[ScriptedAnswer] = [read, made, call(3, "edit_file", path=path, old="# ", new="## "), "Done."]
    async with open_runtime(tmp_path, answers, **{"hooks.after_tool": [hook]}) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(folder))
        await session.send("go")
        found = {result.call_id: result for result in await results(runtime, session.id)}
        assert re.search(rf"hook changed {path}:\n(.*\n)*\+# ", text_of(found["c2"]))
        assert not found["c3"].is_error
        assert (folder / path).read_text().startswith("## ")
        steps = [step.step for step in await session.changes()]
        assert len(steps) == 2
        assert [*(await session.undo(steps[0])).steps] == steps
    assert {file.name: file.read_text() for file in folder.rglob("*") if file.is_file()} == START


@pytest.mark.parametrize("way", ["cancel", "leave"])
async def test_what_a_hook_made_of_a_file_before_it_was_cut_off_is_undone_with_the_change(
    tmp_path: Path, way: str
) -> None:
    folder = write_all(tmp_path / "ws", START)
    async with open_runtime(tmp_path, []) as runtime:
        session_id = (await runtime.session(model=MODEL, workspace=str(folder))).id
    made = call(2, "edit_file", path="a.txt", old="one", new="1")
    await cut_off(tmp_path, session_id, [call(1, "read_file", path="a.txt")], made, way, "sed -i 's/two/2/' a.txt")
    assert contents(folder)["a.txt"] == "1\n2\nthree\n"
    async with open_runtime(tmp_path, ["Done."]) as runtime:
        session = await runtime.session(session_id)
        await drain(session.resume())
        assert (await session.undo()).steps == (1,)
    assert contents(folder) == START


@pytest.mark.parametrize("way", ["cancel", "leave", "kill"])
async def test_a_change_that_a_sub_agent_was_making_when_it_was_cut_off_can_be_undone(tmp_path: Path, way: str) -> None:
    folder = write_all(tmp_path / "ws", START)
    async with open_runtime(tmp_path, []) as runtime:
        session_id = (await runtime.session(model=MODEL, workspace=str(folder))).id
    answers: list[ScriptedAnswer] = [
        call(1, "ask_agent", tasks=["change a.txt"]),
        [call(2, "write_file", path="c.txt", content="c"), call(3, "read_file", path="a.txt")],
    ]
    await cut_off(tmp_path, session_id, answers, call(4, "edit_file", path="a.txt", old="one", new="1"), way)
    assert contents(folder) != START
    async with open_runtime(tmp_path, ["Done."]) as runtime:
        session = await runtime.session(session_id)
        await drain(session.resume())
        (step,) = await session.changes()
        assert [change.path for change in step.changes] == ["c.txt", "a.txt"]
        assert (await session.undo()).steps == (1,)
    assert contents(folder) == START


@pytest.mark.parametrize("place", ["folder", "pipe", "lost link"])
async def test_undo_restores_the_other_files_if_one_is_no_longer_a_file(tmp_path: Path, place: str) -> None:
    folder = write_all(tmp_path / "ws", START)
    async with memory_runtime(ALLOWED, providers={"anthropic": ScriptedProvider([])}, tools="all") as runtime:
        steps: list[ScriptedAnswer] = [
            call(1, "read_file", path="b.txt"),
            [call(2, "write_file", path="c.txt", content="c"), call(3, "edit_file", path="b.txt", old="one", new="1")],
        ]
        session = await runtime.session(await talk(runtime, folder, steps))
        (folder / "c.txt").unlink()
        match place:
            case "folder":
                (folder / "c.txt").mkdir()
            case "pipe":
                os.mkfifo(folder / "c.txt")
            case _:
                (folder / "c.txt").symlink_to("nowhere")
        report = await session.undo()
        assert report.steps == ()
        assert report.files[0].startswith("c.txt was not changed: ") and report.files[1] == "b.txt was restored"
    assert (folder / "b.txt").read_text() == START["b.txt"]


async def test_a_file_that_could_not_be_written_was_not_changed(tmp_path: Path) -> None:
    folder = write_all(tmp_path / "ws", START)
    async with memory_runtime(ALLOWED, providers={"anthropic": ScriptedProvider([])}, tools="all") as runtime:
        made: ScriptedAnswer = [
            call(1, "write_file", path="a.txt/new.txt", content="x"),
            call(2, "write_file", path="n" * 300, content="x"),
        ]
        session = await runtime.session(await talk(runtime, folder, [made]))
        assert [result.is_error for result in await results(runtime, session.id)] == [True, True]
        assert await session.changes() == ()


async def test_data_of_other_tools_are_not_taken_for_changes_of_files(tmp_path: Path) -> None:
    @tool
    async def compare() -> ToolResult:
        """Compare two versions."""
        return text_result("2 changes", data={"change": {"size": 1}, "changes": ["a", "b"]})

    async with memory_runtime(ALLOWED, providers={"anthropic": ScriptedProvider([])}, tools=[compare]) as runtime:
        session = await runtime.session(await talk(runtime, tmp_path, [call(1, "compare")]))
        assert await session.changes() == ()
        assert await session.todos() == ()
