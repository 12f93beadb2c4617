"""Conversations of clients that send their whole history with each request: stored as sessions, told apart from what is
stored already.

Such a client sends everything again, without what it was not given (opaque data) and sometimes without what it does
not keep (thinking). Messages that are stored are used as they are stored, so that each model gets back what it
produced; the rest is appended. Nothing is copied: a message and its place decide its node.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from loom.content.blocks import TextBlock, ThinkingBlock, ToolCall
from loom.content.messages import Message
from loom.errors import Conflict
from loom.store.forest import Forest
from loom.store.gateway import GatewayAnswer, GatewayRecords
from loom.store.nodes import Node
from loom.store.sessions import Sessions

INLINE_NOTICE: Final = "[Loom: {}]\n\n"
"""Begins an answer to tell the user, once a session, that something was reduced for the model."""
_INLINE: Final = re.compile(r"\A\[Loom: [^\]\n]*\]\n\n")
_TITLE_CHARS: Final = 60


class ClientConversations:
    """Sessions of such clients."""

    def __init__(self, forest: Forest, sessions: Sessions, records: GatewayRecords) -> None:
        self._forest = forest
        self._sessions = sessions
        self.records = records

    async def place(self, key: str, system: str, messages: Sequence[Message], *, model: str) -> tuple[str, str]:
        """Store the new messages of the conversation `key`; return its session and the node of the last message."""
        session = await self.records.session_of(key)
        if not session:
            created = await self._sessions.create(
                system=system, title=_title(messages), model=model, settings={"origin": "gateway"}
            )
            session = await self.records.keep_session(key, created.id)
        return session, await self.append(session, messages)

    async def append(self, session: str, messages: Sequence[Message], meta: Mapping[str, Any] | None = None) -> str:
        """Append what is new of a history and return the node of its last message. The head moves there, unless a
        parallel request has moved it: then both are branches."""
        head = (await self._sessions.get(session)).head_id
        root, *nodes = await self._forest.path(head)
        common = count_common(messages, nodes)
        at, rest = (nodes[common - 1].id if common else root.id), list(messages[common:])
        while rest and common < len(nodes):
            below = await self._forest.children(at, session_id=session)
            same = next((node for node in below if node.message and is_same(rest[0], node.message)), None)
            if same is None:
                break
            at, rest = same.id, rest[1:]
        if rest:
            at = (await self._sessions.append_branch(session, at, rest, meta=meta))[-1].id
        if at != head:
            with contextlib.suppress(Conflict):
                await self._sessions.move_head(session, head, at)
        return at

    async def path(self, node: str) -> tuple[str, tuple[Message, ...]]:
        """Return the system prompt and the messages down to a node."""
        root, *nodes = await self._forest.path(node)
        return root.system or "", tuple(node.message for node in nodes if node.message is not None)

    async def message(self, node: str) -> Message | None:
        return (await self._forest.node(node)).message

    async def answer(self, answer_id: str) -> GatewayAnswer | None:
        return await self.records.answer(answer_id)


def count_common(messages: Sequence[Message], path: Sequence[Node]) -> int:
    """Return how many messages, from the first on, are the ones on a stored path."""
    common = 0
    for message, node in zip(messages, path, strict=False):
        if node.message is None or not is_same(message, node.message):
            break
        common += 1
    return common


def is_same(sent: Message, stored: Message) -> bool:
    """Whether a client's message is the stored one, apart from what clients do not keep."""
    if sent.role != stored.role:
        return False
    return sent == stored or (sent.role == "assistant" and _visible(sent) == _visible(stored))


def _visible(message: Message) -> tuple[object, ...]:
    """Words and calls, in order. Neighbouring texts are one: protocols join and split them. The line that tells the
    user of a reduction is not the model's."""
    found: list[object] = []
    words: list[str] = []
    for block in message.blocks:
        match block:
            case TextBlock(text=text):
                words.append(_INLINE.sub("", text, count=1))
            case ThinkingBlock():
                continue
            case ToolCall():
                found += _joined(words)
                words = []
                found.append((block.id, block.name, msgspec.json.encode(block.arguments, order="sorted")))
            case _:
                found.append(block)
    return (*found, *_joined(words))


def _joined(words: Sequence[str]) -> list[str]:
    text = "".join(words).strip()
    return [text] if text else []


def _title(messages: Sequence[Message]) -> str:
    for message in messages:
        for block in message.blocks:
            if message.role == "user" and isinstance(block, TextBlock) and not block.text.lstrip().startswith("<"):
                return " ".join(block.text.split())[:_TITLE_CHARS]
    return ""
