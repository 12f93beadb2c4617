"""Requests to the provider for which they were written: they arrive as they were sent, and only repairs change them."""

from __future__ import annotations

import base64
import copy
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from daemon.gateways import PICTURE, Gateway, gateway
from flow.far_models import speak
from loom.testing import sample_png
from providers.far_side import Reply, Request, refusal

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}
SEARCH_CALL = {"type": "server_tool_use", "id": "srvtoolu_01", "name": "web_search", "input": {"query": "loom"}}
SEARCH_RESULT = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_01",
    "content": [
        {
            "type": "web_search_result",
            "url": "https://a.example",
            "title": "A",
            "encrypted_content": "eA",
            "page_age": None,
        }
    ],
}
PATHS = {"anthropic": "/v1/messages", "openai_chat": "/v1/chat/completions", "openai_responses": "/v1/responses"}


def claude_body() -> dict[str, Any]:
    """What Claude Code sends, and more: everything that a compiler would spell differently."""
    return {
        "model": "far",
        "max_tokens": 32_000,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=1a2b"},
            {"type": "text", "text": "You are a coder.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ],
        "messages": [
            {"role": "user", "content": "plain words"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"},
                    SEARCH_CALL,
                    SEARCH_RESULT,
                    {"type": "text", "text": "Found.", "citations": [{
                        "type": "web_search_result_location", "url": "https://a.example", "title": "A",
                        "encrypted_index": "eA", "cited_text": "a",
                    }]},
                    {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "a.png", "n": None}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": [IMAGE],
                     "cache_control": {"type": "ephemeral"}},
                    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"},
                     "title": "T", "context": "C", "citations": {"enabled": True}},
                    {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "r"}],
                     "citations": {"enabled": False}},
                    {"type": "text", "text": "and now?", "from_the_future": {"a": [1, 2.5, None]}},
                ],
            },
        ],
        "tools": [
            {"name": "Read", "description": "Reads.", "input_schema": {"type": "object"}, "defer_loading": True},
            {"type": "web_search_20260209", "name": "web_search", "max_uses": 3},
        ],
        "thinking": {"type": "adaptive", "display": "omitted"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "metadata": {"user_id": '{"session_id": "s-1"}'},
        "unknown_field": {"deep": ["x"]},
        "stream": True,
    }  # fmt: skip


def chat_body() -> dict[str, Any]:
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"a":  1}'}}
    return {
        "model": "far",
        "messages": [
            {"role": "developer", "content": "Be short."},
            {"role": "user", "name": "ann", "content": [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}", "detail": "low"}},
            ]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "blue"},
            {"role": "user", "content": "sure?"},
        ],
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}, "strict": True}}],
        "metadata": {"team": "a"},
        "unknown_field": 1,
    }  # fmt: skip


def responses_body() -> dict[str, Any]:
    return {
        "model": "far",
        "instructions": "Be short.",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You are Codex."}]},
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "<image name=a>"},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}", "detail": "high"},
            ]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ZW5j"},
            {"type": "custom_tool_call", "call_id": "call_9", "name": "apply_patch", "input": "*** Begin",
             "id": "ctc_1"},
            {"type": "custom_tool_call_output", "call_id": "call_9", "output": "done"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]},
        ],
        "tools": [
            {"type": "custom", "name": "apply_patch", "description": "Patches.", "format": {"type": "text"}},
            {"type": "namespace", "name": "mcp", "tools": [{"type": "function", "name": "a", "parameters": {}}]},
            {"type": "web_search"},
        ],
        "include": ["reasoning.encrypted_content"],
        "store": False,
        "prompt_cache_key": "thread-1",
        "client_metadata": {"x": "y"},
        "stream": True,
    }  # fmt: skip


BODIES = {"anthropic": claude_body, "openai_chat": chat_body, "openai_responses": responses_body}
OWN = {"anthropic": "claude-opus-5", "openai_chat": "gpt-5.5", "openai_responses": "gpt-5.5"}


def as_sent(body: dict[str, Any], wire: str) -> dict[str, Any]:
    """The same request with what the gateway must change: the name of the model, and that the answer is a stream."""
    changed = {**copy.deepcopy(body), "model": OWN[wire], "stream": True}
    return changed | {"stream_options": {"include_usage": True}} if wire == "openai_chat" else changed


async def post(door: Gateway, wire: str, body: dict[str, Any], **headers: str) -> Any:
    answer = await door.http.post(PATHS[wire], json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    receipt = await door.http.get(f"/v1/receipts/{answer.headers['x-loom-receipt']}")
    return receipt.json()


@pytest.mark.parametrize("wire", list(BODIES))
async def test_a_request_to_its_own_provider_arrives_as_it_was_sent(wire: str) -> None:
    async with gateway(wire, "fine") as door:
        receipt = await post(door, wire, BODIES[wire](), **{"anthropic-beta": "a-1,b-2"} if wire == "anthropic" else {})
        assert door.far.requests[0] == as_sent(BODIES[wire](), wire)
        assert json.dumps(door.far.requests[0]) == json.dumps(as_sent(BODIES[wire](), wire)), "in the same order"
        assert receipt["receipt"]["way"] == "passed through"
        if wire == "anthropic":
            assert door.far.server.requests[0].headers["anthropic-beta"] == "a-1,b-2"


words = st.text('ab é漢🙂\\"<{}\n', min_size=1, max_size=9).filter(str.strip)
LIKE_HOLES = ({"$text": 0}, {"$media": "sha256:00", "prefix": ""}, {"$$text": 0}, {"$media": [{"$text": 0, "$": 1}]})
"""What Loom writes where bytes or long texts stood, written by a client."""
extras = st.dictionaries(
    st.sampled_from(("zeta", "future")),
    st.one_of(words, st.integers(), st.none(), st.sampled_from(LIKE_HOLES)),
    max_size=2,
)


@st.composite
def claude_conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for turn in range(draw(st.integers(1, 4))):
        asked: list[Any] = [{"type": "text", "text": draw(words), **draw(extras)}]
        asked += draw(st.lists(st.sampled_from([IMAGE]), max_size=2))
        if draw(st.booleans()):
            asked[0]["cache_control"] = {"type": "ephemeral"}
        messages.append(
            {"role": "user", "content": asked if draw(st.booleans()) or len(asked) > 1 else asked[0]["text"]}
        )
        said: list[Any] = [{"type": "text", "text": draw(words).strip() + "."}]
        if draw(st.booleans()):
            call = f"toolu_{turn}"
            said.append({"type": "tool_use", "id": call, "name": "look", "input": draw(extras)})
            result: Any = draw(st.one_of(words, st.just([IMAGE])))
            done = {"type": "tool_result", "tool_use_id": call, "content": result}
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": [done]}]
            said = [{"type": "text", "text": "Seen."}]
        messages.append({"role": "assistant", "content": said})
    return [*messages, {"role": "user", "content": draw(words)}]


@st.composite
def chat_conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    url = {"url": f"data:image/png;base64,{PICTURE}", **draw(extras)}
    messages: list[dict[str, Any]] = [
        {"role": role, "content": draw(words)} for role in draw(st.lists(st.sampled_from(["system", "developer"])))[:2]
    ]
    for turn in range(draw(st.integers(1, 4))):
        asked: Any = draw(words)
        if draw(st.booleans()):
            asked = [{"type": "text", "text": draw(words), **draw(extras)}, {"type": "image_url", "image_url": url}]
        messages.append({"role": "user", "content": asked, **draw(extras)})
        if draw(st.booleans()):
            function = {"name": "look", "arguments": json.dumps(draw(extras), indent=draw(st.sampled_from((None, 1))))}
            calls = [{"id": f"call_{turn}_{n}", "type": "function", "function": function} for n in range(2)]
            messages.append({"role": "assistant", "content": draw(st.sampled_from((None, "Hm."))), "tool_calls": calls})
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": draw(words)} for call in calls]
        messages.append({"role": "assistant", "content": draw(words), **draw(extras)})
    return [*messages, {"role": "user", "content": draw(words)}]


@st.composite
def responses_items(draw: st.DrawFn) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for turn in range(draw(st.integers(1, 4))):
        asked: list[Any] = [{"type": "input_text", "text": draw(words), **draw(extras)}]
        if draw(st.booleans()):
            asked.append({"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}", "detail": "high"})
        items.append({"type": "message", "role": "user", "content": asked})
        if draw(st.booleans()):
            items.append({"type": "reasoning", "id": f"rs_{turn}", "summary": [], "encrypted_content": "ZW5j"})
        if draw(st.booleans()):
            call = {"call_id": f"call_{turn}", "id": f"fc_{turn}"}
            items.append({"type": "function_call", **call, "name": "look", "arguments": json.dumps(draw(extras))})
            items.append({"type": "function_call_output", "call_id": call["call_id"], "output": draw(words)})
        said = {"type": "output_text", "text": draw(words), "annotations": []}
        items.append({"type": "message", "role": "assistant", "id": f"msg_{turn}", "content": [said], **draw(extras)})
    return [*items, {"role": "user", "content": [{"type": "input_text", "text": draw(words)}]}]


_SCHEMA = {"type": "object", "properties": {}}
GENERATED: dict[str, tuple[st.SearchStrategy[list[dict[str, Any]]], dict[str, Any]]] = {
    "anthropic": (claude_conversations(), {"max_tokens": 9, "tools": [{"name": "look", "input_schema": _SCHEMA}]}),
    "openai_chat": (chat_conversations(), {"tools": [{"type": "function", "function": {"name": "look"}}]}),
    "openai_responses": (responses_items(), {"tools": [{"type": "function", "name": "look", "parameters": _SCHEMA}]}),
}


@pytest.mark.parametrize("wire", list(GENERATED))
async def test_every_generated_request_is_equal_on_the_other_side(wire: str) -> None:
    conversations, fields = GENERATED[wire]
    name = "input" if wire == "openai_responses" else "messages"
    async with gateway(wire, "fine") as door:

        @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
        @given(conversations, extras)
        def collect(messages: list[dict[str, Any]], extra: dict[str, Any]) -> None:
            bodies.append({"model": "far", **fields, name: messages, **extra})

        bodies: list[dict[str, Any]] = []
        collect()
        for body in bodies:
            receipt = await post(door, wire, copy.deepcopy(body))
            assert json.dumps(door.far.requests[-1]) == json.dumps(as_sent(body, wire))
            assert receipt["receipt"]["way"] == "passed through"


async def test_a_repair_changes_what_it_must_and_nothing_else() -> None:
    """A broken picture late in a conversation: the messages before it, and all other fields, stay the client's."""
    body = claude_body()
    broken = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "bm90IGEgcGljdHVyZQ=="}}
    body["messages"] += [
        {"role": "assistant", "content": "Go."},
        {"role": "user", "content": [broken, {"type": "text", "text": "see?"}]},
    ]
    async with gateway("anthropic", "fine", "fine") as door:
        await post(door, "anthropic", claude_body())
        await post(door, "anthropic", body)
        first, second = door.far.requests
        assert second["messages"][:1] == first["messages"][:1]
        assert {key: value for key, value in second.items() if key != "messages"} == {
            key: value for key, value in as_sent(body, "anthropic").items() if key != "messages"
        }
        assert "bm90IGEg" not in json.dumps(second)


async def test_empty_words_are_repaired_before_they_are_sent() -> None:
    async with gateway("anthropic", "fine") as door:
        history = [{"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "hi"}]}]
        receipt = await post(door, "anthropic", {"model": "far", "max_tokens": 9, "messages": history, "zeta": 1})
        assert receipt["receipt"]["way"] == "compiled"
        (sent,) = door.far.requests
        assert sent["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
        assert sent["zeta"] == 1, "the other fields stay the client's"


@pytest.mark.parametrize("place", ["message", "body"])
async def test_a_refused_request_is_compiled_and_that_is_remembered(place: str) -> None:
    """A field that the provider refuses; the conversation goes on, and the next request is right at once."""

    def strict(request: Request) -> Reply:
        found = request.json if place == "body" else request.json["messages"][0]["content"][0]
        if "zeta" in found:
            error = {"type": "invalid_request_error", "message": "zeta: Extra inputs are not permitted"}
            return refusal(400, {"type": "error", "error": error})
        return speak("anthropic", "fine")

    block = {"type": "text", "text": "hi", "zeta": 1}
    history: list[Any] = [{"role": "user", "content": [block]}]
    body: dict[str, Any] = {"model": "far", "max_tokens": 9, "messages": history, "future": 2}
    if place == "body":
        del block["zeta"]
        body["zeta"] = 1
    async with gateway("anthropic", strict) as door:
        receipt = await post(door, "anthropic", body)
        assert receipt["receipt"]["way"] == "compiled"
        first = len(door.far.requests)
        assert first <= 3
        history += [{"role": "assistant", "content": "fine"}, {"role": "user", "content": "more"}]
        await post(door, "anthropic", body)
        assert len(door.far.requests) == first + 1, "the second request was not refused first"
        if place == "message":
            assert door.far.requests[-1]["future"] == 2, "the other fields stay the client's"


PREFIX_WIRES = ("anthropic", "openai_chat", "openai_responses", "gemini", "ollama")


@pytest.mark.parametrize("wire", PREFIX_WIRES)
async def test_forty_turns_extend_one_another_byte_for_byte(wire: str) -> None:
    """Cache marks aside, which move with the end of the conversation."""
    async with gateway(wire, "fine") as door:
        history: list[Any] = []
        for turn in range(40):
            content: Any = f"message {turn}"
            if turn % 7 == 3:
                data = base64.b64encode(sample_png(40 + turn, 30)).decode()
                content = [{**IMAGE, "source": {**IMAGE["source"], "data": data}}, {"type": "text", "text": "see"}]
            if turn == 11:  # damaged: from here on the request is compiled, where it was passed through before
                content = [{**IMAGE, "source": {**IMAGE["source"], "data": "bm90IGEgcGljdHVyZQ=="}}]
            history.append({"role": "user", "content": content})
            body = {"model": "far", "max_tokens": 99, "messages": history, "system": f"Time: {turn // 20}"}
            await post(door, "anthropic", body, **{"x-session-id": "one"})
            history.append({"role": "assistant", "content": "fine"})
        names = {"openai_responses": "input", "gemini": "contents"}
        sent = [request[names.get(wire, "messages")] for request in door.far.requests]
        assert len(sent) == 40
        texts = [json.dumps(_unmarked(_without_system(messages))) for messages in sent]
        for number, (earlier, later) in enumerate(pairwise(texts)):
            assert later.startswith(earlier[:-1]), number


def _without_system(messages: list[Any]) -> list[Any]:
    return [message for message in messages if message.get("role") not in ("system", "developer")]


def _unmarked(value: Any) -> Any:
    match value:
        case dict():
            kept = {key: _unmarked(item) for key, item in value.items() if key != "cache_control"}
            if list(kept) == ["role", "content"] and isinstance(kept["content"], str):
                return {**kept, "content": [{"type": "text", "text": kept["content"]}]}
            return kept
        case list():
            return [_unmarked(item) for item in value]
        case _:
            return value
