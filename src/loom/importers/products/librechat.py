"""LibreChat: an exported conversation, with `messages` as a list or, recursively, as `messagesTree`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from loom.content.json_values import first_text, get_list, get_object, get_text, parse_json
from loom.importers.products.conversation import ForeignConversation, file_part, kind_of_file, text_part

_NO_PARENT: Final = "00000000-0000-0000-0000-000000000000"


def is_conversation(facts: dict[str, Any]) -> bool:
    messages = get_list(facts.get("messages"))
    return isinstance(facts.get("messagesTree"), list) or (
        "conversationId" in facts and any("messageId" in get_object(message) for message in messages)
    )


def read_conversation(facts: dict[str, Any]) -> ForeignConversation:
    options = get_object(facts.get("options"))
    found = ForeignConversation(
        kind="LibreChat",
        title=get_text(facts.get("title")),
        model=first_text(options, "model"),
        system=first_text(options, "promptPrefix", "system", "instructions"),
        created_at=facts.get("createdAt"),
        updated_at=facts.get("updatedAt"),
        archived=facts.get("isArchived") is True,
        tags=[name for tag in get_list(facts.get("tags")) if (name := get_text(tag))],
    )
    messages = list(_flatten(facts.get("messagesTree") or facts.get("messages")))
    known = {get_text(message.get("messageId")) for message in messages}
    has_parents = any(get_text(message.get("parentMessageId")) in known for message in messages)
    before = ""
    for number, message in enumerate(messages, 1):
        node_id = get_text(message.get("messageId")) or f"message-{number}"
        parent = get_text(message.get("parentMessageId")) if has_parents else before
        model = get_text(message.get("model"))
        found.model = found.model or model
        role = "user" if message.get("isCreatedByUser") is True else "assistant"
        files = (get_object(item) for item in get_list(message.get("files")))
        shaped = {
            "role": role,
            "content": [
                *[
                    _file(item, kind_of_file(get_text(item.get("filename")), get_text(item.get("type"))))
                    for item in files
                ],
                *_content(message),
            ],
        }
        parent = "" if parent == _NO_PARENT else parent
        found.add(node_id, parent, shaped, at=message.get("createdAt"), model="" if role == "user" else model)
        before = node_id
    return found


def _flatten(messages: Any) -> Iterator[dict[str, Any]]:
    """Yield messages, parents before children. No recursion: a conversation may be deeper than Python's stack."""
    waiting = [get_object(message) for message in reversed(get_list(messages))]
    while waiting:
        message = waiting.pop()
        yield message
        waiting += [get_object(child) for child in reversed(get_list(message.get("children")))]


def _content(message: dict[str, Any]) -> list[dict[str, Any]]:
    parts = [part for item in get_list(message.get("content")) for part in _part(get_object(item))]
    text = get_text(message.get("text"))
    if not parts and message.get("error") and text:
        text = f"[error: {text}]"
    return parts or text_part(text)


def _part(item: dict[str, Any]) -> list[dict[str, Any]]:
    match item.get("type"):
        case "text" | "error":
            return text_part(_value(item.get("text")) or _value(item.get("error")))
        case "think":
            text = _value(item.get("think"))
            return [{"type": "thinking", "thinking": text}] if text.strip() else []
        case "tool_call":
            return _call(get_object(item.get("tool_call")))
        case "image_file":
            return [_file(get_object(item.get("image_file")), "image")]
        case _:
            return [item] if item else []


def _value(value: Any) -> str:
    return get_text(value) or get_text(get_object(value).get("value"))


def _call(call: dict[str, Any]) -> list[dict[str, Any]]:
    facts = {**call, **get_object(call.get("function"))}
    arguments = facts.get("args", facts.get("arguments"))
    if isinstance(arguments, str):
        arguments = parse_json(arguments) or {"input": arguments}
    call_id = get_text(facts.get("id"))
    made = {"type": "tool_use", "id": call_id, "name": get_text(facts.get("name")) or "tool"}
    output = facts.get("output")
    answer = [{"type": "tool_result", "tool_use_id": call_id, "content": output}] if output else []
    return [{**made, "input": get_object(arguments)}, *answer]


def _file(item: dict[str, Any], kind: str) -> dict[str, Any]:
    pointer = first_text(item, "filepath", "file_id", "filename")
    if pointer.startswith("data:"):
        return {"type": kind, "url": pointer}
    return file_part(kind, pointer, get_text(item.get("filename")))
