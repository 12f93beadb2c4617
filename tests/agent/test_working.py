"""Messages that wait, turns that others run, answers beside one another, approvals that outlive a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from loom.agent.services import TurnLimits
from loom.config import load_config
from loom.content.blocks import ToolCall
from loom.content.messages import broken_pairs, text_of, user
from loom.errors import (
    ApprovalGone,
    ConfigError,
    Conflict,
    ContentError,
    LoomError,
    NotAuthorised,
    NotFound,
    Overloaded,
    ProviderError,
    RateLimited,
)
from loom.events import (
    ApprovalAnswered,
    ApprovalRequested,
    Event,
    MessageQueued,
    NoticeRaised,
    TurnFailed,
    TurnFinished,
    TurnStarted,
    decode_event,
)
from loom.runtime import Runtime
from loom.runtime.session import LocalSession
from loom.testing import ScriptedAnswer, ScriptedProvider, memory_runtime, sample_png
from loom.tools.base import Tool, ToolContext, tool

MODEL = "anthropic/claude-opus-5"


@asynccontextmanager
async def runtime_at(
    folder: Path, answers: Sequence[ScriptedAnswer] = (), *tools: Tool | str, limits: TurnLimits | None = None
) -> AsyncGenerator[Runtime]:
    """One of several runtimes that share a data folder, as processes do."""
    config = load_config(cwd=folder, environ={"LOOM_HOME": str(folder)})
    async with Runtime.open(
        config, providers={"anthropic": ScriptedProvider(answers)}, tools=tools, limits=limits
    ) as runtime:
        yield runtime


async def worked(session: LocalSession) -> list[Event]:
    return [event async for event in session.work()]


async def kept(runtime: Runtime, session_id: str) -> list[Event]:
    return [decode_event(found.data) for found in await runtime.stores.events.after(session_id, 0, limit=10_000)]


def waiting_tool() -> tuple[Tool, asyncio.Event, asyncio.Event]:
    begun, release = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await release.wait()
        return "waited"

    return wait, begun, release


# The queue -----------------------------------------------------------------------------------------------------------


async def test_what_was_posted_is_said_in_order_by_whoever_works(tmp_path: Path) -> None:
    async with runtime_at(tmp_path) as poster, runtime_at(tmp_path, ["one!", "two!"]) as worker:
        session = await poster.session(model=MODEL)
        first = await session.post("one", sample_png(), key="1")
        await session.post("two")
        assert first.is_new
        assert await session.path() == ()
        assert (await session.queue())[0].key == "1"
        events = await worked(await worker.session(session.id))
        assert next(event.message for event in events if isinstance(event, TurnStarted)) == first.id
        assert [message.text for message in await session.path()] == ["one", "one!", "two", "two!"]
        assert await session.queue() == ()
        again = await session.post("one", sample_png(), key="1")
        assert (again.is_new, again.id, again.answers_left) == (False, first.id, 0)
        assert await worked(await worker.session(session.id)) == []
        told = [type(event) for event in await kept(poster, session.id)]
        assert told[:2] == [MessageQueued, MessageQueued]
        assert told.count(MessageQueued) == 2


async def test_work_ends_at_once_where_somebody_else_is_at_work_and_nothing_is_forgotten(tmp_path: Path) -> None:
    wait, begun, release = waiting_tool()
    answers = [ToolCall("a", "wait"), "first", "second", "third"]
    async with runtime_at(tmp_path, answers, wait) as one, runtime_at(tmp_path) as other:
        session = await one.session(model=MODEL)
        await session.post("1")
        working = asyncio.create_task(worked(session))
        await begun.wait()
        assert await worked(await one.session(session.id)) == []
        assert await worked(await other.session(session.id)) == []
        await (await other.session(session.id)).post("2")
        await (await one.session(session.id)).post("3")
        release.set()
        await working
        assert [message.text for message in await session.path() if message.role == "user"] == ["1", "2", "3"]
        assert [message.text for message in await session.path()][-1] == "third"


async def test_two_processes_that_speak_at_once_are_both_heard(tmp_path: Path) -> None:
    """F16."""
    wait, begun, release = waiting_tool()
    async with (
        runtime_at(tmp_path, [ToolCall("a", "wait"), "first"], wait) as one,
        runtime_at(tmp_path, ["second"]) as other,
    ):
        session = await one.session(model=MODEL)
        speaking = asyncio.create_task(session.send("one"))
        await begun.wait()
        waiting = (await other.session(session.id)).stream("two")
        assert isinstance(await anext(waiting), MessageQueued)
        release.set()
        assert (await speaking).text == "first"
        events = [event async for event in waiting]
        assert isinstance(events[-1], TurnFinished)
        assert [message.text for message in await session.path() if message.text] == ["one", "first", "two", "second"]
        assert broken_pairs(await session.path()) == ()


async def test_a_message_whose_model_is_unknown_fails_and_does_not_wait_for_ever() -> None:
    async with memory_runtime(providers={"anthropic": ScriptedProvider(["fine"])}) as runtime:
        session = await runtime.session(model=MODEL)
        await session.post("whom?", model="nowhere/at-all")
        await session.post("me")
        events = await worked(session)
        assert [event.code for event in events if isinstance(event, TurnFailed)] == ["config.invalid"]
        assert [message.text for message in await session.path()] == ["whom?", "me", "fine"]
        assert await session.queue() == ()


async def test_a_removed_message_is_not_said_and_the_others_are() -> None:
    async with memory_runtime(providers={"anthropic": ScriptedProvider(["two!"])}) as runtime:
        session = await runtime.session(model=MODEL)
        first = await session.post("one")
        await session.post("two")
        assert await runtime.stores.queue.remove(session.id, first.id)
        await worked(session)
        assert [message.text for message in await session.path()] == ["two", "two!"]


async def test_posting_tells_of_bad_media_before_anything_is_kept_and_of_odd_ones_after(tmp_path: Path) -> None:
    (tmp_path / "many.bin").write_bytes(b"\x00\x01\x02")
    async with memory_runtime() as runtime:
        session = await runtime.session(model=MODEL)
        with pytest.raises(LoomError):
            await session.post("look", tmp_path / "gone.png")
        with pytest.raises(ContentError):
            await session.post("look", n=0)
        with pytest.raises(NotFound):
            await session.post("look", parent="node:sha256:" + "0" * 64)
        assert await session.queue() == ()
        assert await kept(runtime, session.id) == []


async def test_tracked_files_that_a_posted_message_mentions_are_told(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("remember the milk")
    provider = ScriptedProvider(["noted"])
    async with memory_runtime(providers={"anthropic": provider}) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.post("what do @notes.txt say?")
        await worked(session)
        assert "remember the milk" in str(provider.prompts[0].messages[0])


async def test_whoever_listens_hears_of_every_write(tmp_path: Path) -> None:
    heard: list[tuple[str, int]] = []
    async with memory_runtime(providers={"anthropic": ScriptedProvider(["hello"])}) as runtime:
        runtime.stores.events.subscribe(lambda session_id, seq, _: heard.append((session_id, seq)))
        session = await runtime.session(model=MODEL)
        await session.post("hi")
        await worked(session)
        assert {session_id for session_id, _ in heard} == {session.id}
        assert [seq for _, seq in heard] == sorted({seq for _, seq in heard})
        assert heard[-1][1] == await runtime.stores.events.head(session.id)


# Answers beside one another ------------------------------------------------------------------------------------------


async def test_several_answers_are_siblings_and_the_head_is_at_the_last() -> None:
    """Row 89."""
    async with memory_runtime(providers={"anthropic": ScriptedProvider(["1", "3", "5"])}) as runtime:
        session = await runtime.session(model=MODEL)
        reply = await session.send("roll a die", n=3)
        assert [reply.text, *(sibling.text for sibling in reply.siblings)] == ["5", "1", "3"]
        assert len({reply.parent, *(sibling.parent for sibling in reply.siblings)}) == 1
        assert await session.head() == reply.node
        assert len(await runtime.stores.sessions.tips(session.id)) == 3
        assert [message.text for message in await session.path()] == ["roll a die", "5"]


async def test_a_posted_message_gets_as_many_answers_as_it_asked_for() -> None:
    async with memory_runtime(providers={"anthropic": ScriptedProvider(["1", "3", "5"])}) as runtime:
        session = await runtime.session(model=MODEL)
        queued = await session.post("roll a die", n=3)
        events = await worked(session)
        assert [event.message for event in events if isinstance(event, TurnStarted)] == [queued.id] * 3
        assert len(await runtime.stores.sessions.tips(session.id)) == 3
        assert await session.queue() == ()


async def test_another_answer_stands_beside_the_first_whatever_the_turn_held() -> None:
    @tool
    async def show() -> bytes:
        """Show."""
        return sample_png(8, 8)

    provider = ScriptedProvider([ToolCall("a", "show"), "blue", "navy", "teal", "green"])
    async with memory_runtime(providers={"anthropic": provider}, tools=[show]) as runtime:
        session = await runtime.session(model=MODEL)
        first = await session.send("which color?")
        events = [event async for event in session.regenerate()]
        assert isinstance(events[0], TurnStarted)
        assert [message.text for message in await session.path()] == ["which color?", "navy"]
        assert len(provider.prompts[-1].messages) == 1
        events = [event async for event in session.regenerate(first.node, model="anthropic/claude-haiku-4-5")]
        assert [event.model for event in events if isinstance(event, TurnStarted)] == ["anthropic/claude-haiku-4-5"]
        assert (await runtime.stores.sessions.get(session.id)).model == MODEL
        await session.post_again(first.node, key="k")
        await session.post_again(first.node, key="k")
        await worked(session)
        assert [message.text for message in await session.path()] == ["which color?", "green"]
        assert len(await runtime.stores.sessions.tips(session.id)) == 4


async def test_another_answer_that_does_not_come_leaves_the_first_in_its_place() -> None:
    async with memory_runtime(
        providers={"anthropic": ScriptedProvider(["here", Overloaded("busy"), NotAuthorised("no")])}
    ) as runtime:
        session = await runtime.session(model=MODEL)
        reply = await session.send("where?")
        events = [event async for event in session.regenerate(n=2)]
        assert [event.code for event in events if isinstance(event, TurnFailed)] == ["provider.overloaded"]
        assert await session.head() == reply.node
        with pytest.raises(NotFound):
            [event async for event in session.regenerate("node:sha256:" + "0" * 64)]
        fresh = await runtime.session(model=MODEL)
        with pytest.raises(NotFound, match="user message"):
            [event async for event in fresh.regenerate()]
        with pytest.raises(ContentError):
            await session.send("x", n=0)


async def test_another_answer_does_not_make_the_agent_forget_the_files_that_it_knows(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("one\ntwo\nthree\nfour\nfive\n")
    provider = ScriptedProvider(["a", "b", "c"])
    async with memory_runtime(providers={"anthropic": provider}) as runtime:
        session = await runtime.session(model=MODEL, workspace=str(tmp_path))
        await session.send("look at @notes.txt")
        [event async for event in session.regenerate()]
        (tmp_path / "notes.txt").write_text("one\ntwo\nthree\nfour\nsix\n")
        await session.send("and now?")
        told = str(provider.prompts[-1].messages)
        assert "+six" in told
        assert "has changed since you last saw it" in told


async def test_what_a_tool_put_into_the_conversation_is_no_question() -> None:
    @tool
    async def put(context: ToolContext) -> str:
        """Put a picture into the conversation."""
        await context.inject("injected", sample_png(8, 8))
        return "done"

    async with memory_runtime(
        providers={"anthropic": ScriptedProvider([ToolCall("a", "put"), "first", "second"])}, tools=[put]
    ) as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("go")
        [event async for event in session.regenerate()]
        assert [message.text for message in await session.path()] == ["go", "second"]


async def test_a_question_that_is_said_differently_is_a_sibling_of_the_first() -> None:
    async with memory_runtime(providers={"anthropic": ScriptedProvider(["4", "6", "seven"])}) as runtime:
        session = await runtime.session(model=MODEL)
        first = await session.send("2+2?")
        other = await session.send("3+3?", parent=first.parent)
        assert other.parent == first.parent
        assert [message.text for message in await session.path()] == ["3+3?", "6"]
        await session.go(first.node)
        assert [message.text for message in await session.path()] == ["2+2?", "4"]
        await session.post("and 3+4?", parent=other.node)
        await worked(session)
        assert [message.text for message in await session.path()] == ["3+3?", "6", "and 3+4?", "seven"]
        elsewhere = await runtime.session(model=MODEL)
        await runtime.stores.sessions.append_to_head(elsewhere.id, [user("elsewhere")])
        with pytest.raises(NotFound):
            await session.go((await runtime.stores.sessions.get(elsewhere.id)).head_id)


async def test_the_head_does_not_move_under_a_running_turn(tmp_path: Path) -> None:
    wait, begun, release = waiting_tool()
    async with runtime_at(tmp_path, [ToolCall("a", "wait"), "done"], wait) as one, runtime_at(tmp_path) as other:
        session = await one.session(model=MODEL)
        root = await session.head()
        speaking = asyncio.create_task(session.send("go"))
        await begun.wait()
        for holder in (await one.session(session.id), await other.session(session.id)):
            with pytest.raises(Conflict, match="running"):
                await holder.go(root)
            with pytest.raises(Conflict, match="running"):
                await holder.close_cut_turn()
        release.set()
        await speaking
        await session.go(root)
        assert await session.path() == ()


# Other processes -----------------------------------------------------------------------------------------------------


async def test_a_turn_can_be_cancelled_from_another_process(tmp_path: Path) -> None:
    wait, begun, _ = waiting_tool()
    async with runtime_at(tmp_path, [ToolCall("a", "wait"), "after"], wait) as one, runtime_at(tmp_path) as other:
        session = await one.session(model=MODEL)
        await (await other.session(session.id)).cancel()
        speaking = asyncio.create_task(session.send("go"))
        await begun.wait()
        await (await other.session(session.id)).cancel()
        one.nudge(session.id)
        with pytest.raises(LoomError, match="cancelled") as caught:
            await speaking
        assert caught.value.code == "turn.cancelled"
        await (await other.session(session.id)).cancel()
        assert (await session.send("and now?")).text == "after"


async def test_an_approval_can_be_answered_from_another_process_and_by_another_holder(tmp_path: Path) -> None:
    @tool(danger="ask")
    async def act(mark: str) -> str:
        """Act."""
        return f"did {mark}"

    answers = [ToolCall("a", "act", {"mark": "x"}), "done", ToolCall("b", "act", {"mark": "y"}), "done too"]
    async with runtime_at(tmp_path, answers, act) as one, runtime_at(tmp_path) as other:
        session = await one.session(model=MODEL)
        for holder in (await other.session(session.id), await one.session(session.id)):
            answers_seen: list[str] = []
            async for event in session.stream("go"):
                if isinstance(event, ApprovalRequested):
                    assert await holder.approvals() == (event,)
                    await holder.answer(event.approval, "once")
                    one.nudge(session.id)
                    with pytest.raises(ApprovalGone) as caught:
                        await holder.answer("something else", "once")
                    assert caught.value.code == "approval.gone"
                if isinstance(event, ApprovalAnswered):
                    answers_seen.append(event.answer)
            assert answers_seen == ["once"]
            assert await holder.approvals() == ()
        results = [text_of(result) for message in await session.path() for result in message.results]
        assert results == ["did x", "did y"]


async def test_a_turn_whose_session_was_taken_over_ends_at_once_and_writes_nothing_more(tmp_path: Path) -> None:
    wait, begun, release = waiting_tool()
    async with (
        runtime_at(tmp_path, [ToolCall("a", "wait"), "never"], wait) as one,
        runtime_at(tmp_path, ["I look whether it happened.", "mine now"]) as other,
    ):
        session = await one.session(model=MODEL)
        events: list[Event] = []

        async def watch() -> None:
            events.extend([event async for event in session.stream("go")])

        watching = asyncio.create_task(watch())
        await begun.wait()
        one.holder.close()  # the others believe that this process is gone, and it wakes up after all
        thief = await other.session(session.id)
        assert (await thief.send("mine")).text == "mine now"
        one.nudge(session.id)
        await watching
        assert not release.is_set()
        assert isinstance(events[-1], TurnFailed)
        assert events[-1].code == "store.conflict"
        assert [message.text for message in await thief.path() if message.role != "tool"][-2:] == ["mine", "mine now"]
        assert broken_pairs(await thief.path()) == ()
        ends = [event for event in await kept(other, session.id) if isinstance(event, TurnFailed | TurnFinished)]
        assert [type(event) for event in ends] == [TurnFinished, TurnFinished], "the other process ended both turns"


async def test_a_turn_of_a_session_that_is_deleted_ends(tmp_path: Path) -> None:
    wait, begun, _ = waiting_tool()
    async with runtime_at(tmp_path, [ToolCall("a", "wait"), "never"], wait) as runtime:
        session = await runtime.session(model=MODEL)
        watching = asyncio.create_task(session.send("go"))
        await begun.wait()
        await runtime.library.delete(session.id)
        runtime.nudge(session.id)
        with pytest.raises(LoomError):
            await watching


# Turns that are taken up again ---------------------------------------------------------------------------------------


@tool(danger="ask")
def leave_mark(path: str) -> str:
    """Leave a mark."""
    file = Path(path)
    file.write_text(file.read_text() + "x" if file.exists() else "x")
    return "left"


async def test_a_turn_that_waits_for_an_approval_goes_on_in_another_process(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    call = ToolCall("a", "leave_mark", {"path": str(mark)})
    async with runtime_at(tmp_path, [call], leave_mark) as one:
        session = await one.session(model=MODEL)
        await session.post("leave a mark")
        await session.post("and then?")
        asked = ""
        async for event in session.work():
            if isinstance(event, ApprovalRequested):
                asked = event.approval
                await session.leave()
        assert asked
    assert not mark.exists()
    async with runtime_at(tmp_path, ["done", "nothing"], leave_mark) as other:
        session = await other.session(session.id)
        assert [event.approval for event in await session.approvals()] == [asked]
        assert await other.stores.leases.list_abandoned() == ()
        await session.answer(asked, "once")
        events = await worked(session)
        assert [type(event) for event in events if isinstance(event, TurnStarted | TurnFailed)] == [TurnStarted]
        assert mark.read_text() == "x"
        texts = [message.text for message in await session.path() if message.role != "tool" and message.text]
        assert texts == ["leave a mark", "done", "and then?", "nothing"]
        assert broken_pairs(await session.path()) == ()
        everything = await kept(other, session.id)
        started = [event.turn for event in everything if isinstance(event, TurnStarted)]
        assert started == [event.turn for event in everything if isinstance(event, TurnFinished)]
        assert await session.approvals() == ()


async def test_of_a_resumed_turn_only_the_calls_that_had_not_begun_run(tmp_path: Path) -> None:
    runs: list[str] = []

    @tool
    def note() -> str:
        """Take a note."""
        runs.append("note")
        return "noted"

    mark = tmp_path / "mark"
    calls = [ToolCall("a", "note"), ToolCall("b", "leave_mark", {"path": str(mark)})]
    async with runtime_at(tmp_path, [calls], note, leave_mark) as one:
        session = await one.session(model=MODEL)
        await session.post("do both")
        async for event in session.work():
            if isinstance(event, ApprovalRequested):
                await session.leave()
    async with runtime_at(tmp_path, ["so be it"], note, leave_mark) as other:
        session = await other.session(session.id)
        (asked,) = await session.approvals()
        await session.answer(asked.approval, "deny", "not today")
        await worked(session)
        results = [text_of(result) for message in await session.path() for result in message.results]
        assert results == ["noted", "the user denied it: not today"]
        assert runs == ["note"]
        assert not mark.exists()


async def test_a_turn_that_is_left_in_the_middle_is_continued_by_the_next_worker(tmp_path: Path) -> None:
    wait, begun, _ = waiting_tool()
    async with runtime_at(tmp_path, [ToolCall("a", "wait"), "I look.", "hello again"], wait) as runtime:
        session = await runtime.session(model=MODEL)
        await session.post("go")
        await session.post("later")
        events: list[Event] = []
        working = asyncio.create_task(worked(session))
        await begun.wait()
        session.rest()
        await session.leave()
        events = await working
        assert [event for event in events if isinstance(event, TurnFailed)] == []
        assert len(await session.queue()) == 1
        assert await worked(session) == [], "it rests"
        other = await runtime.session(session.id)
        await worked(other)
        texts = [message.text for message in await other.path() if message.role != "tool" and message.text]
        assert texts == ["go", "I look.", "later", "hello again"]


async def test_an_open_approval_can_be_given_up_by_cancelling_or_by_saying_something_else(tmp_path: Path) -> None:
    call = ToolCall("a", "leave_mark", {"path": str(tmp_path / "mark")})
    async with runtime_at(tmp_path, [call, call, "All right."], leave_mark) as runtime:
        session = await runtime.session(model=MODEL)
        for give_up in ("cancel", "speak"):
            await session.post(f"try to {give_up}")
            worker = await runtime.session(session.id)
            async for event in worker.work():
                if isinstance(event, ApprovalRequested):
                    await worker.leave()
            assert len(await session.approvals()) == 1
            if give_up == "cancel":
                await session.cancel()
                assert await session.approvals() == ()
        assert (await session.send("never mind")).text == "All right."
        assert await session.approvals() == ()
        assert not (tmp_path / "mark").exists()
        assert broken_pairs(await session.path()) == ()


# Errors --------------------------------------------------------------------------------------------------------------


async def test_a_turn_that_fails_raises_the_error_that_it_failed_with() -> None:
    failures: list[LoomError] = [RateLimited("slow down", hint="Wait."), NotAuthorised("no key"), ConfigError("x")]
    async with memory_runtime(providers={"anthropic": ScriptedProvider(failures)}) as runtime:
        session = await runtime.session(model=MODEL)
        for failure in failures:
            with pytest.raises(type(failure)) as caught:
                await session.send("hello")
            assert (caught.value.code, caught.value.hint) == (failure.code, failure.hint)
            assert isinstance(caught.value, ProviderError) == isinstance(failure, ProviderError)


async def test_notices_of_the_door_reach_whoever_watches_a_posted_message(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(sample_png())
    async with memory_runtime(providers={"anthropic": ScriptedProvider(["long"])}) as runtime:
        session = await runtime.session(model=MODEL)
        queued = await session.post("read", tmp_path / "photo.jpg")
        assert queued.notices
        async for _ in session.work():
            pass
        told = [event.text for event in await kept(runtime, session.id) if isinstance(event, NoticeRaised)]
        assert told == list(queued.notices)


async def test_a_message_that_is_cancelled_before_its_turn_has_begun_is_said_once_and_told_of() -> None:
    """F17: cancelled at every moment until the turn runs."""
    for moment in range(40):
        async with memory_runtime(providers={"anthropic": ScriptedProvider(["answer"] * 5)}) as runtime:
            session = await runtime.session(model=MODEL)
            await session.post("one")
            working = asyncio.create_task(worked(session))
            for _ in range(moment):
                await asyncio.sleep(0)
            await session.cancel()
            events = await working
            if not any(isinstance(event, TurnFinished | TurnFailed) for event in events):
                events += await worked(session)
            assert [message.text for message in await session.path()][:1] == ["one"]
            assert sum(message.role == "user" for message in await session.path()) == 1
            assert await session.queue() == ()
            everything = await kept(runtime, session.id)
            ends = [event for event in everything if isinstance(event, TurnFinished | TurnFailed)]
            assert len(ends) == 1, (moment, everything)
            assert (await runtime.stores.sessions.get(session.id)).settings.get("running") is None
            assert (await session.send("and now?")).text == "answer"


async def test_a_turn_whose_process_died_after_its_last_word_is_not_ended_again(tmp_path: Path):
    async with runtime_at(tmp_path, ["hello", "again"]) as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("hi")
        (ended,) = [event for event in await kept(runtime, session.id) if isinstance(event, TurnFinished)]
        found = await runtime.stores.sessions.get(session.id)
        await runtime.stores.sessions.update(session.id, settings={**found.settings, "running": {"turn": ended.turn}})
        await (await runtime.session(session.id)).send("and now?")
        ends = [event for event in await kept(runtime, session.id) if isinstance(event, TurnFinished | TurnFailed)]
        assert [type(event) for event in ends] == [TurnFinished, TurnFinished]
        assert "running" not in (await runtime.stores.sessions.get(session.id)).settings
