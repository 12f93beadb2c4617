"""Convert messages and items of every format to drafts: a role and blocks in their original order."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

from loom.content.blocks import TextBlock, ThinkingBlock, ToolCall
from loom.content.codec import decode_message
from loom.content.json_values import first_ident, get_list, get_object, get_text, json_text
from loom.content.messages import text_of
from loom.errors import ContentError
from loom.importers.blocks import are_encoded_blocks, as_content, found_block, read_block, read_blocks, result_of
from loom.importers.calls import read_call
from loom.importers.media import read_legacy_media
from loom.importers.provider_data import read_citations, thinking_of
from loom.importers.reader import FoundBlock, FoundResult, LegacyReader

DraftRole: TypeAlias = Literal["system", "user", "assistant", "tool"]

_ROLES: Final[dict[str, DraftRole]] = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "model", "ai", "bot"), "assistant"),
    **dict.fromkeys(("tool", "function", "ipython"), "tool"),
    **dict.fromkeys(("system", "developer"), "system"),
}
_CONTENT_ONLY: Final = frozenset(("role", "content"))
"""The fields of most messages; the others need not be looked for in these."""
_MODEL_ITEMS: Final = ("reasoning", "function_call", "custom_tool_call")
_NOT_WORDS: Final = (ThinkingBlock, ToolCall, FoundResult)
_TOOL_ITEMS: Final = ("function_call_output", "custom_tool_call_output")


class MessageDraft(msgspec.Struct, frozen=True):
    """`is_piece`: the item is only a part of a message. `group` is the id of the message, if it has one."""

    role: DraftRole
    blocks: tuple[FoundBlock, ...]
    is_piece: bool = False
    group: str = ""


def is_message(item: Any) -> bool:
    """Return whether `item` can be read as a message."""
    facts = _unwrap(get_object(item))
    if get_text(facts.get("role")) or isinstance(facts.get("parts"), list):
        return True
    return facts.get("type") in ("message", *_MODEL_ITEMS, *_TOOL_ITEMS)


def read_message(item: Any, reading: LegacyReader) -> MessageDraft:
    """Return the draft of a message or item; it may have no blocks."""
    facts = get_object(item)
    if not facts:
        text = get_text(item) or ("" if item in (None, {}, []) else json_text(item))
        if text:
            reading.note("not a message; imported as user text")
        return MessageDraft("user", tuple(_text(text)))
    facts = _unwrap(facts)
    model = reading.model
    reading.model = get_text(facts.get("model")) or model
    try:
        return _own_message(facts) or _item(facts, reading) or _message(facts, reading)
    finally:
        reading.model = model


def _unwrap(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the message inside a record, or the record itself if it is the message."""
    if "message" not in facts or get_text(facts.get("role")):
        return facts
    inner = get_object(facts["message"])
    return facts if inner.keys().isdisjoint(("role", "content", "parts", "blocks")) else inner


def as_text(draft: MessageDraft, reading: LegacyReader) -> str:
    """Return a draft as the text of a system prompt; other blocks become labels."""
    blocks = as_content(draft.blocks, reading)
    if any(not isinstance(block, TextBlock) for block in blocks):
        reading.note("a system prompt can only be text; its other content was imported as labels")
    return "\n\n".join(text_of(block) for block in blocks)


def as_user(draft: MessageDraft, label: str, reading: LegacyReader) -> MessageDraft:
    """Return a draft as a user message whose text starts with `[label]`. Thinking, calls and results are kept."""
    models = [block for block in draft.blocks if isinstance(block, _NOT_WORDS)]
    content = as_content((block for block in draft.blocks if not isinstance(block, _NOT_WORDS)), reading)
    head = content[0] if content else None
    if isinstance(head, TextBlock):
        content[0] = msgspec.structs.replace(head, text=f"[{label}] {head.text}")
    elif content:
        content.insert(0, TextBlock(f"[{label}]"))
    return MessageDraft("user", (*models, *content))


def _own_message(facts: dict[str, Any]) -> MessageDraft | None:
    """Decode a message of Loom's codec; return None if it is not one. Raise `Newer` if a newer Loom wrote it."""
    if not isinstance(facts.get("v"), int) or "blocks" not in facts:
        return None
    blocks: Any = facts["blocks"] if are_encoded_blocks(facts["blocks"]) else []
    try:
        message = decode_message(json_text({**facts, "blocks": blocks}))
    except ContentError:
        return None
    return MessageDraft(message.role, tuple(found_block(block) for block in message.blocks))


def _item(facts: dict[str, Any], reading: LegacyReader) -> MessageDraft | None:
    """Read an item of OpenAI Responses, or a block in the list of messages; return None for a message."""
    kind = facts.get("type")
    if facts.get("role") is not None or not isinstance(kind, str) or kind == "message":
        return None
    blocks = tuple(read_block(facts, reading))
    if kind in _TOOL_ITEMS:
        return MessageDraft("tool", blocks)
    is_models = kind in _MODEL_ITEMS or kind.endswith("_call")
    return MessageDraft("assistant" if is_models else "user", blocks, is_piece=is_models)


def _message(facts: dict[str, Any], reading: LegacyReader) -> MessageDraft:
    written = get_text(facts.get("role")) or "user"
    if not get_text(facts.get("role")) and "parts" not in facts:
        reading.note("a message without a role was imported as a user message")
    role = _ROLES.get(written.lower())
    if role == "tool":
        return MessageDraft("tool", tuple(_tool_blocks(facts, reading)))
    draft = MessageDraft(role or "user", tuple(_blocks(facts, reading)), group=get_text(facts.get("id")))
    if role is None:
        reading.note(f"a message of the unknown role {written[:80]!r} was imported as a user message")
        return as_user(draft, written, reading)
    return draft


def _blocks(facts: dict[str, Any], reading: LegacyReader) -> list[FoundBlock]:
    """Return the blocks of a chat message in the order thinking, content, calls."""
    if facts.keys() <= _CONTENT_ONLY:
        return read_blocks(facts.get("content"), reading)
    found: list[FoundBlock] = []
    for key in ("reasoning_content", "reasoning", "thinking"):
        fresh = thinking_of(facts.get(key), "", None, reading)
        found.extend(block for block in fresh if block not in found)
    found.extend(_content(facts, reading))
    found.extend(_text(get_text(facts.get("refusal"))))
    if audio := get_object(facts.get("audio")):  # of an audio model: its bytes, or its transcript after they expired
        sound = read_legacy_media("audio", audio, reading)
        label = f"[audio: {first_ident(audio, 'id') or 'expired'}]"
        found.extend(sound or _text(get_text(audio.get("transcript")) or label))
    found.extend(_images(facts, reading))
    calls = [*get_list(facts.get("tool_calls")), *get_list(facts.get("function_call"))]
    for call in calls:
        found.extend(read_call(get_object(call), reading) if isinstance(call, dict) else _text(json_text(call)))
    return found


def _content(facts: dict[str, Any], reading: LegacyReader) -> list[FoundBlock]:
    """Return the blocks in the fields that messages use for content. `annotations` of a chat message become citations
    of its first text."""
    found: list[FoundBlock] = []
    for key in ("content", "parts", "blocks", "content_blocks", "text"):
        fresh = read_blocks(facts.get(key), reading)
        found.extend(block for block in fresh if key != "text" or block not in found)
    notes = read_citations(facts.get("annotations"), "openai", reading)
    if notes and found and isinstance(head := found[0], TextBlock):
        found[0] = msgspec.structs.replace(head, citations=(*head.citations, *notes))
    if phase := get_text(facts.get("phase")):
        opaque = reading.opaque("openai", {"phase": phase})
        found = [msgspec.structs.replace(b, opaque=opaque) if isinstance(b, TextBlock) else b for b in found]
    return found


def _images(facts: dict[str, Any], reading: LegacyReader) -> list[FoundBlock]:
    """Read Ollama's `images`: base64, which may also be audio, so that the type follows from the bytes."""
    found: list[FoundBlock] = []
    for image in get_list(facts.get("images")):
        holder = {"url" if "://" in image else "data": image} if isinstance(image, str) else get_object(image)
        found.extend(read_legacy_media("image", holder, reading) or _text(json_text(image)))
    return found


def _tool_blocks(facts: dict[str, Any], reading: LegacyReader) -> list[FoundBlock]:
    """Return the results of a tool message: one, unless its content is a list of results with their own call ids."""
    call_id = first_ident(facts, "tool_call_id", "tool_use_id", "call_id")
    content = next((facts[key] for key in ("content", "blocks", "text") if facts.get(key) is not None), None)
    results: list[FoundBlock] = []
    rest: list[Any] = []
    for item in get_list(content):
        found = read_block(item, reading) if _is_result(item) else []
        results.extend(found)
        rest.extend([] if found else [item])
    if "parts" in facts:
        results.extend(read_blocks(facts["parts"], reading))
    shown = as_content([*read_blocks(facts.get("content_blocks"), reading), *_images(facts, reading)], reading)
    if rest or shown or call_id or not results:
        failed = facts.get("is_error") is True or facts.get("status") == "error"
        name = get_text(facts.get("name")) or get_text(facts.get("tool_name"))
        results.insert(0, result_of(call_id, name, rest, reading, is_error=failed, more=shown))
    return results


def _is_result(item: Any) -> bool:
    facts = get_object(item)
    return facts.get("type") in ("tool_result", *_TOOL_ITEMS) or "toolResult" in facts or "functionResponse" in facts


def _text(text: str) -> list[FoundBlock]:
    return [TextBlock(text)] if text.strip() else []
