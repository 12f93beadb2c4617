"""Check the original blocks of a message against the fields that their protocol requires.

Only known block types are checked; unknown blocks and fields are sent back to their provider unchanged. The provider
would refuse a known block without its required fields, so such a message is compiled instead of sent back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from loom.content.json_values import get_list, get_object, get_text

_FieldTypes: TypeAlias = Mapping[str, type | tuple[type, ...]]

_ANTHROPIC: Final[Mapping[str, _FieldTypes]] = {
    "text": {"text": str},
    "image": {"source": dict},
    "document": {"source": dict},
    "search_result": {"source": str, "title": str, "content": list},
    "tool_use": {"id": str, "name": str, "input": dict},
    "tool_result": {"tool_use_id": str},
    "thinking": {"thinking": str, "signature": str},
    "redacted_thinking": {"data": str},
    "server_tool_use": {"id": str, "name": str, "input": dict},
}
_CHAT: Final[Mapping[str, _FieldTypes]] = {
    "text": {"text": str},
    "image_url": {"image_url": dict},
    "input_audio": {"input_audio": dict},
    "file": {"file": dict},
    "refusal": {"refusal": str},
}
_RESPONSES: Final[Mapping[str, _FieldTypes]] = {
    "input_text": {"text": str},
    "output_text": {"text": str},
    "refusal": {"refusal": str},
    "function_call": {"call_id": str, "name": str, "arguments": str},
    "function_call_output": {"call_id": str, "output": (str, list)},
    "reasoning": {"summary": list},
}
_GEMINI: Final[_FieldTypes] = {
    "text": str,
    "inlineData": dict,
    "fileData": dict,
    "functionCall": dict,
    "functionResponse": dict,
    "executableCode": dict,
    "codeExecutionResult": dict,
}
_CHAT_MEDIA: Final = {"image_url": ("url",), "input_audio": ("data",), "file": ("file_data", "file_id")}
"""A media part of Chat Completions needs one of these fields."""
_OLLAMA: Final = ("images", "tool_name")
"""Message fields of Ollama that Chat Completions refuses."""


def is_legal_item(item: Mapping[str, Any], protocol: str) -> bool:
    """Return whether all known blocks of a message or item have the fields that the protocol requires."""
    if protocol == "gemini":
        parts = [get_object(part) for part in get_list(item.get("parts"))]
        return all(isinstance(part[name], kind) for part in parts for name, kind in _GEMINI.items() if name in part)
    if protocol == "openai_chat":
        return _is_chat_message(item)
    known = _ANTHROPIC if protocol == "anthropic" else _RESPONSES
    if protocol == "openai_responses" and not get_text(item.get("role")) and not _has_fields(item, known):
        return False
    return _are_blocks(item.get("content"), known)


def _are_blocks(content: Any, known: Mapping[str, _FieldTypes]) -> bool:
    """Return whether content is a text, nothing, or valid blocks, including those inside results."""
    if not isinstance(content, list):
        return True
    for part in get_list(content):
        block = get_object(part)
        if not get_text(block.get("type")) or not _has_fields(block, known):
            return False
        if block["type"] == "tool_result" and "content" in block:
            inner = block["content"]
            if not isinstance(inner, str | list) or not _are_blocks(inner, known):
                return False
    return True


def _has_fields(block: Mapping[str, Any], known: Mapping[str, _FieldTypes]) -> bool:
    required = known.get(get_text(block.get("type")), {})
    return all(isinstance(block.get(name), kind) for name, kind in required.items())


def _is_chat_message(message: Mapping[str, Any]) -> bool:
    if any(name in message for name in _OLLAMA) or not _are_blocks(message.get("content"), _CHAT):
        return False
    parts = [get_object(part) for part in get_list(message.get("content"))]
    return all(map(_is_chat_part, parts)) and all(map(_is_chat_call, get_list(message.get("tool_calls"))))


def _is_chat_part(part: Mapping[str, Any]) -> bool:
    kind = get_text(part.get("type"))
    names = _CHAT_MEDIA.get(kind)
    return names is None or any(get_text(get_object(part[kind]).get(name)) for name in names)


def _is_chat_call(call: Any) -> bool:
    fields = get_object(call)
    if fields.get("type") not in (None, "function"):
        return bool(get_text(fields.get("type")))
    function = get_object(fields.get("function"))
    is_named = bool(get_text(fields.get("id")) and get_text(function.get("name")) and "type" in fields)
    return is_named and _is_object_text(function.get("arguments"))


def _is_object_text(text: Any) -> bool:
    try:
        return isinstance(text, str) and isinstance(json.loads(text), dict)
    except ValueError:
        return False
