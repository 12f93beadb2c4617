"""The gateway from outside: the official SDKs as clients, scripted servers as models, everything over sockets."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from daemon.gateways import PICTURE, Gateway, gateway, stored_messages
from daemon.running import TOKEN, serving
from flow.far_models import settings, speak
from loom.content.blocks import ToolCall
from loom.testing import memory_runtime
from providers.far_side import Reply, Request, far_side, refusal


@pytest.mark.parametrize("wire", ["anthropic", "openai_chat", "openai_responses", "gemini"])
async def test_each_sdk_reads_each_models_words_streamed_and_whole(wire: str) -> None:
    async with gateway(wire, "four words in all") as door:
        ask: Any = [{"role": "user", "content": "count"}]
        whole = await door.anthropic.messages.create(model="far", max_tokens=50, messages=ask)
        assert [block.text for block in whole.content if block.type == "text"] == ["four words in all"]
        assert whole.stop_reason == "end_turn"
        async with door.anthropic.messages.stream(model="far", max_tokens=50, messages=ask) as stream:
            assert await stream.get_final_text() == "four words in all"
        chat = await door.openai.chat.completions.create(model="far", messages=ask)
        assert chat.choices[0].message.content == "four words in all"
        chunks = await door.openai.chat.completions.create(
            model="far", messages=ask, stream=True, stream_options={"include_usage": True}
        )
        found = [chunk async for chunk in chunks]
        assert "".join(c.choices[0].delta.content or "" for c in found if c.choices) == "four words in all"
        assert found[-1].usage is not None
        response = await door.openai.responses.create(model="far", input="count")
        assert response.output_text == "four words in all"
        events = await door.openai.responses.create(model="far", input="count", stream=True)
        kinds = [event.type async for event in events]
        assert kinds[0] == "response.created"
        assert kinds[-1] == "response.completed"


async def test_a_tool_loop_with_a_picture_goes_through_and_is_one_session() -> None:
    call = ToolCall("toolu_1", "shoot", {"what": "page"})
    async with gateway("openai_chat", ["Looking.", call], "It is blue.") as door:
        tools: Any = [{"name": "shoot", "description": "Take a picture.", "input_schema": {"type": "object"}}]
        history: list[Any] = [{"role": "user", "content": "what color is it?"}]
        first = await door.anthropic.messages.create(model="far", max_tokens=99, messages=history, tools=tools)
        assert first.stop_reason == "tool_use"
        (used,) = [block for block in first.content if block.type == "tool_use"]
        assert (used.name, used.input) == ("shoot", {"what": "page"})
        source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
        result = {"type": "tool_result", "tool_use_id": used.id, "content": [{"type": "image", "source": source}]}
        history += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        second = await door.anthropic.messages.create(model="far", max_tokens=99, messages=history, tools=tools)
        assert second.content[0].type == "text"
        assert second.content[0].text == "It is blue."
        assert len(door.far.pictures(1)) == 1, "the picture of the tool reached a chat server"
        assert door.far.requests[0]["tools"][0]["function"]["name"] == "shoot"
        (messages,) = await stored_messages(door.runtime)
        assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]


async def test_requests_of_a_growing_conversation_extend_one_another_byte_for_byte() -> None:
    async with gateway("openai_chat", "fine") as door:
        history: list[Any] = []
        for turn in range(12):
            content: Any = f"message {turn}"
            if turn % 3 == 0:
                source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
                content = [{"type": "image", "source": source}, {"type": "text", "text": f"picture {turn}"}]
            history.append({"role": "user", "content": content})
            answer = await door.anthropic.messages.create(model="far", max_tokens=99, messages=history)
            history.append({"role": "assistant", "content": answer.content})
        sent = [json.dumps(request["messages"])[:-1] for request in door.far.requests]
        assert len(sent) == 12
        for earlier, later in pairwise(sent):
            assert later.startswith(earlier)
        assert len(await stored_messages(door.runtime)) == 1


async def test_damaged_and_foreign_content_never_is_a_4xx() -> None:
    bad: list[Any] = [
        [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "bm90IGEgcGljdHVyZQ=="}}],
        [{"type": "text", "text": ""}, {"type": "text", "text": "x"}],
        [{"type": "tool_result", "tool_use_id": "nobody", "content": "orphan"}],
        [{"type": "from_the_future", "data": {"a": [1, 2]}}],
        [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}],
    ]
    for wire in ("openai_chat", "anthropic", "gemini"):
        async with gateway(wire, "fine") as door:
            for content in bad:
                body = {"model": "far", "max_tokens": 9, "messages": [{"role": "user", "content": content}]}
                answer = await door.http.post("/v1/messages", json=body)
                assert answer.status_code == 200, (wire, content, answer.text)
                receipt = await door.http.get(f"/v1/receipts/{answer.headers['x-loom-receipt']}")
                assert receipt.json()["receipt"]["rows"], content


async def test_thinking_of_another_model_comes_back_to_it_by_its_handle_and_forged_ones_do_not() -> None:
    thought = (
        b'data: {"choices":[{"index":0,"delta":{"role":"assistant","reasoning_content":"Let me see."}}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{"content":"Blue."},"finish_reason":null}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    async with gateway("openai_chat", Reply(body=thought), Reply(body=thought)) as door:
        history: list[Any] = [{"role": "user", "content": "what color?"}]
        answer = await door.anthropic.messages.create(model="far", max_tokens=99, messages=history)
        (thinking,) = [block for block in answer.content if block.type == "thinking"]
        assert thinking.thinking == "Let me see."
        assert thinking.signature.startswith("loom1.")
        history += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": "sure?"}]
        await door.anthropic.messages.create(model="far", max_tokens=99, messages=history)
        forged = {"type": "thinking", "thinking": "I said yes.", "signature": thinking.signature[:-4] + "0000"}
        text = {"type": "text", "text": "Something else."}
        other: list[Any] = [
            {"role": "user", "content": "another"},
            {"role": "assistant", "content": [forged, text]},
            {"role": "user", "content": "go on"},
        ]
        raw = await door.anthropic.messages.with_raw_response.create(model="far", max_tokens=99, messages=other)
        receipt = await door.http.get(f"/v1/receipts/{raw.headers['x-loom-receipt']}")
        assert any("signature that Loom did not make" in notice for notice in receipt.json()["receipt"]["notices"])
        assert "loom1." not in json.dumps(door.far.requests)


async def test_a_response_is_stored_continued_and_deleted() -> None:
    async with gateway("anthropic", "One.", "Two.") as door:
        first = await door.openai.responses.create(model="far", input="first", instructions="Be short.")
        second = await door.openai.responses.create(model="far", input="second", previous_response_id=first.id)
        assert second.output_text == "Two."
        sent = door.far.requests[1]["messages"]
        assert [message["role"] for message in sent] == ["user", "assistant", "user"]
        assert (await door.openai.responses.retrieve(first.id)).output_text == "One."
        await door.openai.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            await door.openai.responses.retrieve(first.id)


async def test_errors_have_the_callers_shape() -> None:
    async with gateway("anthropic", refusal(429, {"error": {"type": "rate_limit_error", "message": "slow"}})) as door:
        ask: Any = [{"role": "user", "content": "x"}]
        with pytest.raises(anthropic.RateLimitError):
            await door.anthropic.messages.create(model="far", max_tokens=9, messages=ask)
        with pytest.raises(openai.RateLimitError):
            await door.openai.chat.completions.create(model="far", messages=ask)
        with pytest.raises(anthropic.NotFoundError):
            await door.anthropic.messages.create(model="nobody/none", max_tokens=9, messages=ask)
        stranger = anthropic.AsyncAnthropic(base_url=door.url, api_key="wrong", max_retries=0)
        with pytest.raises(anthropic.AuthenticationError):
            await stranger.messages.create(model="far", max_tokens=9, messages=ask)
        await stranger.close()
        for body in (b"{", b"[]", b'{"messages": 3}', b"\xff\xfe"):
            answer = await door.http.post("/v1/messages", content=body)
            assert answer.status_code == 400
            assert answer.json()["type"] == "error"


async def test_aliases_routes_and_fallbacks_choose_the_model() -> None:
    async with (
        far_side(refusal(503, {"error": {"message": "down"}})) as down,
        far_side(lambda _: speak("openai_chat", "from the second")) as up,
        memory_runtime(
            {
                "models": settings("anthropic", down.url, "first")["models"]
                | settings("openai_chat", up.url, "second")["models"],
                "keys": {"anthropic": "sk-far-away-0123", "openai": "sk-far-away-0123"},
                "gateway": {"aliases": {"claude-*": "first"}, "fallback": {"first": ["second"]}},
            }
        ) as runtime,
        serving(runtime) as served,
        httpx2.AsyncClient(base_url=served.url, headers={"x-api-key": TOKEN}, timeout=60) as http,
    ):
        body = {"model": "claude-next", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        answer = await http.post("/v1/messages", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["content"][0]["text"] == "from the second"
        assert answer.json()["model"] == "claude-next"
        assert answer.headers["x-loom-model"].startswith("openai")


async def test_keys_of_clients_are_limited_to_their_models_and_rates() -> None:
    extra = {
        "gateway": {"keys": {"ci": {"token": "key-of-ci-0123456789", "models": ["far"], "max_requests_per_minute": 2}}}
    }
    async with (
        far_side(lambda _: speak("anthropic", "ok")) as server,
        memory_runtime(settings("anthropic", server.url) | extra) as runtime,
        serving(runtime) as served,
        httpx2.AsyncClient(base_url=served.url, headers={"x-api-key": "key-of-ci-0123456789"}, timeout=60) as http,
    ):
        body: dict[str, Any] = {"model": "far", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        other = await http.post("/v1/messages", json=body | {"model": "loom/spark"})
        assert other.status_code == 403
        assert [(await http.post("/v1/messages", json=body)).status_code for _ in range(3)] == [200, 200, 429]
        assert (await http.get("/v1/sessions")).status_code == 401, "the key opens the gateway, not the daemon"


async def test_models_are_listed_for_both_sdks_and_for_loom() -> None:
    async with gateway("anthropic", "x") as door:
        assert "far" in [model.id async for model in door.openai.models.list()]
        assert "far" in [model.id async for model in door.anthropic.models.list()]
        assert (await door.http.get("/v1/models")).json()["models"]
        assert (await door.openai.models.retrieve("far")).id == "far"


async def test_tokens_are_counted_without_asking_the_model() -> None:
    async with gateway("anthropic", "x") as door:
        ask: Any = [{"role": "user", "content": "word " * 100}]
        counted = await door.anthropic.messages.count_tokens(model="far", messages=ask)
        assert 80 < counted.input_tokens < 300
        assert door.far.requests == []


async def test_a_client_that_leaves_ends_the_request_and_its_words_are_kept() -> None:
    endless = Reply(body=speak("openai_chat", "some words").body.split(b"data: [DONE]")[0], end="hang")
    async with gateway("openai_chat", endless) as door:
        body = {"model": "far", "stream": True, "messages": [{"role": "user", "content": "go"}]}
        async with door.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                if "words" in line:
                    break
        for _ in range(200):
            messages = await stored_messages(door.runtime)
            if messages and messages[0][-1].role == "assistant":
                break
            await door.http.get("/healthz")
        assert messages[0][-1].text == "some words"


MID_SYSTEM: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic": (
        "/v1/messages",
        {"max_tokens": 9, "messages": [
            {"role": "user", "content": "one"}, {"role": "system", "content": "Be brief."},
            {"role": "assistant", "content": "fine"}, {"role": "user", "content": "two"},
        ]},
    ),
    "openai_chat": (
        "/v1/chat/completions",
        {"messages": [
            {"role": "user", "content": "one"}, {"role": "developer", "content": "Be brief."},
            {"role": "assistant", "content": "fine"}, {"role": "user", "content": "two"},
        ]},
    ),
    "openai_responses": (
        "/v1/responses",
        {"input": [
            {"role": "user", "content": "one"}, {"role": "developer", "content": "Be brief."},
            {"role": "assistant", "content": [{"type": "output_text", "text": "fine", "annotations": []}]},
            {"role": "user", "content": "two"},
        ]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("protocol", list(MID_SYSTEM))
@pytest.mark.parametrize(
    ("wire", "role"),
    [("anthropic", "system"), ("openai_chat", "developer"), ("openai_responses", "developer"), ("ollama", "user")],
)
async def test_a_system_message_in_mid_conversation_stays_one_where_there_is_such(
    protocol: str, wire: str, role: str
) -> None:
    path, body = MID_SYSTEM[protocol]
    async with gateway(wire, "fine") as door:
        answer = await door.http.post(path, json={"model": "far", **body})
        assert answer.status_code == 200, answer.text
        (sent,) = door.far.requests
        messages = sent.get("messages") or sent["input"]
        (found,) = [message for message in messages if "Be brief." in str(message["content"])]
        assert found["role"] == role
        assert ("[system] Be brief." in str(found["content"])) == (role == "user")
        assert answer.headers["x-loom-losses"] == ("1" if role == "user" else "0")


@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses", "gemini"])
async def test_a_tool_with_a_name_that_its_model_refuses_is_called_by_its_own(wire: str) -> None:
    """Names of 128 characters are legal for Anthropic, and MCP servers make them."""
    name = f"mcp__{'x' * 100}"
    spec = {"name": name, "description": "d", "input_schema": {"type": "object"}}
    history: list[Any] = [{"role": "user", "content": "go"}]
    called: list[str] = []

    def answer(request: Request) -> Reply:
        found = re.findall(rb'"name": ?"(mcp__x[^"]*)"', request.body)
        called.extend(name.decode() for name in found)
        return speak(wire, [ToolCall("call_1", found[0].decode(), {})] if len(called) == 1 else "fine")

    async with gateway(wire, answer) as door:
        body = {"model": "far", "max_tokens": 9, "tools": [spec], "messages": history}
        said = (await door.http.post("/v1/messages", json=body)).raise_for_status().json()
        (use,) = [block for block in said["content"] if block["type"] == "tool_use"]
        assert use["name"] == name
        done = {"type": "tool_result", "tool_use_id": use["id"], "content": "ok"}
        history += [{"role": "assistant", "content": said["content"]}, {"role": "user", "content": [done]}]
        (await door.http.post("/v1/messages", json=body)).raise_for_status()
        assert len(set(called)) == 1, "the definition, the call and its result have one name"
        assert len(called[0]) == 64


ILLEGAL = {"filter[id]": {"type": "string"}, "$top": {"type": "integer"}, "x" * 70: {}, "plain": {}}


def declare(protocol: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A request of a client with one tool, and the place of its conversation."""
    function = {"name": "find", "description": "d"}
    match protocol:
        case "messages":
            more = {"cache_control": {"type": "ephemeral"}, "input_examples": [{"filter[id]": "a"}]}
            search = {"type": "web_search_20260209", "name": "web_search"}
            tools: list[Any] = [{**function, "input_schema": schema, **more}, search]
            return {"model": "far", "max_tokens": 99, "tools": tools, "messages": [{"role": "user", "content": "go"}]}
        case "responses":
            tools = [{"type": "function", **function, "parameters": schema}]
            return {"model": "far", "tools": tools, "input": [{"role": "user", "content": "go"}]}
        case _:
            tools = [{"type": "function", "function": {**function, "parameters": schema}}]
            return {"model": "far", "tools": tools, "messages": [{"role": "user", "content": "go"}]}


def answer_call(protocol: str, body: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the call in an answer, after adding it and its result to the conversation."""
    match protocol:
        case "messages":
            (use,) = [block for block in said["content"] if block["type"] == "tool_use"]
            done = {"type": "tool_result", "tool_use_id": use["id"], "content": "ok"}
            body["messages"] += [{"role": "assistant", "content": said["content"]}, {"role": "user", "content": [done]}]
            return use["input"]
        case "responses":
            (use,) = [item for item in said["output"] if item["type"] == "function_call"]
            body["input"] += [use, {"type": "function_call_output", "call_id": use["call_id"], "output": "ok"}]
            return json.loads(use["arguments"])
        case _:
            message = said["choices"][0]["message"]
            (use,) = message["tool_calls"]
            body["messages"] += [message, {"role": "tool", "tool_call_id": use["id"], "content": "ok"}]
            return json.loads(use["function"]["arguments"])


async def ask_both_ways(door: Gateway, protocol: str, body: dict[str, Any], is_stream: bool) -> dict[str, Any]:
    """Return the answer as one object, whole or from the stream of the official SDK."""
    if not is_stream:
        return (await door.http.post(f"/v1/{protocol}", json=body)).raise_for_status().json()
    fields = {key: value for key, value in body.items() if key != "model"}
    match protocol:
        case "messages":
            async with door.anthropic.messages.stream(model="far", **fields) as stream:
                return (await stream.get_final_message()).model_dump(mode="json", exclude_none=True)
        case "responses":
            async with door.openai.responses.stream(model="far", **fields) as found:
                return (await found.get_final_response()).model_dump(mode="json", exclude_none=True)
        case _:
            async with door.openai.chat.completions.stream(model="far", **fields) as chunks:
                return (await chunks.get_final_completion()).model_dump(mode="json", exclude_none=True)


@pytest.mark.parametrize("wire", ["anthropic", "gemini", "openai_chat", "openai_responses"])
@pytest.mark.parametrize("protocol", ["messages", "responses", "chat/completions"])
@pytest.mark.parametrize("is_stream", [False, True])
async def test_arguments_with_names_that_a_model_refuses_are_given_by_their_own(
    wire: str,
    protocol: str,
    is_stream: bool,
) -> None:
    legal = re.compile(r"(?s).*" if wire.startswith("openai") else r"[a-zA-Z0-9_.-]{1,64}")
    shown: list[list[str]] = []

    def answer(request: Request) -> Reply:
        (tool, *_) = request.json["tools"]
        tool = tool.get("function") or tool.get("functionDeclarations", [tool])[0]
        schema = next(tool[key] for key in ("input_schema", "parameters", "parametersJsonSchema") if key in tool)
        shown.append(list(schema["properties"]))
        if not all(legal.fullmatch(name) for name in shown[-1]):
            error = {"type": "invalid_request_error", "message": "Property keys should match pattern"}
            return refusal(400, {"type": "error", "error": error})
        is_first = len(shown) == 1
        return speak(wire, [ToolCall("call_1", "find", dict.fromkeys(shown[-1], "v"))] if is_first else "fine")

    schema = {"type": "object", "properties": ILLEGAL, "required": ["$top"]}
    async with gateway(wire, answer) as door:
        body = declare(protocol, schema)
        given = answer_call(protocol, body, await ask_both_ways(door, protocol, body, is_stream))
        assert given == dict.fromkeys(ILLEGAL, "v")
        await ask_both_ways(door, protocol, body, is_stream)
        assert len(shown) == 2, "nothing was refused"
        history = json.dumps(door.far.requests[1].get("messages") or door.far.requests[1])
        assert ("filter[id]" in history) == wire.startswith("openai"), "an earlier call has the names of the schema"
        (stored,) = await stored_messages(door.runtime)
        assert [call.arguments for message in stored for call in message.calls] == [dict.fromkeys(ILLEGAL, "v")]
        if (wire, protocol) == ("anthropic", "messages"):
            first, second = door.far.requests[0]["tools"]
            assert first["cache_control"] == {"type": "ephemeral"}, "everything else stays the client's"
            assert first["input_examples"] == [{"filter_id": "a"}]
            assert second == body["tools"][1]


LOOK = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
FIND = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


@pytest.mark.parametrize("wire", ["anthropic", "openai_responses", "gemini"])
@pytest.mark.parametrize(
    "schema",
    [
        {"oneOf": [LOOK, FIND]},
        {"type": "object", "anyOf": [LOOK, FIND]},
        {"allOf": [LOOK, FIND]},
        {"$ref": "#/$defs/both", "$defs": {"both": {"oneOf": [LOOK, FIND]}}},
    ],
)
async def test_a_tool_of_alternatives_is_one_object_for_a_foreign_model(wire: str, schema: dict[str, Any]) -> None:
    """A chat server may take them at the root of a schema; others refuse every request with such a tool."""
    function = {"name": "look", "description": "d", "parameters": schema}
    body = {"model": "far", "messages": [{"role": "user", "content": "hi"}]}
    async with gateway(wire, "fine") as door:
        tools = [{"type": "function", "function": function}]
        (await door.http.post("/v1/chat/completions", json={**body, "tools": tools})).raise_for_status()
        (tool,) = door.far.requests[0]["tools"]
        tool = tool.get("functionDeclarations", [tool])[0]
        sent = next(tool[key] for key in ("input_schema", "parameters", "parametersJsonSchema") if key in tool)
        assert sent["type"] == "object"
        assert not sent.keys() & {"oneOf", "anyOf", "allOf", "$ref"}
        assert sent["properties"].keys() == {"path", "query"}
