"""A tool returns a screenshot, and the very next request carries it where each platform accepts it: over sockets."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from flow.far_models import WIRES, FarModel, far_model, is_question, settings, speak
from loom.content.blocks import ContentBlock, ImageBlock, ToolCall
from loom.events import Event, NoticeRaised, TurnFinished
from loom.testing import memory_runtime, sample_pdf, sample_png
from loom.tools.base import ToolContext, tool
from providers.far_side import Reply, Request, far_side, refusal
from wire.sdk_types import (
    check_anthropic,
    check_gemini,
    check_ollama,
    check_openai_chat,
    check_openai_responses,
)

SHOT = sample_png(640, 400, (20, 120, 60))
MAP = sample_png(300, 500, (120, 60, 20))

INSIDE_THE_RESULT = {
    "anthropic": r"messages\.2\.content\.0\.content\.\d+\.source\.data",
    "openai_responses": r"input\.\d+\.output\.\d+\.image_url",
    "gemini": r"contents\.2\.parts\.0\.functionResponse\.parts\.\d+\.inlineData\.data",
}
BEHIND_THE_RESULTS = {
    "openai_chat": r"messages\.3\.content\.\d+\.image_url\.url",
    "ollama": r"messages\.3\.images\.\d+",
}
PLACES = INSIDE_THE_RESULT | BEHIND_THE_RESULTS
CHECKS = {
    "anthropic": check_anthropic,
    "openai_chat": check_openai_chat,
    "openai_responses": check_openai_responses,
    "gemini": check_gemini,
    "ollama": check_ollama,
}


@tool
def shoot() -> bytes:
    """Take a screenshot."""
    return SHOT


@tool
def chart() -> dict[str, Any]:
    """Draw a map."""
    import base64

    return {"title": "Köln", "image": f"data:image/png;base64,{base64.b64encode(MAP).decode()}"}


@tool
async def explore(context: ToolContext) -> list[ContentBlock | str]:
    """Look around."""
    await context.inject("This hung on the wall:", MAP)
    return ["here it is", *await context.attach(SHOT, name="shot.png")]


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def check(wire: str, request: dict[str, Any]) -> None:
    """The SDK's own types take it. (Ollama's know only a part of JSON Schema; its server ignores the rest.)"""
    CHECKS[wire]({name: value for name, value in request.items() if name != "tools"})


def where(far: FarModel, number: int, data: bytes) -> str:
    """The place of a picture in a request, by the digest of the bytes that arrived."""
    return far.pictures(number)[digest(data)]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_screenshot_is_in_the_very_next_request_where_the_platform_takes_it(wire: str) -> None:
    async with far_model(wire, ["I take one.", ToolCall("c1", "shoot")], "A green picture.", tools=[shoot]) as far:
        session = await far.runtime.session(model="far")
        reply = await session.send("what does it look like?")
        assert reply.text == "A green picture."
        assert far.pictures(0) == {}
        assert list(far.pictures(1)) == [digest(SHOT)]
        assert re.fullmatch(PLACES[wire], where(far, 1, SHOT)), where(far, 1, SHOT)
        check(wire, far.requests[1])
        assert len(far.requests) == 2


@pytest.mark.parametrize("wire", WIRES)
async def test_pictures_of_parallel_calls_never_stand_between_the_results(wire: str) -> None:
    calls = [ToolCall("c1", "shoot"), ToolCall("c2", "chart"), ToolCall("c3", "explore")]
    async with far_model(wire, calls, "Seen.", tools=[shoot, chart, explore]) as far:
        session = await far.runtime.session(model="far")
        await session.send("show me everything")
        assert set(far.pictures(1)) == {digest(SHOT), digest(MAP)}
        check(wire, far.requests[1])
        said = far.texts(1)
        assert "Köln" in said
        assert "This hung on the wall:" in said
        assert "base64," not in said


@pytest.mark.parametrize("wire", ["openai_chat", "ollama"])
async def test_hoisted_pictures_stand_behind_the_whole_group_of_results(wire: str) -> None:
    async with far_model(
        wire, [ToolCall("c1", "shoot"), ToolCall("c2", "chart")], "Seen.", tools=[shoot, chart]
    ) as far:
        session = await far.runtime.session(model="far")
        await session.send("both")
        messages = far.requests[1]["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user"]
        assert where(far, 1, SHOT).startswith("messages.4.")
        assert where(far, 1, MAP).startswith("messages.4.")


@pytest.mark.parametrize("wire", WIRES)
async def test_the_picture_stays_in_the_prompt_of_the_next_turn_byte_for_byte(wire: str) -> None:
    async with far_model(wire, ToolCall("c1", "shoot"), "Green.", "Still green.", tools=[shoot]) as far:
        session = await far.runtime.session(model="far")
        await session.send("look")
        await session.send("and now?")
        assert where(far, 2, SHOT) == where(far, 1, SHOT)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_model_without_eyes_gets_the_text_and_the_user_one_clear_notice(wire: str) -> None:
    script = [speak(wire, ToolCall("c1", "shoot")), speak(wire, ToolCall("c2", "chart")), speak(wire, "I cannot tell.")]

    def answer(request: Request) -> Reply:
        return script.pop(0) if is_question(request) else refusal(404, {"error": "not found"})

    async with (
        far_side(answer) as server,
        memory_runtime(settings(wire, server.url, vision=False, native_pdf=False), tools=[shoot, chart]) as runtime,
    ):
        session = await runtime.session(model="far")
        events = [event async for event in session.stream("what is it?")]
        assert isinstance(events[-1], TurnFinished)
        far = FarModel(wire, server, runtime)
        for number in (0, 1, 2):
            assert far.pictures(number) == {}
        assert "[image: shoot, 640×400, " in far.texts(1)
        (notice,) = notices(events)
        assert notice == f"{runtime.models.resolve('far').reference} gets shoot as text."


def notices(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, NoticeRaised)]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_document_from_a_tool_reaches_the_model_in_a_form_that_it_takes(wire: str, tmp_path: Path) -> None:
    report = tmp_path / "report.pdf"
    report.write_bytes(sample_pdf("Umsatz: 4 Prozent"))

    @tool
    def fetch() -> Path:
        """Get the report."""
        return report

    async with far_model(wire, ToolCall("c1", "fetch"), "4 %.", tools=[fetch]) as far:
        session = await far.runtime.session(model="far")
        await session.send("how much?")
        (place,) = far.pictures(1).values()
        native = digest(report.read_bytes()) in far.pictures(1)
        assert native == (wire != "ollama"), place
        result = (await session.path())[2].results[0]
        assert not any(isinstance(block, ImageBlock) for block in result.blocks)
