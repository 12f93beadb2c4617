"""A whole conversation of any shape → system prompt and messages."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from loom.content.archive import conversation_of, decode_archive, is_archive
from loom.content.codec import Conversation, decode_conversation
from loom.content.json_values import (
    MAX_INPUT_DEPTH,
    first_text,
    get_list,
    get_object,
    get_text,
    json_text,
    sanitize_json,
)
from loom.content.messages import Message
from loom.content.wire_forms import WireForm
from loom.errors import ContentError
from loom.importers.assembly import Assembly
from loom.importers.blocks import are_encoded_blocks
from loom.importers.forms import BodyProtocol, ItemSpan, collect_forms, head_item
from loom.importers.messages import MessageDraft, as_text, as_user, is_message, read_message
from loom.importers.reader import FetchLegacyMedia, LegacyReader, StoreLegacyMedia
from loom.importers.request_body import detect_protocol

_SYSTEM: Final = ("system", "instructions", "systemInstruction", "system_instruction")
_MESSAGES: Final = ("messages", "input", "contents")


class UpgradedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """`notices` are sentences for people: what was changed, moved, or could not be taken along."""

    system: str = ""
    messages: tuple[Message, ...] = ()
    notices: tuple[str, ...] = ()
    forms: dict[int, WireForm] = {}
    """Messages as they came, by the position of the first message of each form."""
    head: tuple[Any, ...] = ()
    """The items before the first message, as they came: system prompts that stand among the messages."""


def upgrade(
    data: Any, *, lift: StoreLegacyMedia, fetch: FetchLegacyMedia, protocol: BodyProtocol | None = None
) -> UpgradedConversation:
    """Read a conversation of any known shape into today's values.

    `data` is JSON as Python parses it and is not changed. `lift` and `fetch` are plain functions, called in the order
    of the text: a caller whose store is asynchronous runs the whole of `upgrade` in a thread and lets them wait there.
    `protocol` is the one in which a request body is written; None finds out.

    Raises ContentError where this is no conversation, and Newer where it was written by a newer Loom.
    """
    data = sanitize_json(data, MAX_INPUT_DEPTH)
    if (own := _own(data)) is not None:
        return UpgradedConversation(system=own.system, messages=own.messages)
    facts = get_object(data)
    reading = LegacyReader(lift=lift, fetch=fetch, model=first_text(facts, "model", "modelId"))
    items = _items(data)
    prompts = [text for key in _SYSTEM if (text := _system_text(facts.get(key), reading))] if _is_body(facts) else []
    known = protocol or _find_protocol(facts, items)
    assembly = Assembly(reading)
    spans: list[ItemSpan] = []
    head: list[Any] = []
    is_leading = True
    for at, item in enumerate(items, 1):
        reading.begin(f"message {at}", at)
        draft = read_message(item, reading)
        if not draft.blocks:
            reading.note("it says nothing and is left out")
        elif draft.role == "system" and is_leading:
            prompts.append(as_text(draft, reading))
            head.append(head_item(get_object(item), prompts[-1], known) if known else item)
        else:
            is_leading = False
            covered = assembly.add(demote_system(draft, reading))
            if isinstance(item, dict) and covered:
                spans.append(ItemSpan(get_object(item), covered))
    messages = assembly.finish()
    return UpgradedConversation(
        system="\n\n".join(prompts),
        messages=messages,
        notices=reading.notices,
        forms=collect_forms(spans, messages, reading.encoded, known) if known else {},
        head=tuple(head),
    )


def demote_system(draft: MessageDraft, reading: LegacyReader) -> MessageDraft:
    """A draft that is not at the start: a system message there becomes the user's, and says so."""
    if draft.role != "system":
        return draft
    reading.note("a system message in mid-conversation is kept as the user's")
    return as_user(draft, "system", reading)


def _own(data: Any) -> Conversation | None:
    """Return what `loom export` wrote; a damaged one is read like any other shape."""
    facts = get_object(data)
    if facts.get("loom") != "conversation":
        return None
    if is_archive(facts):
        return conversation_of(decode_archive(json_text(facts).encode()).archive)
    messages = get_list(facts.get("messages"))
    is_whole = all(are_encoded_blocks(get_object(message).get("blocks")) for message in messages)
    try:
        found = decode_conversation(json_text({**facts, "messages": messages if is_whole else []}))
    except ContentError:
        return None
    return found if is_whole else None


def _is_body(facts: dict[str, Any]) -> bool:
    return any(key in facts for key in _MESSAGES) and not get_text(facts.get("role"))


def _find_protocol(facts: dict[str, Any], items: list[Any]) -> BodyProtocol | None:
    """Return the protocol of a request body, or of messages alone if their blocks tell it. Messages in the style of
    Chat Completions do not: many servers and programs write them, each with fields of its own."""
    if _is_body(facts):
        return detect_protocol(facts)
    found = detect_protocol({"messages": items})
    return None if found == "openai_chat" else found


def _items(data: Any) -> list[Any]:
    """Return the messages of a list, a request body, or a single message."""
    facts = get_object(data)
    items: Any = data
    if _is_body(facts):
        items = facts[next(key for key in _MESSAGES if key in facts)]
        if get_text(items) and "messages" not in facts:
            return [{"role": "user", "content": items}]
    if isinstance(items, dict) and is_message(items):
        items = [items]
    if isinstance(items, list) and (not items or any(is_message(item) for item in get_list(items))):
        return get_list(items)
    raise ContentError(
        f"not a conversation but {_describe_shape(data)}.",
        hint="Expected a list of messages with roles, or an object with messages, input or contents.",
    )


def _describe_shape(data: Any) -> str:
    match data:
        case dict():
            names = ", ".join(sorted(get_object(data))[:5])
            return f"an object with {names[:120]}" if names else "an empty object"
        case list():
            return "a list without messages"
        case str():
            return "a string"
        case None:
            return "nothing"
        case _:
            return "a number or a truth value"


def _system_text(value: Any, reading: LegacyReader) -> str:
    reading.begin("system prompt", 0)
    facts = get_object(value)
    content = facts.get("parts", facts.get("content", value)) if facts else value
    return as_text(read_message({"role": "system", "content": content}, reading), reading) if content else ""
