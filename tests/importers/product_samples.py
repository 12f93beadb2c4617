"""Exports of other chat products, made after the shapes that they document or write."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from typing import Any

from loom.testing import sample_pdf, sample_png

PHOTO = sample_png(20, 10)
DRAWN = sample_png(30, 10)


def zip_of(files: dict[str, bytes | str]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in files.items():
            packed.writestr(name, data)
    return file.getvalue()


def _chatgpt_node(node_id: str, parent: str | None, children: list[str], message: Any = None) -> dict[str, Any]:
    return {"id": node_id, "message": message, "parent": parent, "children": children}


def _chatgpt_message(node_id: str, role: str, content: dict[str, Any], at: float | None, **more: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "id": node_id,
        "author": {"role": role, "name": more.pop("name", None), "metadata": {}},
        "create_time": at,
        "update_time": None,
        "content": content,
        "status": "finished_successfully",
        "end_turn": None,
        "weight": 1.0,
        "metadata": more.pop("metadata", {}),
        "recipient": "all",
        "channel": None,
    }
    return {**base, **more}


def _pointer(pointer: str) -> dict[str, Any]:
    return {
        "content_type": "image_asset_pointer",
        "asset_pointer": pointer,
        "size_bytes": 100,
        "width": 20,
        "height": 10,
        "fovea": None,
        "metadata": {"sanitized": True, "dalle": None},
    }


def chatgpt_conversation() -> dict[str, Any]:
    """A picture, a document, two answers to one question, and a drawing by a tool."""
    asked = {
        "content_type": "multimodal_text",
        "parts": [_pointer("file-service://file-AbCdEf123"), "what is in this picture?"],
    }
    attachments = [
        {"id": "file-AbCdEf123", "name": "photo.png", "mime_type": "image/png", "size": 100},
        {"id": "file-PdfPdf456", "name": "report.pdf", "mime_type": "application/pdf", "size": 200},
    ]
    messages = {
        "system": _chatgpt_message("system", "system", {"content_type": "text", "parts": [""]}, None),
        "about": _chatgpt_message(
            "about",
            "user",
            {"content_type": "user_editable_context", "user_profile": "", "user_instructions": "Answer in English."},
            None,
            metadata={"is_visually_hidden_from_conversation": True},
        ),
        "ask": _chatgpt_message("ask", "user", asked, 1700000001.5, metadata={"attachments": attachments}),
        "first": _chatgpt_message(
            "first",
            "assistant",
            {"content_type": "text", "parts": ["A blue rectangle."]},
            1700000002.0,
            metadata={"model_slug": "gpt-4o"},
        ),
        "second": _chatgpt_message(
            "second",
            "assistant",
            {"content_type": "text", "parts": ["Something blue."]},
            1700000003.0,
            metadata={"model_slug": "gpt-4o-mini"},
        ),
        "draw": _chatgpt_message("draw", "user", {"content_type": "text", "parts": ["draw it again"]}, 1700000004.0),
        "call": _chatgpt_message(
            "call",
            "assistant",
            {"content_type": "code", "language": "json", "text": '{"prompt":"a blue rectangle"}'},
            1700000005.0,
            recipient="dalle.text2im",
        ),
        "drawn": _chatgpt_message(
            "drawn",
            "tool",
            {"content_type": "multimodal_text", "parts": [_pointer("sediment://file_00000000aaaa1111")]},
            1700000006.0,
            name="dalle.text2im",
        ),
        "end": _chatgpt_message("end", "assistant", {"content_type": "text", "parts": ["Here it is."]}, 1700000007.0),
    }
    order = [
        ("root", None, ["system"]),
        ("system", "root", ["about"]),
        ("about", "system", ["ask"]),
        ("ask", "about", ["first", "second"]),
        ("first", "ask", []),
        ("second", "ask", ["draw"]),
        ("draw", "second", ["call"]),
        ("call", "draw", ["drawn"]),
        ("drawn", "call", ["end"]),
        ("end", "drawn", []),
    ]
    return {
        "title": "Blue picture",
        "create_time": 1700000000.0,
        "update_time": 1700000008.0,
        "mapping": {name: _chatgpt_node(name, parent, below, messages.get(name)) for name, parent, below in order},
        "moderation_results": [],
        "current_node": "end",
        "conversation_id": "c-1",
        "default_model_slug": "gpt-4o",
        "is_archived": False,
        "id": "c-1",
    }


def chatgpt(conversations: Any = None) -> bytes:
    return zip_of(
        {
            "user.json": "{}",
            "conversations.json": json.dumps(conversations or [chatgpt_conversation()]),
            "message_feedback.json": "[]",
            "chat.html": "<html></html>",
            "file-AbCdEf123-photo.png": PHOTO,
            "file-PdfPdf456-report.pdf": sample_pdf("the budget is 42"),
            "dalle-generations/file_00000000aaaa1111-9f1c.webp": DRAWN,
        }
    )


def claude_ai() -> bytes:
    def message(uuid: str, parent: str, sender: str, content: list[dict[str, Any]], at: str, **more: Any) -> Any:
        return {
            "uuid": uuid,
            "text": "",
            "content": content,
            "sender": sender,
            "created_at": at,
            "updated_at": at,
            "attachments": [],
            "files": [],
            "parent_message_uuid": parent,
            **more,
        }

    text = {"start_timestamp": None, "stop_timestamp": None, "type": "text", "citations": []}
    attachment = {"file_name": "notes.txt", "file_size": 9, "file_type": "txt", "extracted_content": "the notes"}
    conversation = {
        "uuid": "11111111-1111-4111-8111-111111111111",
        "name": "Notes",
        "summary": "",
        "created_at": "2026-01-02T03:04:05.000000Z",
        "updated_at": "2026-01-02T04:04:05.000000Z",
        "account": {"uuid": "a"},
        "chat_messages": [
            message(
                "m1",
                "00000000-0000-4000-8000-000000000000",
                "human",
                [{**text, "text": "what do they say?"}],
                "2026-01-02T03:04:06Z",
                attachments=[attachment],
                files=[{"file_name": "photo.png"}, {"file_name": "gone.png"}],
            ),
            message(
                "m2",
                "m1",
                "assistant",
                [
                    {"type": "thinking", "thinking": "Let me look.", "summaries": []},
                    {"type": "tool_use", "id": None, "name": "web_search", "input": {"query": "notes"}},
                    {
                        "type": "tool_result",
                        "tool_use_id": None,
                        "name": "web_search",
                        "content": [{**text, "text": "nothing"}],
                    },
                    {"type": "token_budget"},
                    {**text, "text": "They are short."},
                ],
                "2026-01-02T03:04:07Z",
            ),
            message("m3", "m1", "assistant", [{**text, "text": "They are brief."}], "2026-01-02T03:05:07Z"),
        ],
    }
    return zip_of(
        {
            "conversations.json": json.dumps([conversation]),
            "users.json": "[]",
            "projects.json": "[]",
            "photo.png": PHOTO,
        }
    )


def open_webui() -> bytes:
    url = "data:image/png;base64," + base64.b64encode(PHOTO).decode()
    summary = "<summary>Thought for 2 seconds</summary>"
    reasoning = f'<details type="reasoning" done="true" duration="2">\n{summary}\n&gt; hm\n</details>\n'
    messages = {
        "u1": {
            "id": "u1",
            "parentId": None,
            "childrenIds": ["a1", "a2"],
            "role": "user",
            "content": "what is this?",
            "files": [
                {"type": "image", "url": url},
                {"type": "file", "name": "n.txt", "file": {"filename": "n.txt", "data": {"content": "the text"}}},
            ],
            "timestamp": 1700000001,
            "models": ["llama3:8b", "qwen3:8b"],
        },
        "a1": {
            "id": "a1",
            "parentId": "u1",
            "childrenIds": [],
            "role": "assistant",
            "content": reasoning + "Blue.",
            "model": "llama3:8b",
            "timestamp": 1700000002,
            "done": True,
        },
        "a2": {
            "id": "a2",
            "parentId": "u1",
            "childrenIds": [],
            "role": "assistant",
            "content": "A rectangle.",
            "model": "qwen3:8b",
            "timestamp": 1700000003,
        },
    }
    chat = {
        "title": "Side by side",
        "models": ["llama3:8b", "qwen3:8b"],
        "params": {"system": "Be brief."},
        "history": {"messages": messages, "currentId": "a2"},
        "messages": [messages["u1"], messages["a2"]],
        "tags": [],
        "timestamp": 1700000000000,
    }
    item = {
        "id": "x",
        "user_id": "u",
        "title": "Side by side",
        "chat": chat,
        "updated_at": 1700000009,
        "created_at": 1700000000,
        "archived": False,
        "pinned": True,
        "meta": {"tags": ["pictures"]},
    }
    return json.dumps([item]).encode()


def librechat(*, recursive: bool = False) -> bytes:
    def message(message_id: str, parent: str, by: str, text: str, at: str, **more: Any) -> dict[str, Any]:
        base = {"messageId": message_id, "parentMessageId": parent, "conversationId": "c", "text": text}
        return {**base, "isCreatedByUser": by == "User", "sender": by, "createdAt": at, **more}

    file = {"file_id": "f1", "filename": "photo.png", "filepath": "/images/u/f1__photo.png", "type": "image/png"}
    call = {"id": "call_1", "name": "search", "args": '{"q":"x"}', "output": "found", "type": "tool_call"}
    parts = [
        {"type": "think", "think": "hm"},
        {"type": "tool_call", "tool_call": call},
        {"type": "text", "text": {"value": "Blue."}},
    ]
    first = message(
        "m1", "00000000-0000-0000-0000-000000000000", "User", "what is this?", "2026-01-02T03:04:05.000Z", files=[file]
    )
    answers = [
        message("m2", "m1", "GPT", "", "2026-01-02T03:04:06.000Z", content=parts, model="gpt-4o"),
        message("m3", "m1", "GPT", "A rectangle.", "2026-01-02T03:04:07.000Z", model="gpt-4o"),
    ]
    facts = {
        "conversationId": "c",
        "endpoint": "openAI",
        "title": "Blue",
        "exportAt": "12:00:00 GMT+0000",
        "branches": True,
        "recursive": recursive,
        "options": {"model": "gpt-4o", "promptPrefix": "Be brief.", "temperature": 0.5},
    }
    if recursive:
        facts["messagesTree"] = [{**first, "children": [{**answer, "children": []} for answer in answers]}]
    else:
        facts["messages"] = [first, *answers]
    return json.dumps(facts).encode()


def jsonl() -> bytes:
    url = "data:image/png;base64," + base64.b64encode(PHOTO).decode()
    lines = [
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "?"}],
                },
                {"role": "assistant", "content": "Blue.", "weight": 1},
            ]
        },
        {
            "input": {"messages": [{"role": "user", "content": "hi"}]},
            "preferred_output": [{"role": "assistant", "content": "Hello!"}],
            "non_preferred_output": [{"role": "assistant", "content": "What?"}],
        },
        {
            "custom_id": "r-1",
            "method": "POST",
            "body": {"model": "gpt-4o", "messages": [{"role": "user", "content": "yo"}]},
        },
    ]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()
