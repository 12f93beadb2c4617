"""What Bedrock Converse refuses."""

from __future__ import annotations

import re
from itertools import pairwise

from wire.rules_common import JSON, Found, blank, counted, refs, sized

_NAME = re.compile(r"[A-Za-z0-9\-()\[\]]+( [A-Za-z0-9\-()\[\]]+)*")
_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")


def converse(provider: str, name: str, request: JSON) -> Found:
    messages = request["messages"]
    roles = [message["role"] for message in messages]
    if not roles or roles[0] != "user" or roles[-1] != "user":
        yield "the conversation does not begin and end with the user"
    if any(before == after for before, after in pairwise(roles)):
        yield "two neighbours have the same role"
    names: list[str] = []
    for message in messages:
        yield from _content(message, names)
    if len(set(names)) < len(names):
        yield "two documents have one name"
    yield from _pairs(messages)
    has_calls = any("toolUse" in block or "toolResult" in block for found in messages for block in found["content"])
    if has_calls and not request.get("toolConfig", {}).get("tools"):
        yield "a history with calls needs toolConfig"
    for ref in refs(request, "image/"):
        if ref.encoded_bytes > 5_000_000:
            yield "a picture has more than 3.75 MB"
    yield from counted("pictures", len(refs(request, "image/")), 20)
    yield from sized(request, 25_000_000)


def _content(message: JSON, names: list[str]) -> Found:
    content = message["content"]
    if not content:
        yield "content is empty"
    if any("document" in block for block in content) and not any("text" in block for block in content):
        yield "a document without a text"
    for block in content:
        if len(block) != 1:
            yield f"a block has the fields {sorted(block)}"
        if "text" in block and blank(block["text"]):
            yield "a text is blank"
        if message["role"] == "assistant" and block.keys() & {"image", "document", "video", "audio", "toolResult"}:
            yield "a medium or a result stands on the assistant's side"
        if "toolUse" in block and not _ID.fullmatch(block["toolUse"]["toolUseId"]):
            yield "an id is not legal"
        inner = block["toolResult"]["content"] if "toolResult" in block else [block]
        for found in (found["document"] for found in inner if "document" in found):
            names.append(found["name"])
            if not _NAME.fullmatch(found["name"]) or len(found["name"]) > 200:
                yield f"{found['name']!r} is not a legal name"


def _pairs(messages: list[JSON]) -> Found:
    """Each call is answered in the next message, the results before anything else."""
    owed: list[str] = []
    for message in messages:
        kinds = ["toolResult" in block for block in message["content"]]
        given = [block["toolResult"]["toolUseId"] for block in message["content"] if "toolResult" in block]
        if sorted(given) != sorted(owed):
            yield "results do not answer the calls before them"
        if kinds != sorted(kinds, reverse=True):
            yield "something stands before a result"
        owed = [block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block]
