"""Rows 87, 88: the agent is told a file once, then what changed since it last saw it, and nothing otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.agent.tracked_files import MAX_FILE_BYTES, change_text, mentions
from loom.content.blocks import ToolCall
from loom.events import NoticeRaised
from loom.runtime import Runtime
from loom.testing import ScriptedProvider, memory_runtime, sample_png
from loom.tools.base import Tool, tool
from loom.tools.file_edits import edit_file
from loom.tools.file_read import read_file

MODEL = "anthropic/claude-opus-5"


class Talk:
    """A session in a workspace, and what the agent was told besides the user's words."""

    def __init__(self, runtime: Runtime, workspace: Path) -> None:
        self.runtime = runtime
        provider = runtime.models.given_providers["anthropic"]
        assert isinstance(provider, ScriptedProvider)
        self.provider = provider
        self.workspace = workspace
        self.session_id = ""
        self.notices: list[str] = []

    async def say(self, words: str, *calls: ToolCall) -> str:
        """One turn, in a session that is opened anew; gives what was told before the words, or nothing."""
        self.provider.add(*calls, "all right")
        session = await self.runtime.session(self.session_id, model=MODEL, workspace=str(self.workspace))
        self.session_id = session.id
        before = len(await session.path())
        events = [event async for event in session.stream(words)]
        self.notices = [event.text for event in events if isinstance(event, NoticeRaised)]
        told = (await session.path())[before:]
        return "" if told[0].text == words else told[0].text


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text("one\ntwo\nthree\n" + "".join(f"line {at}\n" for at in range(20)))
    return tmp_path


async def test_a_mentioned_file_is_told_whole_once_then_as_a_diff_then_not_at_all(workspace: Path) -> None:
    app = workspace / "app.py"
    async with memory_runtime(providers={"anthropic": ScriptedProvider([])}) as runtime:
        talk = Talk(runtime, workspace)
        assert await talk.say("look at @app.py, please") == f"[file: app.py]\n{app.read_text()}"
        assert await talk.say("anything new?") == ""
        assert await talk.say("and in @app.py?") == ""
        app.write_text(app.read_text().replace("two\n", "zwei\n"))
        told = await talk.say("and now?")
        assert told.startswith("[file: app.py has changed since you last saw it]\n--- a/app.py\n+++ b/app.py\n")
        assert "-two\n+zwei\n" in told
        assert await talk.say("more?") == ""
        app.unlink()
        assert await talk.say("still there?") == "[file: app.py no longer exists]"
        assert await talk.say("sure?") == ""
        app.write_text("back\n")
        assert await talk.say("and now?") == "[file: app.py]\nback\n"


async def test_what_the_agent_read_or_changed_itself_is_not_told_again(workspace: Path) -> None:
    app = workspace / "app.py"

    @tool
    def touch() -> str:
        """Change it in the middle of a turn."""
        app.write_text(app.read_text() + "five\n")
        return "done"

    async with memory_runtime(
        {"approval": {"rules": [{"tool": "edit_file", "action": "allow"}]}},
        providers={"anthropic": ScriptedProvider([])},
        tools=[Tool(read_file), edit_file, touch],
    ) as runtime:
        talk = Talk(runtime, workspace)
        await talk.say("look at @app.py")
        app.write_text(app.read_text() + "four\n")

        read = ToolCall("r", "read_file", {"path": "./app.py"})
        assert "+four" in await talk.say("go", ToolCall("t", "touch"), read)
        assert await talk.say("what is new?") == "", "it was read after the change"
        edit = ToolCall("e", "edit_file", {"path": "app.py", "old": "five\n", "new": "fünf\n"})
        assert await talk.say("change it", edit) == ""
        assert await talk.say("what is new?") == "", "it was its own change"
        await talk.say("go", ToolCall("t", "touch"), ToolCall("r", "read_file", {"path": "app.py", "limit": 2}))
        assert "+five" in await talk.say("what is new?"), "two lines are not the file"


async def test_a_fork_from_before_has_not_seen_the_file(workspace: Path) -> None:
    async with memory_runtime(providers={"anthropic": ScriptedProvider([])}) as runtime:
        talk = Talk(runtime, workspace)
        await talk.say("hello")
        session = await runtime.session(talk.session_id)
        head = (await runtime.stores.sessions.get(session.id)).head_id
        await talk.say("look at @app.py")
        fork = await session.fork(head)
        talk.session_id = fork.id
        assert (await talk.say("what is in the file?")).startswith("[file: app.py]\n")


async def test_auto_context_follows_globs_and_leaves_out_what_git_ignores(workspace: Path) -> None:
    (workspace / ".git").mkdir()
    (workspace / ".gitignore").write_text("build/\n*.log\n")
    (workspace / "build").mkdir()
    (workspace / "build" / "made.py").write_text("made\n")
    (workspace / "src").mkdir()
    (workspace / "src" / "lib.py").write_text("lib\n")
    (workspace / "src" / "logo.py").write_bytes(sample_png())
    (workspace / "notes.txt").write_text("not asked for\n")
    async with memory_runtime(
        {"context.auto_context": ["*.py"]}, providers={"anthropic": ScriptedProvider([])}
    ) as runtime:
        talk = Talk(runtime, workspace)
        told = await talk.say("hello")
        assert "[file: app.py]" in told
        assert "[file: src/lib.py]\nlib\n" in told
        assert "made" not in told
        assert "not asked for" not in told
        assert talk.notices == ["src/logo.py is not a text file and is not tracked; attach it to send it."]
        (workspace / "src" / "new.py").write_text("new\n")
        assert await talk.say("and now?") == "[file: src/new.py]\nnew\n"


@pytest.mark.parametrize(
    ("mention", "notice"),
    [
        ("@data.bin", "data.bin is not a text file and is not tracked; attach it to send it."),
        ("@.env", ".env may contain secrets and is not tracked; attach it to send it."),
        ("@../outside.txt", "is outside the workspace and is not tracked; attach it to send it."),
        ("@link.txt", "link.txt is outside the workspace and is not tracked; attach it to send it."),
        ("@src", "src is a folder; only files are tracked."),
        ("@large.txt", "large.txt is too large to track (200 KB)."),
        ("@nobody", ""),
        ("user@app.py", ""),
        ("@dataclass @media @\x00", ""),
        ("@/no/such/place", "File not found: /no/such/place; sent as text."),
    ],
)
async def test_what_cannot_be_tracked_is_refused_with_a_notice(mention: str, notice: str, tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    (workspace / "src").mkdir(parents=True)
    (workspace / "app.py").write_text("x\n")
    (workspace / "data.bin").write_bytes(bytes(range(256)) * 4)
    (workspace / ".env").write_text("KEY=1\n")
    (workspace / "large.txt").write_text("x" * (MAX_FILE_BYTES + 1))
    (tmp_path / "outside.txt").write_text("outside\n")
    (workspace / "link.txt").symlink_to(tmp_path / "outside.txt")
    async with memory_runtime(providers={"anthropic": ScriptedProvider([])}) as runtime:
        talk = Talk(runtime, workspace)
        assert await talk.say(f"look at {mention}") == ""
        assert [text.endswith(notice) for text in talk.notices] == ([True] if notice else [])


async def test_only_the_users_own_words_mention_files_not_the_files_that_are_attached(workspace: Path) -> None:
    letter = workspace / "letter.txt"
    letter.write_text("Please look at @app.py\n")
    async with memory_runtime(providers={"anthropic": ScriptedProvider(["all right"])}) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(workspace))
        await session.send("what does it say?", letter)
        assert len(await session.path()) == 2


async def test_a_file_that_was_dropped_from_the_prompt_is_told_anew(workspace: Path) -> None:
    """What the model no longer has before it cannot be the base of a diff."""
    async with memory_runtime(providers={"anthropic": ScriptedProvider([])}) as runtime:
        talk = Talk(runtime, workspace)
        await talk.say("look at @app.py")
        await talk.say("one")
        stored = await runtime.stores.sessions.get(talk.session_id)
        mark = {MODEL: {**stored.watermark[MODEL], "dropped_before": 3}}
        await runtime.stores.sessions.update(talk.session_id, watermark=mark)
        assert (await talk.say("two")).startswith("[file: app.py]\n")


async def test_a_text_that_was_swept_is_told_whole(workspace: Path) -> None:
    async with memory_runtime(providers={"anthropic": ScriptedProvider([])}) as runtime:
        talk = Talk(runtime, workspace)
        await talk.say("look at @app.py")
        view = (await runtime.stores.sessions.get(talk.session_id)).settings["tracked"]
        await runtime.stores.media.delete(view["app.py"]["digest"])
        assert (await talk.say("and now?")).startswith("[file: app.py]\n")


def test_mentions_are_words_that_begin_with_an_at_sign() -> None:
    text = 'see @a.py and (@b/c.txt), @"my file.txt"; not me@x.org, @a.py again\n@last'
    assert mentions(text) == ["a.py", "b/c.txt),", "my file.txt", "last"]


@given(st.text(), st.text())
def test_a_change_is_always_told_and_no_change_never_is(before: str, now: str) -> None:
    told = change_text("f", before, now)
    assert bool(told) == (before != now)
    assert not told or told.startswith("[file: f has changed since you last saw it]\n--- ")


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (None, None, ""),
        (None, "a\n", "[file: f]\na\n"),
        (None, " \n", "[file: f is empty]"),
        ("a\n", None, "[file: f no longer exists]"),
        ("a\n", "a\n", ""),
        ("a\n", "b\n", "[file: f has changed since you last saw it]\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"),
    ],
)
def test_what_is_told(before: str | None, now: str | None, told: str) -> None:
    assert change_text("f", before, now) == told
