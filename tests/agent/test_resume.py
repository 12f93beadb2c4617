"""A turn that was left while it waited for an approval goes on in the library: same tools, same limits, same count."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

import loom
from agent.test_working import MODEL, runtime_at
from flow.test_killed_work import started
from flow.worker import EFFECTS, mark
from loom.agent.approvals import Approvals
from loom.agent.lease import HEARTBEAT_SECONDS
from loom.agent.services import TurnLimits
from loom.config import load_config
from loom.content.blocks import ToolCall
from loom.content.messages import broken_pairs, text_of
from loom.errors import ConfigError, Conflict, ContentError
from loom.events import (
    ApprovalAnswered,
    ApprovalRequested,
    NoticeRaised,
    StepStarted,
    ToolFinished,
    TurnFailed,
    TurnFinished,
)
from loom.runtime import Runtime
from loom.runtime.record import StoredRecord
from loom.runtime.toolbox import Toolbox
from loom.testing import ScriptedProvider
from loom.tools.base import tool
from patience import PATIENCE_SECONDS


@tool(danger="ask")
def wipe() -> str:
    """Delete everything."""
    return "wiped"


@tool
def look_up() -> str:
    """Look something up."""
    return "found"


async def left_waiting(runtime: Runtime, tools: list[str] | None = None) -> str:
    """A session whose turn was left while it waited."""
    session = await runtime.session(model=MODEL, tools=tools)
    async for event in session.stream("wipe it"):
        if isinstance(event, ApprovalRequested):
            await session.leave()
    return session.id


@pytest.mark.parametrize("answer", ["once", "deny"])
def test_whoever_opens_the_session_after_a_kill_answers_and_the_call_runs_at_most_once(tmp_path: Path, answer: str):
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)})
    with loom.Loom(config=config) as lm:
        session_id = lm.session(model=MODEL).id
    with started("say", tmp_path, session_id) as process:
        assert process.stdout
        word, approval = process.stdout.readline().split()
        process.kill()
    assert word == "asked"

    with loom.Loom(config=config, model=MODEL, tools=[mark], provider=ScriptedProvider(["It is done."])) as lm:
        session = lm.session(session_id=session_id)
        (waiting,) = session.approvals()
        assert (waiting.approval, waiting.call.name, waiting.action) == (approval, "mark", f"{tmp_path}/{EFFECTS}")
        events = []
        for event in session.resume():
            events.append(event)
            if isinstance(event, ApprovalRequested):
                session.answer(event.approval, "once" if answer == "once" else "deny", "not today")
        results = [result for message in session.path() for result in message.results]
        assert session.approvals() == () and list(session.resume()) == []
        assert broken_pairs(session.path()) == ()

    assert [event.answer for event in events if isinstance(event, ApprovalAnswered)] == [answer]
    assert isinstance(events[-1], TurnFinished)
    if answer == "once":
        assert [text_of(result) for result in results] == ["left"] and (tmp_path / EFFECTS).read_text() == "x"
    else:
        assert [text_of(result) for result in results] == ["the user denied it: not today"]
        assert not (tmp_path / EFFECTS).exists()


async def test_an_unknown_answer_to_an_approval_that_was_left_is_refused_and_it_stays_pending(tmp_path: Path):
    async with runtime_at(tmp_path, [ToolCall("1", "look_up"), ToolCall("2", "wipe")], wipe, look_up) as runtime:
        session_id = await left_waiting(runtime)
        session = await runtime.session(session_id)
        pending = await session.approvals()
        unknown: Any = "no"
        with pytest.raises(ContentError, match='Answer with "once", "always" or "deny"'):
            await session.answer(pending[0].approval, unknown)
        assert await session.approvals() == pending


@pytest.mark.parametrize("is_left", [True, False], ids=["left", "running"])
async def test_an_undo_leaves_a_pending_approval_as_it_is(tmp_path: Path, is_left: bool):
    answers = [ToolCall("1", "write_file", {"path": "a.txt", "content": "new"}), ToolCall("2", "wipe"), "done"]
    config = load_config(
        cwd=tmp_path,
        environ={"LOOM_HOME": str(tmp_path / "home")},
        flags={"approval.rules": [{"tool": "write_file", "action": "allow"}]},
    )

    def opened() -> AbstractAsyncContextManager[Runtime]:
        return Runtime.open(config, providers={"anthropic": ScriptedProvider(answers)}, tools=["write_file", wipe])

    async def refused(runtime: Runtime, session_id: str) -> None:
        session = await runtime.session(session_id)
        pending = await session.approvals()
        with pytest.raises(Conflict, match="An approval is pending"):
            await session.undo()
        assert len(pending) == 1 and await session.approvals() == pending
        assert (tmp_path / "a.txt").exists()

    async with opened() as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        async for event in session.stream("wipe it"):
            if isinstance(event, ApprovalRequested) and is_left:
                await session.leave()
            elif isinstance(event, ApprovalRequested):
                await refused(runtime, session.id)
                await session.answer(event.approval, "deny")
    if is_left:
        async with opened() as runtime:
            await refused(runtime, session.id)


async def test_a_resumed_turn_counts_what_it_used_before(tmp_path: Path):
    async with runtime_at(tmp_path, [ToolCall("1", "look_up"), ToolCall("2", "wipe")], wipe, look_up) as runtime:
        session_id = await left_waiting(runtime)
    async with runtime_at(tmp_path, ["done"], wipe, look_up) as runtime:
        session = await runtime.session(session_id)
        await session.answer((await session.approvals())[0].approval, "once")
        events = [event async for event in session.resume()]
    (finished,) = [event for event in events if isinstance(event, TurnFinished)]
    assert finished.usage.input_tokens == 3 * 10
    assert [event.step for event in events if isinstance(event, StepStarted)] == [3]


async def test_a_call_that_had_ended_keeps_its_result_when_the_turn_is_resumed(tmp_path: Path):
    both = [[ToolCall("1", "look_up"), ToolCall("2", "wipe")]]
    async with runtime_at(tmp_path, both, wipe, look_up) as runtime:
        session = await runtime.session(model=MODEL)
        awaited: set[type] = {ApprovalRequested, ToolFinished}  # in either order: both calls run at once
        async for event in session.stream("wipe it"):
            if type(event) in awaited:
                awaited.remove(type(event))
                if not awaited:
                    await session.leave()
    async with runtime_at(tmp_path, ["done"], wipe, look_up) as runtime:
        session = await runtime.session(session.id)
        await session.answer((await session.approvals())[0].approval, "once")
        assert [event async for event in session.resume() if isinstance(event, TurnFinished)]
        assert [text_of(result) for message in await session.path() for result in message.results] == ["found", "wiped"]


async def test_a_resumed_turn_ends_at_the_limit_that_it_began_with(tmp_path: Path):
    async with runtime_at(tmp_path, [ToolCall("1", "look_up"), ToolCall("2", "wipe")], wipe, look_up) as runtime:
        session_id = await left_waiting(runtime)
    async with runtime_at(tmp_path, [], wipe, look_up, limits=TurnLimits(steps=2)) as runtime:
        session = await runtime.session(session_id)
        await session.answer((await session.approvals())[0].approval, "once")
        (failed,) = [event async for event in session.resume() if isinstance(event, TurnFailed)]
        assert failed.code == "turn.limit"
        assert [text_of(result) for message in await session.path() for result in message.results][-1] == "wiped"


async def test_an_answer_that_is_received_before_the_turn_is_taken_up_reaches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def wait_long(*_: object) -> tuple[str, ...]:
        """Wait as for a slow tool server: heartbeats pass before the turn exists."""
        await asyncio.sleep(1.5)
        return ()

    async with runtime_at(tmp_path, [ToolCall("1", "wipe")], wipe) as runtime:
        session_id = await left_waiting(runtime)
    async with runtime_at(tmp_path, ["done"], wipe) as runtime:
        monkeypatch.setattr(Toolbox, "wait_ready", wait_long)
        session = await runtime.session(session_id)
        await session.answer((await session.approvals())[0].approval, "once")
        async with asyncio.timeout(20):
            assert [event async for event in session.resume() if isinstance(event, TurnFinished)]
        assert [text_of(result) for message in await session.path() for result in message.results] == ["wiped"]


@pytest.mark.parametrize("moment", ["before the takeover", "before the turn", "while it begins", "while it runs"])
async def test_a_cancellation_at_any_moment_of_a_takeover_ends_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
):
    async with (
        runtime_at(tmp_path, [ToolCall("1", "wipe")], wipe) as one,
        runtime_at(tmp_path, ["hello"], wipe) as two,
        runtime_at(tmp_path, [], wipe) as three,
    ):
        session_id = await left_waiting(one)
        watcher = await three.session(session_id)

        def cancel_at(place: type, method: str) -> None:
            """Cancel from another process when the takeover first reaches `method`, and go on after a heartbeat."""
            original = getattr(place, method)
            is_sent = False

            async def cancel_first(self: Any, *args: Any, **how: Any) -> Any:
                nonlocal is_sent
                if not is_sent:
                    is_sent = True
                    await watcher.cancel()
                    await asyncio.sleep(2 * HEARTBEAT_SECONDS)
                return await original(self, *args, **how)

            monkeypatch.setattr(place, method, cancel_first)

        match moment:
            case "before the takeover":
                stored = (await watcher.snapshot()).settings["running"]["turn"]
                await three.sessions.record(session_id).send_command("cancel", {"turn": stored})
            case "before the turn":
                cancel_at(Toolbox, "wait_ready")
            case "while it begins":
                cancel_at(StoredRecord, "open_step")
            case _:
                cancel_at(Approvals, "ask")
        session = await two.session(session_id)
        async with asyncio.timeout(PATIENCE_SECONDS):
            ended = [event async for event in session.resume() if isinstance(event, TurnFailed | TurnFinished)]
        assert [event.code for event in ended if isinstance(event, TurnFailed)] == ["turn.cancelled"]
        assert await session.approvals() == ()
        assert not broken_pairs(await session.path())
        assert (await session.send("hello")).text == "hello", "a later turn is not cancelled"


async def test_a_cancellation_of_a_turn_that_is_over_ends_no_other(tmp_path: Path):
    async with runtime_at(tmp_path, ["one", "two"]) as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("first")
        await runtime.sessions.record(session.id).send_command("cancel", {"turn": "another turn"})
        assert (await session.send("second")).text == "two"


async def test_a_resumed_turn_has_the_tools_that_it_began_with_and_no_others(tmp_path: Path):
    async with runtime_at(tmp_path, [ToolCall("1", "wipe")], wipe, look_up) as runtime:
        session_id = await left_waiting(runtime, tools=["wipe"])
    async with runtime_at(tmp_path, ["done", "hello"], wipe, look_up) as runtime:
        provider = runtime.models.given_providers["anthropic"]
        assert isinstance(provider, ScriptedProvider)
        session = await runtime.session(session_id, tools=["look_up"])
        await session.answer((await session.approvals())[0].approval, "once")
        assert [event async for event in session.resume() if isinstance(event, TurnFinished)]
        await session.send("and now?")
        offered = [[spec.name for spec in prompt.tools] for prompt in provider.prompts]
        assert offered == [["wipe"], ["look_up"]]
        with pytest.raises(ConfigError, match="Tool 'hammer' not found"):
            await runtime.session(session_id, tools=["hammer"])


async def test_nobody_resumes_a_turn_that_runs_and_other_words_end_it_with_a_notice(tmp_path: Path):
    async with (
        runtime_at(tmp_path, [ToolCall("1", "wipe")], wipe) as one,
        runtime_at(tmp_path, ["hello"], wipe) as other,
    ):
        session = await one.session(model=MODEL)
        there = await other.session(session.id)
        async for event in session.stream("wipe it"):
            if isinstance(event, ApprovalRequested):
                with pytest.raises(Conflict, match="running"):
                    await anext(there.resume())
                await session.leave()
        told = [event.text async for event in there.stream("hello") if isinstance(event, NoticeRaised)]
        assert told == ["A new message was sent, so the pending approval was denied."]
        assert await there.approvals() == ()
