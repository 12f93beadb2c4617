"""Conversations of other programs as they really come: broken pairs, lying labels, garbage for pictures."""

from __future__ import annotations

import base64
import json
from random import Random
from typing import Any

from loom.testing import sample_pdf, sample_png, sample_wav

PNG = sample_png(64, 48)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def url(data: bytes, media_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{b64(data)}"}}


def call(call_id: Any, name: Any = "shot", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


OPENAI: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
    {"role": "assistant", "content": "I begin."},
    {"role": "user", "content": ""},
    {"role": "user", "content": " \n\t"},
    {"role": "user", "content": None},
    {"role": "user"},
    {"role": "user", "content": [{"type": "text", "text": ""}, url(PNG, "image/jpeg"), url(b"<html>no</html>")]},
    {"role": "user", "content": [url(PNG[:60]), url(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml")]},
    {"role": "user", "content": [{"type": "image_url", "image_url": "https://example.com/x"}, {"type": "image_url"}]},
    {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": b64(sample_wav()), "format": "mp3"}}]},
    {"role": "user", "content": [
        {"type": "file", "file": {"filename": "../../etc/passwd", "file_data": b64(sample_pdf("a", "b"))}}]},
    {"role": "user", "content": [{"type": "file", "file": {"file_id": "file-123"}}, {"type": "hologram", "depth": 3}]},
    {"role": "assistant", "content": None, "tool_calls": [
        call("call_" + "x" * 60, "shot", '{"broken": '), call("functions.shot:0", "white space & more " * 9, "[1]"),
        call("call_1|fc_2", "shot", None), call("", "", ""), call("same"), call("same"), call(None, None, {"a": 1})]},
    {"role": "tool", "tool_call_id": "same", "content": [{"type": "text", "text": "one"}, url(PNG)]},
    {"role": "tool", "tool_call_id": "same", "content": ""},
    {"role": "tool", "tool_call_id": "nobody", "content": json.dumps({"image": f"data:image/png;base64,{b64(PNG)}"})},
    {"role": "user", "content": "in between"},
    {"role": "tool", "tool_call_id": "functions.shot:0", "content": None},
    {"role": "function", "name": "old", "content": "result of old times"},
    {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": []},
    {"role": "assistant", "content": [{"type": "text", "text": "half an ans"}], "refusal": None, "audio": {"id": "a"}},
    {"role": "assistant", "content": "\u2028 \ufffe 更大  ", "tool_calls": [call("open", "x", '{"a": "\\u0000"}')]},
    {"role": "critic", "content": 7},
    {"role": "system", "content": "late word"},
]  # fmt: skip
ANTHROPIC: dict[str, Any] = {
    "model": "claude-opus-5",
    "system": [{"type": "text", "text": "B.", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": ""}],
    "messages": [
        {"role": "user", "content": []},
        {"role": "user", "content": [
            {"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": b64(PNG)}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "%%%"}},
            {"type": "document", "title": "x" * 400, "citations": {"enabled": True},
             "source": {"type": "base64", "media_type": "image/png", "data": b64(sample_pdf("one", "two", "three"))}},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "plain words"}},
            {"type": "document", "source": {"type": "file", "file_id": "file_abc"}},
            {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "found"}]}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"}, {"type": "redacted_thinking", "data": "x"},
            {"type": "thinking", "thinking": "h", "signature": ""}, {"type": "thinking", "thinking": 7, "signature": 7},
            {"type": "text", "text": "so", "citations": [{
                "type": "page_location", "document_index": 9, "cited_text": "?",
                "start_page_number": 3, "end_page_number": 2}]},
            {"type": "tool_use", "id": "toolu 1!", "name": "a b", "input": None},
            {"type": "tool_use", "id": "toolu_2", "name": "shot", "input": [1, 2]},
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
            {"type": "text", "text": " "}]},
        {"role": "user", "content": [
            {"type": "text", "text": "words before the results"},
            {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True, "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64(PNG)}},
                {"type": "text", "text": ""}]},
            {"type": "tool_result", "tool_use_id": "toolu_9", "content": None},
            {"type": "tool_result", "tool_use_id": "toolu 1!"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "cut", "name": "shot"}]},
        {"role": "assistant", "content": "  trailing space "},
    ],
}  # fmt: skip
GEMINI: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [
        {"role": "model", "parts": [{"functionCall": {"name": "shot", "args": {}}, "thoughtSignature": "c2ln"}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "other", "response": {"output": "x"}}}, {}]},
        {"parts": [{"inlineData": {"mimeType": "image/gif", "data": b64(PNG)}}, {"fileData": {"fileUri": "gs://x"}}]},
        {"role": "user", "parts": []},
        {"role": "model", "parts": [{"thought": True, "text": "hm"}, {"text": ""}, {"executableCode": {"code": "1"}}]},
    ],
}
OLLAMA: list[Any] = [
    {"role": "user", "content": "look", "images": [b64(PNG), "????", "", b64(b"GIF89a garbage")]},
    {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "shot", "arguments": {"a": 1}}}] * 2},
    {"role": "tool", "tool_name": "shot", "content": "done", "images": [b64(PNG)]},
    {"role": "assistant", "thinking": "hm", "content": ""},
]
MANY: list[Any] = [
    {"role": "user", "content": [url(sample_png(30 + number % 2, 20)) for number in range(130)]},
    {"role": "assistant", "content": "That is a lot."},
]
FILES: dict[str, Any] = {
    "openai": OPENAI, "anthropic": ANTHROPIC, "gemini": GEMINI, "ollama": OLLAMA, "many": {"messages": MANY},
    "openai-body": {"model": "gpt-5.5", "messages": [item for item in OPENAI if "hologram" not in json.dumps(item)]},
    "ollama-body": {"model": "llava", "messages": OLLAMA},
    "only-system": [{"role": "system", "content": "Nothing else."}, {"role": "user", "content": "x"}],
    "only-results": [{"role": "tool", "tool_call_id": "a", "content": [url(PNG)]}],
    "only-assistant": {"messages": [{"role": "assistant", "content": "Hello."}]},
    "no-message": {"system": "Be brief.", "messages": []},
    "nothing-said": [{"role": "user", "content": " "}, {"role": "assistant", "content": []}, {"role": "user"}],
}  # fmt: skip

_ODD: list[Any] = [
    None,
    "",
    " ",
    0,
    -1,
    True,
    1.5,
    [],
    {},
    "assistant",
    "user",
    "tool",
    "\ud800",
    {"type": "text"},
    [[[]]],
]


def damaged(conversation: Any, rng: Random, share: float = 0.03) -> Any:
    """The same JSON after a bad day: values are lost, replaced, doubled and put in another order. It still has a list
    of messages, or it would be no conversation."""
    if isinstance(conversation, dict):
        return {key: _damaged(item, rng, share) for key, item in conversation.items()}
    return _damaged(conversation, rng, share)


def _damaged(value: Any, rng: Random, share: float) -> Any:
    match value:
        case dict():
            items = [(key, item) for key, item in value.items() if rng.random() > share]
            return {key: _odd(rng) if rng.random() < share else _damaged(item, rng, share) for key, item in items}
        case list():
            found = [_odd(rng) if rng.random() < share else _damaged(item, rng, share) for item in value]
            if found and rng.random() < share * 3:
                found.insert(rng.randrange(len(found)), rng.choice(found))
            if rng.random() < share * 3:
                rng.shuffle(found)
            return found
        case str() if rng.random() < share:
            return value[: rng.randrange(len(value) + 1)]
        case _:
            return value


def _odd(rng: Random) -> Any:
    return rng.choice(_ODD)
