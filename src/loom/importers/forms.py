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


class ItemSpan(msgspec.Struct, frozen=True):
    """An item of a request, and the positions of the messages that it became part of."""

    item: dict[str, Any]
    messages: range


def collect_forms(
    spans: Sequence[ItemSpan],
    messages: Sequence[Message],
    media: Mapping[str, Media],
    protocol: BodyProtocol | None,
    shares_texts: bool,
) -> dict[int, WireForm]:
    """Return the forms by the position of their first message. Items that share a message share a form."""
    if protocol is None:
        return {}
    groups: list[tuple[range, list[dict[str, Any]]]] = []
    for span in spans:
        if groups and span.messages.start < groups[-1][0].stop:
            covered, items = groups[-1]
            groups[-1] = (range(covered.start, max(covered.stop, span.messages.stop)), [*items, span.item])
        else:
            groups.append((span.messages, [span.item]))
    found: dict[int, WireForm] = {}
    for covered, items in groups:
        members = messages[covered.start : covered.stop]
        if len(members) != len(covered) or not all(_is_usable(item, members, protocol) for item in items):
            continue
        try:
            template = [make_template(item, media, texts_of(members) if shares_texts else ()) for item in items]
        except UnusableForm:
            continue
        found[covered.start] = WireForm(
            provider=OWNERS[protocol], wire=protocol, items=template, messages=len(covered), is_plain=template == items
        )
    return found


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
