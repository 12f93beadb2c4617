"""F10, F17: streams that break, hang or are left. The turn is marked, what arrived is kept, nothing half is run."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from flow.far_models import WIRES, FarModel, far_model, half, speak
from loom.agent.calls import INTERRUPTED, NOT_STARTED, PARTIAL_CHARS
from loom.agent.services import TurnLimits
from loom.config import load_config
from loom.content.blocks import ToolCall
from loom.content.messages import Message, broken_pairs, text_of
from loom.errors import ContextOverflow
from loom.events import (
    Event,
    MessageStored,
    NoticeRaised,
    TextDelta,
    ToolProgressed,
    ToolStarted,
    TurnFailed,
    TurnFinished,
    decode_event,
)
from loom.providers.http import Timeouts
from loom.runtime import Runtime
from loom.runtime.session import LocalSession
from loom.testing import ScriptedAnswer, ScriptedProvider, memory_runtime, sample_png
from loom.tools.base import ToolContext, tool
from patience import PATIENCE_SECONDS
from providers.far_side import Reply, refusal

SOON = Timeouts(connect_seconds=2.0, silence_seconds=0.2, deadline_seconds=3.0, attempts=1)
ENDS = ("close", "truncate", "reset", "hang")


@tool
def shoot() -> bytes:
    """Take a picture."""
    return sample_png()


async def meta_of(runtime: Runtime, session_id: str) -> dict[str, object]:
    head = (await runtime.stores.sessions.get(session_id)).head_id
    path = await runtime.stores.forest.path(head)
    return next(node.meta for node in reversed(path) if node.message is not None and node.message.role == "assistant")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("wire", WIRES)
async def test_an_answer_that_breaks_off_keeps_its_words_and_is_continued(wire: str, end: str) -> None:
    async with far_model(wire, half(wire, "half an answer", end=end), "The rest.", patience=SOON) as far:
        session = await far.runtime.session(model="far")
        reply = await session.send("go")
        assert reply.text == "half an answerThe rest."
        assert [message.text for message in await session.path()] == ["go", "half an answer", "The rest."]
        assert "half an answer" in far.texts(1), "the model reads what it had said"


@pytest.mark.parametrize("wire", WIRES)
async def test_an_answer_that_never_comes_whole_fails_the_turn_and_is_marked(wire: str) -> None:
    broken = [half(wire, f"half {number}", end="close") for number in range(3)]
    async with far_model(wire, *broken, "Whole.", patience=SOON) as far:
        session = await far.runtime.session(model="far")
        events = [event async for event in session.stream("go")]
        assert isinstance(events[-1], TurnFailed)
        assert [message.text for message in await session.path()] == ["go", "half 0", "half 1", "half 2"]
        assert (await meta_of(far.runtime, session.id))["finish_reason"] == "incomplete"
        assert (await session.send("go on")).text == "Whole."


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("wire", WIRES)
async def test_a_call_in_an_answer_that_broke_off_is_not_run(wire: str, end: str) -> None:
    broken = half(wire, "I do it.", ToolCall("c1", "shoot"), end=end)
    async with far_model(wire, broken, "Whole.", patience=SOON, tools=[shoot]) as far:
        session = await far.runtime.session(model="far")
        events = [event async for event in session.stream("go")]
        assert isinstance(events[-1], TurnFinished)
        assert not any(isinstance(event, ToolStarted) for event in events)
        assert broken_pairs(await session.path()) == ()
        assert [message.text for message in await session.path()] == ["go", "I do it.", "Whole."]


@pytest.mark.parametrize("wire", WIRES)
async def test_wherever_an_answer_is_cut_no_word_is_lost_and_done_means_whole(wire: str) -> None:
    """Twelve cuts at random bytes: done only where the provider had said so, and every word that was shown is kept."""
    whole = speak(wire, ["All of ", "the words."])
    dice = random.Random(f"cut {wire}")
    cuts = sorted(dice.sample(range(len(whole.body)), 12))
    replies = [Reply(body=whole.body, content_type=whole.content_type, cut_after=cut, chunk=7) for cut in cuts]
    async with far_model(wire, *replies, "Whole.", patience=SOON) as far:
        session = await far.runtime.session(model="far")
        while len(far.requests) < len(cuts):
            before = len(await session.path())
            events = [event async for event in session.stream("go")]
            texts = [message.text for message in (await session.path())[before + 1 :]]
            shown = "".join(event.text for event in events if isinstance(event, TextDelta))
            assert "".join(texts).split() == shown.split()
            if isinstance(events[-1], TurnFinished):
                assert texts[-1] in ("All of the words.", "Whole.")
        assert broken_pairs(await session.path()) == ()


async def test_a_server_that_never_answers_fails_the_turn_and_keeps_the_question() -> None:
    async with far_model("anthropic", Reply(before="hang"), "Awake.", patience=SOON) as far:
        session = await far.runtime.session(model="far")
        events = [event async for event in session.stream("hello?")]
        assert isinstance(events[-1], TurnFailed)
        assert [message.text for message in await session.path()] == ["hello?"]
        assert (await session.send("anybody?")).text == "Awake."


@pytest.mark.parametrize("seed", range(30))
async def test_a_turn_that_is_cancelled_anywhere_leaves_a_whole_session_and_no_connection(seed: int) -> None:
    dice = random.Random(seed)
    wire = WIRES[seed % len(WIRES)]
    words = [f"word {at} " for at in range(8)]
    slow = speak(wire, [*words, ToolCall("c1", "shoot"), ToolCall("c2", "shoot")])
    piece = max(len(slow.body) // 12, 1)
    slow = Reply(body=slow.body, content_type=slow.content_type, chunk=piece, pause=0.002, end="hang")
    async with far_model(wire, slow, "Seen.", "Here I am.", tools=[shoot]) as far:
        session = await far.runtime.session(model="far")
        events = await left_early(session.stream("go", sample_png()), dice.randrange(1, 40), dice.choice(WAYS), session)
        await left_alone(far)
        path = await session.path()
        assert broken_pairs(path) == ()
        assert said(path).startswith(
            "".join(event.text for event in events if isinstance(event, TextDelta)).rstrip()
        ), path
        kept = [decode_event(stored.data) for stored in await far.runtime.stores.events.after(session.id, 0)]
        ends = [event for event in kept if isinstance(event, TurnFinished | TurnFailed)]
        assert len(ends) == 1
        assert isinstance(ends[0], TurnFinished) or ends[0].code == "turn.cancelled"
        stored = [event.node for event in kept if isinstance(event, MessageStored)]
        assert len(stored) == len(path) == len(set(stored))
        assert (await session.send("hello")).text in ("Seen.", "Here I am.")


async def left_alone(far: FarModel) -> None:
    """Nobody listens any more to the first answer, which has no end; a later one may be over, its connection kept."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while far.server.open_connections > int(len(far.requests) > 1):
            far.server.left.clear()
            await far.server.left.wait()


WAYS = ("cancel", "leave", "kill the watcher")


async def left_early(stream: AsyncGenerator[Event], count: int, way: str, session: LocalSession) -> list[Event]:
    """Watch so many events, then go away in one of three ways."""
    events: list[Event] = []

    async def watch() -> None:
        async with aclosing(stream) as watched:
            async for event in watched:
                events.append(event)
                if len(events) < count:
                    continue
                if way == "leave":
                    return
                if way == "cancel" and len(events) == count:
                    await session.cancel()
                if way == "kill the watcher":
                    reached.set()
                    await asyncio.Event().wait()

    reached = asyncio.Event()
    watching = asyncio.create_task(watch())
    reaching = asyncio.create_task(reached.wait())
    await asyncio.wait([watching, reaching], return_when=asyncio.FIRST_COMPLETED)
    reaching.cancel()
    watching.cancel()
    await asyncio.wait([watching, reaching])
    if not watching.cancelled():
        watching.result()
    return events


def said(path: tuple[Message, ...]) -> str:
    return "".join(message.text for message in path if message.role == "assistant")


async def test_a_turn_that_takes_too_long_is_ended_and_its_calls_are_answered() -> None:
    @tool
    async def sleep() -> str:
        """Sleep for ever."""
        await asyncio.Event().wait()
        return ""

    async with memory_runtime(
        providers={"anthropic": ScriptedProvider([["I wait.", ToolCall("a", "sleep")], "Awake."])},
        tools=[sleep],
        limits=TurnLimits(seconds=0.3),
    ) as runtime:
        session = await runtime.session(model="anthropic/claude-opus-5")
        events = [event async for event in session.stream("go")]
        assert isinstance(events[-1], TurnFailed)
        assert events[-1].code == "turn.limit"
        assert broken_pairs(await session.path()) == ()
        assert (await session.send("hello")).text == "Awake."


@tool
def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}, receipt 4711"


@tool
async def linger(context: ToolContext) -> str:
    """Take for ever."""
    await context.emit("lingering")
    await asyncio.Event().wait()
    return ""


PAID = ["paid bob, receipt 4711", INTERRUPTED]
BOTH = [ToolCall("c1", "pay", {"to": "bob"}), ToolCall("c2", "linger")]


async def results_of(session: LocalSession) -> list[str]:
    return [text_of(result) for message in await session.path() for result in message.results]


@pytest.mark.parametrize("how", ["cancelled", "too long"])
async def test_what_a_call_gave_is_kept_where_another_of_its_message_is_cut_off(how: str) -> None:
    """A model that is told that a payment was interrupted pays again; one that is told that it may have been made, and
    was not, does not pay at all."""
    async with memory_runtime(
        providers={"anthropic": ScriptedProvider([[*BOTH, ToolCall("c3", "pay", {"to": "eve"})], "Fine."])},
        tools=[pay, linger],
        limits=TurnLimits(seconds=0.5) if how == "too long" else None,
    ) as runtime:
        session = await runtime.session(model="anthropic/claude-opus-5")
        async for event in session.stream("pay bob"):
            if isinstance(event, ToolProgressed) and how == "cancelled":
                await session.cancel()
        assert await results_of(session) == [*PAID, NOT_STARTED]
        assert broken_pairs(await session.path()) == ()


async def test_what_a_command_printed_before_it_was_cut_off_is_kept() -> None:
    command = ToolCall("c1", "run_command", {"command": "echo $((6 * 7)) secret-4711; sleep 600"})
    async with memory_runtime(
        {"approval.default": "allow", "keys.openai": "secret-4711"},
        providers={"anthropic": ScriptedProvider([command, "Fine."])},
        tools=["run_command"],
    ) as runtime:
        session = await runtime.session(model="anthropic/claude-opus-5")
        async for event in session.stream("run it"):
            if isinstance(event, ToolProgressed):
                await session.cancel()
        (result,) = await results_of(session)
        assert result.startswith(INTERRUPTED) and "42" in result and "4711" not in result
        assert (await session.send("go on")).text == "Fine."


async def test_no_part_of_a_secret_is_kept_where_long_output_is_elided() -> None:
    """The secret begins before the place where the output is elided, and ends after it."""
    at = PARTIAL_CHARS * 2 // 3 - len("Its output until then:\n") - 5
    printed = "head -c %d /dev/zero | tr '\\0' %s; "
    command = (
        printed % (at, "x") + "printf secret-4711; " + printed % (PARTIAL_CHARS, "y") + "echo; echo ready; sleep 600"
    )
    async with memory_runtime(
        {"approval.default": "allow", "keys.openai": "secret-4711"},
        providers={"anthropic": ScriptedProvider([ToolCall("c1", "run_command", {"command": command})])},
        tools=["run_command"],
    ) as runtime:
        session = await runtime.session(model="anthropic/claude-opus-5")
        async for event in session.stream("run it"):
            if isinstance(event, ToolProgressed) and event.text == "ready":
                await session.cancel()
        (result,) = await results_of(session)
        assert "left out here" in result and "ready" in result
        assert "secre" not in result and "4711" not in result


async def test_the_sessions_of_agents_that_were_cut_off_can_be_continued() -> None:
    script: list[ScriptedAnswer] = [ToolCall("c1", "ask_agent", {"tasks": ["wait"]}), ToolCall("c2", "linger")]
    async with memory_runtime(
        providers={"anthropic": ScriptedProvider(script)}, tools=["ask_agent", linger]
    ) as runtime:
        session = await runtime.session(model="anthropic/claude-opus-5")
        async for event in session.stream("ask an agent"):
            if isinstance(event, ToolProgressed):
                await session.cancel()
        (agent,) = [found async for found in runtime.stores.sessions.list_all() if found.id != session.id]
        (result,) = await results_of(session)
        assert result.startswith(INTERRUPTED) and agent.id in result


@pytest.mark.parametrize("damage", ["", "'{'", "x'fffe'"], ids=["whole", "no event", "no text"])
async def test_what_a_call_gave_is_kept_where_the_process_died_after_it(tmp_path: Path, damage: str) -> None:
    """Unless the record of it is damaged, which does not keep the session from going on."""
    program = Path(__file__).with_name("payer.py")
    config = load_config(cwd=tmp_path, environ={"LOOM_HOME": str(tmp_path)})
    process = await asyncio.create_subprocess_exec(sys.executable, program, tmp_path, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    session_id = (await process.stdout.readline()).decode().strip()
    process.kill()
    await process.wait()
    if damage:
        with closing(sqlite3.connect(tmp_path / "loom.db")) as database:
            change = f"UPDATE event SET data = {damage} WHERE type = 'tool_finished'"
            assert database.execute(change).rowcount == 1
            database.commit()
    async with Runtime.open(
        config, providers={"anthropic": ScriptedProvider(["I look whether it was paid.", "Fine."])}
    ) as runtime:
        session = await runtime.session(session_id)
        assert (await session.send("go on")).text == "Fine."
        assert await results_of(session) == ([INTERRUPTED] * 2 if damage else PAID)


async def test_a_turn_ends_after_so_many_steps_or_so_much_money() -> None:
    for limits, steps in ((TurnLimits(steps=3), 3), (TurnLimits(usd=0.000_000_1), 1)):
        provider = ScriptedProvider(ToolCall(f"c{at}", "shoot") for at in range(9))
        async with memory_runtime(providers={"anthropic": provider}, tools=[shoot], limits=limits) as runtime:
            session = await runtime.session(model="anthropic/claude-sonnet-5")
            events = [event async for event in session.stream("go")]
            assert isinstance(events[-1], TurnFailed)
            assert events[-1].code == "turn.limit"
            assert len(provider.prompts) == steps
            assert broken_pairs(await session.path()) == ()


async def test_bytes_that_vanish_between_two_turns_become_text_and_the_turn_goes_on(tmp_path: Path) -> None:
    """F7, in the same process: what was measured before is gone when the request is written."""
    async with far_model("anthropic", "Seen.", "Only words.") as far:
        session = await far.runtime.session(model="far")
        await session.send("look", sample_png(99, 77))
        (digest,) = far.pictures(0)
        await far.runtime.stores.media.delete(digest)
        events = [event async for event in session.stream("and now?")]
        assert isinstance(events[-1], TurnFinished), events[-1]
        assert any("could not be read" in event.text for event in events if isinstance(event, NoticeRaised))
        assert "99×77" in far.texts(len(far.requests) - 1)


async def test_bytes_that_come_back_are_shown_again() -> None:
    async with far_model("anthropic", "Seen.") as far:
        session = await far.runtime.session(model="far")
        await session.send("look", sample_png(99, 77))
        (digest,) = far.pictures(0)
        await far.runtime.stores.media.delete(digest)
        await session.send("and now?")
        await session.send("here it is again", sample_png(99, 77))
        assert digest in far.pictures(len(far.requests) - 1)


async def test_a_request_that_cannot_be_made_small_enough_teaches_nothing(tmp_path: Path) -> None:
    """As with a server that was started with a tiny window: once it has a larger one, all is as before."""
    full = refusal(400, {"error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 5 maximum"}})
    async with far_model("anthropic", full, full, full, full, "Here I am.") as far:
        session = await far.runtime.session(model="far")
        with pytest.raises(ContextOverflow):
            await session.send("word " * 2_000)
        reply = await session.send("are you there?")
        kept = await far.runtime.stores.sessions.get(session.id)
    assert reply.text == "Here I am."
    assert reply.receipt.totals.tokens > 2_000
    assert not any("max_tokens" in lessons for lessons in kept.settings["lessons"].values())
