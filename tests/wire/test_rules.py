"""The rules themselves: a request that a platform takes passes, and every single way of breaking it is caught."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from typing import Any

import pytest

from loom.prompt import Embedded, MediaRef
from wire.rules import check, made_by

JSON = dict[str, Any]


def ref(media_type: str = "image/png", size_bytes: int = 100, **facts: Any) -> MediaRef:
    facts = {"width": 640, "height": 480} | facts if media_type.startswith("image/") else facts
    return MediaRef(digest=f"sha256:{0:064x}", media_type=media_type, size_bytes=size_bytes, **facts)


def url(media_type: str = "image/png", size_bytes: int = 100, **facts: Any) -> Embedded:
    return Embedded(ref(media_type, size_bytes, **facts), f"data:{media_type};base64,")


def source(media_type: str = "image/png", size_bytes: int = 100, **facts: Any) -> JSON:
    return {"type": "base64", "media_type": media_type, "data": Embedded(ref(media_type, size_bytes, **facts))}


def image(**facts: Any) -> JSON:
    return {"type": "image", "source": source(**facts)}


def document(**facts: Any) -> JSON:
    return {
        "type": "document",
        "source": source("application/pdf", **facts),
        "title": "a.pdf",
        "citations": {"enabled": True},
    }


MARK = made_by("anthropic", "claude-opus-5")
CITED = {"type": "page_location", "document_index": 0, "cited_text": "q"}


def claude() -> JSON:
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "here"}, image()]}
    return {
        "model": "claude-opus-5",
        "stream": True,
        "max_tokens": 4_000,
        "thinking": {"type": "adaptive"},
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "look"}, image(), document(pages=3)]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": MARK}, call]},
            {
                "role": "user",
                "content": [result, {"type": "text", "text": "so?", "cache_control": {"type": "ephemeral"}}],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "that", "citations": [CITED]}]},
            {"role": "user", "content": [{"type": "text", "text": "and?"}]},
        ],
    }


def chat() -> JSON:
    calls = [
        {"id": f"call0000{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}} for n in (1, 2)
    ]
    return {
        "model": "m",
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url()}}],
            },
            {"role": "assistant", "content": None, "tool_calls": calls, "reasoning_content": ""},
            {"role": "tool", "tool_call_id": "call00002", "content": "two"},
            {"role": "tool", "tool_call_id": "call00001", "content": "one"},
            {"role": "assistant", "content": "both"},
            {"role": "user", "content": "and?"},
        ],
    }


def openai_chat() -> JSON:
    request = chat()
    del request["messages"][1]["reasoning_content"]
    return request


def responses() -> JSON:
    file = {"type": "input_file", "filename": "a.pdf", "file_data": url("application/pdf")}
    picture = {"type": "input_image", "detail": "auto", "image_url": url()}
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": made_by("openai", "gpt-5.5")}
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{}"}
    return {
        "model": "gpt-5.5",
        "store": False,
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "look"}, picture, file]},
            reasoning,
            call,
            {
                "type": "function_call_output",
                "call_id": "call_1",
                "output": [{"type": "input_text", "text": "x"}, picture],
            },
            {"type": "message", "role": "assistant", "content": "so"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and?"}]},
        ],
    }


def gemini() -> JSON:
    signature = base64.b64encode(made_by("gemini", "gemini-4-argon").encode()).decode()
    calls = [
        {"functionCall": {"name": "look", "args": {}}, "thoughtSignature": signature},
        {"functionCall": {"name": "read", "args": {}, "id": "2"}},
    ]
    part = {"inlineData": {"mimeType": "image/png", "data": Embedded(ref())}}
    answers = [
        {"functionResponse": {"name": "look", "response": {"output": "x"}, "parts": [part]}},
        {"functionResponse": {"name": "read", "response": {"output": "y"}, "id": "2"}},
    ]
    return {
        "contents": [
            {"role": "user", "parts": [{"text": "look"}, part]},
            {"role": "model", "parts": [{"text": "I look"}, *calls]},
            {"role": "user", "parts": [*answers, {"text": "so?"}]},
            {
                "role": "model",
                "parts": [{"text": "that"}, {"text": "", "thoughtSignature": "skip_thought_signature_validator"}],
            },
            {"role": "user", "parts": [{"text": "and?"}]},
        ]
    }


def ollama() -> JSON:
    return {
        "model": "llava",
        "truncate": False,
        "options": {"num_ctx": 8_192},
        "messages": [
            {"role": "user", "content": "look", "images": [Embedded(ref())]},
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look", "arguments": {}}}]},
            {"role": "tool", "tool_name": "look", "content": "x"},
            {"role": "user", "content": "and?"},
        ],
    }


REQUESTS: dict[str, tuple[str, str, Callable[[], JSON]]] = {
    "claude": ("anthropic", "claude-opus-5", claude),
    "chat": ("openai-chat", "gpt-5.5", openai_chat),
    "deepseek": ("deepseek", "deepseek-flash", chat),
    "mistral": ("mistral", "mistral-large-latest", openai_chat),
    "compatible": ("openai-compatible", "qwen3-vl", chat),
    "responses": ("openai-responses", "gpt-5.5", responses),
    "gemini": ("gemini", "gemini-4-argon", gemini),
    "ollama": ("ollama", "llava", ollama),
}


@pytest.mark.parametrize("which", REQUESTS)
def test_a_request_that_the_platform_takes_breaks_no_rule(which: str) -> None:
    provider, name, build = REQUESTS[which]
    assert check(provider, name, build()) == []


def at(request: Any, *steps: str | int) -> Any:
    for step in steps:
        request = request[step]
    return request


def put(*steps: Any) -> Callable[[JSON], None]:
    """The last step is the value."""

    def change(request: JSON) -> None:
        at(request, *steps[:-2])[steps[-2]] = steps[-1]

    return change


def add(*steps: Any) -> Callable[[JSON], None]:
    def change(request: JSON) -> None:
        at(request, *steps[:-1]).append(steps[-1])

    return change


def first(*steps: Any) -> Callable[[JSON], None]:
    def change(request: JSON) -> None:
        at(request, *steps[:-1]).insert(0, steps[-1])

    return change


def cut(*steps: Any) -> Callable[[JSON], None]:
    def change(request: JSON) -> None:
        del at(request, *steps[:-1])[steps[-1]]

    return change


BLANK = {"type": "text", "text": " \n"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
LONG = "x" * 41
M, C = "messages", "content"

BREAKS: list[tuple[str, Callable[[JSON], None], str]] = [
    # Anthropic
    ("claude", put("temperature", 0.5), "sampling parameters"),
    ("claude", put("thinking", {"type": "enabled", "budget_tokens": 2_000}), "takes no thinking budget"),
    ("claude", put("thinking", {"type": "enabled", "budget_tokens": 5_000}), "less than max_tokens"),
    ("claude", put("thinking", {"type": "enabled", "budget_tokens": 500}), "at least 1024"),
    ("claude", cut("tools"), "no tools are defined"),
    ("claude", put("tools", 0, "name", "a.b"), "the tool name"),
    ("claude", cut(M, 0), "the first message"),
    ("claude", cut(M, 4), "prefill"),
    ("claude", cut(M, 3), "neighbours"),
    ("claude", put(M, 4, C, []), "empty"),
    ("claude", add(M, 4, C, BLANK), "blank"),
    ("claude", add(M, 2, C, 0, C, BLANK), "blank"),
    ("claude", put(M, 2, C, 0, C, []), "a tool_result is empty"),
    ("claude", add(M, 3, C, image()), "image stands in a message of the assistant"),
    ("claude", add(M, 3, C, document()), "document stands in a message of the assistant"),
    ("claude", first(M, 2, C, {"type": "text", "text": "first"}), "behind other content"),
    ("claude", cut(M, 2, C, 0), "answered by results []"),
    ("claude", add(M, 1, C, USE | {"id": "toolu_2"}), "are answered by"),
    ("claude", add(M, 1, C, USE), "used twice"),
    ("claude", put(M, 2, C, 0, "tool_use_id", "toolu_9"), "are answered by"),
    ("claude", put(M, 1, C, 1, "id", "a.b"), "the id"),
    ("claude", put(M, 1, C, 1, "name", "a b"), "the name"),
    ("claude", put(M, 1, C, 1, "input", "{}"), "not an object"),
    ("claude", put(M, 1, C, 0, "signature", ""), "no signature"),
    ("claude", put(M, 1, C, 0, {"type": "redacted_thinking", "data": ""}), "no data"),
    ("claude", put(M, 1, C, 0, "signature", made_by("anthropic", "claude-opus-5-5")), "is sent to"),
    ("claude", put(M, 1, C, 0, "cache_control", {"type": "ephemeral"}), "thinking carries a cache mark"),
    ("claude", first(M, 1, C, {"type": "text", "text": "first"}), "does not begin with it"),
    ("claude", add(M, 3, C, {"type": "thinking", "thinking": "", "signature": MARK}), "last block"),
    ("claude", put("system", [{"cache_control": 1}] * 4), "5 cache marks"),
    ("claude", add(M, 0, C, image(media_type="image/tiff")), "image/tiff is not taken"),
    ("claude", add(M, 0, C, image(size_bytes=8_000_000)), "encoded bytes"),
    ("claude", add(M, 0, C, image(width=8_001)), "pixels"),
    ("claude", put(M, 4, C, [image(width=2_001)] * 19), "pixels"),
    ("claude", put(M, 4, C, [image()] * 600), "602 pictures"),
    ("claude", add(M, 0, C, document(pages=598)), "601 pages"),
    ("claude", add(M, 0, C, document(size_bytes=24_100_000)), "over 32000000"),
    ("claude", add(M, 0, C, {**document(), "citations": {"enabled": False}}), "only some documents"),
    ("claude", put(M, 0, C, 0, "citations", [CITED]), "a text of the user's has citations"),
    ("claude", put(M, 3, C, 0, "citations", [CITED | {"file_id": None}]), "file_id"),
    ("claude", put(M, 3, C, 0, "citations", [CITED | {"document_index": 1}]), "that is not there"),
    ("claude", put(M, 0, C, 2, "title", "a\nb"), "title is"),
    ("claude", put(M, 0, C, 2, "title", " "), "title is"),
    ("claude", add(M, 0, C, image(size_bytes=0)), "no bytes"),
    ("claude", add(M, 0, C, {"type": "image", "source": source("audio/wav")}), "neither picture nor PDF"),
    # OpenAI Chat Completions
    ("chat", put(M, 0, C, []), "empty"),
    ("chat", put(M, 5, C, " "), "blank"),
    ("chat", add(M, 0, C, BLANK), "blank"),
    ("chat", cut(M, 5), "the last message"),
    ("chat", cut(M, 3), "not answered directly"),
    ("chat", put(M, 3, "tool_call_id", "call00002"), "answers no call"),
    ("chat", put(M, 2, {"role": "user", "content": "between"}), "not answered directly"),
    ("chat", put(M, 1, "tool_calls", 1, "id", "call00001"), "used twice"),
    ("chat", put(M, 1, "tool_calls", 0, "id", LONG), "is not legal"),
    ("chat", put(M, 1, "tool_calls", 0, "function", "name", "a.b"), "the name"),
    ("chat", put(M, 1, "tool_calls", 0, "function", "arguments", "[1]"), "not the text of an object"),
    ("chat", put(M, 2, C, [{"type": "image_url", "image_url": {"url": url()}}]), "stands in a tool message"),
    ("chat", put(M, 4, C, [{"type": "image_url", "image_url": {"url": url()}}]), "stands in an assistant message"),
    ("chat", put(M, 4, C, None), "neither content nor calls"),
    ("chat", put(M, 4, "reasoning_content", "hm"), "reasoning is sent back"),
    ("chat", put("temperature", 1), "no temperature"),
    ("chat", add(M, 0, C, {"type": "input_audio", "input_audio": {"data": Embedded(ref("audio/wav"))}}), "audio/wav"),
    (
        "chat",
        put(M, 0, C, 1, "image_url", "url", Embedded(ref(), "data:image/jpeg;base64,")),
        "the bytes are image/png",
    ),
    ("chat", put(M, 0, C, [{"type": "image_url", "image_url": {"url": url()}}] * 1_501), "1501 pictures"),
    (
        "chat",
        add(M, 0, C, {"type": "file", "file": {"filename": "a", "file_data": url("application/pdf", 50_000_001)}}),
        "bytes of files",
    ),
    (
        "chat",
        add(M, 0, C, {"type": "file", "file": {"filename": "$\t", "file_data": url("application/pdf")}}),
        "filename is",
    ),
    # DeepSeek, Mistral, any compatible server
    ("deepseek", cut(M, 1, "reasoning_content"), "no reasoning_content"),
    ("deepseek", put(M, 1, "reasoning_content", made_by("ollama", "llava")), "is sent to"),
    (
        "deepseek",
        add(M, 0, C, {"type": "file", "file": {"filename": "a", "file_data": url("application/pdf")}}),
        "application/pdf",
    ),
    ("deepseek", put(M, 0, C, 1, "image_url", "url", url(size_bytes=25_200_000)), "encoded bytes"),
    (
        "deepseek",
        put(M, 0, C, [{"type": "image_url", "image_url": {"url": url(size_bytes=20_000_000)}}] * 2),
        "over 50331648",
    ),
    ("mistral", put(M, 4, {"role": "user", "content": "x"}), "a user follows a tool"),
    ("mistral", put(M, 1, "tool_calls", 0, "id", "call_0001"), "is not legal"),
    ("mistral", put(M, 0, C, [{"type": "image_url", "image_url": {"url": url()}}] * 9), "9 pictures"),
    ("mistral", put("stream_options", {}), "stream_options"),
    ("mistral", cut(M, 2), "not answered"),
    ("compatible", put(M, 0, C, 1, "image_url", "url", url("image/webp")), "image/webp"),
    ("compatible", put(M, 5, C, [{"type": "text", "text": "x"}]), "want a string"),
    # OpenAI Responses
    ("responses", put("input", []), "no input"),
    ("responses", cut("input", 3), "no tool output found"),
    ("responses", cut("input", 2), "no tool call found"),
    ("responses", add("input", {"type": "function_call_output", "call_id": "call_1", "output": "x"}), "used twice"),
    ("responses", put("input", 2, "call_id", "x" * 65), "is not legal"),
    ("responses", put("input", 2, "id", "msg_1"), "another prefix"),
    ("responses", put("input", 4, "id", "fc_1"), "another prefix"),
    ("responses", put("input", 2, "arguments", "null"), "not the text of an object"),
    ("responses", put("input", 3, "output", []), "output is empty"),
    ("responses", put("input", 3, "output", " "), "output is empty"),
    ("responses", cut("input", 1, "summary"), "lacks its summary"),
    ("responses", cut("input", 1, "encrypted_content"), "encrypted content"),
    ("responses", first("input", 0, C, BLANK | {"type": "input_text"}), "blank"),
    (
        "responses",
        first("input", {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "x"}),
        "not followed",
    ),
    ("responses", put("input", 4, C, [{"type": "input_text", "text": "x"}]), "stands in an assistant message"),
    ("responses", put("input", 4, C, [{"type": "output_text", "text": "x"}]), "annotations"),
    ("responses", put("input", 5, C, []), "empty"),
    ("responses", add("input", 0, C, {"type": "input_audio"}), "stands in an input"),
    ("responses", put("store", 1), "a server that stores"),
    ("responses", put("input", 1, "encrypted_content", made_by("openai", "gpt-5.4")), "is sent to"),
    ("responses", put("temperature", 1), "no temperature"),
    ("responses", put("input", 0, C, 2, "file_data", url("text/csv")), "a file is no PDF"),
    # Gemini
    ("gemini", cut("contents", 0), "begin and end with the user"),
    ("gemini", cut("contents", 4), "begin and end with the user"),
    ("gemini", put("contents", 4, "parts", []), "parts are empty"),
    ("gemini", add("contents", 4, "parts", {"text": " "}), "blank"),
    ("gemini", add("contents", 4, "parts", {}), "a part has the fields []"),
    ("gemini", cut("contents", 1, "parts", 1, "thoughtSignature"), "missing a thought_signature"),
    ("gemini", cut("contents", 2, "parts", 0), "are answered by"),
    ("gemini", cut("contents", 2, "parts", 1, "functionResponse", "id"), "are answered by"),
    ("gemini", lambda request: request["contents"][2]["parts"].reverse(), "are answered by"),
    ("gemini", first("contents", 2, "parts", {"text": "first"}), "behind other parts"),
    ("gemini", cut("contents", 2), "are answered by []"),
    ("gemini", put("contents", 1, "parts", 1, "functionCall", "args", "{}"), "not an object"),
    ("gemini", put("contents", 1, "parts", 1, "functionCall", "name", "a b"), "the name"),
    ("gemini", put("contents", 2, "parts", 0, "functionResponse", "response", "x"), "not an object"),
    ("gemini", add("contents", 3, "parts", {"text": "hm", "thought": True}), "summary of thoughts"),
    ("gemini", add("contents", 3, "parts", {"inlineData": {"data": Embedded(ref())}}), "on the model's side"),
    (
        "gemini",
        add("contents", 0, "parts", {"inlineData": {"data": Embedded(ref("image/gif"))}}),
        "image/gif is not taken",
    ),
    (
        "gemini",
        put(
            "contents",
            2,
            "parts",
            0,
            "functionResponse",
            "parts",
            [{"inlineData": {"data": Embedded(ref("audio/wav"))}}],
        ),
        "only a user may send",
    ),
    (
        "gemini",
        add("contents", 0, "parts", {"inlineData": {"data": Embedded(ref("application/pdf", pages=1_001))}}),
        "pages",
    ),
    (
        "gemini",
        add("contents", 0, "parts", {"inlineData": {"data": Embedded(ref("application/pdf", 50_000_001))}}),
        "50 MB",
    ),
    (
        "gemini",
        put("contents", 0, "parts", [{"inlineData": {"data": Embedded(ref(size_bytes=30_000_000))}}] * 3),
        "over 100000000",
    ),
    ("gemini", put("generationConfig", {"thinkingConfig": {"thinkingBudget": 1}}), "another generation"),
    (
        "gemini",
        put(
            "contents",
            1,
            "parts",
            1,
            "thoughtSignature",
            base64.b64encode(made_by("gemini", "gemini-3.7-flash").encode()).decode(),
        ),
        "is sent to",
    ),
    # Ollama
    ("ollama", add(M, {"role": "assistant", "content": "x"}), "the last message"),
    ("ollama", cut(M, 2), "not answered"),
    ("ollama", put(M, 2, "tool_name", "other"), "next call"),
    ("ollama", put(M, 2, "images", [Embedded(ref())]), "only some templates"),
    ("ollama", put(M, 0, "images", [url()]), "plain base64"),
    ("ollama", put(M, 0, "images", [Embedded(ref("image/webp"))]), "image/webp"),
    ("ollama", put(M, 3, C, ""), "empty"),
    ("ollama", put(M, 3, C, [{"type": "text"}]), "not a string"),
    ("ollama", put(M, 1, "tool_calls", 0, "function", "arguments", "{}"), "not an object"),
    ("ollama", put(M, 3, "role", "developer"), "the role"),
    ("ollama", cut("truncate"), "in silence"),
]


@pytest.mark.parametrize(
    ("which", "change", "complaint"), BREAKS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_way_of_breaking_it_is_caught(which: str, change: Callable[[JSON], None], complaint: str) -> None:
    provider, name, build = REQUESTS[which]
    request = copy.deepcopy(build())
    change(request)
    found = check(provider, name, request)
    assert any(complaint in problem for problem in found), found


@pytest.mark.parametrize(
    ("provider", "name", "change", "complaint"),
    [
        ("anthropic", "claude-sonnet-4-5", put("thinking", {"type": "adaptive"}), "no adaptive thinking"),
        ("anthropic", "claude-opus-5-5", put("thinking", {"type": "disabled"}), "cannot be disabled"),
        ("anthropic", "claude-opus-5-5", put("tool_choice", {"type": "any"}), "cannot be forced"),
        ("anthropic", "claude-sonnet-4-5", put(M, 4, C, [image()] * 99), "101 pictures"),
        ("anthropic", "claude-sonnet-4-5", add(M, 0, C, document(pages=98)), "101 pages"),
        ("bedrock-anthropic", "anthropic.claude-opus-5", put("x", 1), "neither model nor stream"),
        ("bedrock-anthropic", "anthropic.claude-opus-5", add(M, 0, C, image(size_bytes=4_000_000)), "over 5000000"),
        (
            "bedrock-anthropic",
            "anthropic.claude-opus-5",
            add(M, 0, C, document(size_bytes=15_100_000)),
            "over 20000000",
        ),
        (
            "bedrock-anthropic",
            "anthropic.claude-opus-5",
            add(M, 0, C, {"type": "image", "source": {"file_id": "f"}}),
            "file ids",
        ),
    ],
)
def test_rules_that_hold_for_some_claude_models_only(
    provider: str, name: str, change: Callable[[JSON], None], complaint: str
) -> None:
    request = claude()
    change(request)
    assert any(complaint in problem for problem in check(provider, name, request))


def test_a_thinking_model_with_a_budget_wants_its_last_calls_to_begin_with_thinking() -> None:
    request = claude() | {"thinking": {"type": "enabled", "budget_tokens": 2_000}}
    request["messages"] = request["messages"][:3]
    del request["messages"][1]["content"][0]
    assert "the last calls do not begin with thinking" in check("anthropic", "claude-sonnet-4-5", request)


def test_rules_that_hold_for_some_other_models_only() -> None:
    assert any("no tools on this endpoint" in found for found in check("openai-chat", "gpt-6.1-sol", openai_chat()))
    assert any("not seen by this model" in found for found in check("openai-responses", "gpt-4.1", responses()))
    assert any("Multimodal" in found for found in check("gemini", "gemini-2.5-pro", gemini()))
    assert any("image/png" in found for found in check("deepseek", "deepseek-v4-pro", chat()))
    assert any("image/png" in found for found in check("mistral", "codestral-latest", openai_chat()))
