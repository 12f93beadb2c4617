"""A whole conversation of any shape → system prompt and messages."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from loom.content.codec import Conversation, decode_conversation
from loom.content.legacy.assembly import Assembly
from loom.content.legacy.blocks import are_written
from loom.content.legacy.messages import Draft, as_text, as_user, is_message, read_message
from loom.content.legacy.reading import Fetch, Lift, Reading
from loom.content.legacy.values import MAX_INPUT_DEPTH, first_words, json_text, mapping, safe, sequence, words
from loom.content.messages import Message
from loom.errors import ContentError

_SYSTEM: Final = ("system", "instructions", "systemInstruction", "system_instruction")
_MESSAGES: Final = ("messages", "input", "contents")


class Upgraded(msgspec.Struct, frozen=True, kw_only=True):
    """`notices` are sentences for people: what was changed, moved, or could not be taken along."""

    system: str = ""
    messages: tuple[Message, ...] = ()
    notices: tuple[str, ...] = ()


def upgrade(data: Any, *, lift: Lift, fetch: Fetch) -> Upgraded:
    """Read a conversation of any known shape into today's values.

    `data` is JSON as Python parses it and is not changed. `lift` and `fetch` are plain functions, called in the order
    of the text: a caller whose store is asynchronous runs the whole of `upgrade` in a thread and lets them wait there.

    Raises ContentError where this is no conversation, and Newer where it was written by a newer Loom.
    """
    data = safe(data, MAX_INPUT_DEPTH)
    if (own := _own(data)) is not None:
        return Upgraded(system=own.system, messages=own.messages)
    facts = mapping(data)
    reading = Reading(lift=lift, fetch=fetch, model=first_words(facts, "model", "modelId"))
    items = _items(data)
    prompts = [text for key in _SYSTEM if (text := _system_text(facts.get(key), reading))] if _is_body(facts) else []
    assembly = Assembly(reading)
    is_leading = True
    for at, item in enumerate(items, 1):
        reading.begin(f"message {at}", at)
        draft = read_message(item, reading)
        if not draft.blocks:
            reading.note("it says nothing and is left out")
        elif draft.role == "system" and is_leading:
            prompts.append(as_text(draft, reading))
        else:
            is_leading = False
            assembly.add(in_place(draft, reading))
    messages = assembly.finish()
    return Upgraded(system="\n\n".join(prompts), messages=messages, notices=reading.notices)


def in_place(draft: Draft, reading: Reading) -> Draft:
    """A draft that is not at the start: a system message there becomes the user's, and says so."""
    if draft.role != "system":
        return draft
    reading.note("a system message in mid-conversation is kept as the user's")
    return as_user(draft, "system", reading)


def _own(data: Any) -> Conversation | None:
    """What `loom export` wrote; a damaged one is read like any other shape."""
    facts = mapping(data)
    if facts.get("loom") != "conversation":
        return None
    messages = sequence(facts.get("messages"))
    is_whole = all(are_written(mapping(message).get("blocks")) for message in messages)
    try:
        found = decode_conversation(json_text({**facts, "messages": messages if is_whole else []}))
    except ContentError:
        return None
    return found if is_whole else None


def _is_body(facts: dict[str, Any]) -> bool:
    return any(key in facts for key in _MESSAGES) and not words(facts.get("role"))


def _items(data: Any) -> list[Any]:
    """The messages of a list, a request body, or a single message."""
    facts = mapping(data)
    items: Any = data
    if _is_body(facts):
        items = facts[next(key for key in _MESSAGES if key in facts)]
        if words(items) and "messages" not in facts:
            return [{"role": "user", "content": items}]
    if isinstance(items, dict) and is_message(items):
        items = [items]
    if isinstance(items, list) and (not items or any(is_message(item) for item in sequence(items))):
        return sequence(items)
    raise ContentError(
        f"this is no conversation but {_described(data)}.",
        hint="Expected a list of messages with roles, or an object with messages, input or contents.",
    )


def _described(data: Any) -> str:
    match data:
        case dict():
            names = ", ".join(sorted(mapping(data))[:5])
            return f"an object with {names[:120]}" if names else "an empty object"
        case list():
            return "a list without messages"
        case str():
            return "a string"
        case None:
            return "nothing"
        case _:
            return "a number or a truth value"


def _system_text(value: Any, reading: Reading) -> str:
    reading.begin("system prompt", 0)
    facts = mapping(value)
    content = facts.get("parts", facts.get("content", value)) if facts else value
    return as_text(read_message({"role": "system", "content": content}, reading), reading) if content else ""
