"""Convert blocks of every format. Only structural positions are read: a string that looks like a block stays text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias, cast

from loom.content.blocks import (
    KNOWN_TYPES,
    NO_OUTPUT,
    AudioBlock,
    Block,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    UnknownBlock,
    VideoBlock,
)
from loom.content.codec import VERSION, decode_message
from loom.content.encoded import may_hold_bytes
from loom.content.json_values import (
    first_ident,
    first_text,
    get_list,
    get_object,
    get_text,
    json_text,
    parse_json,
    sanitize_json,
)
from loom.content.media_kinds import kind_word
from loom.content.messages import text_of
from loom.content.nested_media import store_data_url, store_nested_media
from loom.errors import ContentError
from loom.importers.calls import read_call
from loom.importers.media import read_legacy_media
from loom.importers.provider_data import (
    read_bedrock_reasoning,
    read_citations,
    read_reasoning,
    read_redacted,
    read_thinking,
    sign,
)
from loom.importers.reader import FoundBlock, FoundResult, LegacyReader

BlockReader: TypeAlias = Callable[[dict[str, Any], LegacyReader], list[FoundBlock]]

_MAX_NESTING: Final = 12
_ENVELOPE: Final = ("success", "output", "content_blocks", "error")
_TEXT_TYPES: Final = ("text", "input_text", "output_text")
_TEXT_KEYS: Final = frozenset(
    ("type", "text", "citations", "opaque", "annotations", "cache_control", "logprobs", "thought", "index", "_meta")
)


def read_blocks(content: Any, reading: LegacyReader) -> list[FoundBlock]:
    """Read content of any format: a string, a block, or a list of these."""
    if reading.depth >= _MAX_NESTING:
        return _text(json_text(content))
    reading.depth += 1
    try:
        return [block for item in get_list(content) for block in _read_one(item, reading)]
    finally:
        reading.depth -= 1


def read_block(block: dict[str, Any], reading: LegacyReader) -> list[FoundBlock]:
    kind = block.get("type")
    if (own := _decode_own(block)) is not None:
        return [own]
    if isinstance(kind, str) and kind in _BY_TYPE:
        return _BY_TYPE[kind](block, reading)
    if kind is None:
        for key, reader in _BY_KEY.items():
            if isinstance(block.get(key), str if key in ("text", "source_path") else dict):
                return sign(reader(block, reading), block, reading)
        if not block or block.get("cachePoint"):
            return []
    return _unknown_block(block, reading)


def as_content(found: Iterable[FoundBlock], reading: LegacyReader) -> list[ContentBlock]:
    """Return the blocks that a user message or tool result may contain; other blocks become text."""
    blocks: list[ContentBlock] = []
    for block in found:
        match block:
            case ThinkingBlock():
                blocks.extend(_text(block.text))
            case ToolCall():
                reading.note(f"the call {block.id!r} is not allowed there; it was kept as text")
                blocks.append(TextBlock(f"[{block.id}] {text_of(block)}"))
            case FoundResult():
                blocks.extend((TextBlock(f"[tool result {block.call_id}]"), *block.blocks))
            case _:
                blocks.append(block)
    return blocks


def result_of(
    call_id: str, name: str, content: Any, reading: LegacyReader, *, is_error: bool, more: Sequence[ContentBlock] = ()
) -> FoundResult:
    """Return a tool result from its content in any format, followed by `more` blocks."""
    blocks, failed = _result_blocks(content, reading)
    return FoundResult(call_id, (*blocks, *more) or (TextBlock(NO_OUTPUT),), name, is_error or failed)


def are_encoded_blocks(blocks: Any) -> bool:
    """Return whether these look like blocks that Loom's codec wrote: objects with a type, also inside results."""
    return isinstance(blocks, list) and all(
        isinstance(get_object(block).get("type"), str)
        and (get_object(block)["type"] != "tool_result" or are_encoded_blocks(get_object(block).get("blocks")))
        for block in get_list(blocks)
    )


def found_block(block: Block) -> FoundBlock:
    if isinstance(block, ToolResult):
        return FoundResult(block.call_id, block.blocks, block.name, block.is_error, block.data)
    return block


def is_known_type(kind: Any) -> bool:
    """Return whether a `type` is that of a block in a known format."""
    return isinstance(kind, str) and kind in _BY_TYPE


def _read_one(item: Any, reading: LegacyReader) -> list[FoundBlock]:
    match item:
        case str():
            return _text(item)
        case dict():
            return read_block(cast("dict[str, Any]", item), reading)
        case list():
            return read_blocks(item, reading)
        case None:
            return []
        case _:
            return _text(json_text(item))


def _text(text: str) -> list[Any]:
    return [TextBlock(text)] if text.strip() else []


def _decode_own(block: dict[str, Any]) -> FoundBlock | None:
    """Decode a block in today's format within an older message; return None if it is not one."""
    kind = block.get("type")
    fields = _OWN_FIELDS.get(kind) if isinstance(kind, str) else None
    if (
        fields is None
        or not fields.issuperset(block)
        or not _is_format_specific(block)
        or not are_encoded_blocks([block])
    ):
        return None
    role = "tool" if kind == "tool_result" else "assistant"
    try:
        message = decode_message(json_text({"v": VERSION, "role": role, "blocks": [block]}))
    except ContentError:
        return None
    return found_block(message.blocks[0])


def _is_format_specific(block: dict[str, Any]) -> bool:
    """Return whether a block differs from the same block in other formats. Plain text does not, unless it has opaque
    data or citations in Loom's format, which have no type."""
    if block["type"] != "text" or "opaque" in block:
        return True
    citations = block.get("citations")
    return isinstance(citations, list) and all("type" not in get_object(item) for item in get_list(citations))


def _read_text(block: dict[str, Any], reading: LegacyReader) -> list[FoundBlock]:
    value = block.get("text", block.get("refusal"))
    inner = get_object(value)
    text = get_text(value) or first_text(inner, "value")
    if not text:
        return [] if value is None or isinstance(value, str) else _text(json_text(value))
    if block.get("thought") is True:
        return [ThinkingBlock(text)]
    cited = block.get("citations") if isinstance(block.get("citations"), list) else None
    notes = block.get("annotations") or inner.get("annotations")
    return [TextBlock(text, read_citations(cited, "anthropic", reading) + read_citations(notes, "openai", reading))]


def _media(kind: str, *inner_keys: str) -> BlockReader:
    """Return a reader of media whose fields may be in an inner object (`image_url`, `inlineData`, …)."""

    def read(block: dict[str, Any], reading: LegacyReader) -> list[FoundBlock]:
        facts = block
        for key in inner_keys:
            facts = {**facts, **get_object(block.get(key))}
        word = kind or kind_word(first_text(facts, "mimeType", "mime_type", "media_type"))
        found = _text_source(word, facts, reading) or [*read_legacy_media(word, facts, reading)]
        return found or _unknown_block(block, reading)

    return read


def _text_source(kind: str, block: dict[str, Any], reading: LegacyReader) -> list[FoundBlock]:
    """Read a document that is given as text: Anthropic's text and content sources, Bedrock's, MCP's resources. Return
    an empty list if it is not."""
    source = get_object(block.get("source"))
    content = source.get("text") or source.get("content")
    found = read_blocks(source.get("data") if source.get("type") == "text" else content, reading)
    if not found:
        return []
    title = first_text(block, "title", "name")
    head = f"[{kind}: {title}]" if title else f"[{kind}]"
    return [*_text("\n".join(text for text in (head, get_text(block.get("context"))) if text)), *found]


def _read_search_result(block: dict[str, Any], reading: LegacyReader) -> list[FoundBlock]:
    facts = ", ".join(text for key in ("title", "source") if (text := get_text(block.get(key))))
    return [*_text(f"[search result: {facts}]" if facts else ""), *read_blocks(block.get("content"), reading)]


def _read_resource(block: dict[str, Any], reading: LegacyReader) -> list[FoundBlock]:
    inner = get_object(block.get("resource"))
    if text := get_text(inner.get("text")):
        uri = get_text(inner.get("uri"))
        return [*_text(f"[resource: {uri}]" if uri else ""), TextBlock(text)]
    return [*read_legacy_media(kind_word(first_text(inner, "mimeType")), inner, reading)] or _unknown_block(
        block, reading
    )


def _read_result(block: dict[str, Any], reading: LegacyReader) -> list[FoundBlock]:
    """Read a `tool_result`, `toolResult` or `function_call_output`."""
    inner = get_object(block.get("toolResult")) or block
    content = next((inner[key] for key in ("content", "output", "blocks") if inner.get(key) is not None), None)
    failed = inner.get("is_error") is True or inner.get("status") == "error"
    call_id = first_ident(inner, "tool_use_id", "toolUseId", "call_id", "tool_call_id")
    return [result_of(call_id, get_text(inner.get("name")), content, reading, is_error=failed)]


def _read_function_response(block: dict[str, Any], reading: LegacyReader) -> list[FoundBlock]:
    """Read Gemini's `functionResponse`. The response is an object; a single `output`, `result` or `error` key is a
    convention for a plain value."""
    inner = get_object(block.get("functionResponse")) or get_object(block.get("function_response"))
    answer = get_object(inner.get("response")) or inner.get("response")
    sole = next((key for key in ("output", "result", "error") if list(get_object(answer)) == [key]), "")
    output, failed = _result_value(get_object(answer)[sole] if sole else answer, reading)
    parts, _ = _result_blocks(inner.get("parts"), reading)
    blocks = (*output, *parts) or (TextBlock(NO_OUTPUT),)
    call_id = first_ident(inner, "id", "call_id")
    return [FoundResult(call_id, blocks, get_text(inner.get("name")), failed or sole == "error")]


def _read_cited(block: dict[str, Any], reading: LegacyReader) -> list[FoundBlock]:
    """Read Bedrock's `citationsContent`: pieces of text, with citations for all of them."""
    inner = get_object(block.get("citationsContent"))
    pieces = (get_object(item).get("text") for item in get_list(inner.get("content")))
    text = "".join(piece for piece in pieces if isinstance(piece, str))
    return [TextBlock(text, read_citations(inner.get("citations"), "bedrock", reading))] if text.strip() else []


def _inner_call(key: str) -> BlockReader:
    return lambda block, reading: read_call(get_object(block.get(key)), reading)


def _inner_text(outer: str, key: str) -> BlockReader:
    return lambda block, _: _text(get_text(get_object(block.get(outer)).get(key)))


def _unknown_block(block: dict[str, Any], reading: LegacyReader) -> list[FoundBlock]:
    """Return a block of an unknown type as its text if it has one and no id, else as an `UnknownBlock`. Bytes in it are
    stored and replaced."""
    plain, lifted = store_nested_media(block, reading.lift, reading.note)
    kind = block.get("type")
    is_new = isinstance(kind, str) and kind != "" and kind not in KNOWN_TYPES
    text = first_text(block, "text", "content")
    if text and not (is_new and first_ident(block, "id", "tool_use_id", "call_id")):
        reading.note(f"a block of type {str(kind)[:80]!r} was imported as text")
        return [TextBlock(text), *lifted]
    if is_new:
        return [UnknownBlock(sanitize_json(plain)), *lifted]
    return [*_text(json_text(plain)), *lifted]


def _result_blocks(content: Any, reading: LegacyReader) -> tuple[list[ContentBlock], bool]:
    """Return the blocks of a tool result, and whether they report a failure."""
    blocks: list[ContentBlock] = []
    failed = False
    for item in get_list(content):
        text, block = get_text(item), get_object(item)
        if block.get("type", "text") in _TEXT_TYPES and not set(block) - {"type", "text"}:
            text = text or get_text(block.get("text"))
        if text:
            found, bad = _result_text(text, reading)
        elif isinstance(item, dict) and not _is_block(block):
            found, bad = _result_value(block["json"] if set(block) == {"json"} else block, reading)
        else:
            found, bad = [*as_content(read_blocks(item, reading), reading), *_extra_fields(block, reading)], False
        blocks.extend(found)
        failed = failed or bad
    return blocks, failed


def _extra_fields(block: dict[str, Any], reading: LegacyReader) -> list[ContentBlock]:
    """Return the fields of a text block that are part of no protocol, as JSON text."""
    if block.get("type") not in _TEXT_TYPES:
        return []
    rest = {key: value for key, value in block.items() if key not in _TEXT_KEYS and value not in (None, "", [], {})}
    return _result_value(rest, reading)[0]


def _is_block(item: dict[str, Any]) -> bool:
    """Return whether a dict in a result is a block, not JSON that the tool returned."""
    if "type" in item:
        return is_known_type(item["type"])
    return any("source" in get_object(item.get(key)) for key in ("image", "document", "audio", "video")) or any(
        "data" in get_object(item.get(key)) or "fileUri" in get_object(item.get(key))
        for key in ("inlineData", "inline_data", "fileData")
    )


def _result_text(text: str, reading: LegacyReader) -> tuple[list[ContentBlock], bool]:
    """Return the blocks for a tool's text, and whether it reports a failure. Bytes in it are stored, and JSON in Loom's
    old result format is converted; any other text stays unchanged."""
    if (lifted := store_data_url(text, reading.lift, reading.note)) is not None:
        return [lifted], False
    is_worth_parsing = may_hold_bytes(text) or '"success"' in text or '"content_blocks"' in text
    value = sanitize_json(parse_json(text)) if is_worth_parsing and text.lstrip()[:1] in ("{", "[") else None
    if value is None:
        return [TextBlock(text)], False
    found, failed = _result_value(value, reading)
    is_same = len(found) == 1 and found[0] == TextBlock(json_text(value))
    return ([TextBlock(text)], failed) if is_same else (found, failed)


def _result_value(value: Any, reading: LegacyReader) -> tuple[list[ContentBlock], bool]:
    """Return the blocks for a tool's JSON value, and whether it reports a failure: Loom's old result object, or any
    other JSON, with media in it stored and replaced."""
    if value is None or value == {}:
        return [], False
    if isinstance(value, str):
        return _result_text(value, reading) if value.strip() else ([], False)
    facts = get_object(value)
    has_outcome = isinstance(facts.get("success"), bool) and ("output" in facts or "error" in facts)
    if has_outcome or isinstance(facts.get("content_blocks"), list):
        return _old_result(facts, reading)
    plain, lifted = store_nested_media(value, reading.lift, reading.note)
    return [TextBlock(json_text(plain)), *lifted], False


def _old_result(facts: dict[str, Any], reading: LegacyReader) -> tuple[list[ContentBlock], bool]:
    """Read `{"success":…, "output":…, "content_blocks":[…], "error":…}`; other keys are kept as JSON text."""
    output, _ = _result_value(facts.get("output"), reading)
    shown = as_content(read_blocks(facts.get("content_blocks"), reading), reading)
    error, _ = _result_value(facts.get("error"), reading)
    rest = {key: value for key, value in facts.items() if key not in _ENVELOPE and value not in (None, "", [], {})}
    more, _ = _result_value(rest, reading)
    success = facts.get("success")
    failed = not success if isinstance(success, bool) else bool(error)
    return [*(block for block in output if block not in shown), *shown, *error, *more], failed


_OWN_FIELDS: Final = {
    "text": frozenset({"type", *TextBlock.__struct_fields__}),
    "image": frozenset({"type", *ImageBlock.__struct_fields__}),
    "document": frozenset({"type", *DocumentBlock.__struct_fields__}),
    "audio": frozenset({"type", *AudioBlock.__struct_fields__}),
    "video": frozenset({"type", *VideoBlock.__struct_fields__}),
    "thinking": frozenset({"type", *ThinkingBlock.__struct_fields__}),
    "tool_call": frozenset({"type", *ToolCall.__struct_fields__}),
    "tool_result": frozenset({"type", *ToolResult.__struct_fields__}),
}

_BY_TYPE: Final[dict[str, BlockReader]] = {
    **dict.fromkeys(("text", "input_text", "output_text", "summary_text", "refusal"), _read_text),
    "image": _media("image", "image"),
    "image_url": _media("image", "image_url"),
    "input_image": _media("image", "image_url"),
    "document": _media("document", "document"),
    "pdf": _media("document"),
    "file": _media("document", "file"),
    "input_file": _media("document"),
    "audio": _media("audio", "audio"),
    "input_audio": _media("audio", "input_audio"),
    "audio_url": _media("audio", "audio_url"),
    "video": _media("video", "video"),
    "video_url": _media("video", "video_url"),
    "resource": _read_resource,
    "resource_link": _media(""),
    "search_result": _read_search_result,
    "thinking": read_thinking,
    "redacted_thinking": read_redacted,
    "reasoning": read_reasoning,
    **dict.fromkeys(("tool_use", "tool_call", "function_call", "custom_tool_call", "function"), read_call),
    **dict.fromkeys(("tool_result", "function_call_output", "custom_tool_call_output"), _read_result),
}

_BY_KEY: Final[dict[str, BlockReader]] = {
    "functionCall": _inner_call("functionCall"),
    "function_call": _inner_call("function_call"),
    "toolUse": _inner_call("toolUse"),
    "functionResponse": _read_function_response,
    "function_response": _read_function_response,
    "toolResult": _read_result,
    "inlineData": _media("", "inlineData"),
    "inline_data": _media("", "inline_data"),
    "fileData": _media("", "fileData"),
    "file_data": _media("", "file_data"),
    "executableCode": _inner_text("executableCode", "code"),
    "codeExecutionResult": _inner_text("codeExecutionResult", "output"),
    "reasoningContent": read_bedrock_reasoning,
    "citationsContent": _read_cited,
    "image": _media("image", "image"),
    "document": _media("document", "document"),
    "audio": _media("audio", "audio"),
    "video": _media("video", "video"),
    "source_path": _media(""),
    "text": _read_text,
}
"""Readers of blocks without a `type`: Gemini and Bedrock Converse identify a block by its key."""
