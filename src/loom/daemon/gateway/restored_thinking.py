"""Thinking in the history of a client: handles are replaced by the stored blocks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from loom.content.blocks import Block, ThinkingBlock
from loom.content.messages import Message
from loom.content.wire_forms import WireForm
from loom.daemon.gateway.handles import is_handle
from loom.importers.forms import OriginalForms
from loom.runtime.conversations import ReadConversation, has_notice

FORGED: Final = "a thinking signature that Loom did not make was left out"

FindThinking: TypeAlias = Callable[[str], Awaitable[ThinkingBlock | None]]
"""Returns the stored block of a handle; None if the handle is forged or unknown."""


class RestoredConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A client's conversation with stored thinking in place of handles."""

    messages: tuple[Message, ...]
    originals: OriginalForms
    kept: Mapping[int, int]
    """Maps positions in the client's conversation to positions in `messages`, for messages that contain nothing that
    Loom added."""
    is_forged: bool
    """Whether a forged handle was left out."""

    def forms(self) -> dict[int, WireForm]:
        """Return the messages that are the client's own in their original form, by the position of the first message of
        each form."""
        return {
            self.kept[position]: form
            for position, form in self.originals.build().items()
            if all(at in self.kept for at in range(position, position + form.messages))
        }


async def restore_thinking(found: ReadConversation, find: FindThinking) -> RestoredConversation:
    restored: list[Message] = []
    is_forged = False
    kept: dict[int, int] = {}
    for position, message in enumerate(found.messages):
        if not any(map(_handle_of, message.blocks)):
            if not has_notice(message):
                kept[position] = len(restored)
            restored.append(message)
            continue
        blocks: list[Block] = []
        for block in message.blocks:
            handle = _handle_of(block)
            if not handle:
                blocks.append(block)
                continue
            thinking = await find(handle)
            is_forged = is_forged or thinking is None
            if thinking is not None:
                blocks.append(thinking)
            elif isinstance(block, ThinkingBlock) and block.text.strip():
                blocks.append(msgspec.structs.replace(block, opaque=None, redacted=False))
        if blocks:
            restored.append(Message(message.role, tuple(blocks)))
    return RestoredConversation(messages=tuple(restored), originals=found.originals, kept=kept, is_forged=is_forged)


def thinking_at(message: Message, place: int) -> ThinkingBlock | None:
    """Return the thinking block number `place` of a stored answer; None if it has fewer."""
    thoughts = [block for block in message.blocks if isinstance(block, ThinkingBlock)]
    return thoughts[place] if place < len(thoughts) else None


def _handle_of(block: Block) -> str:
    if not isinstance(block, ThinkingBlock) or block.opaque is None:
        return ""
    values = (block.opaque.data.get(key) for key in ("signature", "data", "encrypted_content"))
    return next((value for value in values if isinstance(value, str) and is_handle(value)), "")
