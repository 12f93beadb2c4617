"""Convert tool calls of every format. Arguments are kept parsed, or as raw text if they are not a JSON object."""

from __future__ import annotations

from typing import Any

from loom.content.blocks import ToolCall, check_json
from loom.content.json_values import first_ident, first_text, get_object, get_text, json_text, parse_json, sanitize_json
from loom.errors import ContentError
from loom.importers.reader import FoundBlock, LegacyReader

_ARGUMENTS = ("arguments", "input", "args", "parameters")


def read_call(block: dict[str, Any], reading: LegacyReader) -> list[FoundBlock]:
    """Read an entry of `tool_calls`, a `tool_use`, `toolUse`, `function_call` or `functionCall`, or a call of an older
    Loom. The text of a freeform tool becomes its only argument, `input`; a namespace becomes part of the name.
    """
    inner = next((found for key in ("function", "custom") if (found := get_object(block.get(key)))), block)
    value = next((inner[key] for key in _ARGUMENTS if inner.get(key) is not None), None)
    is_freeform = isinstance(value, str) and (block.get("type") == "custom_tool_call" or "custom" in block)
    arguments, raw = ({"input": value}, None) if is_freeform else read_arguments(value)
    namespace = get_text(block.get("namespace"))
    name = first_text(inner, "name") or first_text(block, "name") or "unknown"
    call_id = first_ident(block, "call_id", "toolUseId", "id") or reading.mint("call")
    return [
        ToolCall(
            id=call_id,
            name=f"{namespace}__{name}" if namespace else name,
            arguments=arguments,
            raw_arguments=raw,
            opaque=_opaque(block, reading),
        )
    ]


def read_arguments(value: Any) -> tuple[dict[str, Any], str | None]:
    """Return the parsed arguments and None, or an empty dict and the raw text if they are not a JSON object."""
    if isinstance(value, dict):
        return _as_arguments(get_object(value)), None
    if value is None or (isinstance(value, str) and not value.strip()):
        return {}, None
    if not isinstance(value, str):
        return {}, json_text(value)
    if value.strip() == "null":
        return {}, None
    found = parse_json(value)
    try:
        check_json(found, "arguments")
    except ContentError:
        return {}, value
    return (get_object(found), None) if isinstance(found, dict) else ({}, value)


def _as_arguments(value: dict[str, Any]) -> dict[str, Any]:
    try:
        return check_json(value, "arguments")
    except ContentError:
        return sanitize_json(value)


def _opaque(block: dict[str, Any], reading: LegacyReader) -> Any:
    """Return provider data of a call that must be sent back: Gemini's signature in a chat message, or OpenAI's item
    id."""
    google = get_object(get_object(block.get("extra_content")).get("google"))
    if signature := get_text(google.get("thought_signature")):
        return reading.opaque("gemini", {"thoughtSignature": signature})
    if (
        block.get("type") == "function_call"
        and get_text(block.get("call_id"))
        and (item_id := get_text(block.get("id")))
    ):
        return reading.opaque("openai", {"id": item_id})
    return None
