"""Whole turns through a session: said, stored, asked, acted on, and survived."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from loom.content.blocks import ImageBlock, TextBlock, ToolCall, ToolResult
from loom.content.messages import assistant, text_of
from loom.errors import (
    CapabilityMissing,
    ContextOverflow,
    LoomError,
    MediaRefused,
    NotAuthorised,
    ProviderError,
    Refused,
    TooManyBytes,
)
from loom.events import (
    ApprovalRequested,
    CallDelta,
    CallStarted,
    Event,
    MediaArrived,
    MessageQueued,
    MessageStored,
    NoticeRaised,
    Stopped,
    TextDelta,
    ToolFinished,
    TurnFailed,
    TurnFinished,
    decode_event,
)
from loom.prompt import ShownMedia, ShownResult
from loom.testing import ScriptedProvider, memory_runtime, sample_png
from loom.tools.base import ToolContext, tool

MODEL = "anthropic/claude-opus-5"


@tool
def shoot(color: int = 1) -> bytes:
    """Take a picture."""
    return sample_png(20 + color, 10)


@tool(danger="ask")
async def wipe(context: ToolContext, path: str) -> str:
    """Delete a file."""
    (context.workspace / path).unlink()
    return "gone"


@tool
def broken(x: int) -> str:
    """Always fails."""
    raise ZeroDivisionError("no luck")


def notices(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, NoticeRaised)]


async def test_a_turn_is_on_disk_message_by_message_and_its_events_can_be_replayed() -> None:
    async with memory_runtime(providers={"anthropic": ScriptedProvider(["It says **502**."])}) as runtime:
        session = await runtime.session(model=MODEL)
        events = [event async for event in session.stream("what is wrong?", sample_png(90, 50))]
        assert isinstance(events[-1], TurnFinished)
        messages = await session.path()
        assert [message.role for message in messages] == ["user", "assistant"]
        assert messages[1] == assistant("It says **502**.")
        kept = [decode_event(stored.data) for stored in await runtime.stores.events.after(session.id, 0)]
        assert kept == events


async def test_a_picture_from_a_tool_is_seen_in_the_next_step_of_the_same_turn() -> None:
    provider = ScriptedProvider([["I will look.", ToolCall("c1", "shoot", {"color": 3})], "A blue picture."])
    async with memory_runtime(providers={"anthropic": provider}, tools=[shoot]) as runtime:
        reply = await (await runtime.session(model=MODEL)).send("take one")
        assert reply.text == "A blue picture."
        result = provider.prompts[1].messages[-1].blocks[0]
        assert isinstance(result, ShownResult)
        (shown,) = result.blocks
        assert isinstance(shown, ShownMedia)
        assert (shown.ref.width, shown.ref.height) == (23, 10)


async def test_parallel_calls_are_answered_in_their_order_and_errors_are_answers() -> None:
    calls = [
        ToolCall("a", "shoot", {"color": 1}),
        ToolCall("b", "broken", {"x": 1}),
        ToolCall("c", "nonsense"),
        ToolCall("d", "shoot", {"color": "blue"}),
        ToolCall("e", "shoot", {"size": 3}),
    ]
    async with memory_runtime(
        providers={"anthropic": ScriptedProvider([calls, "done"])}, tools=[shoot, broken]
    ) as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("go")
        results = (await session.path())[2].results
        assert [result.call_id for result in results] == ["a", "b", "c", "d", "e"]
        assert [result.is_error for result in results] == [False, True, True, True, True]
        words = [text_of(result) for result in results]
        assert "ZeroDivisionError: no luck" in words[1]
        assert "Tool 'nonsense' not found; available: broken, shoot" in words[2]
        assert "Expected `int`" in words[3]
        assert "size" in words[4]


async def test_a_dangerous_tool_waits_for_the_user_and_a_no_is_read_by_the_model(tmp_path: Path) -> None:
    provider = ScriptedProvider([ToolCall("a", "wipe", {"path": "x\u202etxt.exe"}), "all right"])
    async with memory_runtime(providers={"anthropic": provider}, tools=[wipe]) as runtime:
        session = await runtime.session(model=MODEL)
        asked: list[ApprovalRequested] = []
        async for event in session.stream("tidy"):
            if isinstance(event, ApprovalRequested):
                asked.append(event)
                await session.answer(event.approval, "deny", "not today")
        assert "\\u{202e}" in asked[0].action
        (result,) = (await session.path())[2].results
        assert result.is_error
        assert text_of(result) == "the user denied it: not today"


async def test_a_refused_picture_is_named_quarantined_and_never_sent_again() -> None:
    provider = ScriptedProvider([MediaRefused("Could not process image"), "fine without", "still fine"])
    async with memory_runtime(providers={"anthropic": provider}) as runtime:
        session = await runtime.session(model=MODEL)
        events = [event async for event in session.stream("look", sample_png())]
        assert isinstance(events[-1], TurnFinished)
        assert any("refused" in text for text in notices(events))
        assert (len(provider.prompts[0].media()), len(provider.prompts[1].media())) == (1, 0)
        again = await runtime.session(session.id)
        await again.send("and now?")
        assert provider.prompts[2].media() == ()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (CapabilityMissing("image input is not supported"), "does not support images"),
        (TooManyBytes("request too large"), "too large"),
        (ContextOverflow("prompt is too long"), "too long"),
        (Refused("messages.1.content.0: Invalid signature in thinking block"), "earlier reasoning"),
    ],
)
async def test_what_a_provider_refuses_is_mended_once_and_told(error: ProviderError, words: str) -> None:
    async with memory_runtime(providers={"anthropic": ScriptedProvider([error, "now it works"])}) as runtime:
        session = await runtime.session(model=MODEL)
        events = [event async for event in session.stream("look", sample_png())]
        assert isinstance(events[-1], TurnFinished)
        assert any(words in text for text in notices(events))


async def test_the_same_refusal_twice_ends_the_turn_and_not_the_session() -> None:
    refusal = MediaRefused("Could not process image")
    async with memory_runtime(providers={"anthropic": ScriptedProvider([refusal, refusal, "hello again"])}) as runtime:
        session = await runtime.session(model=MODEL)
        events = [event async for event in session.stream("look", sample_png())]
        assert isinstance(events[-1], TurnFailed)
        assert (await session.send("hello")).text == "hello again"


async def test_an_error_that_cannot_be_mended_is_told_with_its_next_step() -> None:
    async with memory_runtime(
        providers={"anthropic": ScriptedProvider([NotAuthorised("no key", hint="Set ANTHROPIC_API_KEY.")])}
    ) as runtime:
        session = await runtime.session(model=MODEL)
        with pytest.raises(LoomError, match="Set ANTHROPIC_API_KEY"):
            await session.send("hi")
        assert [message.text for message in await session.path()] == ["hi"]


async def test_a_cut_answer_keeps_its_words_runs_no_call_and_is_not_done() -> None:
    cut = [
        TextDelta(text="half an "),
        CallStarted(index=1, id="a", name="shoot"),
        CallDelta(index=1, arguments="{"),
    ]
    async with memory_runtime(providers={"anthropic": ScriptedProvider([cut, "whole"])}, tools=[shoot]) as runtime:
        session = await runtime.session(model=MODEL)
        events = [event async for event in session.stream("go")]
        assert isinstance(events[-1], TurnFinished)
        assert not any(isinstance(event, ToolFinished) for event in events)
        assert [message.text for message in await session.path()] == ["go", "half an ", "whole"]


async def test_a_picture_in_the_answer_is_stored_and_shown_by_reference() -> None:
    picture = sample_png(33, 22)
    drawn = [
        TextDelta(index=0, text="Here:"),
        MediaArrived(index=1, media_type="image/png", data=picture),
        Stopped(reason="end"),
    ]
    async with memory_runtime(providers={"anthropic": ScriptedProvider([drawn, "a bar chart"])}) as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("draw")
        image = (await session.path())[1].blocks[1]
        assert isinstance(image, ImageBlock)
        assert await runtime.stores.media.load(image.media.digest) == picture
        assert (await session.send("what did you draw?")).text == "a bar chart"


async def test_what_is_said_during_a_turn_waits_with_its_media() -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await release.wait()
        return "waited"

    provider = ScriptedProvider([ToolCall("a", "wait"), "first done", "second done"])
    async with memory_runtime(providers={"anthropic": provider}, tools=[wait]) as runtime:
        session = await runtime.session(model=MODEL)
        watching = asyncio.create_task(session.send("first"))
        await begun.wait()
        second = session.stream("second", sample_png())
        queued = await anext(second)
        assert isinstance(queued, MessageQueued)
        release.set()
        assert isinstance([event async for event in second][-1], TurnFinished)
        assert (await watching).text == "first done"
        assert [m.text for m in await session.path() if m.role == "user"] == ["first", "second"]
        assert len(provider.prompts[2].media()) == 1


async def test_a_cancelled_turn_leaves_a_session_that_goes_on() -> None:
    @tool
    async def forever() -> str:
        """Never ends."""
        await asyncio.Event().wait()
        return ""

    provider = ScriptedProvider([ToolCall("a", "forever"), "back again"])
    async with memory_runtime(providers={"anthropic": provider}, tools=[forever]) as runtime:
        session = await runtime.session(model=MODEL)
        async for event in session.stream("go"):
            if event.type == "tool_started":
                await session.cancel()
                break
        assert (await session.send("hello")).text == "back again"
        roles = [message.role for message in await session.path()]
        assert roles == ["user", "assistant", "tool", "user", "assistant"]
        result = (await session.path())[2].blocks[0]
        assert isinstance(result, ToolResult)
        assert "interrupted" in text_of(result)


async def test_an_answer_that_is_cancelled_is_stored_with_that_reason() -> None:
    async with memory_runtime() as runtime:
        session = await runtime.session(model="loom/spark")
        seen = ""
        async for event in session.stream("!slow 40tps\n!tokens 400"):
            seen += event.text if isinstance(event, TextDelta) else ""
            if len(seen) > 100:
                await session.cancel()
        stored = await runtime.stores.sessions.get(session.id)
        node = await runtime.stores.forest.node(stored.head_id)
        assert node.message is not None and node.message.text.startswith(seen[:100])
        assert node.meta["finish_reason"] == "cancelled"


async def test_the_model_can_be_switched_in_the_middle_and_nothing_breaks() -> None:
    answers = ScriptedProvider(["seen", "read"])
    async with memory_runtime(providers={"anthropic": answers, "deepseek": answers}) as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("look", sample_png())
        await session.use("deepseek/deepseek-v4-pro")
        await session.send("and you?")
        assert len(answers.prompts[0].media()) == 1
        assert answers.prompts[1].media() == ()
        blocks = answers.prompts[1].messages[0].blocks
        assert any(isinstance(block, TextBlock) and "[image:" in block.text for block in blocks)


async def test_a_fork_is_a_new_head_and_the_original_stays() -> None:
    async with memory_runtime(providers={"anthropic": ScriptedProvider(["one", "two", "other two"])}) as runtime:
        session = await runtime.session(model=MODEL)
        events = [event async for event in session.stream("first")]
        node = next(event.node for event in reversed(events) if isinstance(event, MessageStored))
        await session.send("second")
        fork = await session.fork(node)
        await fork.send("instead")
        assert [m.text for m in await session.path()] == ["first", "one", "second", "two"]
        assert [m.text for m in await fork.path()] == ["first", "one", "instead", "other two"]


async def test_planning_shows_what_each_model_would_get_and_sends_nothing() -> None:
    provider = ScriptedProvider(["seen"])
    async with memory_runtime(providers={"anthropic": provider}) as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("look", sample_png())
        seeing, blind = await session.plan([MODEL, "deepseek/deepseek-v4-pro"])
        renditions = [next(row for row in plan.rows if row.kind == "image").rendition for plan in (seeing, blind)]
        assert renditions == ["full", "text"]
        assert len(provider.prompts) == 1
