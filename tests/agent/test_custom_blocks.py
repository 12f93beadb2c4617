"""Providers and blocks of somebody's own; plans; doors without await."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

import loom
from loom.agent import custom_blocks
from loom.content.blocks import ImageBlock, TextBlock, ToolCall, UnknownBlock
from loom.content.codec import decode_message, encode_message
from loom.content.messages import text_of
from loom.errors import ConfigError, ContentError, NotFound, ProviderError
from loom.events import CallDelta, CallFinished, CallStarted, DecoderEvent, TurnFailed
from loom.models import Capabilities
from loom.prompt import Prompt
from loom.runtime.custom_provider import REGISTERED, register_provider
from loom.runtime.plan import plan_request
from loom.testing import FakeModel, ScriptedProvider, memory_runtime, sample_pdf, sample_png
from loom.tools.base import tool

MODEL = "anthropic/claude-opus-5"


class Own:
    """Says what it was given to say, or raises it."""

    def __init__(self, name: str, *said: str | DecoderEvent | Exception) -> None:
        self.name = name
        self.capabilities = Capabilities()
        self.said = list(said)

    async def stream(self, prompt: Prompt) -> AsyncIterator[str | DecoderEvent]:
        for item in self.said:
            if isinstance(item, Exception):
                raise item
            yield item
            if isinstance(item, CallFinished):
                self.said = self.said[self.said.index(item) + 1 :]
                return


@pytest.fixture(autouse=True)
def nothing_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("LOOM_HOME", str(tmp_path / "home"))
    before = dict(REGISTERED), dict(custom_blocks._kinds)
    yield
    REGISTERED.clear()
    REGISTERED.update(before[0])
    custom_blocks._kinds.clear()
    custom_blocks._kinds.update(before[1])


# Providers -----------------------------------------------------------------------------------------------------------


async def test_a_provider_of_your_own_answers_under_its_name_and_any_model_of_it() -> None:
    register_provider(Own("parrot", "polly ", "wants a cracker"))
    async with memory_runtime() as runtime:
        session = await runtime.session(model="parrot")
        assert (await session.send("hello")).text == "polly wants a cracker"
        assert (await session.send("hello", model="parrot/gray")).text == "polly wants a cracker"
        assert (await session.plan(["parrot/gray"]))[0].model == "parrot/gray"


async def test_a_provider_of_your_own_can_call_tools() -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    call = [CallStarted(index=0, id="c", name="add"), CallDelta(index=0, arguments='{"a":1,"b":2}')]
    register_provider(Own("caller", *call, CallFinished(index=0), "three"))
    async with memory_runtime(tools=[add]) as runtime:
        session = await runtime.session(model="caller")
        assert (await session.send("1+2?")).text == "three"
        assert text_of((await session.path())[2].results[0]) == "3"


async def test_what_goes_wrong_in_a_provider_of_your_own_fails_the_turn_and_not_the_process() -> None:
    register_provider(Own("crasher", "half ", ValueError("boom")))
    async with memory_runtime() as runtime:
        session = await runtime.session(model="crasher")
        events = [event async for event in session.stream("hello")]
        assert isinstance(events[-1], TurnFailed)
        assert (events[-1].code, events[-1].text) == ("provider", "crasher failed: ValueError: boom")
        assert [message.text for message in await session.path()] == ["hello", "half "]
        register_provider(Own("crasher", loom.LoomError("in its own words")))
        with pytest.raises(loom.LoomError, match="in its own words"):
            await session.send("again")


def test_a_provider_needs_a_name_that_nobody_has() -> None:
    for name in ("anthropic", "openai-compatible", "loom", "With Space", "", "a/b"):
        with pytest.raises(ConfigError):
            register_provider(Own(name))


async def test_a_model_that_was_given_to_one_runtime_is_not_known_to_others() -> None:
    with loom.Loom(model=FakeModel(["mine"])) as lm:
        assert lm.ask("whose?").text == "mine"
    async with memory_runtime() as runtime:
        with pytest.raises(ConfigError):
            runtime.models.resolve("fake")


def test_a_fake_model_remembers_pictures_and_words() -> None:
    model = FakeModel(["seen", ProviderError("down")])
    assert loom.ask("what is this?", loom.image(sample_png(90, 50)), model=model).text == "seen"
    assert model.requests[0].text == "what is this?"
    assert [image.size for image in model.requests[0].images] == [(90, 50)]
    with pytest.raises(ProviderError, match="down"):
        loom.ask("again?", model=model)


# Blocks --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spot:
    lat: float
    lon: float


def said_of(spot: Spot) -> str:
    return f"[map: {spot.lat}, {spot.lon}]"


async def test_a_block_of_your_own_is_read_by_every_model_and_survives_where_nobody_knows_it() -> None:
    """Row 12."""
    custom_blocks.register_block(Spot, fallback=said_of, image=lambda _: sample_png(16, 16))
    seeing = ScriptedProvider(["Vienna"])
    blind = ScriptedProvider(["Vienna, I guess"])
    async with memory_runtime(providers={"anthropic": seeing, "deepseek": blind}) as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("where is this?", [Spot(48.2, 16.4)])
        (message, *_) = await session.path()
        assert isinstance(message.blocks[1], UnknownBlock)
        assert message.blocks[1].data == {"type": "spot", "lat": 48.2, "lon": 16.4, "text": "[map: 48.2, 16.4]"}
        assert isinstance(message.blocks[2], ImageBlock)
        custom_blocks._kinds.clear()
        assert decode_message(encode_message(message)) == message
        await session.send("and without eyes?", model="deepseek/deepseek-v4-pro")
        assert seeing.prompts[0].media()[0].width == 16
        assert "[map: 48.2, 16.4]" in str(seeing.prompts[0].messages[0])
        assert blind.prompts[0].media() == ()
        assert "[map: 48.2, 16.4]" in str(blind.prompts[0].messages[0])


async def test_a_tool_can_return_and_inject_blocks_of_your_own() -> None:
    custom_blocks.register_block(Spot, fallback=said_of)

    @tool
    async def where(context: loom.ToolContext) -> list[Spot]:
        """Where."""
        await context.inject(cast("Any", Spot(1, 2)))
        return [Spot(3, 4)]

    async with memory_runtime(
        providers={"anthropic": ScriptedProvider([ToolCall("a", "where"), "there"])}, tools=[where]
    ) as runtime:
        session = await runtime.session(model=MODEL)
        await session.send("where?")
        path = await session.path()
        assert text_of(path[2].results[0]) == "[map: 3, 4]"
        assert path[3].text == "" or "[map: 1, 2]" in path[3].text
        assert text_of(path[3].blocks[0]) == "[map: 1, 2]"


class Texted(msgspec.Struct):
    text: str


class Odd(msgspec.Struct):
    value: object


async def test_blocks_that_cannot_be_kept_are_refused_with_a_reason() -> None:
    for tag in ("image", "unknown", "Big", "a b", ""):
        if tag:
            with pytest.raises(ContentError):
                custom_blocks.register_block(Spot, fallback=said_of, tag=tag)
    custom_blocks.register_block(Spot, fallback=said_of)
    custom_blocks.register_block(Spot, fallback=said_of)
    with pytest.raises(ContentError, match="Another block"):
        custom_blocks.register_block(Texted, fallback=lambda _: "x", tag="spot")
    custom_blocks.register_block(Texted, fallback=lambda _: "x")
    custom_blocks.register_block(Odd, fallback=lambda odd: "  " if odd.value is None else "odd")
    async with memory_runtime() as runtime:
        session = await runtime.session(model=MODEL)
        for bad, why in ((Texted("x"), "named fields"), (Odd(None), "no text"), (Odd(object()), "JSON")):
            with pytest.raises(ContentError, match=why):
                await session.send("look", cast("Any", bad))
        with pytest.raises(ContentError, match="Content is text"):
            await session.send("look", cast("Any", object()))
        assert await session.path() == ()


# Plans ---------------------------------------------------------------------------------------------------------------


async def test_a_plan_shows_every_model_what_it_would_get_also_of_what_is_not_said_yet() -> None:
    """Rows 109, 115."""
    async with memory_runtime(providers={"anthropic": ScriptedProvider(["fine"])}) as runtime:
        session = await runtime.session(model=MODEL)
        with pytest.raises(ContentError, match="no message"):
            await plan_request(session)
        await session.send("hello")
        picture = loom.image(sample_png(60, 40), name="login.png")
        plan = await plan_request(session, [MODEL, "deepseek/deepseek-v4-pro", "spark"], ["what is this?", picture])
        assert [receipt.model for receipt in plan] == [MODEL, "deepseek/deepseek-v4-pro", "loom/spark"]
        assert len(plan) == 3
        assert plan[MODEL].row("login.png").rendition == "full"
        assert plan["deepseek/deepseek-v4-pro"].row("login.png").rendition == "text"
        assert plan["loom/spark"].receipt.model == "loom/spark"
        lines = plan.table().splitlines()
        assert lines[0].split() == [MODEL, "deepseek/deepseek-v4-pro", "loom/spark"]
        assert lines[-2].startswith("tokens")
        assert len({len(line.split("  ")[0]) for line in lines}) > 1
        assert "sha256:" in str(plan[MODEL].wire())
        with pytest.raises(ConfigError, match="sends no request"):
            plan["spark"].wire()
        with pytest.raises(ContentError, match="no block is called"):
            plan[MODEL].row("nothing.png")
        with pytest.raises(KeyError):
            plan["openai/gpt-5.5"]
        assert len(await session.path()) == 2


# Doors ---------------------------------------------------------------------------------------------------------------


def test_the_head_of_a_session_is_set_to_a_reply_or_a_node() -> None:
    with loom.Loom(model=FakeModel(["a", "b", "c", "d"])) as lm:
        session = lm.session()
        first = session.send("one")
        second = session.at(first).send("two")
        third = session.at(first.parent).send("instead")
        assert session.head == third.node
        session.head = second
        assert [message.text for message in session.path()] == ["one", "a", "two", "b"]
        session.head = first.parent
        assert session.path() == ()
        assert [event.type for event in session.at(second).stream("more")][-1] == "turn_finished"
        with pytest.raises(NotFound):
            session.head = "node:sha256:" + "0" * 64
        assert loom.diff(first, second).splitlines()[-2:] == ["-a", "+b"]
        assert loom.diff(first, first.message) == ""


def test_all_tools_that_loom_comes_with_can_be_had_by_one_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_HOME", str(tmp_path))
    with loom.Loom(model="spark", tools="all", approve=lambda _: loom.Deny()) as lm:
        assert {"read_file", "run_command", "look"} <= set(lm.runtime.toolbox.tools)
        session = lm.session()
        session.send('!tool run_command {"command": "touch made"}')
        assert session.path()[2].results[0].is_error


# Renditions ----------------------------------------------------------------------------------------------------------


async def test_who_waits_is_told_what_is_being_made_and_search_is_told_the_words() -> None:
    from loom.store.media_text import MediaTexts

    async with memory_runtime(providers={"deepseek": ScriptedProvider(["read", "read again"])}) as runtime:
        told: list[str] = []
        runtime.stores.renditions.on_progress = told.append
        session = await runtime.session(model="deepseek/deepseek-v4-pro")
        await session.send("read this", loom.document(sample_pdf("The proxy gives up."), name="manual.pdf"))
        assert told
        assert all(words.startswith("reading") for words in told)
        assert await MediaTexts(runtime.stores.database).list_unread() == ()
        count = len(told)
        await session.send("again")
        assert len(told) == count


async def test_a_medium_that_is_gone_is_told_as_text_also_to_a_model_that_already_speaks() -> None:
    async with memory_runtime() as runtime:
        session = await runtime.session(model="spark")
        await session.send("the timeout?", loom.document(sample_pdf("The timeout is 30 seconds."), name="manual.pdf"))
        (stored,) = [found async for found in runtime.stores.media.listing()]
        await runtime.stores.media.delete(stored.digest)
        events = [event async for event in session.stream("what does manual.pdf say about the timeout?")]
        assert events[-1].type == "turn_finished"
        (message, *_) = [event.message for event in events if event.type == "message_stored"][1:]
        assert isinstance(message.blocks[-1], TextBlock)
        assert any("could not be read" in event.text for event in events if event.type == "notice")
