"""What OpenAI refuses on either protocol, and the servers that speak Chat Completions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from loom.prompt import Embedded
from wire.rules_common import (
    IMAGES,
    JSON,
    PDF,
    Found,
    blank,
    counted,
    embedded,
    is_object,
    legal_name,
    refs,
    sized,
    twice,
)


def chat(provider: str, name: str, request: JSON) -> Found:
    messages = request["messages"]
    yield from _chat_order(provider, messages)
    for message in messages:
        yield from _chat_message(provider, message)
    yield from _CHAT_RULES[provider](name, request)


def _chat_order(provider: str, messages: list[JSON]) -> Found:
    if not any(message["role"] == "user" for message in messages):
        yield "there is no message of the user's"
    if messages[-1]["role"] == "assistant":
        yield "the last message is the assistant's"
    open_ids: list[str] = []
    ids: list[str] = []
    for before, message in zip([None, *messages], messages, strict=False):
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_ids:
                yield f"the result {message['tool_call_id']!r} answers no call before it"
            else:
                open_ids.remove(message["tool_call_id"])
            continue
        if open_ids:
            yield f"calls {open_ids} are not answered directly behind them"
        if provider == "mistral" and before and before["role"] == "tool" and message["role"] == "user":
            yield "a user follows a tool"
        open_ids = [call["id"] for call in message.get("tool_calls", [])]
        ids += open_ids
    if open_ids:
        yield f"calls {open_ids} are not answered"
    yield from twice(ids)


def _chat_message(provider: str, message: JSON) -> Found:
    role, content = message["role"], message.get("content")
    if content == []:
        yield "a content array is empty"
    if role != "assistant" and not content:
        yield f"a {role} message is empty"
    if role == "assistant" and not content and not message.get("tool_calls"):
        yield "an assistant message has neither content nor calls"
    if isinstance(content, str) and role == "user" and blank(content):
        yield "a text is blank"
    for part in content if isinstance(content, list) else []:
        if part["type"] == "text" and blank(part["text"]):
            yield "a text is blank"
        if part["type"] != "text" and role == "assistant":
            yield f"a {part['type']} stands in an assistant message"
        if part["type"] != "text" and role == "tool" and provider != "mistral":
            yield f"a {part['type']} stands in a tool message"
        if part["type"] == "file" and not _has_data(provider, part["file"]):
            yield "a file has no data"
    for call in message.get("tool_calls", []):
        if not legal_name(call["function"]["name"]):
            yield f"the name {call['function']['name']!r} is not legal"
        if not is_object(call["function"]["arguments"]):
            yield "a call's arguments are not the text of an object"


def _has_data(provider: str, file: JSON) -> bool:
    """OpenAI also takes the id of a file that was uploaded there."""
    return isinstance(file.get("file_data"), Embedded) or (provider == "openai-chat" and not blank(file.get("file_id")))


def _chat_media(request: JSON, types: tuple[str, ...], images: int) -> Found:
    for ref in refs(request, ""):
        if ref.media_type not in types:
            yield f"{ref.media_type} is not taken"
    yield from counted("pictures", len(refs(request, "image/")), images)


def _id_length(request: JSON, most: int) -> Found:
    for message in request["messages"]:
        for call in message.get("tool_calls", []):
            if not 0 < len(call["id"]) <= most:
                yield f"the id {call['id'][:80]!r} is not legal"


def _has_key(request: JSON, key: str) -> bool:
    return any(key in message for message in request["messages"])


def _openai_chat(name: str, request: JSON) -> Found:
    if name.startswith("gpt-audio"):
        types: tuple[str, ...] = ("audio/wav", "audio/mpeg")
    else:
        types = () if name.startswith("o3-mini") else (*IMAGES, PDF)
    yield from _chat_media(request, types, 1_500)
    yield from _id_length(request, 40)
    files = refs(request, PDF)
    yield from counted("bytes of files", sum(ref.size_bytes for ref in files), 50_000_000)
    yield from sized(request, 512_000_000)
    if _has_key(request, "reasoning_content") or _has_key(request, "reasoning"):
        yield "reasoning is sent back"
    if re.match(r"gpt-6(\.1-sol|-luna)", name) and (request.get("tools") or _has_key(request, "tool_calls")):
        yield "this model has no tools on this endpoint"
    if "temperature" in request and re.match(r"gpt-[56]|o[134]", name):
        yield "a reasoning model takes no temperature"


def _deepseek(name: str, request: JSON) -> Found:
    seeing = re.match(r"deepseek-(v4-)?flash", name) is not None
    yield from _chat_media(request, IMAGES if seeing else (), 1_000)
    yield from _id_length(request, 64)
    yield from sized(request, 48 * 1024 * 1024)
    for ref in refs(request, "image/"):
        if ref.encoded_bytes > 32 * 1024 * 1024:
            yield f"a picture has {ref.encoded_bytes} encoded bytes"
    for message in request["messages"]:
        if message.get("tool_calls") and not isinstance(message.get("reasoning_content"), str):
            yield "a message that called tools has no reasoning_content"


def _mistral(name: str, request: JSON) -> Found:
    blind = re.match(r"codestral|devstral|open-mistral-nemo|ministral-3b-2410|voxtral", name)
    types = ("audio/wav", "audio/mpeg") if name.startswith("voxtral") else () if blind else IMAGES
    yield from _chat_media(request, types, 8)
    for message in request["messages"]:
        for call in message.get("tool_calls", []):
            if not re.fullmatch(r"[a-zA-Z0-9]{9}", call["id"]):
                yield f"the id {call['id']!r} is not legal"
    if "stream_options" in request:
        yield "stream_options are refused"
    if _has_key(request, "reasoning_content") or _has_key(request, "reasoning"):
        yield "reasoning is sent back"


def _compatible(name: str, request: JSON) -> Found:
    yield from _chat_media(request, ("image/png", "image/jpeg"), 1_000)
    for message in request["messages"]:
        if isinstance(message.get("content"), list) and not embedded(message):
            yield "a list of texts alone: several servers want a string"


_CHAT_RULES: dict[str, Callable[[str, JSON], Found]] = {
    "openai-chat": _openai_chat,
    "deepseek": _deepseek,
    "mistral": _mistral,
    "openai-compatible": _compatible,
    "groq": _compatible,
    "xai": _compatible,
}


# Responses ----------------------------------------------------------------------------------------------------


def responses(provider: str, name: str, request: JSON) -> Found:
    items = request["input"]
    if not items:
        yield "there is no input"
    yield from _response_pairs(items)
    for item, following in zip(items, [*items[1:], None], strict=False):
        yield from _response_item(item, following)
    for ref in refs(request, ""):
        if ref.media_type not in (*IMAGES, PDF) or name.startswith("o3-mini"):
            yield f"{ref.media_type} is not taken"
    yield from counted("pictures", len(refs(request, "image/")), 1_500)
    yield from counted("bytes of files", sum(ref.size_bytes for ref in refs(request, PDF)), 50_000_000)
    yield from sized(request, 512_000_000)
    if "temperature" in request and re.match(r"gpt-[56]|o[134]", name):
        yield "a reasoning model takes no temperature"
    sees_results = re.match(r"gpt-(6|5\.[4-9])", name) and not re.match(r"gpt-5\.4-(mini|nano)", name)
    if not sees_results and any(refs(item, "image/") for item in items if item["type"] == "function_call_output"):
        yield "a picture inside an output is not seen by this model"
    if request.get("store") is not False and any(item["type"] == "reasoning" for item in items):
        yield "reasoning is sent to a server that stores"


def _response_pairs(items: list[JSON]) -> Found:
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    outputs = [item["call_id"] for item in items if item["type"] == "function_call_output"]
    yield from twice(calls)
    yield from twice(outputs)
    for missing in sorted(set(calls) - set(outputs)):
        yield f"no tool output found for function call {missing!r}"
    for position, item in enumerate(items):
        if item["type"] == "function_call_output":
            before = [other for other in items[:position] if other["type"] == "function_call"]
            if item["call_id"] not in [other["call_id"] for other in before]:
                yield f"no tool call found for function call output {item['call_id']!r}"


def _response_item(item: JSON, following: JSON | None) -> Found:
    match item["type"]:
        case "message":
            yield from _response_message(item)
        case "function_call":
            if not 0 < len(item["call_id"]) <= 64 or not legal_name(item["name"]):
                yield f"the call {item['call_id'][:80]!r} {item['name']!r} is not legal"
            if not is_object(item["arguments"]):
                yield "a call's arguments are not the text of an object"
            if not item.get("id", "fc_").startswith("fc_"):
                yield f"the item id {item['id']!r} has another prefix"
        case "function_call_output":
            output = item["output"]
            if not output or (isinstance(output, str) and blank(output)):
                yield "an output is empty"
            yield from _input_parts(output)
        case "reasoning":
            if not isinstance(item.get("summary"), list) or not item.get("id", "").startswith("rs_"):
                yield "reasoning lacks its summary or its id"
            if not item.get("encrypted_content") and not item.get("content"):
                yield "reasoning lacks its encrypted content"
            led = following is not None and (
                following["type"] in ("reasoning", "function_call")
                or (following["type"] == "message" and following["role"] == "assistant")
            )
            if not led:
                yield "reasoning is not followed by what it led to"
        case kind:
            yield f"an item of type {kind}"


def _response_message(item: JSON) -> Found:
    content = item["content"]
    if not content:
        yield "a message is empty"
    if item["role"] in ("user", "developer"):
        yield from _input_parts(content)
        if item["role"] == "developer" and any(part["type"] != "input_text" for part in content):
            yield "a developer message holds more than text"
    elif isinstance(content, str):
        if blank(content):
            yield "a text is blank"
    else:
        for part in content:
            if part["type"] not in ("output_text", "refusal"):
                yield f"a {part['type']} stands in an assistant message"
            if part["type"] == "output_text" and "annotations" not in part:
                yield "an output_text has no annotations"
    if not item.get("id", "msg_").startswith("msg_"):
        yield f"the item id {item['id']!r} has another prefix"


def _input_parts(parts: Any) -> Found:
    for part in parts if isinstance(parts, list) else []:
        if part["type"] not in ("input_text", "input_image", "input_file"):
            yield f"a {part['type']} stands in an input"
        if part["type"] == "input_text" and blank(part["text"]):
            yield "a text is blank"
        if part["type"] == "input_file" and refs(part, "") and refs(part, "")[0].media_type != PDF:
            yield "a file is no PDF"
