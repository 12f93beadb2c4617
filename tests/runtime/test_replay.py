"""A replay: the questions of a session, asked of another model; the original and the world stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from loom import Allow, ApprovalRequest
from loom.content.blocks import ImageBlock, ToolCall, ToolResult
from loom.content.messages import text_of
from loom.errors import NotFound
from loom.runtime.replay import fork_for_replay, question_content
from loom.runtime.session import LocalSession
from loom.testing import FakeModel, memory_runtime, sample_png
from loom.tools.base import tool

runs: list[str] = []


@tool(danger="ask")
async def deploy(target: str) -> str:
    """Deploy something.

    target: where to
    """
    runs.append(target)
    return f"deployed to {target}, run {len(runs)}"


@tool
async def shot() -> bytes:
    """Take a screenshot."""
    return sample_png()


def allow(_: ApprovalRequest) -> Allow:
    return Allow()


async def results(session: LocalSession) -> list[ToolResult]:
    return [block for message in await session.path() for block in message.blocks if isinstance(block, ToolResult)]


async def test_recorded_tools_return_what_they_returned_and_nothing_runs() -> None:
    runs.clear()
    staging, shown = ToolCall("c1", "deploy", {"target": "staging"}), ToolCall("c2", "shot", {})
    again, other = ToolCall("c3", "deploy", {"target": "staging"}), ToolCall("c4", "deploy", {"target": "production"})
    model = FakeModel(
        [[staging, shown], again, "done", "You are welcome.", [staging, other], shown, again, again, "Done.", "!"]
    )
    async with memory_runtime(model=model, tools=[deploy, shot], approve=allow) as runtime:
        original = await runtime.session(title="Release", system="Be brief.")
        await original.send("deploy it", sample_png())
        await original.send("thanks")
        before = await original.path()
        assert runs == ["staging", "staging"]

        replay = await fork_for_replay(runtime, original, title="again", runs_tools=False)
        for turn in replay.turns:
            await replay.session.send(*question_content(turn))

        assert runs == ["staging", "staging"], "nothing was run"
        first, unknown, image, second, last = await results(replay.session)
        assert text_of(first.blocks[0]) == "deployed to staging, run 1"
        assert unknown.is_error and "was not called with these arguments" in text_of(unknown.blocks[0])
        assert isinstance(image.blocks[0], ImageBlock)
        assert [text_of(found.blocks[0]) for found in (second, last)] == ["deployed to staging, run 2"] * 2
        assert await original.path() == before
        questions = [message for message in await replay.session.path() if message.role == "user"]
        assert questions == [message for message in before if message.role == "user"]
        history = [(await session.history()) for session in (original, replay.session)]
        assert history[0].messages[0].node == history[1].messages[0].node, "both paths begin with the same node"
        assert history[0].system == history[1].system == "Be brief."


async def test_live_tools_run_again() -> None:
    runs.clear()
    call = ToolCall("c1", "deploy", {"target": "staging"})
    async with memory_runtime(model=FakeModel([call, "done"] * 2), tools=[deploy], approve=allow) as runtime:
        original = await runtime.session()
        await original.send("deploy it")
        replay = await fork_for_replay(runtime, original, title="", runs_tools=True)
        await replay.session.send(*question_content(replay.turns[0]))
        assert runs == ["staging", "staging"]


async def test_messages_that_loom_wrote_are_not_sent_as_questions(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("one\n")
    async with memory_runtime(model=FakeModel(["a", "b"])) as runtime:
        original = await runtime.session(workspace=str(tmp_path))
        await original.send("look at @notes.txt")
        notes.write_text("one\ntwo\n")
        await original.send("and now?")
        replay = await fork_for_replay(runtime, original, title="", runs_tools=False)
        asked = [text_of(question_content(turn)[0]) for turn in replay.turns]
        assert len(await original.path()) > 4 and asked == ["look at @notes.txt", "and now?"]


async def test_a_session_without_a_question_cannot_be_replayed() -> None:
    async with memory_runtime(model=FakeModel([])) as runtime:
        with pytest.raises(NotFound, match="no user message"):
            await fork_for_replay(runtime, await runtime.session(), title="", runs_tools=False)
