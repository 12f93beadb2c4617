"""A conversation goes on from its summary; nothing of it is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.test_working import MODEL, runtime_at
from loom.content.blocks import ToolCall
from loom.content.messages import media_of
from loom.events import DecoderEvent, Event, MessageStored, Stopped, StopReason, TextDelta, TurnFailed, TurnFinished
from loom.runtime import Runtime
from loom.runtime.session import LocalSession
from loom.testing import ScriptedProvider, sample_pdf, sample_png


def provider_of(runtime: Runtime) -> ScriptedProvider:
    found = runtime.models.given_providers["anthropic"]
    assert isinstance(found, ScriptedProvider)
    return found


async def compacted(session: LocalSession) -> list[Event]:
    return [event async for event in session.compact()]


async def test_the_next_request_holds_the_summary_and_no_media_and_the_whole_is_still_in_the_tree(tmp_path: Path):
    answers = ["A blue picture.", "One page.", "The user showed a picture and a report.", "Go on, then."]
    async with runtime_at(tmp_path, answers) as runtime:
        session = await runtime.session(model=MODEL, system="Be brief.")
        await session.send("what is it?", sample_png(64, 48))
        await session.send("and this?", sample_pdf("The timeout is 30 seconds."))
        whole = await session.path()
        events = await compacted(session)
        reply = await session.send("go on")
        path = await session.path()
        tree = await runtime.stores.forest.tree(session.id)
    asked, after = provider_of(runtime).prompts[2:]
    assert asked.media() == () and asked.tools == ()
    assert isinstance(events[-1], TurnFinished) and events[-1].usage.input_tokens == 10
    (stored,) = [event for event in events if isinstance(event, MessageStored)]
    assert stored.message.text.startswith("[Summary of the previous 4 messages, by claude-opus-5]\n\nThe user showed")
    assert after.system == "Be brief." and after.media() == ()
    assert [len(after.messages), len(path)] == [1, 3]
    assert reply.text == "Go on, then."
    assert [media.digest for media in media_of(path[0])] == [m.digest for said in whole for m in media_of(said)]
    assert {row.rendition for row in reply.receipt.rows if row.digest} == {"omitted"}
    assert {node.message for node in tree} >= {*whole, *path}


async def test_what_was_shown_before_the_summary_can_be_looked_at_again(tmp_path: Path):
    answers = ["Blue.", "A picture was shown.", ToolCall("1", "look", {"media": "login.png"}), "Still blue."]
    async with runtime_at(tmp_path, answers, "look") as runtime:
        (tmp_path / "login.png").write_bytes(sample_png(64, 48))
        session = await runtime.session(model=MODEL)
        await session.send("what is it?", tmp_path / "login.png")
        await compacted(session)
        await session.send("look again")
        assert len(provider_of(runtime).prompts[-1].media()) == 1


@pytest.mark.parametrize("answer", [[TextDelta(text="half a")], [Stopped(reason="end")]], ids=["cut", "empty"])
async def test_a_summary_that_does_not_come_leaves_everything_as_it_was(tmp_path: Path, answer: list[DecoderEvent]):
    is_cut = not isinstance(answer[-1], Stopped)
    async with runtime_at(tmp_path, ["hello", *[answer] * (3 if is_cut else 1), "still here"]) as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("hi")
        before = await session.path()
        events = await compacted(session)
        assert not any(isinstance(event, MessageStored) for event in events)
        assert isinstance(events[-1], TurnFailed)
        assert await session.path() == before
        assert (await session.send("and?")).text == "still here"


@pytest.mark.parametrize("reason", ["max_tokens", "refusal", "overflow"])
async def test_a_summary_that_was_not_finished_is_none(tmp_path: Path, reason: StopReason):
    half: list[DecoderEvent] = [TextDelta(text="The user wants to"), Stopped(reason=reason)]
    async with runtime_at(tmp_path, ["hello", half, "still here"]) as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("hi")
        before = await session.path()
        events = await compacted(session)
        assert isinstance(events[-1], TurnFailed) and "did not finish its summary" in events[-1].text
        assert await session.path() == before
        assert (await session.send("and?")).text == "still here"


async def test_where_nothing_was_said_there_is_nothing_to_summarize(tmp_path: Path):
    async with runtime_at(tmp_path) as runtime:
        (failed,) = await compacted(await runtime.session(model=MODEL))
    assert isinstance(failed, TurnFailed) and "Nothing to summarize" in failed.text


async def test_what_a_session_keeps_does_not_grow_with_the_media_of_its_summaries(tmp_path: Path):
    """What is chosen for the media of a summary is one entry, and a choice for a single one wins over it."""
    answers = [text for number in range(3) for text in (*(f"Seen {number}.",) * 4, f"Summary {number}.")]
    async with runtime_at(tmp_path, [*answers, "Done.", "Done again."]) as runtime:
        session = await runtime.session(model=MODEL)
        for number in range(3):
            for shade in range(4):
                await session.send("look", sample_png(40 + 10 * number + shade, 30))
            await compacted(session)
        assert list((await session.overrides()).values()) == ["omitted"] * 3
        reply = await session.send("go on")
        rows = [row for row in reply.receipt.rows if row.digest]
        assert {row.rendition for row in rows} == {"omitted"} and len(rows) >= 4
        summary = list(await session.overrides())[-1].removesuffix("*")
        await session.set_overrides({f"{summary}1": "low"})
        reply = await session.send("and now?")
        shown = [row.rendition for row in reply.receipt.rows if row.digest]
        assert shown.count("low") == 1 and shown.count("omitted") == len(shown) - 1
