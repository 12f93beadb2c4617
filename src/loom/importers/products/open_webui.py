"""Open WebUI: exported chats, one or a list.

`history.messages` contains all messages by id, with parent and children; `currentId` is the last one. Reasoning and
tool calls are `<details>` elements in the text.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Any, Final

from loom.content.json_values import first_text, get_list, get_object, get_text, parse_json
from loom.importers.products.conversation import ForeignConversation, file_part, kind_of_file, text_part

_DETAILS: Final = re.compile(r"<details\b([^>]*)>(.*?)</details>", re.DOTALL)
_ATTRIBUTE: Final = re.compile(r'(\w+)="([^"]*)"')
_SUMMARY: Final = re.compile(r"<summary>.*?</summary>", re.DOTALL)
_FILE_ID: Final = re.compile(r"/files/([0-9a-fA-F-]{8,})")


def is_conversation(facts: dict[str, Any]) -> bool:
    chat = get_object(facts.get("chat")) or facts
    return isinstance(get_object(chat.get("history")).get("messages"), dict)


def read_conversation(facts: dict[str, Any]) -> ForeignConversation:
    chat = get_object(facts.get("chat")) or facts
    history = get_object(chat.get("history"))
    models = [get_text(model) for model in get_list(chat.get("models"))]
    tags = get_list(get_object(facts.get("meta")).get("tags")) or get_list(chat.get("tags"))
    found = ForeignConversation(
        kind="Open WebUI",
        title=first_text(facts, "title") or get_text(chat.get("title")),
        model=models[0] if models else "",
        system=get_text(get_object(chat.get("params")).get("system")) or get_text(chat.get("system")),
        head=get_text(history.get("currentId")),
        created_at=facts.get("created_at") or chat.get("timestamp"),
        updated_at=facts.get("updated_at"),
        archived=facts.get("archived") is True,
        pinned=facts.get("pinned") is True,
        tags=[name for tag in tags if (name := get_text(tag) or get_text(get_object(tag).get("name")))],
    )
    for node_id, value in get_object(history.get("messages")).items():
        message = get_object(value)
        role = get_text(message.get("role")) or "user"
        shaped = {"role": role, "content": [*_files(message), *_content(role, message)]}
        parent = get_text(message.get("parentId"))
        found.add(node_id, parent, shaped, at=message.get("timestamp"), model=get_text(message.get("model")))
    return found


def _content(role: str, message: dict[str, Any]) -> list[dict[str, Any]]:
    text = get_text(message.get("content"))
    error = message.get("error")
    if not text.strip() and error:
        text = f"[error: {get_text(get_object(error).get('content')) or get_text(error) or 'the answer failed'}]"
    if role != "assistant" or "<details" not in text:
        return text_part(text)
    found: list[dict[str, Any]] = []
    end = 0
    for element in _DETAILS.finditer(text):
        parts = _details(dict(_ATTRIBUTE.findall(element[1])), element[2])
        if parts:
            found += [*text_part(text[end : element.start()].strip()), *parts]
            end = element.end()
    return [*found, *text_part(text[end:].strip() if end else text)]


def _details(attributes: dict[str, str], inner: str) -> list[dict[str, Any]]:
    """Return thinking, or a call with its result; an empty list for a `<details>` element that the model wrote."""
    match attributes.get("type"):
        case "reasoning":
            lines = unescape(_SUMMARY.sub("", inner)).strip().splitlines()
            text = "\n".join(line.removeprefix(">").removeprefix(" ") for line in lines)
            return [{"type": "thinking", "thinking": text}] if text.strip() else []
        case "tool_calls":
            arguments = parse_json(unescape(attributes.get("arguments", "")))
            if isinstance(arguments, str):
                arguments = parse_json(arguments)
            call_id = attributes.get("id", "")
            call = {"type": "tool_use", "id": call_id, "name": attributes.get("name", "tool")}
            result = parse_json(unescape(attributes.get("result", "")))
            text = result if isinstance(result, str) else unescape(attributes.get("result", ""))
            answer = {"type": "tool_result", "tool_use_id": call_id, "content": text}
            return [{**call, "input": get_object(arguments)}, answer]
        case _:
            return []


def _files(message: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for item in get_list(message.get("files")):
        facts = get_object(item)
        inner = get_object(facts.get("file"))
        name = first_text(facts, "name") or first_text(inner, "filename", "name")
        declared = get_text(facts.get("content_type")) or get_text(get_object(inner.get("meta")).get("content_type"))
        kind = "image" if facts.get("type") == "image" else kind_of_file(name, declared)
        url = get_text(facts.get("url"))
        text = get_text(get_object(inner.get("data")).get("content"))
        if url.startswith("data:"):
            found.append({"type": kind, "url": url, **({"name": name} if name else {})})
        elif text.strip() and kind == "document":
            found += text_part(f"[file: {name}]\n{text}" if name else text)
        else:
            match = _FILE_ID.search(url)
            pointer = (match[1] if match else "") or first_text(facts, "id") or url or name
            found += [file_part(kind, pointer, name)] if pointer else []
    return found
