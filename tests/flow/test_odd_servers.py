"""Gateways and servers that bend the protocol: the session goes on, and nothing that they demand back is lost."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from flow.far_models import is_question, speak
from loom.content.blocks import TextBlock, ToolCall
from loom.events import NoticeRaised, TextDelta, TurnFinished, decode_event
from loom.runtime import Runtime
from loom.testing import memory_runtime, sample_png
from loom.tools.base import tool
from providers.far_side import FarSide, Reply, Request, far_side, refusal
from wire.streams import sse

ENCRYPTED = {
    "type": "reasoning.encrypted",
    "data": "c2lnbmVk",
    "id": "call_1",
    "format": "google-gemini-v1",
    "index": 0,
}
WRAPPED = "Provider returned error"


@tool
def measure() -> str:
    """Measure."""
    return "41.5 cm"


@asynccontextmanager
async def router(answer: Callable[[Request], Reply]) -> AsyncGenerator[tuple[Runtime, FarSide]]:
    """OpenRouter, as a server on this machine."""

    def reply(request: Request) -> Reply:
        return answer(request) if is_question(request) else refusal(404, {"error": "not found"})

    async with far_side(reply) as server:
        entry = {"provider": "openrouter", "model": "google/gemini-3-pro", "base_url": server.url}
        settings: dict[str, Any] = {"models": {"far": entry}, "keys": {"openrouter": "sk-or-far-0123"}}
        async with memory_runtime(settings, tools=[measure]) as runtime:
            yield runtime, server


def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
    }


async def test_a_gateway_that_wants_its_signatures_back_gets_them() -> None:
    """OpenRouter's rule for Gemini: a call comes back with the details that came with it, or the request is refused."""

    def answer(request: Request) -> Reply:
        body = request.json
        called = [message for message in body["messages"] if message.get("tool_calls")]
        if any(message.get("reasoning_details") != [ENCRYPTED] for message in called):
            raw = json.dumps({"error": {"message": "Function call is missing a thought_signature", "code": 400}})
            return refusal(400, {"error": {"message": WRAPPED, "code": 400, "metadata": {"raw": raw}}})
        if called:
            return speak("openai_chat", "It is 41.5 cm.")
        call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "measure", "arguments": "{}"}}
        return Reply(
            body=sse(
                chunk({"reasoning": "Measure.", "reasoning_details": [ENCRYPTED]}),
                chunk({"tool_calls": [call]}),
                chunk({}, "tool_calls"),
                "data: [DONE]",
            )
        )

    async with router(answer) as (runtime, server):
        session = await runtime.session(model="far")
        assert (await session.send("how long?")).text == "It is 41.5 cm."
        again = await runtime.session(session.id)
        assert (await again.send("sure?")).text == "It is 41.5 cm."
        assert len([request for request in server.requests if is_question(request)]) == 3, "nothing was refused"


async def test_a_server_that_ignores_stream_is_answered_from_its_whole_json() -> None:
    def answer(request: Request) -> Reply:
        messages = request.json["messages"]
        call = {"id": "c1", "type": "function", "function": {"name": "measure", "arguments": "{}"}}
        message: dict[str, Any] = {"role": "assistant", "content": "It is 41.5 cm."}
        if not any(found["role"] == "tool" for found in messages):
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
        body = {"object": "chat.completion", "choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}
        return Reply(body=json.dumps(body).encode(), content_type="application/json")

    async with router(answer) as (runtime, _):
        session = await runtime.session(model="far")
        for words in ("how long?", "sure?"):
            assert (await session.send(words)).text == "It is 41.5 cm."


async def test_a_cause_inside_metadata_names_the_picture_and_the_session_goes_on() -> None:
    def answer(request: Request) -> Reply:
        if b"image_url" in request.body:
            raw = json.dumps({"error": {"message": "Unable to process input image."}})
            return refusal(400, {"error": {"message": WRAPPED, "code": 400, "metadata": {"raw": raw}}})
        return speak("openai_chat", "I cannot see it.")

    async with router(answer) as (runtime, _):
        session = await runtime.session(model="far")
        events = [event async for event in session.stream("what is this?", sample_png(20, 20, (1, 2, 3)))]
        assert isinstance(events[-1], TurnFinished)
        told = [event.text for event in events if isinstance(event, NoticeRaised)]
        assert any("Unable to process input image" in text for text in told), told
        assert (await session.send("go on")).text == "I cannot see it."


@pytest.mark.parametrize("end", ["truncate", "reset", "close"])
async def test_an_answer_that_dies_before_its_first_word_is_asked_for_again(end: str) -> None:
    asked: list[Request] = []

    def answer(request: Request) -> Reply:
        asked.append(request)
        return Reply(body=b": OPENROUTER PROCESSING\n\n", end=end) if len(asked) == 1 else speak("openai_chat", "Here.")

    async with router(answer) as (runtime, _):
        session = await runtime.session(model="far")
        events = [event async for event in session.stream("hello")]
        assert isinstance(events[-1], TurnFinished)
        assert len(asked) == 2
        assert not any("kept" in event.text for event in events if isinstance(event, NoticeRaised))


async def test_a_stream_under_another_content_type_and_citations_before_the_first_word_are_read() -> None:
    def answer(_: Request) -> Reply:
        notes = [
            {
                "type": "url_citation",
                "url_citation": {"url": f"https://a.example/{n}", "title": "A", "start_index": 0, "end_index": 2},
            }
            for n in range(5)
        ]
        body = sse(chunk({"annotations": notes}), chunk({"content": "It is so."}), chunk({}, "stop"), "data: [DONE]")
        return Reply(body=body, content_type="application/json")

    async with router(answer) as (runtime, _):
        session = await runtime.session(model="far")
        reply = await session.send("is it so?")
        assert reply.text == "It is so."
        message = (await session.snapshot()).path[-1].message
        (block,) = [block for block in message.blocks if isinstance(block, TextBlock)]
        assert [citation.url for citation in block.citations] == [f"https://a.example/{n}" for n in range(5)]


async def test_a_gateway_whose_signatures_are_lost_is_asked_with_calls_as_text() -> None:
    """The server demands what this conversation never held (it was imported): the last resort keeps the session."""

    def answer(request: Request) -> Reply:
        if '"tool_calls"' in request.body.decode():
            raw = json.dumps({"error": {"message": "Function call is missing a thought_signature", "code": 400}})
            return refusal(400, {"error": {"message": WRAPPED, "code": 400, "metadata": {"raw": raw}}})
        return speak("openai_chat", ToolCall("c9", "measure") if b"41.5" not in request.body else "It is 41.5 cm.")

    async with router(answer) as (runtime, _):
        session = await runtime.session(model="far")
        assert (await session.send("how long?")).text == "It is 41.5 cm."
        assert (await session.send("sure?")).text == "It is 41.5 cm."


async def test_a_server_that_is_waited_for_is_announced_before_the_answer_comes() -> None:
    """A 429 that is waited out is a notice in the events, live and when they are read again."""
    asked = 0

    def answer(request: Request) -> Reply:
        nonlocal asked
        asked += 1
        if asked == 1:
            return refusal(429, {"error": {"message": "Rate limit reached", "code": 429}}, retry_after="1")
        return speak("openai_chat", "Here I am.")

    async with router(answer) as (runtime, _):
        session = await runtime.session(model="far")
        events = [event async for event in session.stream("hello")]
        stored = [decode_event(event.data) for event in await runtime.stores.events.after(session.id, 0)]
    for found in (events, stored):
        (notice,) = [event for event in found if isinstance(event, NoticeRaised)]
        assert notice.code == "provider.rate_limited"
        assert notice.text.endswith("Trying again in 1 s.") and "Rate limit reached" in notice.text
        assert found.index(notice) < next(at for at, event in enumerate(found) if isinstance(event, TextDelta))
    assert any(isinstance(event, TurnFinished) for event in events)
