"""Conversations as files that `loom import` reads."""

from __future__ import annotations

import msgspec

from loom.content.codec import VERSION, Conversation, encode_message


def encode_conversation(conversation: Conversation) -> bytes:
    messages = [msgspec.Raw(encode_message(message)) for message in conversation.messages]
    export = {"loom": "conversation", "v": VERSION, "system": conversation.system, "messages": messages}
    return msgspec.json.encode(export)
