"""A request that came for a provider and is compiled for the same provider goes out as it came.

Allowed normalizations, each with its reason:

- `stream` is true and chat asks for usage in the stream: the transport reads streams.
- `model` is the name that the catalog resolves to.
- base64 is written without line breaks and with padding.
- `input` that is one string becomes a message.
- options that the model refuses (sampling on new Claude models) are left out; the receipt names them.
"""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from content.tiny_media import PDF, PNG, WAV
from content.tiny_media import lift as lift_any
from loom.compile.policy import DetachedMessage, Policy, Request
from loom.compile.prepare import Prepared, prepare
from loom.content.blocks import ContentBlock, DocumentBlock
from loom.content.media import digest_of
from loom.importers import upgrade
from loom.importers.request_body import read_request_body
from loom.prompt import Embedded
from loom.providers import catalog
from loom.wire.table import WIRES

MODELS = {
    "anthropic": "anthropic/claude-opus-5",
    "openai_chat": "openai-chat/gpt-4.1",
    "openai_responses": "openai/gpt-5.5",
    "gemini": "gemini/gemini-3-flash",
}
BYTES = {digest_of(data): data for data in (PNG, PDF, WAV)}
B64 = {name: base64.b64encode(data).decode() for name, data in (("png", PNG), ("pdf", PDF), ("wav", WAV))}


def lift(data: bytes, name: str, declared: str) -> ContentBlock | None:
    block = lift_any(data, name, declared)
    if isinstance(block, DocumentBlock):
        return msgspec.structs.replace(block, media=msgspec.structs.replace(block.media, pages=1))
    return block


def compile_body(body: dict[str, Any], protocol: str, reference: str = "") -> tuple[dict[str, Any], Prepared]:
    model = catalog.model(reference or MODELS[protocol])
    request = read_request_body(body, protocol)  # type: ignore[arg-type]
    found = upgrade(body, lift=lift, fetch=lambda _: None, protocol=request.protocol)
    path = [DetachedMessage(str(at), message, form=found.forms.get(at)) for at, message in enumerate(found.messages)]
    prepared = prepare(
        path,
        model,
        policy=Policy(aging="off"),
        request=Request(
            system=found.system, tools=request.tools, sampling=request.sampling, body=request.form(found.head)
        ),
    )
    return filled(WIRES[model.wire].encode(prepared.prompt)), prepared


def filled(value: Any) -> Any:
    match value:
        case Embedded():
            return value.prefix + base64.b64encode(BYTES[value.ref.digest]).decode()
        case dict():
            return {key: filled(item) for key, item in value.items()}
        case list() | tuple():
            return [filled(item) for item in value]
        case _:
            return value


def expected(body: dict[str, Any], protocol: str) -> dict[str, Any]:
    """The same body with the allowed normalizations."""
    body = copy.deepcopy(body)
    if protocol == "gemini":
        body.pop("model", None)
    else:
        body |= {"model": catalog.model(MODELS[protocol]).name, "stream": True}
    if protocol == "openai_chat":
        body["stream_options"] = {**body.get("stream_options", {}), "include_usage": True}
    return body


def check(body: dict[str, Any], protocol: str) -> None:
    before = json.dumps(body)
    sent, prepared = compile_body(body, protocol)
    assert json.dumps(body) == before
    assert sent == expected(body, protocol)
    assert all(row.rendition == "full" and not row.reason for row in prepared.receipt.rows)


# Requests as clients send them ---------------------------------------------------------------------------------------

ANTHROPIC: list[dict[str, Any]] = [
    {
        "model": "claude-opus-5",
        "max_tokens": 32000,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1"},
            {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ],
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "metadata": {"user_id": '{"session_id":"s1"}'},
        "tools": [
            {
                "name": "Read",
                "description": "Read a file.",
                "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
                "cache_control": {"type": "ephemeral"},
                "strict": True,
            },
            {"type": "web_search_20260318", "name": "web_search", "max_uses": 3},
        ],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "messages": [
            {"role": "user", "content": "Read it."},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "I should read.", "signature": "EqQB"},
                    {"type": "text", "text": "Reading."},
                    {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "a.png"}, "caller": "x"},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "is_error": False,
                        "cache_control": {"type": "ephemeral"},
                        "content": [
                            {"type": "text", "text": "1"},
                            {
                                "type": "image",
                                "source": {"type": "base64", "media_type": "image/png", "data": B64["png"]},
                                "transformations": {"oversized_image": "downsize"},
                            },
                        ],
                    },
                    {"type": "text", "text": "And this?"},
                ],
            },
            {"role": "system", "content": "The user is in a hurry."},
            {
                "role": "assistant",
                "content": [{"type": "redacted_thinking", "data": "b2s="}, {"type": "text", "text": "A."}],
            },
            {"role": "user", "content": [{"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}}]},
        ],
    },
    {
        "model": "claude-opus-5",
        "max_tokens": 100,
        "messages": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "The sky is blue. " * 30},
                        "title": "Sky",
                        "context": "from a book",
                        "citations": {"enabled": True},
                    },
                    {
                        "type": "document",
                        "source": {"type": "base64", "media_type": "application/pdf", "data": B64["pdf"]},
                        "context": "a PDF without citations",
                        "citations": {"enabled": False},
                    },
                    {
                        "type": "document",
                        "source": {
                            "type": "content",
                            "content": [
                                {"type": "text", "text": "one"},
                                {
                                    "type": "image",
                                    "source": {"type": "base64", "media_type": "image/png", "data": B64["png"]},
                                },
                            ],
                        },
                    },
                    {
                        "type": "search_result",
                        "source": "https://a.example",
                        "title": "A",
                        "content": [{"type": "text", "text": "words"}],
                        "citations": {"enabled": True},
                    },
                    {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}},
                    {"type": "document", "source": {"type": "file", "file_id": "file_011"}},
                    {"type": "container_upload", "file_id": "file_012"},
                    {"type": "text", "text": "What color?"},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "sky"}},
                    {
                        "type": "web_search_tool_result",
                        "tool_use_id": "srvtoolu_1",
                        "content": [
                            {
                                "type": "web_search_result",
                                "url": "https://a.example",
                                "title": "A",
                                "encrypted_content": "xyz",
                                "page_age": None,
                                "new_field": 1,
                            }
                        ],
                    },
                    {
                        "type": "text",
                        "text": "Blue",
                        "citations": [
                            {
                                "type": "char_location",
                                "cited_text": "The sky is blue.",
                                "document_index": 0,
                                "document_title": "Sky",
                                "start_char_index": 0,
                                "end_char_index": 16,
                            }
                        ],
                    },
                    {"type": "a_block_of_next_year", "id": "b1", "anything": [1, {"x": None}]},
                ],
            },
            {"role": "user", "content": [{"type": "text", "text": "Thanks", "an_unknown_field": {"a": 1}}]},
        ],
    },
]

CHAT: list[dict[str, Any]] = [
    {
        "model": "gpt-4.1",
        "max_completion_tokens": 500,
        "temperature": 0.3,
        "logit_bias": {"50256": -100},
        "metadata": {"team": "a"},
        "stream_options": {"include_obfuscation": False},
        "tools": [
            {
                "type": "function",
                "function": {"name": "look", "description": "", "parameters": {"type": "object"}, "strict": False},
            }
        ],
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}], "name": "boss"},
            {"role": "developer", "content": "Use tools."},
            {
                "role": "user",
                "name": "ann",
                "content": [
                    {"type": "text", "text": "See"},
                    {
                        "type": "image_url",
                        "image_url": {"url": f"data:image/png;base64,{B64['png']}", "detail": "high"},
                    },
                    {"type": "image_url", "image_url": {"url": "https://a.example/c.png"}},
                    {
                        "type": "file",
                        "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{B64['pdf']}"},
                    },
                    {"type": "file", "file": {"file_id": "file-123"}},
                ],
            },
            {
                "role": "assistant",
                "content": "",
                "refusal": None,
                "annotations": [],
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{ "a": 1 }'}},
                    {"id": "call_2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "one", "name": "look"},
            {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "two"}]},
            {"role": "system", "content": "Hurry."},
            {"role": "user", "content": "Well?"},
        ],
    }
]

RESPONSES: list[dict[str, Any]] = [
    {
        "model": "gpt-5.5",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "medium", "summary": "auto"},
        "text": {"verbosity": "low"},
        "prompt_cache_key": "thread-1",
        "client_metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "tools": [
            {"type": "function", "name": "shell", "description": "d", "parameters": {"type": "object"}, "strict": True},
            {"type": "web_search", "external_web_access": True},
        ],
        "instructions": "You are Codex.",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Rules"}]},
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "<image name=a>"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{B64['png']}", "detail": "auto"},
                    {"type": "input_text", "text": "</image>"},
                    {"type": "input_file", "file_id": "file-1"},
                ],
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "S"}],
                "encrypted_content": "gAAA",
                "status": None,
            },
            {
                "type": "message",
                "role": "assistant",
                "id": "msg_1",
                "status": "completed",
                "phase": "commentary",
                "content": [{"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}],
            },
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_1",
                "name": "shell",
                "arguments": '{"c": 1}',
                "status": "completed",
            },
            {
                "type": "function_call_output",
                "call_id": "call_1",
                "output": [
                    {"type": "input_text", "text": "done"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{B64['png']}"},
                ],
            },
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "x"},
            },
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Found."}]},
            {"type": "message", "role": "developer", "content": "Be quick."},
            {"role": "user", "content": "Next"},
        ],
    }
]

GEMINI: list[dict[str, Any]] = [
    {
        "systemInstruction": {"role": "user", "parts": [{"text": "Be kind."}, {"text": "Be brief."}]},
        "generationConfig": {"temperature": 0.5, "topK": 4, "thinkingConfig": {"includeThoughts": True}},
        "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
        "tools": [
            {"functionDeclarations": [{"name": "f", "description": "d", "parameters": {"type": "OBJECT"}}]},
            {"googleSearch": {}},
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
        "contents": [
            {
                "role": "user",
                "parts": [
                    {"text": "See"},
                    {"inlineData": {"mimeType": "image/png", "data": B64["png"]}, "mediaResolution": {"level": "X"}},
                    {"fileData": {"mimeType": "application/pdf", "fileUri": "https://files.example/1"}},
                ],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "thinking", "thought": True},
                    {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "c2ln"},
                ],
            },
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "f", "response": {"r": [1, 2]}, "willContinue": False}}],
            },
            {
                "role": "model",
                "parts": [
                    {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
                    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
                    {"text": "Done"},
                ],
            },
            {"role": "user", "parts": [{"text": "Thanks"}]},
        ],
    }
]


@pytest.mark.parametrize(
    ("protocol", "body"),
    [
        (protocol, body)
        for protocol, bodies in (
            ("anthropic", ANTHROPIC),
            ("openai_chat", CHAT),
            ("openai_responses", RESPONSES),
            ("gemini", GEMINI),
        )
        for body in bodies
    ],
)
def test_a_request_goes_back_to_its_provider_as_it_came(protocol: str, body: dict[str, Any]) -> None:
    check(body, protocol)


# Generated requests --------------------------------------------------------------------------------------------------

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=30).filter(
    lambda text: bool(text.strip()) and text[:5].lower() != "data:"
)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcxyz_", min_size=1), inner, max_size=3),
    max_leaves=5,
)
EXTRA = st.dictionaries(st.sampled_from(("x_new", "x_other")), JSON, max_size=2)
MARK = st.sampled_from(({}, {}, {"cache_control": {"type": "ephemeral"}}))


@st.composite
def anthropic_bodies(draw: st.DrawFn) -> dict[str, Any]:
    def text() -> dict[str, Any]:
        return {"type": "text", "text": draw(WORDS), **draw(MARK), **draw(EXTRA)}

    def image() -> dict[str, Any]:
        source = {"type": "base64", "media_type": "image/png", "data": B64["png"]}
        return {"type": "image", "source": source, **draw(MARK)}

    def document() -> dict[str, Any]:
        source = draw(
            st.sampled_from(
                (
                    {"type": "base64", "media_type": "application/pdf", "data": B64["pdf"]},
                    {"type": "text", "media_type": "text/plain", "data": "words"},
                    {"type": "file", "file_id": "file_1"},
                    {"type": "url", "url": "https://a.example/x.pdf"},
                )
            )
        )
        more = draw(st.sampled_from(({}, {"context": "c"}, {"citations": {"enabled": False}}, {"title": None})))
        return {"type": "document", "source": source, **more}

    def unknown() -> dict[str, Any]:
        return {"type": "next_year", "id": "n1", **draw(EXTRA)}

    def said() -> list[dict[str, Any]]:
        makers = draw(st.lists(st.sampled_from((text, image, document, unknown)), max_size=3))
        return [*(make() for make in makers), text()]

    messages: list[dict[str, Any]] = []
    number = 0
    for _ in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": draw(WORDS) if draw(st.booleans()) else said()})
        answer = [text()]
        if draw(st.booleans()):
            answer.insert(0, {"type": "thinking", "thinking": draw(WORDS), "signature": "c2ln"})
        calls = draw(st.integers(0, 2))
        for _ in range(calls):
            number += 1
            answer.append({"type": "tool_use", "id": f"toolu_{number}", "name": "f", "input": draw(JSON_OBJECT)})
        messages.append({"role": "assistant", "content": answer, **draw(EXTRA)})
        if calls:
            results: list[dict[str, Any]] = [
                {
                    "type": "tool_result",
                    "tool_use_id": f"toolu_{number - at}",
                    "content": draw(st.sampled_from(("out", [text()], [text(), image()]))),
                    **draw(MARK),
                }
                for at in reversed(range(calls))
            ]
            messages.append({"role": "user", "content": [*results, *(said() if draw(st.booleans()) else ())]})
            messages.append({"role": "assistant", "content": draw(WORDS)})
    messages.append({"role": "user", "content": said()})
    if draw(st.booleans()):
        messages.append({"role": "system", "content": [text()]})
    system = draw(st.sampled_from((None, "Be brief.", [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}])))
    tool = {"name": "f", "input_schema": {"type": "object"}, **draw(MARK), **draw(EXTRA)}
    return {
        "model": "claude-opus-5",
        "max_tokens": draw(st.integers(1, 1000)),
        "messages": messages,
        "tools": [tool],
        **({"system": system} if system else {}),
        **draw(EXTRA),
    }


JSON_OBJECT = st.dictionaries(st.text("abc", min_size=1), JSON, max_size=2)


@st.composite
def chat_bodies(draw: st.DrawFn) -> dict[str, Any]:
    def part() -> dict[str, Any]:
        made = draw(
            st.sampled_from(
                (
                    {"type": "text", "text": "words"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{B64['png']}"}},
                    {"type": "image_url", "image_url": {"url": "https://a.example/x.png", "detail": "low"}},
                    {"type": "file", "file": {"file_id": "file-1"}},
                )
            )
        )
        return {**made, **draw(EXTRA)}

    def said() -> Any:
        return draw(WORDS) if draw(st.booleans()) else [part(), {"type": "text", "text": draw(WORDS)}]

    messages: list[dict[str, Any]] = [
        {"role": draw(st.sampled_from(("system", "developer"))), "content": draw(WORDS)}
        for _ in range(draw(st.integers(0, 2)))
    ]
    number = 0
    for _ in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": said(), **draw(EXTRA)})
        calls = draw(st.integers(0, 2))
        content = draw(st.none() | WORDS) if calls else draw(WORDS)
        answer: dict[str, Any] = {"role": "assistant", "content": content, **draw(EXTRA)}
        if calls:
            answer["tool_calls"] = [
                {
                    "id": f"call_{number + at}",
                    "type": "function",
                    "function": {"name": "f", "arguments": json.dumps(draw(JSON_OBJECT))},
                }
                for at in range(calls)
            ]
        messages.append(answer)
        messages += [
            {"role": "tool", "tool_call_id": f"call_{number + at}", "content": draw(WORDS)} for at in range(calls)
        ]
        number += calls
    messages.append({"role": draw(st.sampled_from(("user", "system"))), "content": draw(WORDS)})
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, **draw(EXTRA)}}]
    return {"model": "gpt-4.1", "messages": messages, "tools": tools, **draw(EXTRA)}


@st.composite
def responses_bodies(draw: st.DrawFn) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    if draw(st.booleans()):
        items.append({"type": "message", "role": "developer", "content": draw(WORDS)})
    for turn in range(draw(st.integers(1, 3))):
        items.append(
            {
                "type": "message",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": draw(WORDS), **draw(EXTRA)},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{B64['png']}", **draw(EXTRA)},
                ],
            }
        )
        if draw(st.booleans()):
            items.append({"type": "reasoning", "id": f"rs_{turn}", "summary": [], "encrypted_content": "eA=="})
        has_call = draw(st.booleans())
        if has_call:
            arguments = json.dumps(draw(JSON_OBJECT))
            items.append({"type": "function_call", "call_id": f"c{turn}", "name": "f", "arguments": arguments})
            items.append({"type": "function_call_output", "call_id": f"c{turn}", "output": draw(WORDS), **draw(EXTRA)})
        said = [{"type": "output_text", "text": draw(WORDS), "annotations": []}]
        items.append({"type": "message", "role": "assistant", "content": said, **draw(EXTRA)})
    items.append({"role": "user", "content": draw(WORDS)})
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}, **draw(EXTRA)}]
    return {"model": "gpt-5.5", "input": items, "tools": tools, **draw(EXTRA)}


@st.composite
def gemini_bodies(draw: st.DrawFn) -> dict[str, Any]:
    contents: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 3))):
        picture = {"inlineData": {"mimeType": "image/png", "data": B64["png"]}, **draw(EXTRA)}
        contents.append({"role": "user", "parts": [{"text": draw(WORDS), **draw(EXTRA)}, picture]})
        if draw(st.booleans()):
            call = {"name": "f", "args": draw(JSON_OBJECT)}
            contents.append({"role": "model", "parts": [{"functionCall": call, "thoughtSignature": "c2ln"}]})
            response = {"name": "f", "response": {"output": draw(WORDS)}, **draw(EXTRA)}
            contents.append({"role": "user", "parts": [{"functionResponse": response}]})
        contents.append({"role": "model", "parts": [{"text": draw(WORDS)}]})
    contents.append({"role": "user", "parts": [{"text": draw(WORDS)}]})
    declared = [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": {"type": "object"}}]}]
    return {"contents": contents, "tools": declared, "generationConfig": {"candidateCount": 1}, **draw(EXTRA)}


@pytest.mark.parametrize(
    ("protocol", "bodies"),
    [
        ("anthropic", anthropic_bodies()),
        ("openai_chat", chat_bodies()),
        ("openai_responses", responses_bodies()),
        ("gemini", gemini_bodies()),
    ],
)
def test_every_generated_request_goes_back_as_it_came(protocol: str, bodies: st.SearchStrategy[dict[str, Any]]) -> None:
    @settings(max_examples=60, deadline=None)
    @given(bodies)
    def go(body: dict[str, Any]) -> None:
        check(body, protocol)

    go()


# What must change ----------------------------------------------------------------------------------------------------


def test_only_the_message_that_must_change_is_compiled() -> None:
    """A text without words is refused by the provider: its message is repaired, the others stay as they came."""
    body = copy.deepcopy(ANTHROPIC[0])
    body["messages"][-1]["content"].insert(0, {"type": "text", "text": "  "})
    sent, _ = compile_body(body, "anthropic")
    assert sent["messages"][:-1] == body["messages"][:-1]
    assert sent["messages"][-1] == {"role": "user", "content": [{"type": "text", "text": "Go on."}]}
    assert sent["tools"] == body["tools"]


def test_a_call_without_its_result_is_repaired_with_its_message() -> None:
    body = copy.deepcopy(CHAT[0])
    del body["messages"][5]
    sent, prepared = compile_body(body, "openai_chat")
    results = [message for message in sent["messages"] if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in results] == ["call_1", "call_2"]
    assert any("had no result" in notice for notice in prepared.receipt.notices)
    assert sent["messages"][0] == body["messages"][0]


def test_an_open_call_before_a_message_that_stays_gets_a_result_and_the_message_stands_once() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
    body = {
        "model": "claude-opus-5",
        "max_tokens": 10,
        "messages": [
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": [call]},
            {"role": "assistant", "content": "It broke."},
            {"role": "user", "content": "Well?"},
        ],
    }
    sent, _ = compile_body(body, "anthropic")
    first, called, answered, *rest = sent["messages"]
    assert (first, rest) == (body["messages"][0], body["messages"][2:])
    assert called["content"] == [call]
    assert [block["tool_use_id"] for block in answered["content"]] == ["toolu_1"]
    assert [tool["name"] for tool in sent["tools"]] == ["f"], "calls are refused without their tools"


@pytest.mark.parametrize("block", [{"type": "text", "text": ""}, {"type": "text"}, {"type": "assistant"}, True])
def test_a_system_prompt_that_would_be_refused_is_compiled(block: Any) -> None:
    body = {**ANTHROPIC[0], "system": [{"type": "text", "text": "Be brief."}, block]}
    sent, _ = compile_body(body, "anthropic")
    assert all(part["type"] == "text" and part["text"].strip() for part in sent["system"])
    assert sent["system"][0]["text"].startswith("Be brief.")
    assert sent["messages"] == body["messages"]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": "https://a.example/x.png"},
        {"type": "image_url"},
        {"type": "file", "file": {}},
        {"text": "words"},
    ],
)
def test_a_known_block_of_an_illegal_shape_is_repaired_with_its_message(part: dict[str, Any]) -> None:
    body = copy.deepcopy(CHAT[0])
    body["messages"][-1]["content"] = [{"type": "text", "text": "Well?"}, part]
    sent, _ = compile_body(body, "openai_chat")
    assert sent["messages"][:-1] == body["messages"][:-1]
    assert json.dumps(part) not in json.dumps(sent["messages"][-1])
    assert "Well?" in json.dumps(sent["messages"][-1])


def test_bytes_of_another_type_than_declared_are_sent_with_their_own() -> None:
    body = copy.deepcopy(ANTHROPIC[0])
    picture = body["messages"][2]["content"][0]["content"][1]
    picture["source"]["media_type"] = "image/jpeg"
    sent, _ = compile_body(body, "anthropic")
    results = [block for message in sent["messages"] for block in message["content"] if isinstance(block, dict)]
    shown = next(block for block in results if block["type"] == "tool_result")
    assert shown["content"][1]["source"]["media_type"] == "image/png"


def test_options_that_the_model_refuses_are_left_out_and_named() -> None:
    body = {**ANTHROPIC[1], "temperature": 0.2, "top_k": 4, "max_tokens": 10_000_000}
    body["thinking"] = {"type": "enabled", "budget_tokens": 2_000}
    sent, prepared = compile_body(body, "anthropic")
    assert "temperature" not in sent
    assert "top_k" not in sent
    assert sent["thinking"]["type"] == "adaptive"
    assert sent["max_tokens"] == 128_000
    assert sent["messages"] == body["messages"]
    assert "temperature" in prepared.receipt.unsent_options


def test_another_provider_gets_a_compiled_request() -> None:
    sent, _ = compile_body(ANTHROPIC[1], "anthropic", "openai/gpt-5.5")
    text = json.dumps(sent)
    assert "The sky is blue." in text
    assert "from a book" in text
    assert "words" in text
    for own in ("cache_control", "encrypted_content", "srvtoolu_1"):
        assert own not in json.dumps(sent["input"])


def test_no_base64_stays_in_a_form() -> None:
    for protocol, body in (("anthropic", ANTHROPIC[0]), ("openai_responses", RESPONSES[0]), ("gemini", GEMINI[0])):
        found = upgrade(body, lift=lift, fetch=lambda _: None, protocol=protocol)  # type: ignore[arg-type]
        assert found.forms
        assert B64["png"] not in msgspec.json.encode(found.forms).decode()
