"""Read the exports of other chat products as conversations with nodes for `upgrade_tree`.

    chatgpt      conversations.json of ChatGPT: a mapping of nodes, images by asset pointer
    claude_ai    conversations.json of claude.ai: messages with parents, attachments as text
    open_webui   chats of Open WebUI: a history of messages, images as data URLs
    librechat    a conversation of LibreChat: messages with parents, flat or as a tree

A node is `{"id", "parent_id", "created_at", "message": {"role", "content", …}}`, with content in the formats of the
providers' APIs; a file of the export is `{"type": "image", "source_path": NAME}`.
"""

from __future__ import annotations

from typing import Any

from loom.content.json_values import get_list, get_object
from loom.importers.products import chatgpt, claude_ai, librechat, open_webui
from loom.importers.products.conversation import ForeignConversation

_READERS = (chatgpt, claude_ai, open_webui, librechat)

__all__ = ["ForeignConversation", "conversations_of"]


def conversations_of(value: Any) -> list[ForeignConversation]:
    """Read every conversation of an export; return an empty list if it is not an export of these products. A
    conversation that cannot be read has no nodes and a notice."""
    items = get_list(value) if isinstance(value, list) else [value]
    if not any(_reader_of(item) for item in items):
        return []
    return [_read(item, number) for number, item in enumerate(items, 1)]


def _reader_of(item: Any) -> Any:
    facts = get_object(item)
    return next((reader for reader in _READERS if reader.is_conversation(facts)), None)


def _read(item: Any, number: int) -> ForeignConversation:
    reader = _reader_of(item)
    if reader is None:
        return ForeignConversation(kind="", notices=[f"conversation {number} cannot be read and was skipped"])
    return reader.read_conversation(get_object(item))
