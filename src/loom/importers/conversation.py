"""Convert a whole conversation of any format to a system prompt and messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from loom.content.archive import conversation_of, decode_archive, is_archive
from loom.content.blocks import SYSTEM_LABEL, TextBlock
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
from loom.importers.forms import BodyProtocol, ItemSpan, OriginalForms, head_item
from loom.importers.messages import MessageDraft, as_text, as_user, is_message, read_message
from loom.importers.reader import FetchLegacyMedia, LegacyReader, StoreLegacyMedia
from loom.importers.request_body import detect_protocol

PROMPT_FIELDS: Final = ("system", "instructions", "systemInstruction", "system_instruction")
_MESSAGES: Final = ("messages", "input", "contents")


class UpgradedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """`notices` tell the user what was changed, moved or left out."""

    system: str = ""
    messages: tuple[Message, ...] = ()
    notices: tuple[str, ...] = ()
    originals: OriginalForms = OriginalForms()
    head: tuple[Any, ...] = ()
    """The original system prompts that precede the first message in the list of messages."""

    @property
    def forms(self) -> dict[int, WireForm]:
        """The messages in their original form, by the position of the first message of each form."""
        return self.originals.build()


class ConversationReading:
    """Reads the items of a conversation, one after another. A copy can be continued with other items."""

    def __init__(self, reader: LegacyReader, protocol: BodyProtocol | None, *, shares_texts: bool = True) -> None:
        """With `shares_texts`, forms refer to long texts of their messages instead of repeating them."""
        self.reader = reader
        self._protocol: BodyProtocol | None = protocol
        self._shares_texts = shares_texts
        self._assembly = Assembly(reader)
        self._prompts: list[str] = []
        self._head: list[Any] = []
        self._spans: list[ItemSpan] = []
        self._read = 0

    def copy(self, reader: LegacyReader) -> ConversationReading:
        """Return a copy that continues with `reader`."""
        made = ConversationReading(reader, self._protocol, shares_texts=self._shares_texts)
        reader.continue_from(self.reader)
        made._assembly = self._assembly.copy(reader)
        made._prompts, made._head = [*self._prompts], [*self._head]
        made._spans, made._read = [*self._spans], self._read
        return made

    def add(self, item: Any) -> None:
        self._read += 1
        reader = self.reader
        reader.begin(f"message {self._read}", self._read)
        draft = read_message(item, reader)
        if not draft.blocks:
            reader.note("empty; left out")
        elif draft.role == "system" and self._assembly.is_empty:
            text = as_text(draft, reader)
            self._prompts.append(text)
            self._head.append(head_item(get_object(item), text, self._protocol) if self._protocol else item)
        else:
            covered = self._assembly.add(demote_system(draft, reader))
            if isinstance(item, dict) and covered:
                self._spans.append(ItemSpan(get_object(item), covered))

    def finish(self, prompts: Sequence[str] = (), notices: Sequence[str] = ()) -> UpgradedConversation:
        """Return the conversation. `prompts` and `notices` come from the request before its items. No item can be added
        afterwards."""
        messages = self._assembly.finish()
        return UpgradedConversation(
            system="\n\n".join((*prompts, *self._prompts)),
            messages=messages,
            notices=tuple(dict.fromkeys((*notices, *self.reader.notices))),
            originals=OriginalForms(self._spans, messages, self.reader.encoded, self._protocol, self._shares_texts),
            head=tuple(self._head),
        )


def upgrade(
    data: Any,
    *,
    lift: StoreLegacyMedia,
    fetch: FetchLegacyMedia,
    protocol: BodyProtocol | None = None,
) -> UpgradedConversation:
    """Convert a conversation of any known format to today's values.

    `data` is parsed JSON and is not changed. `lift` and `fetch` are blocking functions, called in the order of the
    text; a caller with an asynchronous store runs `upgrade` in a thread. `protocol` is the protocol of a request body;
    None detects it. Raise `ContentError` if `data` is not a conversation, `Newer` if a newer Loom wrote it.
    """
    data = sanitize_json(data, MAX_INPUT_DEPTH)
    if (own := _decode_own(data)) is not None:
        return UpgradedConversation(system=own.system, messages=own.messages)
    facts = get_object(data)
    items = conversation_items(data)
    reader = LegacyReader(lift=lift, fetch=fetch, model=first_text(facts, "model", "modelId"))
    prompts = read_prompts(facts, reader) if _is_body(facts) else []
    reading = ConversationReading(reader, protocol or _find_protocol(facts, items))
    for item in items:
        reading.add(item)
    return reading.finish(prompts)


def read_prompts(facts: dict[str, Any], reader: LegacyReader) -> list[str]:
    """Return the system prompts in the top-level fields of a request body."""
    return [text for key in PROMPT_FIELDS if (text := _system_text(facts.get(key), reader))]


def demote_system(draft: MessageDraft, reading: LegacyReader) -> MessageDraft:
    """Turn a system message that is not at the start into marked text of the user; return other drafts unchanged."""
    if draft.role != "system":
        return draft
    said = as_user(draft, SYSTEM_LABEL, reading)
    texts = [block for block in said.blocks if isinstance(block, TextBlock)]
    if len(texts) < len(said.blocks):
        return said  # system messages of every platform hold text only
    return MessageDraft(said.role, tuple(msgspec.structs.replace(text, is_system=True) for text in texts))


def _decode_own(data: Any) -> Conversation | None:
    """Decode a file of `loom export`; return None for another format, or for a damaged file, which is then read like
    any other."""
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
    """Return the protocol of a request body, or of messages alone if their blocks identify it. Messages in the format
    of Chat Completions do not: many servers and programs write them with their own fields."""
    if _is_body(facts):
        return detect_protocol(facts)
    found = detect_protocol({"messages": items})
    return None if found == "openai_chat" else found


def conversation_items(data: Any) -> list[Any]:
    """Return the messages of a list, a request body or a single message. Raise `ContentError` for anything else."""
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
        f"Expected a conversation, got {_describe_shape(data)}.",
        hint="A conversation is a list of messages with roles, or an object with messages, input or contents.",
    )


def _describe_shape(data: Any) -> str:
    match data:
        case dict():
            names = ", ".join(sorted(get_object(data))[:5])
            return f"an object with the keys {names[:120]}" if names else "an empty object"
        case list():
            return "a list without messages"
        case str():
            return "a string"
        case None:
            return "nothing"
        case _:
            return "a number or a boolean"


def _system_text(value: Any, reading: LegacyReader) -> str:
    reading.begin("system prompt", 0)
    facts = get_object(value)
    content = facts.get("parts", facts.get("content", value)) if facts else value
    return as_text(read_message({"role": "system", "content": content}, reading), reading) if content else ""
