"""Thinking in the history of a client: handles become the blocks that are stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from loom.content.blocks import Block, Opaque, ThinkingBlock
from loom.content.messages import Message
from loom.daemon.gateway.handles import is_handle

FORGED: Final = "a thinking signature that Loom did not make was left out"

FindThinking: TypeAlias = Callable[[str], Awaitable[ThinkingBlock | None]]
"""Returns the stored block that a handle names; None for a forged or unknown one."""


async def restore_thinking(messages: Sequence[Message], find: FindThinking) -> tuple[tuple[Message, ...], bool]:
    """Put stored thinking in the place of handles. Return the messages, and whether a forged handle was left out."""
    restored: list[Message] = []
    is_forged = False
    for message in messages:
        blocks: list[Block] = []
        for block in message.blocks:
            handle = _handle_of(block)
            if not handle:
                blocks.append(block)
                continue
            found = await find(handle)
            is_forged = is_forged or found is None
            if found is not None:
                blocks.append(found)
            elif isinstance(block, ThinkingBlock) and block.text.strip():
                blocks.append(msgspec.structs.replace(block, opaque=None, redacted=False))
        if blocks:
            restored.append(message if tuple(blocks) == message.blocks else Message(message.role, tuple(blocks)))
    return tuple(restored), is_forged


def thinking_at(message: Message, place: int) -> ThinkingBlock | None:
    """Return the thinking block of a stored answer at this place among its thoughts."""
    thoughts = [block for block in message.blocks if isinstance(block, ThinkingBlock)]
    return thoughts[place] if place < len(thoughts) else None


def _handle_of(block: Block) -> str:
    if not isinstance(block, ThinkingBlock) or block.opaque is None:
        return ""
    return next((text for text in _texts(block.opaque) if is_handle(text)), "")


def _texts(opaque: Opaque) -> list[str]:
    keys = ("signature", "data", "encrypted_content")
    return [value for key in keys if isinstance(value := opaque.data.get(key), str)]
