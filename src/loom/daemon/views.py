"""Views: stored sessions and nodes as clients see them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from loom.api_types import MediaMark, SessionState, SessionView, TreeNode
from loom.content.messages import Message, media_of, text_of
from loom.errors import LoomError, StoreError
from loom.message_types import MessageView
from loom.models import Usage
from loom.runtime import Runtime
from loom.runtime.agents import AGENT
from loom.store.nodes import Node
from loom.store.session_rows import StoredSession

LABEL_CHARACTERS: Final = 90
_REMEMBERED: Final = 2_000
_REMEMBERED_PRICES: Final = 50_000


class Summary(msgspec.Struct, frozen=True):
    """A path at a glance. It never changes: a head's id covers everything above it."""

    snippet: str = ""
    thumb: str | None = None


class Views:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._glimpses: OrderedDict[str, Summary] = OrderedDict()
        self._prices: OrderedDict[str, float | None] = OrderedDict()

    async def session(self, stored: StoredSession, state: SessionState) -> SessionView:
        glimpse = await self._glimpse(stored.head_id)
        return SessionView(
            id=stored.id,
            title=stored.title or ("A damaged session" if stored.damage else ""),
            model=stored.model,
            workspace=stored.workspace,
            head=stored.head_id,
            root=stored.root_id,
            rev=stored.rev,
            archived=stored.archived,
            created_at=stored.created_at,
            updated_at=stored.updated_at,
            last_seq=stored.last_seq,
            state=state,
            snippet=stored.damage or glimpse.snippet,
            thumb=glimpse.thumb,
            agent=str(stored.settings.get(AGENT, "")),
        )

    async def _glimpse(self, head: str) -> Summary:
        found = self._glimpses.get(head)
        if found is None:
            try:
                found = _glimpse(await self._runtime.forest.path(head))
            except StoreError:  # one that is damaged is still listed; opening it says what is wrong
                return Summary()
            self._glimpses[head] = found
            if len(self._glimpses) > _REMEMBERED:
                self._glimpses.popitem(last=False)
        self._glimpses.move_to_end(head)
        return found

    async def messages(self, nodes: Sequence[Node], siblings: Mapping[str, tuple[str, ...]]) -> tuple[MessageView, ...]:
        """In a thread: prices are read from a file the first time."""
        return await asyncio.to_thread(
            lambda: tuple(self._message(node, node.message, siblings) for node in nodes if node.message is not None)
        )

    def _message(self, node: Node, message: Message, siblings: Mapping[str, tuple[str, ...]]) -> MessageView:
        meta = node.meta
        usage = msgspec.convert(meta["usage"], Usage) if isinstance(meta.get("usage"), dict) else None
        model = model_of(node)
        seconds = meta.get("seconds")
        return MessageView(
            node=node.id,
            parent=node.parent_id,
            role=message.role,
            source=node.source,
            blocks=message.blocks,
            model=model,
            usage=usage,
            usd=self._usd(node.id, model, usage) if usage else None,
            stop=str(meta.get("finish_reason") or ""),
            seconds=float(seconds) if isinstance(seconds, int | float) else None,
            created_at=node.created_at,
            bookmark=node.bookmark,
            tags=node.tags,
            siblings=siblings.get(node.id, (node.id,)),
        )

    def _usd(self, node: str, model: str, usage: Usage) -> float | None:
        """None where the price is not known. Looking it up takes longer than all the rest of a message."""
        if node not in self._prices:
            try:
                self._prices[node] = self._runtime.cost(self._runtime.model(model), usage) if model else None
            except LoomError:  # a model that is configured no more
                self._prices[node] = None
            if len(self._prices) > _REMEMBERED_PRICES:
                self._prices.popitem(last=False)
        return self._prices[node]


def siblings_of(nodes: Iterable[Node]) -> dict[str, tuple[str, ...]]:
    """For each node of a tree: all children of its parent."""
    families: defaultdict[str, list[str]] = defaultdict(list)
    for node in nodes:
        if node.parent_id is not None:
            families[node.parent_id].append(node.id)
    return {child: tuple(family) for family in families.values() for child in family}


def path_in(nodes: Iterable[Node], head: str) -> list[Node]:
    """From the root to a node of a tree; empty where the node is not in it."""
    by_id = {node.id: node for node in nodes}
    found: list[Node] = []
    at = by_id.get(head)
    while at is not None:
        found.append(at)
        at = by_id.get(at.parent_id) if at.parent_id else None
    return found[::-1]


def tree_node(node: Node) -> TreeNode:
    message = node.message
    media = media_of(message) if message is not None else ()
    return TreeNode(
        node=node.id,
        parent=node.parent_id,
        role=message.role if message is not None else "system",
        source=node.source,
        label=label_of(message) if message is not None else one_line(node.system or "", LABEL_CHARACTERS),
        media=tuple(MediaMark(medium.digest, kind_of(medium.media_type)) for medium in media),
        model=model_of(node),
        created_at=node.created_at,
        bookmark=node.bookmark,
        tags=node.tags,
        depth=node.depth,
    )


def kind_of(media_type: str) -> str:
    return media_type.partition("/")[0] if media_type.startswith(("image/", "audio/")) else "document"


def model_of(node: Node) -> str:
    meta: dict[str, Any] = node.meta
    return f"{meta['provider']}/{meta['model']}" if meta.get("provider") and meta.get("model") else ""


def label_of(message: Message) -> str:
    """Its words; thinking, calls and media only where there are none."""
    said = message.text if message.text.strip() else " ".join(text_of(block) for block in message.blocks)
    return one_line(said, LABEL_CHARACTERS)


def one_line(text: str, most: int) -> str:
    words = " ".join(text[: most * 8].split())
    return words if len(words) <= most else words[: most - 1].rstrip() + "…"


def _glimpse(path: Sequence[Node]) -> Summary:
    """The last words, of people and models; the newest picture, whoever showed it."""
    said = [node.message for node in path if node.message is not None and node.source != "system"]
    words = [message.text for message in said if message.role != "tool" and message.text.strip()]
    media = [medium for message in said for medium in media_of(message)]
    pictures = [medium.digest for medium in media if medium.media_type.startswith("image/")]
    return Summary(
        snippet=one_line(words[-1], LABEL_CHARACTERS) if words else "",
        thumb=pictures[-1] if pictures else None,
    )
