"""What Anthropic refuses, and Claude on Bedrock."""

from __future__ import annotations

import json
import re
from itertools import pairwise

from wire.rules_common import (
    IMAGES,
    JSON,
    PDF,
    Found,
    blank,
    counted,
    dicts,
    embedded,
    legal_name,
    plain,
    refs,
    sized,
    twice,
)

_NEVER_OFF = re.compile(r".*claude-((fable|mythos)-5|(opus|sonnet)-5-5)")
_BUDGET = re.compile(r".*claude-(opus|sonnet|haiku)-4-5")
_LARGE = re.compile(r".*claude-((opus|sonnet|haiku|fable|mythos)-5|(opus|sonnet)-4-[678])")
_THOUGHTS = ("thinking", "redacted_thinking")


def anthropic(provider: str, name: str, request: JSON) -> Found:
    bedrock = provider == "bedrock-anthropic"
    messages = [_with_blocks(message) for message in request["messages"]]
    yield from _claude_body(name, request, bedrock)
    yield from _claude_roles(messages)
    for message in messages:
        yield from _claude_message(message)
    yield from _claude_pairs(messages, request, 64 if bedrock else 128)
    yield from _claude_server_pairs(messages, bedrock)
    yield from _claude_thinking(messages, request)
    yield from _claude_media(name, request, bedrock)
    yield from _claude_citations(messages)


def _with_blocks(holder: JSON) -> JSON:
    """A message or a result: a text stands for a list of one, and a result may have no content at all."""
    content = holder.get("content")
    if isinstance(content, str):
        return {**holder, "content": [{"type": "text", "text": content}]}
    if not isinstance(content, list):
        return holder
    return {**holder, "content": [_with_blocks(b) if b.get("type") == "tool_result" else b for b in content]}


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
    marks = [block for block in dicts(request) if "cache_control" in block]
    yield from counted("cache marks", len(marks), 4)
    if any(block.get("type") in _THOUGHTS for block in marks):
        yield "thinking carries a cache mark"
    for tool in request.get("tools", []):
        if not legal_name(tool["name"], 64 if bedrock else 128):
            yield f"the tool name {tool['name']!r} is not legal"


def _claude_roles(messages: list[JSON]) -> Found:
    every = [message["role"] for message in messages]
    for at, role in enumerate(every):
        if role == "system" and (
            at == 0 or every[at - 1] != "user" or every[at + 1 : at + 2] not in ([], ["assistant"])
        ):
            yield "a system message does not end a user's turn"
    roles = [role for role in every if role != "system"]
    if not roles or roles[0] != "user":
        yield "the first message is not the user's"
    if roles and roles[-1] != "user":
        yield "the last message is the assistant's: a prefill is refused"
    if any(a == b for a, b in pairwise(roles)):
        yield "two messages of one role are neighbours"


_SERVER_RESULTS = {
    "web_search_tool_result": ("web_search",),
    "web_fetch_tool_result": ("web_fetch",),
    "code_execution_tool_result": ("code_execution",),
    "bash_code_execution_tool_result": ("bash_code_execution",),
    "text_editor_code_execution_tool_result": ("text_editor_code_execution",),
    "tool_search_tool_result": ("tool_search_tool_regex", "tool_search_tool_bm25"),
}
_CLAUDE_KINDS = {
    "system": ("text",),
    "user": ("text", "image", "document", "search_result", "tool_result"),
    "assistant": ("text", "tool_use", "server_tool_use", *_SERVER_RESULTS, *_THOUGHTS),
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
        if kind == "text" and blank(block["text"]):
            yield "a text is blank"


def _claude_result(block: JSON) -> Found:
    if not block["content"]:
        yield "a tool_result is empty"
    for inner in block["content"]:
        if inner["type"] not in ("text", "image", "document"):
            yield f"a {inner['type']} stands in a tool_result"
        if inner["type"] == "text" and blank(inner["text"]):
            yield "a text is blank"


def _claude_pairs(messages: list[JSON], request: JSON, most: int) -> Found:
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
            if not legal_name(call["name"], most):
                yield f"the name {call['name']!r} is not legal"
            if not isinstance(call["input"], dict):
                yield "a call's input is not an object"
    if asked:
        yield f"calls {asked} are not answered"
    yield from twice(ids)
    if ids and not request.get("tools"):
        yield "there are calls, but no tools are defined"


def _claude_server_pairs(messages: list[JSON], bedrock: bool) -> Found:
    """A call that the platform ran has its result behind it, in the same message; the last message may wait for it."""
    ids: list[str] = []
    for message in messages:
        waiting: dict[str, str] = {}
        for block in message["content"]:
            kind = block["type"]
            if bedrock and (kind == "server_tool_use" or kind in _SERVER_RESULTS):
                yield f"Bedrock takes no {kind}"
            if kind == "server_tool_use":
                ids.append(block.get("id", ""))
                waiting[ids[-1]] = block.get("name", "")
                if not re.fullmatch(r"srvtoolu_[a-zA-Z0-9_]+", ids[-1]):
                    yield f"the id {ids[-1]!r} is not legal"
            elif kind in _SERVER_RESULTS:
                name = waiting.pop(block.get("tool_use_id", ""), None)
                if name not in _SERVER_RESULTS[kind]:
                    yield f"a {kind} answers {name!r}"
        if waiting and message is not messages[-1]:
            yield f"calls {sorted(waiting)} of the platform's tools have no results"
    yield from twice(ids)


def _claude_thinking(messages: list[JSON], request: JSON) -> Found:
    for message in messages:
        kinds = [block["type"] for block in message["content"]]
        if any(kind in _THOUGHTS for kind in kinds):
            if kinds[0] not in _THOUGHTS:
                yield "a message with thinking does not begin with it"
            if kinds[-1] in _THOUGHTS:
                yield "thinking is the last block of its message"
        for block in message["content"]:
            if block["type"] == "thinking" and blank(block["signature"]):
                yield "thinking has no signature"
            if block["type"] == "redacted_thinking" and blank(block["data"]):
                yield "redacted thinking has no data"
    if request.get("thinking", {}).get("type") == "enabled":
        last = next((message["content"] for message in reversed(messages) if message["role"] == "assistant"), [])
        if any(block["type"] == "tool_use" for block in last) and last[0]["type"] not in _THOUGHTS:
            yield "the last calls do not begin with thinking"


def _claude_media(name: str, request: JSON, bedrock: bool) -> Found:
    large = _LARGE.match(name) is not None
    images, documents = refs(request, "image/"), refs(request, PDF)
    most = 5_000_000 if bedrock else 10_000_000
    many = len(images) + (len(documents) if bedrock else 0) > 20
    for ref in images:
        if ref.media_type not in IMAGES:
            yield f"{ref.media_type} is not taken"
        if ref.encoded_bytes > most:
            yield f"a picture has {ref.encoded_bytes} encoded bytes, over {most}"
        if max(ref.width or 0, ref.height or 0) > (2_000 if many else 8_000):
            yield f"a picture has {ref.width}×{ref.height} pixels, with {len(images)} pictures in the request"
    yield from counted("pictures", len(images), 600 if large else 100)
    yield from counted("pages", sum(ref.pages or 1 for ref in documents), 600 if large else 100)
    if len(images) + len(documents) != len(embedded(request)):
        yield "a medium is neither picture nor PDF"
    yield from sized(request, 20_000_000 if bedrock else 32_000_000)


def _claude_citations(messages: list[JSON]) -> Found:
    documents = [block for block in dicts(messages) if block.get("type") == "document"]
    if len({bool(block.get("citations", {}).get("enabled")) for block in documents}) > 1:
        yield "only some documents may be cited"
    seen = 0
    for message in messages:
        seen += sum(1 for block in dicts(message) if block.get("type") == "document")
        for block in message["content"]:
            for citation in block.get("citations", []) if block["type"] == "text" else []:
                if message["role"] == "user":
                    yield "a text of the user's has citations"
                if "file_id" in citation:
                    yield "a citation has a file_id"
                if citation.get("document_index", 0) >= seen and "document_index" in citation:
                    yield "a citation names a document that is not there"
