"""What gateways and other people's servers do to the protocols: whole answers, signatures, wrapped causes, order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loom.content.blocks import TextBlock, ThinkingBlock
from loom.content.messages import Message
from loom.errors import ContextOverflow, MediaRefused, ProviderError
from loom.events import Cited
from loom.prompt import Prompt, ShownMessage, ShownResult
from loom.providers import catalog
from loom.wire import anthropic, gemini, openai_chat, openai_responses
from loom.wire.protocol import Wire
from wire.prompts import CLAUDE, GEMINI, GPT, VLLM
from wire.streams import decode, told

ROUTER = catalog.model("compatible/google/gemini-3-pro")
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"name":"a"}'}}
SIGNATURE = {"google": {"thought_signature": "c2lnbmVk"}}
DETAILS = [
    {"type": "reasoning.text", "text": "The map", "index": 0, "format": "google-gemini-v1"},
    {"type": "reasoning.text", "text": " first.", "signature": "abc", "index": 0, "format": "google-gemini-v1"},
    {"type": "reasoning.encrypted", "data": "ZW5j", "id": "call_1", "index": 1, "format": "google-gemini-v1"},
]

WHOLE: dict[str, tuple[Wire, Any, Any]] = {
    "anthropic": (
        anthropic,
        CLAUDE,
        {
            "type": "message",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                {"type": "text", "text": "Hello"},
                {"type": "tool_use", "id": "call_1", "name": "look", "input": {"name": "a"}},
            ],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 12, "output_tokens": 3},
        },
    ),
    "openai_chat": (
        openai_chat,
        VLLM,
        {
            "object": "chat.completion",
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "reasoning_content": "Hm.",
                        "content": "Hello",
                        "tool_calls": [CALL],
                    },
                    "finish_reason": "tool_calls",
                }
            ],
            "usage": {"prompt_tokens": 12, "completion_tokens": 3},
        },
    ),
    "openai_responses": (
        openai_responses,
        GPT,
        {
            "object": "response",
            "status": "completed",
            "output": [
                {
                    "type": "reasoning",
                    "id": "rs_1",
                    "summary": [{"type": "summary_text", "text": "Hm."}],
                    "encrypted_content": "ZW5j",
                },
                {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "Hello"}]},
                {
                    "type": "function_call",
                    "id": "fc_1",
                    "call_id": "call_1",
                    "name": "look",
                    "arguments": '{"name":"a"}',
                },
            ],
            "usage": {"input_tokens": 12, "output_tokens": 3},
        },
    ),
    "gemini": (
        gemini,
        GEMINI,
        [
            {
                "candidates": [
                    {
                        "content": {
                            "parts": [
                                {"text": "Hm.", "thought": True},
                                {"text": "Hello"},
                                {"functionCall": {"id": "call_1", "name": "look", "args": {"name": "a"}}},
                            ]
                        },
                        "finishReason": "STOP",
                    }
                ],
                "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 3},
            }
        ],
    ),
}


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("before", [b"", b"\n", b"\xef\xbb\xbf", b" \r\n "])
def test_a_whole_answer_is_read_where_a_stream_was_asked_for(name: str, before: bytes) -> None:
    wire, model, answer = WHOLE[name]
    data = before + json.dumps(answer).encode()
    folded = told(wire, model, data)
    assert folded.complete
    assert folded.message is not None
    assert folded.message.text == "Hello"
    assert [call.arguments for call in folded.message.calls] == [{"name": "a"}]
    assert [block.text for block in folded.message.blocks if isinstance(block, ThinkingBlock)] == ["Hm."]
    assert (folded.usage.input_tokens, folded.usage.output_tokens) == (12, 3)
    for size in (1, 7):
        assert decode(wire, model, pieces(data, size)) == decode(wire, model, [data])


@pytest.mark.parametrize("name", WHOLE)
def test_other_json_is_no_answer_and_says_where_to_look(name: str) -> None:
    wire, model, _ = WHOLE[name]
    events = decode(wire, model, [b'{"hello": 1}'])
    assert len(events) == 1
    assert "not an answer of this protocol" in str(events[0])


def chat_stream(*deltas: dict[str, Any], reason: str = "stop") -> bytes:
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


def sent_back(message: Message) -> dict[str, Any]:
    """The assistant's message in the next request."""
    results = ShownMessage("tool", (ShownResult(call_id="call_1", name="look", blocks=(TextBlock("a map"),)),))
    shown = (ShownMessage("user", (TextBlock("Hi"),)), ShownMessage("assistant", tuple(message.blocks)), results)
    return openai_chat.encode(Prompt(model=ROUTER, messages=shown))["messages"][1]


def test_signatures_that_a_gateway_hands_on_go_back_as_they_came() -> None:
    fragment = {"index": 0, **CALL, "extra_content": SIGNATURE}
    stream = chat_stream(
        {"reasoning": "The map", "reasoning_details": DETAILS[:1]},
        {"reasoning": " first.", "reasoning_details": DETAILS[1:2]},
        {"tool_calls": [fragment], "reasoning_details": DETAILS[2:]},
        reason="tool_calls",
    )
    message = told(openai_chat, ROUTER, stream).message
    assert message is not None
    back = sent_back(message)
    assert back["tool_calls"][0]["extra_content"] == SIGNATURE
    assert back["reasoning_details"] == [
        {
            "type": "reasoning.text",
            "text": "The map first.",
            "signature": "abc",
            "index": 0,
            "format": "google-gemini-v1",
        },
        DETAILS[2],
    ]
    assert "reasoning" not in back


def test_encrypted_details_without_words_are_kept_too() -> None:
    stream = chat_stream({"tool_calls": [{"index": 0, **CALL}], "reasoning_details": DETAILS[2:]}, reason="tool_calls")
    message = told(openai_chat, ROUTER, stream).message
    assert message is not None
    assert sent_back(message)["reasoning_details"] == DETAILS[2:]


def test_citations_that_come_before_the_first_word_wait_for_it() -> None:
    notes = [
        {
            "type": "url_citation",
            "url_citation": {"url": f"https://a/{n}", "title": "A", "start_index": 0, "end_index": 5},
        }
        for n in range(5)
    ]
    stream = chat_stream({"annotations": notes[:3]}, {"content": "Hello"}, {"annotations": notes[3:]})
    message = told(openai_chat, ROUTER, stream).message
    assert message is not None
    assert [citation.url for citation in message.blocks[0].citations] == [f"https://a/{n}" for n in range(5)]
    assert sum(isinstance(event, Cited) for event in decode(openai_chat, ROUTER, [stream])) == 5


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (
            '{"error":{"type":"bad","message":"prompt is too long: 9 tokens > 8 maximum"}}',
            ContextOverflow,
        ),
        ("Could not process image", MediaRefused),
        ({"error": {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED"}}, ProviderError),
        ('{"error":{"message":"This endpoint\'s maximum context length is 10 tokens"}}', ContextOverflow),
    ],
)
def test_a_cause_that_a_gateway_wraps_is_read(raw: Any, error: type[ProviderError]) -> None:
    body = {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}}
    found = openai_chat.fault(400, body, ROUTER)
    assert isinstance(found, error)
    assert "Provider returned error: " in found.message
