"""claude.ai: `conversations.json` of its data export.

Messages name their parent; in older exports they are just a list. Attachments contain their extracted text; of other
files the export has only the names.
"""

from __future__ import annotations

from typing import Any, Final

from loom.content.json_values import first_text, get_list, get_object, get_text
from loom.importers.products.conversation import ForeignConversation, file_part, kind_of_file, text_part

_NO_PARENT: Final = "00000000-0000-4000-8000-000000000000"
_NOT_SAID: Final = ("token_budget", "flag")


def is_conversation(facts: dict[str, Any]) -> bool:
    return isinstance(facts.get("chat_messages"), list)


def read_conversation(facts: dict[str, Any]) -> ForeignConversation:
    messages = [get_object(message) for message in get_list(facts.get("chat_messages"))]
    found = ForeignConversation(
        kind="claude.ai",
        title=get_text(facts.get("name")),
        model=get_text(facts.get("model")),
        head=get_text(facts.get("current_leaf_message_uuid")),
        created_at=facts.get("created_at"),
        updated_at=facts.get("updated_at"),
        pinned=facts.get("is_starred") is True,
        folder=get_text(get_object(facts.get("project")).get("name")),
    )
    known = {get_text(message.get("uuid")) for message in messages}
    has_parents = any(get_text(message.get("parent_message_uuid")) in known for message in messages)
    before = ""
    for number, message in enumerate(messages, 1):
        node_id = get_text(message.get("uuid")) or f"message-{number}"
        parent = get_text(message.get("parent_message_uuid")) if has_parents else before
        role = "user" if get_text(message.get("sender")) in ("human", "user") else "assistant"
        shaped = {"role": role, "content": _content(message)}
        found.add(
            node_id, "" if parent == _NO_PARENT else parent, shaped, at=message.get("created_at"), model=found.model
        )
        before = node_id
    return found


def _content(message: dict[str, Any]) -> list[dict[str, Any]]:
    files = [_file(get_object(item)) for key in ("files", "files_v2") for item in get_list(message.get(key))]
    attached = [_attachment(get_object(item)) for item in get_list(message.get("attachments"))]
    written = [
        part
        for block in get_list(message.get("content"))
        for part in _part(get_object(block))
        if get_object(block).get("type") not in _NOT_SAID
    ]
    unique = {part["source_path"]: part for part in files}
    return [*unique.values(), *(part for parts in attached for part in parts), *written] + (
        [] if written else text_part(get_text(message.get("text")))
    )


def _part(block: dict[str, Any]) -> list[dict[str, Any]]:
    match block.get("type"):
        case "text":
            return text_part(get_text(block.get("text")))
        case "thinking":
            text = get_text(block.get("thinking"))
            return [{"type": "thinking", "thinking": text}] if text.strip() else []
        case "voice_note":
            return text_part(first_text(block, "text", "title"))
        case _:
            return [{key: value for key, value in block.items() if value is not None}]


def _attachment(item: dict[str, Any]) -> list[dict[str, Any]]:
    name = get_text(item.get("file_name"))
    text = get_text(item.get("extracted_content"))
    if text.strip():
        return text_part(f"[file: {name}]\n{text}" if name else text)
    return [_file(item)] if name else []


def _file(item: dict[str, Any]) -> dict[str, Any]:
    name = get_text(item.get("file_name"))
    kind = get_text(item.get("file_kind"))
    kind = kind if kind in ("image", "audio", "document") else kind_of_file(name, get_text(item.get("file_type")))
    return file_part(kind, first_text(item, "file_uuid") or name, name)
