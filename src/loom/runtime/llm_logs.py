"""`logs.db` of the program `llm`: conversations with their prompts, replies, attachments and tool calls.

Two generations of tables are supported: `threads` with messages and parts, and the older `responses`.
"""

from __future__ import annotations

import base64
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import msgspec

from loom.errors import Unreadable


def read_logs(file: Path) -> list[dict[str, Any]]:
    """Return one dictionary for each conversation: kind, title, model, system, and messages in OpenAI's format. Raise
    `Unreadable` if the file is not such a database."""
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            database.row_factory = sqlite3.Row
            tables = {row["name"] for row in database.execute("SELECT name FROM sqlite_master")}
            if not {"responses", "threads"} & tables:
                raise Unreadable(f"{file.name} is a database, but not one of llm.", name=file.name)
            return [
                *(_threads(database) if {"threads", "messages", "parts"} <= tables else ()),
                *(_conversations(database, tables) if "responses" in tables else ()),
            ]
    except sqlite3.Error as error:
        raise Unreadable(
            f"{file.name} cannot be read as a database: {error}.", name=file.name, hint="Try a copy of it."
        ) from None


# conversations and responses ---------------------------------------------------------------------------------------


def _conversations(database: sqlite3.Connection, tables: set[str]) -> Iterator[dict[str, Any]]:
    groups: dict[str, list[sqlite3.Row]] = {}
    for row in database.execute("SELECT * FROM responses ORDER BY datetime_utc, id"):
        groups.setdefault(row["conversation_id"] or row["id"], []).append(row)
    names: dict[str, str] = {}
    if "conversations" in tables:
        names = {row["id"]: row["name"] or "" for row in database.execute("SELECT id, name FROM conversations")}
    for conversation, responses in groups.items():
        messages: list[dict[str, Any]] = []
        for response in responses:
            messages += _exchange(database, tables, response)
        yield {
            "kind": "llm",
            "title": names.get(conversation, ""),
            "model": responses[-1]["model"] or "",
            "system": responses[0]["system"] or "",
            "messages": messages,
        }


def _exchange(database: sqlite3.Connection, tables: set[str], response: sqlite3.Row) -> Iterator[dict[str, Any]]:
    """Yield the messages of one row: results of earlier calls, the prompt with its attachments, the reply with its
    calls."""
    if "tool_results" in tables:
        for row in _rows_of(database, "tool_results", response["id"]):
            yield {"role": "tool", "tool_call_id": row["tool_call_id"], "name": row["name"], "content": row["output"]}
    content: list[dict[str, Any]] = []
    if "prompt_attachments" in tables:
        query = (
            "SELECT a.* FROM prompt_attachments p JOIN attachments a ON a.id = p.attachment_id"
            ' WHERE p.response_id = ? ORDER BY p."order"'
        )
        content += [_attachment(row) for row in database.execute(query, (response["id"],))]
    fragments = _fragments(database, tables, response["id"])
    words = "\n".join(text for text in (*fragments, response["prompt"]) if text)
    if words:
        content.append({"type": "text", "text": words})
    if content:
        yield {"role": "user", "content": content}
    calls = list(_rows_of(database, "tool_calls", response["id"])) if "tool_calls" in tables else []
    reply: dict[str, Any] = {"role": "assistant", "content": response["response"] or None, "model": response["model"]}
    if calls:
        reply["tool_calls"] = [
            {
                "id": row["tool_call_id"],
                "type": "function",
                "function": {"name": row["name"], "arguments": row["arguments"] or "{}"},
            }
            for row in calls
        ]
    if calls or reply["content"]:
        yield reply


def _rows_of(database: sqlite3.Connection, table: str, response: str) -> Iterator[sqlite3.Row]:
    yield from database.execute(f"SELECT * FROM {table} WHERE response_id = ? ORDER BY id", (response,))  # noqa: S608  one of our two table names


def _fragments(database: sqlite3.Connection, tables: set[str], response: str) -> list[str]:
    if "prompt_fragments" not in tables:
        return []
    query = (
        "SELECT f.content FROM prompt_fragments p JOIN fragments f ON f.id = p.fragment_id"
        ' WHERE p.response_id = ? ORDER BY p."order"'
    )
    return [row["content"] or "" for row in database.execute(query, (response,))]


def _attachment(row: sqlite3.Row) -> dict[str, Any]:
    """Return an attachment as an OpenAI part; its type is detected from the bytes later."""
    kind = row["type"] or "application/octet-stream"
    inline = base64.b64encode(row["content"] or b"").decode()
    url = f"data:{kind};base64,{inline}" if inline else row["url"]
    if url:
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "image", "source_path": row["path"] or ""}


# threads, messages and parts ---------------------------------------------------------------------------------------


def _threads(database: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    for thread in database.execute("SELECT * FROM threads ORDER BY datetime_utc, id").fetchall():
        models = [
            row["model"]
            for row in database.execute("SELECT model FROM turns WHERE thread_id = ? ORDER BY id", (thread["id"],))
        ]
        path = list(_path(database, thread["tip_message_hash"]))[::-1]
        yield {
            "kind": "llm",
            "title": thread["name"] or "",
            "model": next((model for model in reversed(models) if model), ""),
            "messages": [message for row in path for message in _message(database, row)],
        }


def _path(database: sqlite3.Connection, tip: str | None) -> Iterator[sqlite3.Row]:
    seen: set[str] = set()
    while tip is not None and tip not in seen:
        seen.add(tip)
        row = database.execute("SELECT * FROM messages WHERE hash = ?", (tip,)).fetchone()
        if row is None:
            return
        yield row
        tip = row["parent_hash"]


def _message(database: sqlite3.Connection, message: sqlite3.Row) -> Iterator[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    parts = database.execute("SELECT * FROM parts WHERE message_hash = ? ORDER BY position", (message["hash"],))
    for part in parts.fetchall():
        payload = _payload(part["payload"])
        match part["type"]:
            case "tool_call":
                arguments = payload.get("arguments")
                written = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
                calls.append(
                    {
                        "id": payload.get("tool_call_id") or f"part_{part['id']}",
                        "type": "function",
                        "function": {"name": part["tool_name"] or "", "arguments": written},
                    }
                )
            case "tool_result":
                words = part["text"] or payload.get("output") or ""
                call_id = payload.get("tool_call_id") or ""
                yield {"role": "tool", "tool_call_id": call_id, "name": part["tool_name"], "content": words}
            case "reasoning":
                continue
            case _:
                if part["text"]:
                    content.append({"type": "text", "text": part["text"]})
        content += _part_attachments(database, part["id"])
    if content or calls:
        said: dict[str, Any] = {"role": message["role"], "content": content or None}
        yield {**said, "tool_calls": calls} if calls else said


def _part_attachments(database: sqlite3.Connection, part_id: int) -> Iterator[dict[str, Any]]:
    query = (
        "SELECT a.* FROM part_attachments p JOIN attachments a ON a.id = p.attachment_id"
        ' WHERE p.part_id = ? ORDER BY p."order"'
    )
    for row in database.execute(query, (part_id,)):
        yield _attachment(row)


def _payload(text: str | None) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
