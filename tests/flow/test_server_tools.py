"""Tools that the provider runs: switched on by an option, kept as they came, text for others; a pause is continued."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flow.far_models import far_model
from loom.content.messages import text_of
from loom.providers import catalog
from loom.sampling import Sampling
from providers.far_side import Reply
from wire.sdk_types import check_anthropic, check_gemini, check_openai_responses
from wire.streams import sse
from wire.test_options import request

CALL = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "height of Ulm Minster"},
}
RESULT = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {
            "type": "web_search_result",
            "title": "Ulm Minster",
            "url": "https://example.org/ulm",
            "encrypted_content": "Eq=",
        }
    ],
}


def stream(*blocks: dict[str, Any], stop: str) -> bytes:
    events: list[Any] = [{"type": "message_start", "message": {"usage": {"input_tokens": 5}}}]
    for index, block in enumerate(blocks):
        begun = {**block, "input": {}} if "input" in block else block
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        if "input" in block:
            text = json.dumps(block["input"])
            for piece in (text[:7], text[7:]):
                delta = {"type": "input_json_delta", "partial_json": piece}
                events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 3}})
    return sse(*events, {"type": "message_stop"})


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


async def test_a_paused_answer_goes_back_as_it_is_and_its_blocks_stay_the_providers_own() -> None:
    paused = Reply(body=stream(text("Let me look."), CALL, RESULT, stop="pause_turn"))
    final = Reply(body=stream(text("161.5 metres."), stop="end_turn"))
    async with far_model("anthropic", paused, final) as far:
        session = await far.runtime.session(model="far")
        reply = await session.send("How tall is it?", options={"server_tools": ["web_search"]})
        await session.send("Thanks.")
        path = await session.path()
    first, second, third = far.requests
    assert first["tools"] == [{"type": "web_search_20260318", "name": "web_search"}]
    assert second["messages"][-1]["role"] == "assistant"
    sent_back = [
        {key: v for key, v in block.items() if key != "cache_control"} for block in third["messages"][1]["content"]
    ]
    assert sent_back[:3] == [text("Let me look."), CALL, RESULT]
    assert "Let me look." in reply.text
    assert "161.5 metres." in reply.text
    assert [message.role for message in path] == ["user", "assistant", "assistant", "user", "assistant"]


async def test_for_another_model_the_call_and_its_result_are_text_with_a_receipt_row() -> None:
    done = Reply(body=stream(CALL, RESULT, text("161.5 metres."), stop="end_turn"))
    async with far_model("anthropic", done) as far:
        session = await far.runtime.session(model="far")
        await session.send("How tall is it?", options={"server_tools": ["web_search"]})
        (receipt,) = await session.plan(["openai/gpt-5.5"])
        other = await session.previews.next_request("openai/gpt-5.5")
        blocks = (await session.path())[1].blocks
    rows = [row for row in receipt.rows if row.reason == "other-model"]
    assert [row.rendition for row in rows] == ["text", "text"]
    shown = "\n".join(text_of(block) for block in blocks)
    assert "[web_search: height of Ulm Minster]" in shown
    assert "Ulm Minster https://example.org/ulm" in shown
    assert "[web_search: height of Ulm Minster]" in str(other.prompt.messages)


async def test_a_call_that_lost_its_result_is_shown_as_text() -> None:
    cut = Reply(body=stream(CALL, text("It broke."), stop="end_turn"))
    async with far_model("anthropic", cut, "yes") as far:
        session = await far.runtime.session(model="far")
        await session.send("How tall is it?")
        await session.send("Go on.")
    kinds = [block["type"] for block in far.requests[1]["messages"][1]["content"]]
    assert kinds == ["text", "text"]


@pytest.mark.parametrize(
    ("reference", "check"),
    [
        ("anthropic/claude-opus-5", check_anthropic),
        ("openai/gpt-6-astra", check_openai_responses),
        ("gemini/gemini-4-argon", check_gemini),
    ],
)
def test_each_platform_is_asked_for_its_own_tools_in_its_own_words(reference: str, check: Any) -> None:
    model = catalog.model(reference)
    body = request(reference, Sampling(server_tools=tuple(model.server_tools)))
    check(body)
    options = [own for own in model.server_tools.values() if own.items() <= body.get("generationConfig", {}).items()]
    assert len(body["tools"]) == 1 + len(model.server_tools) - len(options)
    assert all(own in body["tools"] or own in options for own in model.server_tools.values())
