"""What each platform refuses beyond the shape of a request: order, pairs, ids, emptiness, thinking, media, sizes.

Written from the platforms' documents, not from the catalogue or the compiler, so that both can be held against it. A
request is JSON with `Embedded` media, as an encoder gives it. Opaque data in tests say who made them (`made_by`).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import msgspec

from loom.prompt import Embedded, MediaRef

JSON = dict[str, Any]
Found = Iterator[str]

PRODUCERS = {"bedrock-anthropic": "anthropic", "openai-responses": "openai", "openai-chat": "openai"}
IMAGES = ("image/png", "image/jpeg", "image/webp", "image/gif")
PDF = "application/pdf"
SENTINEL = "skip_thought_signature_validator"
_MADE_BY = re.compile(r"made-by:([^ |]+)\|")


def made_by(producer: str, model: str) -> str:
    """A mark that test data carry in what only their maker may get back."""
    return f"made-by:{producer}/{model}|"


def check(provider: str, name: str, request: JSON) -> list[str]:
    """Every rule that the request breaks; `name` is the model's, as the platform calls it."""
    found = [*_RULES[provider](provider, name, request), *_everywhere(provider, name, request)]
    return list(dict.fromkeys(found))


# For all -------------------------------------------------------------------------------------------------------------


def embedded(value: Any) -> list[Embedded]:
    match value:
        case Embedded():
            return [value]
        case dict():
            return [found for item in value.values() for found in embedded(item)]
        case list():
            return [found for item in value for found in embedded(item)]
        case _:
            return []


def plain(value: Any, stand_in: str = "AAAA") -> Any:
    """The same JSON with a stand-in for every medium."""
    match value:
        case Embedded():
            return value.prefix + stand_in
        case dict():
            return {key: plain(item, stand_in) for key, item in value.items()}
        case list():
            return [plain(item, stand_in) for item in value]
        case _:
            return value


def body_bytes(request: JSON) -> int:
    """How long the body is once every medium is base64."""
    return len(msgspec.json.encode(plain(request, ""))) + sum(found.ref.encoded_bytes for found in embedded(request))


def _everywhere(provider: str, name: str, request: JSON) -> Found:
    own = f"{PRODUCERS.get(provider, provider)}/{name}"
    for text in _strings(request):
        for maker in _MADE_BY.findall(text):
            if maker != own:
                yield f"what {maker} made is sent to {own}"
    for found in embedded(request):
        ref = found.ref
        if found.prefix and found.prefix != f"data:{ref.media_type};base64,":
            yield f"a data URL says {found.prefix!r}, the bytes are {ref.media_type}"
        if ref.size_bytes < 1:
            yield "a medium has no bytes"
    for key, value in _named(request):
        if key in ("title", "filename", "document_name") and (
            not value.strip() or not value.isprintable() or len(value) > 200
        ):
            yield f"{key} is {value[:40]!r}"


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
            if value.isascii() and 24 <= len(value) <= 4_000 and " " not in value:
                with contextlib.suppress(binascii.Error):
                    yield base64.urlsafe_b64decode(value.replace("+", "-").replace("/", "_")).decode("ascii", "ignore")
        case dict():
            for item in value.values():
                yield from _strings(item)
        case list():
            for item in value:
                yield from _strings(item)
        case _:
            pass


def _named(value: Any) -> Iterator[tuple[str, str]]:
    match value:
        case dict():
            for key, item in value.items():
                if isinstance(item, str):
                    yield key, item
                else:
                    yield from _named(item)
        case list():
            for item in value:
                yield from _named(item)
        case _:
            pass


def _blank(text: Any) -> bool:
    return not isinstance(text, str) or not text.strip()


def _legal_name(name: Any) -> bool:
    return isinstance(name, str) and re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) is not None


def _is_object(text: Any) -> bool:
    try:
        return isinstance(text, str) and isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _twice(ids: list[str]) -> Found:
    for repeated in sorted({found for found in ids if ids.count(found) > 1}):
        yield f"the id {repeated!r} is used twice"


def _sized(request: JSON, most: int) -> Found:
    size = body_bytes(request)
    if size > most:
        yield f"the request has {size} bytes, over {most}"


def _counted(kind: str, count: int, most: int) -> Found:
    if count > most:
        yield f"{count} {kind}, over {most}"


def _refs(request: JSON, kind: str) -> list[MediaRef]:
    return [found.ref for found in embedded(request) if found.ref.media_type.startswith(kind)]


# Anthropic, and Claude on Bedrock ------------------------------------------------------------------------------------

_NEVER_OFF = re.compile(r".*claude-((fable|mythos)-5|(opus|sonnet)-5-5)")
_BUDGET = re.compile(r".*claude-(opus|sonnet|haiku)-4-5")
_LARGE = re.compile(r".*claude-((opus|sonnet|haiku|fable|mythos)-5|(opus|sonnet)-4-[678])")
_THOUGHTS = ("thinking", "redacted_thinking")


def _anthropic(provider: str, name: str, request: JSON) -> Found:
    bedrock = provider == "bedrock-anthropic"
    messages = request["messages"]
    yield from _claude_body(name, request, bedrock)
    yield from _claude_roles(messages)
    for message in messages:
        yield from _claude_message(message)
    yield from _claude_pairs(messages, request)
    yield from _claude_thinking(messages, request)
    yield from _claude_media(name, request, bedrock)
    yield from _claude_citations(messages)


def _claude_body(name: str, request: JSON, bedrock: bool) -> Found:
    if bedrock:
        if "model" in request or "stream" in request or "anthropic_version" not in request:
            yield "Bedrock takes anthropic_version, and neither model nor stream"
        if '"file_id"' in json.dumps(plain(request)):
            yield "Bedrock takes no file ids"
    elif any(key in request for key in ("temperature", "top_p", "top_k")):
        yield "sampling parameters are refused from version 2026-10-21 on"
    kind = request.get("thinking", {}).get("type")
    if kind == "enabled":
        if not _BUDGET.match(name) and not re.match(r".*claude-(opus|sonnet)-4-6", name):
            yield "this model takes no thinking budget"
        if not 1_024 <= request["thinking"]["budget_tokens"] < request["max_tokens"]:
            yield "a thinking budget is at least 1024 and less than max_tokens"
    if kind == "adaptive" and _BUDGET.match(name):
        yield "this model takes no adaptive thinking"
    if kind == "disabled" and _NEVER_OFF.match(name):
        yield "this model's thinking cannot be disabled"
    if request.get("tool_choice", {}).get("type") in ("any", "tool") and (kind == "enabled" or _NEVER_OFF.match(name)):
        yield "a call cannot be forced while the model thinks"
    marks = [block for block in _dicts(request) if "cache_control" in block]
    yield from _counted("cache marks", len(marks), 4)
    if any(block.get("type") in _THOUGHTS for block in marks):
        yield "thinking carries a cache mark"
    for tool in request.get("tools", []):
        if not _legal_name(tool["name"]):
            yield f"the tool name {tool['name']!r} is not legal"


def _dicts(value: Any) -> Iterator[JSON]:
    match value:
        case dict():
            yield value
            for item in value.values():
                yield from _dicts(item)
        case list():
            for item in value:
                yield from _dicts(item)
        case _:
            pass


def _claude_roles(messages: list[JSON]) -> Found:
    roles = [message["role"] for message in messages]
    if not roles or roles[0] != "user":
        yield "the first message is not the user's"
    if roles and roles[-1] != "user":
        yield "the last message is the assistant's: a prefill is refused"
    if any(a == b for a, b in pairwise(roles)):
        yield "two messages of one role are neighbours"


_CLAUDE_KINDS = {
    "user": ("text", "image", "document", "tool_result"),
    "assistant": ("text", "tool_use", *_THOUGHTS),
}


def _claude_message(message: JSON) -> Found:
    content = message["content"]
    if not content:
        yield "a message is empty"
    seen_other = False
    for block in content:
        kind = block["type"]
        if kind not in _CLAUDE_KINDS[message["role"]]:
            yield f"a {kind} stands in a message of the {message['role']}"
        if kind == "tool_result":
            if seen_other:
                yield "a tool_result stands behind other content"
            yield from _claude_result(block)
        else:
            seen_other = True
        if kind == "text" and _blank(block["text"]):
            yield "a text is blank"


def _claude_result(block: JSON) -> Found:
    if not block["content"]:
        yield "a tool_result is empty"
    for inner in block["content"]:
        if inner["type"] not in ("text", "image", "document"):
            yield f"a {inner['type']} stands in a tool_result"
        if inner["type"] == "text" and _blank(inner["text"]):
            yield "a text is blank"


def _claude_pairs(messages: list[JSON], request: JSON) -> Found:
    ids: list[str] = []
    asked: list[str] = []
    for message in messages:
        results = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        if sorted(results) != sorted(asked):
            yield f"calls {asked} are answered by results {results}"
        calls = [block for block in message["content"] if block["type"] == "tool_use"]
        asked = [call["id"] for call in calls]
        ids += asked
        for call in calls:
            if not re.fullmatch(r"[a-zA-Z0-9_-]+", call["id"]):
                yield f"the id {call['id']!r} is not legal"
            if not _legal_name(call["name"]):
                yield f"the name {call['name']!r} is not legal"
            if not isinstance(call["input"], dict):
                yield "a call's input is not an object"
    if asked:
        yield f"calls {asked} are not answered"
    yield from _twice(ids)
    if ids and not request.get("tools"):
        yield "there are calls, but no tools are defined"


def _claude_thinking(messages: list[JSON], request: JSON) -> Found:
    for message in messages:
        kinds = [block["type"] for block in message["content"]]
        if any(kind in _THOUGHTS for kind in kinds):
            if kinds[0] not in _THOUGHTS:
                yield "a message with thinking does not begin with it"
            if kinds[-1] in _THOUGHTS:
                yield "thinking is the last block of its message"
        for block in message["content"]:
            if block["type"] == "thinking" and _blank(block["signature"]):
                yield "thinking has no signature"
            if block["type"] == "redacted_thinking" and _blank(block["data"]):
                yield "redacted thinking has no data"
    if request.get("thinking", {}).get("type") == "enabled":
        last = next((message["content"] for message in reversed(messages) if message["role"] == "assistant"), [])
        if any(block["type"] == "tool_use" for block in last) and last[0]["type"] not in _THOUGHTS:
            yield "the last calls do not begin with thinking"


def _claude_media(name: str, request: JSON, bedrock: bool) -> Found:
    large = _LARGE.match(name) is not None
    images, documents = _refs(request, "image/"), _refs(request, PDF)
    most = 5_000_000 if bedrock else 10_000_000
    many = len(images) + (len(documents) if bedrock else 0) > 20
    for ref in images:
        if ref.media_type not in IMAGES:
            yield f"{ref.media_type} is not taken"
        if ref.encoded_bytes > most:
            yield f"a picture has {ref.encoded_bytes} encoded bytes, over {most}"
        if max(ref.width or 0, ref.height or 0) > (2_000 if many else 8_000):
            yield f"a picture has {ref.width}×{ref.height} pixels, with {len(images)} pictures in the request"
    yield from _counted("pictures", len(images), 600 if large else 100)
    yield from _counted("pages", sum(ref.pages or 1 for ref in documents), 600 if large else 100)
    if len(images) + len(documents) != len(embedded(request)):
        yield "a medium is neither picture nor PDF"
    yield from _sized(request, 20_000_000 if bedrock else 32_000_000)


def _claude_citations(messages: list[JSON]) -> Found:
    documents = [block for block in _dicts(messages) if block.get("type") == "document"]
    if len({bool(block.get("citations", {}).get("enabled")) for block in documents}) > 1:
        yield "only some documents may be cited"
    seen = 0
    for message in messages:
        seen += sum(1 for block in _dicts(message) if block.get("type") == "document")
        for block in message["content"]:
            for citation in block.get("citations", []) if block["type"] == "text" else []:
                if message["role"] == "user":
                    yield "a text of the user's has citations"
                if "file_id" in citation:
                    yield "a citation has a file_id"
                if citation.get("document_index", 0) >= seen and "document_index" in citation:
                    yield "a citation names a document that is not there"


# OpenAI Chat Completions, and the servers that speak it --------------------------------------------------------------


def _chat(provider: str, name: str, request: JSON) -> Found:
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
    yield from _twice(ids)


def _chat_message(provider: str, message: JSON) -> Found:
    role, content = message["role"], message.get("content")
    if content == []:
        yield "a content array is empty"
    if role != "assistant" and not content:
        yield f"a {role} message is empty"
    if role == "assistant" and not content and not message.get("tool_calls"):
        yield "an assistant message has neither content nor calls"
    if isinstance(content, str) and role == "user" and _blank(content):
        yield "a text is blank"
    for part in content if isinstance(content, list) else []:
        if part["type"] == "text" and _blank(part["text"]):
            yield "a text is blank"
        if part["type"] != "text" and role == "assistant":
            yield f"a {part['type']} stands in an assistant message"
        if part["type"] != "text" and role == "tool" and provider != "mistral":
            yield f"a {part['type']} stands in a tool message"
        if part["type"] == "file" and not isinstance(part["file"].get("file_data"), Embedded):
            yield "a file has no data"
    for call in message.get("tool_calls", []):
        if not _legal_name(call["function"]["name"]):
            yield f"the name {call['function']['name']!r} is not legal"
        if not _is_object(call["function"]["arguments"]):
            yield "a call's arguments are not the text of an object"


def _chat_media(request: JSON, types: tuple[str, ...], images: int) -> Found:
    refs = [found.ref for found in embedded(request)]
    for ref in refs:
        if ref.media_type not in types:
            yield f"{ref.media_type} is not taken"
    yield from _counted("pictures", sum(1 for ref in refs if ref.media_type.startswith("image/")), images)


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
    files = _refs(request, PDF)
    yield from _counted("bytes of files", sum(ref.size_bytes for ref in files), 50_000_000)
    yield from _sized(request, 512_000_000)
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
    yield from _sized(request, 48 * 1024 * 1024)
    for ref in _refs(request, "image/"):
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
}


# OpenAI Responses ----------------------------------------------------------------------------------------------------


def _responses(provider: str, name: str, request: JSON) -> Found:
    items = request["input"]
    if not items:
        yield "there is no input"
    yield from _response_pairs(items)
    for item, following in zip(items, [*items[1:], None], strict=False):
        yield from _response_item(item, following)
    refs = [found.ref for found in embedded(request)]
    for ref in refs:
        if ref.media_type not in (*IMAGES, PDF) or name.startswith("o3-mini"):
            yield f"{ref.media_type} is not taken"
    yield from _counted("pictures", len(_refs(request, "image/")), 1_500)
    yield from _counted("bytes of files", sum(ref.size_bytes for ref in _refs(request, PDF)), 50_000_000)
    yield from _sized(request, 512_000_000)
    if "temperature" in request and re.match(r"gpt-[56]|o[134]", name):
        yield "a reasoning model takes no temperature"
    sees_results = re.match(r"gpt-(6|5\.[4-9])", name) and not re.match(r"gpt-5\.4-(mini|nano)", name)
    if not sees_results and any(_refs(item, "image/") for item in items if item["type"] == "function_call_output"):
        yield "a picture inside an output is not seen by this model"
    if request.get("store") is not False and any(item["type"] == "reasoning" for item in items):
        yield "reasoning is sent to a server that stores"


def _response_pairs(items: list[JSON]) -> Found:
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    outputs = [item["call_id"] for item in items if item["type"] == "function_call_output"]
    yield from _twice(calls)
    yield from _twice(outputs)
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
            if not 0 < len(item["call_id"]) <= 64 or not _legal_name(item["name"]):
                yield f"the call {item['call_id'][:80]!r} {item['name']!r} is not legal"
            if not _is_object(item["arguments"]):
                yield "a call's arguments are not the text of an object"
            if not item.get("id", "fc_").startswith("fc_"):
                yield f"the item id {item['id']!r} has another prefix"
        case "function_call_output":
            output = item["output"]
            if not output or (isinstance(output, str) and _blank(output)):
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
    if item["role"] == "user":
        yield from _input_parts(content)
    elif isinstance(content, str):
        if _blank(content):
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
        if part["type"] == "input_text" and _blank(part["text"]):
            yield "a text is blank"
        if part["type"] == "input_file" and _refs(part, "") and _refs(part, "")[0].media_type != PDF:
            yield "a file is no PDF"


# Gemini --------------------------------------------------------------------------------------------------------------

_GEMINI_AUDIO = ("audio/wav", "audio/mpeg", "audio/flac", "audio/ogg")
_GEMINI_IMAGES = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif")


def _gemini(provider: str, name: str, request: JSON) -> Found:
    contents = request["contents"]
    old = name.startswith("gemini-2.5")
    roles = [content["role"] for content in contents]
    if not roles or roles[-1] != "user" or roles[0] != "user":
        yield "the conversation does not begin and end with the user"
    if set(roles) - {"user", "model"}:
        yield "a role is neither user nor model"
    for content in contents:
        yield from _gemini_parts(content, old)
    yield from _gemini_pairs(contents)
    for ref in (found.ref for found in embedded(request)):
        if ref.media_type not in (*_GEMINI_IMAGES, *_GEMINI_AUDIO, PDF):
            yield f"{ref.media_type} is not taken"
        if ref.media_type == PDF and ref.size_bytes > 50_000_000:
            yield "a PDF has more than 50 MB"
    yield from _counted("pages", sum(ref.pages or 1 for ref in _refs(request, PDF)), 1_000)
    yield from _counted("pictures", len(_refs(request, "image/")), 3_000)
    yield from _sized(request, 100_000_000)
    wish = request.get("generationConfig", {}).get("thinkingConfig", {})
    if ("thinkingLevel" in wish and old) or ("thinkingBudget" in wish and not old):
        yield "thinking is asked for in another generation's words"


def _gemini_parts(content: JSON, old: bool) -> Found:
    if not content["parts"]:
        yield "parts are empty"
    for part in content["parts"]:
        fields = [key for key in part if key in ("text", "inlineData", "fileData", "functionCall", "functionResponse")]
        if len(fields) != 1:
            yield f"a part has the fields {fields}"
        signed = bool(part.get("thoughtSignature"))
        if part.get("text") is not None and _blank(part["text"]) and not signed:
            yield "a text is blank"
        if part.get("thought") and not signed:
            yield "a summary of thoughts is sent back"
        if "inlineData" in part and content["role"] == "model":
            yield "a medium stands on the model's side"
        if "functionResponse" in part:
            yield from _gemini_response(part["functionResponse"], content["role"], old)
    calls = [part for part in content["parts"] if "functionCall" in part]
    if calls and not calls[0].get("thoughtSignature") and not old:
        yield "Function call is missing a thought_signature"
    for part in calls:
        if content["role"] != "model" or not isinstance(part["functionCall"]["args"], dict):
            yield "a call is not the model's, or its args are not an object"
        if not re.fullmatch(r"[a-zA-Z0-9_.:-]{1,64}", part["functionCall"]["name"]):
            yield f"the name {part['functionCall']['name']!r} is not legal"


def _gemini_response(response: JSON, role: str, old: bool) -> Found:
    if role != "user" or not isinstance(response["response"], dict):
        yield "a response is not the user's, or is not an object"
    if response.get("parts") and old:
        yield "Multimodal function responses are not supported for this model"
    if any(ref.media_type not in ("image/png", "image/jpeg", "image/webp", PDF) for ref in _refs(response, "")):
        yield "a response holds a medium that only a user may send"


def _gemini_pairs(contents: list[JSON]) -> Found:
    asked: list[tuple[str, str | None]] = []
    for before, content in zip([None, *contents], contents, strict=False):
        responses = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
        if [(found["name"], found.get("id")) for found in responses] != asked:
            yield f"calls {asked} are answered by {[(found['name'], found.get('id')) for found in responses]}"
        if any("functionResponse" in part for part in content["parts"][len(responses) :]):
            yield "a response stands behind other parts"
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        asked = [(call["name"], call.get("id")) for call in calls]
        if asked and (before is None or before["role"] != "user"):
            yield "a call does not follow the user"
    if asked:
        yield f"calls {asked} are not answered"


# Ollama --------------------------------------------------------------------------------------------------------------


def _ollama(provider: str, name: str, request: JSON) -> Found:
    messages = request["messages"]
    if messages[-1]["role"] == "assistant":
        yield "the last message is the assistant's"
    waiting: list[str] = []
    for message in messages:
        yield from _ollama_message(message)
        if message["role"] == "tool":
            if not waiting or message["tool_name"] != waiting.pop(0):
                yield "a result does not answer the next call"
            continue
        if waiting:
            yield f"calls {waiting} are not answered"
        waiting = [call["function"]["name"] for call in message.get("tool_calls", [])]
    if waiting:
        yield f"calls {waiting} are not answered"
    for ref in (found.ref for found in embedded(request)):
        if ref.media_type not in ("image/png", "image/jpeg"):
            yield f"{ref.media_type} is not taken"
    if request.get("truncate") is not False or "num_ctx" not in request["options"]:
        yield "the server may drop the oldest messages in silence"


def _ollama_message(message: JSON) -> Found:
    if message["role"] not in ("system", "user", "assistant", "tool"):
        yield f"the role {message['role']}"
    if not isinstance(message["content"], str):
        yield "content is not a string"
    if any(not isinstance(image, Embedded) or image.prefix for image in message.get("images", [])):
        yield "a picture is not plain base64"
    if message.get("images") and message["role"] != "user":
        yield "pictures stand where only some templates show them"
    if message["role"] == "user" and _blank(message["content"]) and not message.get("images"):
        yield "a message is empty"
    if any(not isinstance(call["function"]["arguments"], dict) for call in message.get("tool_calls", [])):
        yield "a call's arguments are not an object"


_RULES: dict[str, Callable[[str, str, JSON], Found]] = {
    "anthropic": _anthropic,
    "bedrock-anthropic": _anthropic,
    "openai-responses": _responses,
    "openai-chat": _chat,
    "gemini": _gemini,
    "ollama": _ollama,
    "deepseek": _chat,
    "mistral": _chat,
    "openai-compatible": _chat,
}
