"""What is owed back to a provider, out of a foreign file that holds anything in its place: no request fails by it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loom.content.blocks import Citation, TextBlock, ThinkingBlock, ToolCall
from loom.models import Model
from loom.prompt import Prompt, ShownMessage, ShownRaw, ShownResult
from loom.providers import catalog
from loom.wire import anthropic, gemini, ollama, openai_chat, openai_responses
from loom.wire.table import wire_of
from wire.prompts import CLAUDE, DEEPSEEK, GEMINI, GPT, OLLAMA, VLLM, owed
from wire.sdk_types import check_anthropic, check_openai_responses

MARK = "not of its kind"
WIRES = [
    (anthropic, CLAUDE),
    (openai_responses, GPT),
    (gemini, GEMINI),
    (openai_chat, DEEPSEEK),
    (openai_chat, VLLM),
    (ollama, OLLAMA),
]
KEYS = ("signature", "data", "type", "document_index", "encrypted_content", "content", "id", "phase", "field")


@pytest.mark.parametrize(("wire", "model"), WIRES, ids=lambda found: getattr(found, "name", ""))
@pytest.mark.parametrize("odd", [5, True, [MARK], {MARK: 1}], ids=["number", "truth", "list", "object"])
@pytest.mark.parametrize("key", [*KEYS, "thoughtSignature", "text"])
def test_what_is_not_of_its_kind_is_not_sent(wire: Any, model: Model, key: str, odd: Any) -> None:
    opaque = owed(model, {key: {"text": odd} if key == "content" else odd})
    blocks = (
        ThinkingBlock("hm", opaque=opaque),
        TextBlock("so", (Citation(quote="so", opaque=opaque),), opaque),
        ToolCall("call_1", "look", {}, None, opaque),
    )
    messages = (
        ShownMessage("user", (TextBlock("a"),)),
        ShownMessage("assistant", blocks),
        ShownMessage("tool", (ShownResult(call_id="call_1", name="look", blocks=(TextBlock("b"),)),)),
    )
    sent = wire.encode(Prompt(model=model, messages=messages))
    plain = wire.encode(Prompt(model=model, messages=_without(messages)))
    assert MARK not in json.dumps(sent)
    thoughtless = "thinking" if wire is ollama else "reasoning_content"  # they take thinking without anything owed
    assert _stripped(sent, thoughtless) == _stripped(plain, thoughtless)


def _without(messages: tuple[ShownMessage, ...]) -> tuple[ShownMessage, ...]:
    said = ShownMessage("assistant", (TextBlock("so"), ToolCall("call_1", "look", {})))
    return (messages[0], said, messages[2])


def _stripped(value: Any, key: str) -> Any:
    match value:
        case dict():
            return {name: _stripped(item, key) for name, item in value.items() if name != key}
        case list():
            return [_stripped(item, key) for item in value]
        case _:
            return value


def test_a_message_of_thinking_that_is_not_whole_disappears() -> None:
    lone = ShownMessage("assistant", (ThinkingBlock("hm", opaque=owed(CLAUDE, {"signature": 5})),))
    messages = (ShownMessage("user", (TextBlock("a"),)), lone, ShownMessage("user", (TextBlock("b"),)))
    (message,) = anthropic.encode(Prompt(model=CLAUDE, messages=messages))["messages"]
    assert [block["text"] for block in message["content"]] == ["a", "b"]


@pytest.mark.parametrize("field", ["role", "tool_calls", "", "reasoning_content"])
def test_thinking_goes_back_in_a_field_for_thinking(field: str) -> None:
    blocks = (ThinkingBlock("hm", opaque=owed(DEEPSEEK, {"field": field})), TextBlock("so"))
    messages = (ShownMessage("user", (TextBlock("a"),)), ShownMessage("assistant", blocks))
    _, answer = openai_chat.encode(Prompt(model=DEEPSEEK, messages=messages))["messages"]
    assert answer == {"role": "assistant", "content": "so", "reasoning_content": "hm"}


SEARCHED = {
    "anthropic/claude-opus-5": (
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "cats"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
    ),
    "openai/gpt-6-astra": (
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "cats", "queries": ["cats"]},
        },
    ),
}


@pytest.mark.parametrize("reference", SEARCHED)
def test_blocks_of_tools_that_the_platform_runs_go_back_as_they_came_and_where_they_stood(reference: str) -> None:
    model = catalog.model(reference)
    found = SEARCHED[reference]
    assert all(block["type"] in model.own_blocks for block in found)
    shown = (
        ShownMessage("user", (TextBlock("Which cats?"),)),
        ShownMessage(
            "assistant", (TextBlock("I look."), *(ShownRaw(data=block) for block in found), TextBlock("All."))
        ),
        ShownMessage("user", (TextBlock("Thanks."),)),
    )
    body = wire_of(model).encode(Prompt(model=model, messages=shown))
    said = body["messages"][1]["content"] if "messages" in body else body["input"][1:-1]
    assert tuple(said[1:-1]) == found
    check = check_anthropic if "messages" in body else check_openai_responses
    check(body)


def test_only_the_platform_that_runs_the_tools_names_their_blocks() -> None:
    for reference in ("openai-chat/x", "deepseek/x", "ollama/x", "compatible/x"):
        assert catalog.model(reference).own_blocks == ()
    for reference in ("bedrock/x", "openai-chat/x", "deepseek/x", "ollama/x", "compatible/x"):
        assert catalog.model(reference).server_tools == {}
