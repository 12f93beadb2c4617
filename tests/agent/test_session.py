"""LocalSession: turns one after the other, whoever asks; nothing is shown that is not kept."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from loom.agent.observer import NullObserver
from loom.agent.sink import EventSink, WriteBatching, join_deltas
from loom.content.blocks import ToolCall
from loom.content.inputs import image
from loom.content.messages import broken_pairs
from loom.errors import ConfigError, Full, LoomError
from loom.events import (
    Event,
    MediaArrived,
    NoticeRaised,
    StepStarted,
    Stopped,
    TextDelta,
    TurnFailed,
    TurnFinished,
    TurnStarted,
    decode_event,
)
from loom.store.leases import Leases
from loom.testing import ScriptedProvider, memory_runtime, sample_png
from loom.tools.base import tool
from providers.far_side import Reply, far_side

MODEL = "anthropic/claude-opus-5"


@pytest.mark.parametrize("fails", [False, True])
async def test_no_task_of_a_turn_is_left_when_the_turn_has_ended(fails: bool) -> None:
    """A program whose event loop stops after the answer reads no “Task was destroyed but it is pending”."""
    provider = ScriptedProvider([LoomError("refused") if fails else "answer"] * 3)
    async with memory_runtime(providers={"anthropic": provider}) as runtime:
        session = await runtime.session(model=MODEL)
        for _ in range(3):  # at some moments a write is due at once
            stream = session.stream("a question")
            try:
                await stream.finish()
            except LoomError:
                assert fails
            writers = [task for task in asyncio.all_tasks() if "EventSink" in repr(task.get_coro())]
            assert writers == []


async def test_two_holders_of_one_session_take_turns() -> None:
    """F16, in one process: both are kept, in one order."""
    begun, release = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await release.wait()
        return "waited"

    async with memory_runtime(
        providers={"anthropic": ScriptedProvider([ToolCall("a", "wait"), "first", "second"])}, tools=[wait]
    ) as runtime:
        one = await runtime.session(model=MODEL)
        other = await runtime.session(one.id)
        watching = asyncio.create_task(one.send("one"))
        await begun.wait()
        second = asyncio.create_task(other.send("other"))
        await asyncio.sleep(0)
        release.set()
        assert (await watching).text == "first"
        assert (await second).text == "second"
        assert [message.text for message in await one.path() if message.role == "user"] == ["one", "other"]
        assert broken_pairs(await one.path()) == ()


async def test_a_message_is_queued_whoever_holds_the_lease_meanwhile() -> None:
    async with memory_runtime({"model": "loom/spark"}) as runtime:
        session = await runtime.session()

        async def run_turn() -> None:
            async for event in session.stream("!think 60s"):
                if isinstance(event, TurnStarted):
                    is_running.set()

        is_running = asyncio.Event()
        running = asyncio.create_task(run_turn())
        await is_running.wait()
        assert await Leases(runtime.stores.database, is_gone=lambda _: True).acquire(session.id, "another process", 60)
        queued = await session.post("later")
        assert [found.id for found in await session.queue()] == [queued.id]
        await running


async def test_a_fork_of_a_running_session_does_not_believe_that_it_runs() -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await release.wait()
        return "waited"

    async with memory_runtime(
        providers={"anthropic": ScriptedProvider([ToolCall("a", "wait"), "in the fork", "in the original"])},
        tools=[wait],
    ) as runtime:
        session = await runtime.session(model=MODEL)
        watching = asyncio.create_task(session.send("go"))
        await begun.wait()
        fork = await session.fork()
        assert (await fork.send("instead")).text == "in the fork"
        assert broken_pairs(await fork.path()) == ()
        kept = [stored.type for stored in await runtime.stores.events.after(fork.id, 0)]
        assert "turn_failed" not in kept
        release.set()
        assert (await watching).text == "in the original"


async def test_a_turn_that_is_cancelled_before_it_begins_ends_the_stream() -> None:
    async with memory_runtime(providers={"anthropic": ScriptedProvider(["never said", "hello"])}) as runtime:
        session = await runtime.session(model=MODEL)
        watching = asyncio.create_task(session.send("go"))
        while session._lock.turn is None:  # noqa: ASYNC110 - nothing tells of a task that has not begun
            await asyncio.sleep(0)
        await session.cancel()
        with pytest.raises(LoomError, match="cancelled"):
            await watching
        assert (await session.send("again")).text in ("never said", "hello")


async def test_an_unknown_model_fails_the_turn_and_stores_nothing() -> None:
    async with memory_runtime(providers={"anthropic": ScriptedProvider(["hi"])}) as runtime:
        session = await runtime.session(model=MODEL)
        with pytest.raises(ConfigError):
            await session.use("nonsense")
        await runtime.stores.sessions.update(session.id, model="nowhere/at-all")
        events = [event async for event in session.stream("hello")]
        assert [type(event) for event in events] == [TurnFailed]
        assert await session.path() == ()
        await session.use(MODEL)
        assert (await session.send("hello")).text == "hi"


async def test_a_picture_by_address_is_fetched_for_the_user() -> None:
    """Row 33."""
    picture = sample_png(21, 12)
    provider = ScriptedProvider(["seen"])
    async with (
        far_side(Reply(body=picture, content_type="image/png")) as server,
        memory_runtime(providers={"anthropic": provider}) as runtime,
    ):
        session = await runtime.session(model=MODEL)
        await session.send("look", image(f"{server.url}/logo.png", alt="our logo"))
        (block,) = [block for block in (await session.path())[0].blocks if block.__class__.__name__ == "ImageBlock"]
        assert (block.media.name, block.alt) == ("logo.png", "our logo")
        assert block.media.source == f"{server.url}/logo.png"
        assert provider.prompts[0].media()[0].width == 21


async def test_an_empty_answer_is_not_the_users_own_question() -> None:
    async with memory_runtime(providers={"anthropic": ScriptedProvider([[Stopped(reason="end")], "words"])}) as runtime:
        session = await runtime.session(model=MODEL)
        with pytest.raises(LoomError, match="empty answer"):
            await session.send("hello?")
        assert (await session.send("again")).text == "words"


async def test_what_a_model_sends_that_is_no_picture_is_said_and_the_words_stay() -> None:
    drawn = [
        TextDelta(index=0, text="Here:"),
        MediaArrived(index=1, media_type="image/png", data=b"no picture at all"),
        MediaArrived(index=2, media_type="image/png", data=b"\x89PNG\r\n\x1a\nbroken"),
        TextDelta(index=3, text="There."),
        Stopped(reason="end"),
    ]
    async with memory_runtime(providers={"anthropic": ScriptedProvider([drawn])}) as runtime:
        session = await runtime.session(model=MODEL)
        events = [event async for event in session.stream("draw")]
        assert isinstance(events[-1], TurnFinished)
        assert (await session.path())[1].text == "Here:There."
        assert sum("The model sent image/png" in event.text for event in events if isinstance(event, NoticeRaised)) == 2


async def test_a_stream_that_contradicts_itself_is_a_cut_answer_and_no_crash() -> None:
    from loom.events import CallDelta

    spliced = [TextDelta(index=0, text="half "), CallDelta(index=0, arguments="{}"), Stopped(reason="end")]
    async with memory_runtime(providers={"anthropic": ScriptedProvider([spliced, "whole"])}) as runtime:
        session = await runtime.session(model=MODEL)
        events = [event async for event in session.stream("go")]
        assert isinstance(events[-1], TurnFinished)
        assert [message.text for message in await session.path()] == ["go", "half ", "whole"]
        assert any(event.code == "turn.continued" for event in events if isinstance(event, NoticeRaised))


async def test_the_receipt_of_a_reply_is_of_the_request_that_was_sent() -> None:
    async with memory_runtime(providers={"anthropic": ScriptedProvider(["seen"])}) as runtime:
        session = await runtime.session(model=MODEL)
        reply = await session.send("look", sample_png())
        assert [row.kind for row in reply.receipt.rows] == ["text", "image"]


async def test_a_long_answer_is_written_in_few_batches_and_shown_whole(tmp_path: Path) -> None:
    async with memory_runtime(providers={"anthropic": ScriptedProvider(["word\n" * 2_000])}) as runtime:
        session = await runtime.session(model=MODEL)
        batches: list[int] = []
        append = runtime.stores.events.append

        async def counted(session_id: str, events: Sequence[tuple[str, bytes]], *, fence: int | None) -> int:
            batches.append(len(events))
            return await append(session_id, events, fence=fence)

        runtime.stores.events.append = counted
        events = [event async for event in session.stream("go")]
        assert sum(isinstance(event, TextDelta) for event in events) == 2_000
        assert isinstance(events[-1], TurnFinished)
        assert len(batches) < 100
        kept = await runtime.stores.events.after(session.id, 0)
        assert len(kept) < 100
        assert join_deltas(decode_event(stored.data) for stored in kept) == join_deltas(events)


class Log:
    """The event log of a session, as far as a sink uses it."""

    def __init__(self, write: Callable[[Sequence[Event]], Awaitable[None]]) -> None:
        self.append_events = write


async def test_events_are_shown_in_order_and_only_when_they_are_written() -> None:
    written: list[Event] = []
    shown: list[Event] = []

    async def write(events: Sequence[Event]) -> None:
        await asyncio.sleep(0)
        assert _words(shown) == _words(written)
        written.extend(events)

    sink = EventSink(Log(write), shown.append, WriteBatching(), NullObserver())
    words = [TextDelta(text=str(number)) for number in range(500)]
    await asyncio.gather(*(sink.emit(word) for word in words))
    await sink.emit_now(StepStarted(step=1, model="m"))
    assert shown[:500] == words
    assert _words(written) == _words(words)
    assert len(written) < 50, "words that gather are one event on disk"
    assert shown[500:] == written[-1:]


@pytest.mark.parametrize("running", [1, 26, 27, 200, 5_000])
def test_the_more_turns_talk_the_less_often_each_is_written_and_never_all_at_once(running: int) -> None:
    batching = WriteBatching()
    batching.running = running
    moments: Counter[float] = Counter()
    for _ in range(running):
        slot, now = batching.next_slot(), 100.0
        while (now := batching.due(now, slot)) <= 110.0:
            moments[round(now, 6)] += 1

    writings = sum(moments.values()) / 10
    assert len(moments) <= 301, "thirty commits a second serve all"
    assert writings <= max(30, 800 * 1.02)
    assert writings >= min(30 * running, 800) / 2
    assert max(moments.values()) <= 28, "what is written at once does not hold up the rest"


def _words(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_an_event_that_cannot_be_written_is_an_error_for_whoever_waits_for_it() -> None:
    async def write(events: Sequence[Event]) -> None:
        if full:
            raise Full("No space is left.")

        written.extend(events)

    full = True
    written: list[Event] = []
    sink = EventSink(Log(write), lambda event: None, WriteBatching(), NullObserver())
    await sink.emit(TextDelta(text="a word"))
    with pytest.raises(Full):
        await sink.flush()
    step = StepStarted(step=1, model="m")
    with pytest.raises(Full):
        await sink.emit_now(step)
    full = False
    await sink.flush()
    assert written == [TextDelta(text="a word"), step], "nothing was lost meanwhile"


async def test_a_session_is_called_by_the_first_words_or_the_first_files() -> None:
    async with memory_runtime(providers={"anthropic": ScriptedProvider(["one", "two", "three", "four"])}) as runtime:
        spoken = await runtime.session(model=MODEL)
        await spoken.send("What  is\nwrong here?")
        await spoken.send("and now?")
        shown = await runtime.session(model=MODEL)
        await shown.send(image(sample_png(), name="login.png"))
        read = await runtime.session(model=MODEL)
        await read.send("Sum it up.", "[file: a.csv]\nname,qty\napple,3")
        titles = {stored.id: stored.title for stored in await runtime.stores.sessions.list()}
        assert titles == {spoken.id: "What is wrong here?", shown.id: "login.png", read.id: "Sum it up."}
