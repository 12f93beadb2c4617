"""A client's history against what is stored: the client sends everything again with each request, without what it was
not given (opaque data) and sometimes without what it does not keep (thinking).

Messages that are stored already are used as they are stored, so that each model gets back what it produced; the rest
is appended. Neither copies anything: a message and its place decide its node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from loom.compile.policy import Placed
from loom.content.blocks import Block, Opaque, TextBlock, ThinkingBlock, ToolCall
from loom.content.messages import Message
from loom.daemon.gateway.handles import ThinkingHandle, is_handle

FORGED: Final = "a thinking signature that Loom did not make was left out"


class MatchedHistory(msgspec.Struct, frozen=True):
    """How many messages of the client are on the stored path, and those that are new behind them."""

    common: int
    new: tuple[Message, ...]


def match_history(messages: Sequence[Message], path: Sequence[Placed]) -> MatchedHistory:
    """Compare a client's history with a stored path, from the first message on."""
    common = 0
    for message, placed in zip(messages, path, strict=False):
        if not is_same(message, placed.message):
            break
        common += 1
    return MatchedHistory(common, tuple(messages[common:]))


def is_same(sent: Message, stored: Message) -> bool:
    """Whether a client's message is the stored one, apart from what clients do not keep."""
    if sent.role != stored.role:
        return False
    if sent == stored:
        return True
    return sent.role == "assistant" and _visible(sent) == _visible(stored)


def _visible(message: Message) -> tuple[object, ...]:
    """Words and calls, in order. Neighbouring texts are one: protocols join and split them."""
    found: list[object] = []
    words: list[str] = []
    for block in message.blocks:
        match block:
            case TextBlock(text=text):
                words.append(text)
            case ThinkingBlock():
                continue
            case ToolCall():
                if words:
                    found.append("".join(words).strip())
                    words = []
                found.append((block.id, block.name, msgspec.json.encode(block.arguments, order="sorted")))
            case _:
                found.append(block)
    if words:
        found.append("".join(words).strip())
    return tuple(found)


FindThinking = Callable[[str], Awaitable[ThinkingBlock | None]]
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


def _handle_of(block: Block) -> str:
    if not isinstance(block, ThinkingBlock) or block.opaque is None:
        return ""
    return next((text for text in _texts(block.opaque) if is_handle(text)), "")


def _texts(opaque: Opaque) -> list[str]:
    keys = ("signature", "data", "encrypted_content")
    return [value for key in keys if isinstance(value := opaque.data.get(key), str)]


def thinking_at(message: Message, handle: ThinkingHandle, indexes: Sequence[int]) -> ThinkingBlock | None:
    """Return the thinking block of an answer that a handle names; `indexes` are those of its thinking, in order."""
    thoughts = [block for block in message.blocks if isinstance(block, ThinkingBlock)]
    if handle.index not in indexes:
        return None
    place = list(indexes).index(handle.index)
    return thoughts[place] if place < len(thoughts) else None
