"""F8: what a provider refuses over a real socket is named, set aside, retried and told; and it stays set aside."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from flow.far_models import WIRES, FarModel, far_model, is_question, settings, speak
from loom.config import load_config
from loom.config.schema import ModelEntry
from loom.content.blocks import ToolCall
from loom.content.inputs import Attachment
from loom.events import Event, NoticeRaised, ToolFinished, TurnFailed, TurnFinished
from loom.testing import memory_runtime, sample_png
from loom.tools.base import tool
from providers.far_side import ERRORS, Reply, Request, far_side, refusal

POISON = sample_png(70, 50, (200, 0, 0))
HEALTHY = sample_png(60, 40, (0, 200, 0))
OTHER = sample_png(50, 30, (0, 0, 200))


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def refused(wire: str, status: int, words: str) -> Reply:
    return refusal(status, ERRORS[wire](status, words))


def notices(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, NoticeRaised)]


def named(data: bytes, name: str) -> Attachment:
    return Attachment(source=data, name=name)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_poisoned_picture_is_named_set_aside_and_never_sent_again(wire: str, tmp_path: Path) -> None:
    photo = tmp_path / "poison.png"
    photo.write_bytes(POISON)
    async with far_model(
        wire, refused(wire, 400, "Could not process image"), "Without it, then.", "Still here."
    ) as far:
        session = await far.runtime.session(model="far")
        events = [event async for event in session.stream("what is this?", photo)]
        assert isinstance(events[-1], TurnFinished)
        (notice,) = [text for text in notices(events) if "refused" in text]
        assert f"poison.png from {photo}" in notice
        assert "Could not process image" in notice
        assert list(far.pictures(0)) == [digest(POISON)]
        assert far.pictures(1) == {}
        assert "[image: poison.png, 70×50, " in far.texts(1)
        again = await far.runtime.session(session.id)
        assert (await again.send("and now?")).text == "Still here."
        assert far.pictures(2) == {}
        assert len(far.requests) == 3


@pytest.mark.parametrize("wire", WIRES)
async def test_another_model_is_shown_the_picture_and_may_refuse_it_too(wire: str) -> None:
    """The picture is set aside for one provider; switching gives it another chance, and breaks nothing."""
    other = "gemini" if wire != "gemini" else "anthropic"
    script = [refused(other, 400, "Unable to process input image"), speak(other, "Me neither."), speak(other, "Fine.")]

    def answer(request: Request) -> Reply:
        return script.pop(0) if is_question(request) else refusal(404, {"error": "not found"})

    async with far_model(wire, refused(wire, 400, "Could not process image"), "No.") as far, far_side(answer) as second:
        models = {**far.runtime.config.models, "second": entry_of(other, second.url)}
        far.runtime.reconfigure(replace(far.runtime.config, models=models))
        session = await far.runtime.session(model="far")
        await session.send("what is this?", POISON)
        await session.use("second")
        events = [event async for event in session.stream("and you?")]
        assert isinstance(events[-1], TurnFinished)
        assert any("refused" in text for text in notices(events)), notices(events)
        assert (await session.send("go on")).text == "Fine."
        seen = FarModel(other, second, far.runtime)
        assert [bool(seen.pictures(number)) for number in range(3)] == [True, False, False]
        await session.use("far")
        await session.send("back again")
        assert far.pictures(len(far.requests) - 1) == {}


def entry_of(wire: str, url: str) -> ModelEntry:
    return load_config(environ={"LOOM_HOME": "/nowhere"}, flags=settings(wire, url, "second")).models["second"]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_request_that_is_too_large_is_reduced_and_the_limit_is_remembered(wire: str) -> None:
    most = 40_000
    big = [noise(120, 120, seed) for seed in range(3)]

    def answer(request: Request) -> Reply:
        if len(request.body) > most:
            return refused(wire, 413, "Request Entity Too Large")
        return speak(wire, "Small enough.")

    async with far_model(wire, answer) as far:
        session = await far.runtime.session(model="far")
        events = [event async for event in session.stream("look", *big)]
        assert isinstance(events[-1], TurnFinished)
        assert any("too large" in text for text in notices(events))
        asked = len(far.requests)
        assert asked <= 4
        events = [event async for event in (await far.runtime.session(session.id)).stream("and now?")]
        assert isinstance(events[-1], TurnFinished)
        assert len(far.requests) == asked + 1


def noise(width: int, height: int, seed: int) -> bytes:
    """A picture that cannot be compressed."""
    import io
    import random

    from PIL import Image

    out = io.BytesIO()
    Image.frombytes("RGB", (width, height), random.Random(seed).randbytes(width * height * 3)).save(out, "PNG")
    return out.getvalue()


PLACES = {
    "anthropic": "messages.0.content.{}.image.source.base64.data: ",
    "openai_chat": "Invalid value at messages[0].content[{}].image_url: ",
    "openai_responses": "input[0].content[{}].image_url: ",
    "gemini": "Invalid value at contents[0].parts[{}].inlineData: ",
}
MANY = "At least one of the image dimensions exceed max allowed size for many-image requests: 2000 pixels"


@pytest.mark.parametrize("wire", PLACES)
async def test_of_many_pictures_only_the_one_that_is_named_becomes_text(wire: str) -> None:
    words = PLACES[wire].format(1) + MANY
    async with far_model(wire, refused(wire, 400, words), "Two of them.") as far:
        session = await far.runtime.session(model="far")
        pictures = (named(HEALTHY, "a.png"), named(POISON, "b.png"), named(OTHER, "c.png"))
        events = [event async for event in session.stream(*pictures, "what is it?")]
        assert isinstance(events[-1], TurnFinished)
        assert set(far.pictures(1)) == {digest(HEALTHY), digest(OTHER)}
        (notice,) = [text for text in notices(events) if "refused" in text]
        assert "b.png" in notice
        assert "a.png" not in notice


@pytest.mark.parametrize("wire", PLACES)
async def test_several_damaged_pictures_are_set_aside_one_after_the_other(wire: str) -> None:
    """After the first is text, the second is at another place of the same message, or at the same one."""
    first = refused(wire, 400, PLACES[wire].format(0) + "Could not process image")
    second = refused(wire, 400, PLACES[wire].format(2) + "Could not process image")
    async with far_model(wire, first, second, "One of them.") as far:
        session = await far.runtime.session(model="far")
        pictures = (named(POISON, "a.png"), named(HEALTHY, "b.png"), named(OTHER, "c.png"))
        assert (await session.send(*pictures, "what is it?")).text == "One of them."
        assert set(far.pictures(2)) == {digest(HEALTHY)}


@pytest.mark.parametrize("wire", WIRES)
async def test_where_no_picture_is_named_the_newest_are_set_aside_and_older_ones_stay(wire: str) -> None:
    async with far_model(wire, "Green.", refused(wire, 400, "Could not process image"), "Only the old one.") as far:
        session = await far.runtime.session(model="far")
        await session.send("look", HEALTHY)
        await session.send("and these", POISON, OTHER)
        assert set(far.pictures(1)) == {digest(HEALTHY), digest(POISON), digest(OTHER)}
        assert set(far.pictures(2)) == {digest(HEALTHY)}


@pytest.mark.parametrize("wire", WIRES)
async def test_a_refusal_that_nothing_helps_against_ends_the_turn_and_not_the_session(wire: str) -> None:
    never = refused(wire, 400, "Could not process image")
    async with far_model(wire, never, never, "Hello again.") as far:
        session = await far.runtime.session(model="far")
        events = [event async for event in session.stream("look", POISON)]
        assert isinstance(events[-1], TurnFailed)
        assert events[-1].code == "provider.media_refused"
        assert (await session.send("hello")).text == "Hello again."
        assert far.pictures(2) == {}, "what was refused stays set aside although the turn failed"


@pytest.mark.parametrize("wire", WIRES)
async def test_a_poisoned_picture_of_a_tool_does_not_stop_the_turn(wire: str) -> None:
    @tool
    def shoot() -> bytes:
        """Take a picture."""
        return POISON

    script = (ToolCall("c1", "shoot"), refused(wire, 400, "Could not process image"), "I could not see it.")
    async with far_model(wire, *script, tools=[shoot]) as far:
        session = await far.runtime.session(model="far")
        events = [event async for event in session.stream("go")]
        assert isinstance(events[-1], TurnFinished)
        assert sum(isinstance(event, ToolFinished) for event in events) == 1, "the tool runs once"
        assert far.pictures(2) == {}


async def test_a_server_without_eyes_is_learned_once_for_all_sessions() -> None:
    """Pain 27: unknown is tried once, learned, and told."""
    words = "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"

    def answer(request: Request) -> Reply:
        if not is_question(request):
            return refusal(404, {"error": "not found"})
        if b"image_url" in request.body:
            return refusal(500, {"error": {"code": 500, "message": words, "type": "server_error"}})
        return speak("openai_chat", "Words only.")

    async with far_side(answer) as server:
        entry = {"provider": "compatible", "model": "qwen", "base_url": f"{server.url}/v1"}
        async with memory_runtime({"models": {"far": entry}}) as runtime:
            session = await runtime.session(model="far")
            events = [event async for event in session.stream("look", HEALTHY)]
            assert isinstance(events[-1], TurnFinished)
            assert any("does not support images" in text for text in notices(events))
            another = await runtime.session(model="far")
            events = [event async for event in another.stream("look", OTHER)]
            assert isinstance(events[-1], TurnFinished)
            assert any(" as text" in text for text in notices(events)), "still told, but nothing is tried in vain"
            asked = [request for request in server.requests if is_question(request)]
            assert [b"image_url" in request.body for request in asked] == [True, False, False]


async def test_a_model_without_tools_is_asked_without_them_from_then_on() -> None:
    def answer(request: Request) -> Reply:
        if not is_question(request):
            return refusal(404, {"error": "not found"})
        if "tools" in request.json:
            return refusal(400, {"error": "registry.ollama.ai/library/llava:latest does not support tools"})
        return speak("ollama", "Hello.")

    @tool
    def shoot() -> bytes:
        """Take a picture."""
        return HEALTHY

    async with far_model("ollama", answer, tools=[shoot]) as far:
        session = await far.runtime.session(model="far")
        events = [event async for event in session.stream("hi")]
        assert isinstance(events[-1], TurnFinished)
        assert any("does not support tools" in text for text in notices(events))
        await (await far.runtime.session(session.id)).send("again")
        assert ["tools" in request for request in far.requests] == [True, False, False]


async def test_old_reasoning_that_is_refused_is_left_out_for_good() -> None:
    words = "messages.1.content.0: Invalid `signature` in `thinking` block"
    async with far_model("anthropic", "Hi.", refused("anthropic", 400, words), "Fine.", "Still fine.") as far:
        session = await far.runtime.session(model="far")
        await session.send("hi")
        events = [event async for event in session.stream("and?")]
        assert isinstance(events[-1], TurnFinished)
        assert any("earlier reasoning" in text for text in notices(events))
        await (await far.runtime.session(session.id)).send("once more")
        assert len(far.requests) == 4


@pytest.mark.parametrize("wire", WIRES)
async def test_a_history_that_a_server_refuses_is_sent_with_its_calls_as_text(wire: str) -> None:
    """The last resort: whatever a server demands beside old calls, the session goes on, and keeps its tools."""

    @tool
    def measure() -> str:
        """Measure."""
        return "41.5 cm"

    def answer(request: Request) -> Reply:
        body = request.body.decode()
        if "41.5 cm" not in body:
            return speak(wire, ToolCall("call_1", "measure"))
        if any(word in body for word in ('"tool_use"', '"tool_calls"', '"function_call"', '"functionCall"')):
            return refused(wire, 400, "Messages are not in the form that this server wants")
        return speak(wire, "It is 41.5 cm.")

    async with far_model(wire, answer, tools=[measure]) as far:
        session = await far.runtime.session(model="far")
        events = [event async for event in session.stream("how long?")]
        assert isinstance(events[-1], TurnFinished), events[-1]
        (notice,) = [text for text in notices(events) if "as text" in text]
        assert "not in the form that this server wants" in notice
        asked = len(far.requests)
        assert (await session.send("sure?")).text == "It is 41.5 cm."
        assert len(far.requests) == asked + 1, "the refusal is remembered"
        assert "measure" in str(far.requests[-1].get("tools")), "the tools are still offered"
