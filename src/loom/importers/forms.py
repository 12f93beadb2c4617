"""The wire forms of a foreign conversation: the original items of each message, if they can be sent back to their
provider unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from loom.content.json_values import get_list, get_object, get_text
from loom.content.media import Media
from loom.content.messages import Message
from loom.content.wire_forms import UnusableForm, WireForm, make_template, texts_of
from loom.importers.form_shapes import is_legal_item

BodyProtocol: TypeAlias = Literal["anthropic", "openai_chat", "openai_responses", "gemini"]

OWNERS: Final[dict[BodyProtocol, str]] = {
    "anthropic": "anthropic",
    "openai_chat": "openai",
    "openai_responses": "openai",
    "gemini": "gemini",
}
"""The provider of each protocol, as in `Model.opaque_owner`."""

_ROLES: Final[dict[str, tuple[str, ...]]] = {
    "user": ("tool", "user"),
    "assistant": ("assistant",),
    "model": ("assistant",),
    "tool": ("tool",),
    "system": ("user",),
    "developer": ("user",),
}
"""The roles of messages that an item of each role may become; an item with other ones cannot be sent back."""


class ItemSpan:
    """An item of a request, and the positions of the messages that it became part of. `form` is that of the items that
    share these messages, if this is the last of them and the form was built before."""

    __slots__ = ("form", "item", "messages")

    def __init__(self, item: dict[str, Any], messages: range) -> None:
        self.item = item
        self.messages = messages
        self.form: WireForm | Literal["unbuilt"] | None = "unbuilt"


class OriginalForms(msgspec.Struct, frozen=True, eq=False):  # noqa: PLW1641  never a key
    """The items of a conversation, from which the forms of its messages are built when a request for the provider of
    their protocol needs them."""

    spans: Sequence[ItemSpan] = ()
    messages: Sequence[Message] = ()
    media: Mapping[str, Media] = msgspec.field(default_factory=dict[str, Media])
    protocol: BodyProtocol | None = None
    shares_texts: bool = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OriginalForms) and self.build() == other.build()

    def build(self) -> dict[int, WireForm]:
        """Return the forms by the position of their first message. Items that share a message share a form. Forms of
        messages that no further item can change are kept with the items, for conversations that continue this one."""
        if self.protocol is None:
            return {}
        groups: list[list[ItemSpan]] = []
        end = 0
        for span in self.spans:
            if span.messages.start < end:
                groups[-1].append(span)
            else:
                groups.append([span])
            end = max(end, span.messages.stop)
        found: dict[int, WireForm] = {}
        for group in groups:
            last, is_complete = group[-1], group is not groups[-1]
            form = last.form if is_complete else "unbuilt"
            if form == "unbuilt":
                form = self._build(group, self.protocol)
            if is_complete:
                last.form = form
            if form is not None:
                found[group[0].messages.start] = form
        return found

    def _build(self, group: Sequence[ItemSpan], protocol: BodyProtocol) -> WireForm | None:
        start, stop = group[0].messages.start, max(span.messages.stop for span in group)
        items = [span.item for span in group]
        members = self.messages[start:stop]
        if len(members) != stop - start or not all(_is_usable(item, members, protocol) for item in items):
            return None
        texts = texts_of(members) if self.shares_texts else ()
        try:
            template = [make_template(item, self.media, texts) for item in items]
        except UnusableForm:
            return None
        is_plain = template == items
        return WireForm(
            provider=OWNERS[protocol], wire=protocol, items=template, messages=stop - start, is_plain=is_plain
        )


def head_item(item: dict[str, Any], text: str, protocol: BodyProtocol) -> dict[str, Any]:
    """Return a system prompt from the list of messages unchanged, or with only its text if the provider would refuse
    it."""
    parts = item.get("content")
    has_text = isinstance(parts, str) or all(map(_has_content, get_list(parts)))
    if has_text and is_legal_item(item, protocol):
        return item
    return {"role": get_text(item.get("role")) or "system", "content": text}


def _is_usable(item: dict[str, Any], members: Sequence[Message], protocol: BodyProtocol) -> bool:
    role = get_text(item.get("role"))
    if not is_legal_item(item, protocol):
        return False
    if protocol == "openai_responses" and not role:
        return isinstance(item.get("type"), str)
    allowed = _ROLES.get(role or ("user" if protocol == "gemini" else ""), ())
    if not all(message.role in allowed for message in members):
        return False
    parts = item.get("parts" if protocol == "gemini" else "content")
    if isinstance(parts, str):
        return bool(parts.strip()) or (protocol == "openai_chat" and bool(item.get("tool_calls")))
    if parts is None:
        return protocol == "openai_chat" and bool(item.get("tool_calls"))
    listed = get_list(parts) if isinstance(parts, list) else []
    return bool(listed) and all(map(_has_content, listed))


def _has_content(part: Any) -> bool:
    """Return whether a part is more than an empty text, which providers refuse."""
    fields = get_object(part)
    if not fields:
        return False
    text = fields.get("text")
    is_bare = set(fields) <= {"type", "text", "cache_control", "annotations", "citations", "thought"}
    return not (is_bare and isinstance(text, str) and not text.strip())
