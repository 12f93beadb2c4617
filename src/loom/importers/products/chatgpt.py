"""ChatGPT: `conversations.json` of its data export.

A conversation is a `mapping` of nodes with parent and children; `current_node` is its end. Tool calls are assistant
messages with a `recipient`; results are messages with the role `tool`. Images are pointers such as
`file-service://file-AbC` or `sediment://file_0123`; the zip contains files whose names begin with that id.
"""

from __future__ import annotations

import re
from typing import Any

from loom.content.json_values import first_text, get_list, get_object, get_text, json_text
from loom.importers.products.conversation import ForeignConversation, file_part, kind_of_file, text_part

_POINTER = re.compile(r"://(file[-_][A-Za-z0-9]+)")


def is_conversation(facts: dict[str, Any]) -> bool:
    return isinstance(facts.get("mapping"), dict)


def read_conversation(facts: dict[str, Any]) -> ForeignConversation:
    found = ForeignConversation(
        kind="ChatGPT",
        title=get_text(facts.get("title")),
        model=get_text(facts.get("default_model_slug")),
        head=get_text(facts.get("current_node")),
        created_at=facts.get("create_time"),
        updated_at=facts.get("update_time"),
        archived=facts.get("is_archived") is True,
        pinned=facts.get("is_starred") is True,
    )
    mapping = get_object(facts.get("mapping"))
    for node_id, value in mapping.items():
        node = get_object(value)
        message = get_object(node.get("message"))
        model = get_text(get_object(message.get("metadata")).get("model_slug"))
        found.model = model or found.model
        shaped = _message(node_id, message, mapping) if message else {"role": "user"}
        found.add(node_id, get_text(node.get("parent")), shaped, at=message.get("create_time"), model=model)
    return found


def _message(node_id: str, message: dict[str, Any], mapping: dict[str, Any]) -> dict[str, Any]:
    role = get_text(get_object(message.get("author")).get("role")) or "user"
    content = get_object(message.get("content"))
    recipient = get_text(message.get("recipient")) or "all"
    if content.get("content_type") in ("user_editable_context", "model_editable_context"):
        texts = (get_text(content.get(key)) for key in ("user_profile", "user_instructions", "model_set_context"))
        return {"role": "system", "content": "\n\n".join(text for text in texts if text.strip())}
    parts = _parts(content, get_object(message.get("metadata")))
    if role == "assistant" and recipient != "all":
        text = get_text(content.get("text")) or "\n".join(get_text(part.get("text")) for part in parts)
        call = {"type": "tool_use", "id": node_id, "name": recipient, "input": {"input": text}}
        return {"role": "assistant", "content": [call]}
    if role == "tool":
        name = get_text(get_object(message.get("author")).get("name"))
        return {"role": "tool", "tool_call_id": _call_above(node_id, mapping), "name": name, "content": parts}
    return {"role": role, "content": parts}


def _call_above(node_id: str, mapping: dict[str, Any]) -> str:
    """Return the id of the call that a result answers: the nearest one above, with no user message in between; empty if
    there is none."""
    seen: set[str] = set()
    at = get_text(get_object(mapping.get(node_id)).get("parent"))
    while at and at not in seen:
        seen.add(at)
        node = get_object(mapping.get(at))
        message = get_object(node.get("message"))
        role = get_text(get_object(message.get("author")).get("role"))
        if role == "assistant" and get_text(message.get("recipient")) not in ("", "all"):
            return at
        if message and role not in ("tool", "assistant"):
            break
        at = get_text(node.get("parent"))
    return ""


def _parts(content: dict[str, Any], metadata: dict[str, Any]) -> list[dict[str, Any]]:
    attachments = {
        get_text(get_object(item).get("id")): get_object(item) for item in get_list(metadata.get("attachments"))
    }
    match content.get("content_type"):
        case "thoughts":
            thoughts = (get_object(item) for item in get_list(content.get("thoughts")))
            text = "\n\n".join(first_text(thought, "content", "summary") for thought in thoughts)
            return [{"type": "thinking", "thinking": text}] if text.strip() else []
        case "reasoning_recap":
            return []
        case "code":
            text = get_text(content.get("text"))
            return text_part(f"```{get_text(content.get('language'))}\n{text}\n```") if text.strip() else []
        case "tether_quote":
            where = first_text(content, "url", "domain")
            return text_part("\n".join(text for text in (where, get_text(content.get("text"))) if text))
        case "tether_browsing_display":
            return text_part(first_text(content, "result", "summary"))
        case _:
            pass
    found: list[dict[str, Any]] = []
    for part in get_list(content.get("parts")):
        found += _part(part, attachments)
    if not found:
        found = text_part(first_text(content, "text", "result", "content"))
    shown = {get_text(part.get("source_path")) for part in found}
    files = [item for file_id, item in attachments.items() if file_id and file_id not in shown]
    return [*(_attachment(item) for item in files), *found]


def _part(part: Any, attachments: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    if isinstance(part, str):
        return text_part(part)
    facts = get_object(part)
    kind = get_text(facts.get("content_type"))
    if kind == "audio_transcription":
        return text_part(get_text(facts.get("text")))
    if kind == "real_time_user_audio_video_asset_pointer":
        return _part(facts.get("audio_asset_pointer"), attachments)
    pointer = _POINTER.search(get_text(facts.get("asset_pointer")))
    if pointer is not None:
        name = get_text(attachments.get(pointer[1], {}).get("name"))
        return [file_part("audio" if kind.startswith("audio") else "image", pointer[1], name)]
    return text_part(get_text(facts.get("text")) or (json_text(part) if facts else ""))


def _attachment(item: dict[str, Any]) -> dict[str, Any]:
    name = get_text(item.get("name"))
    kind = kind_of_file(name, first_text(item, "mime_type", "mimeType"))
    return file_part(kind, get_text(item.get("id")), name)
