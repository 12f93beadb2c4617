"""Views: stored sessions and nodes in the form that `Session` and `Library` return."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from loom.agent.plan_mode import is_planning
from loom.api_types import MediaMark, SessionState, SessionUsage, SessionView, TreeNode, UsageTotals
from loom.content.media_kinds import media_kind
from loom.content.messages import Message, media_of, text_of
from loom.errors import LoomError
from loom.message_types import MessageView
from loom.models import Usage
from loom.runtime.agents import AGENT
from loom.runtime.session_settings import tools_of
from loom.sampling import stored_sampling
from loom.store.forest import Forest
from loom.store.nodes import Node
from loom.store.queue import MessageQueue
from loom.store.session_rows import StoredSession
from loom.struct_types import convert
from loom.tools.background import BackgroundProcess
from loom.work_types import ProcessView

LABEL_CHARACTERS: Final = 90
_REMEMBERED: Final = 2_000
_REMEMBERED_PRICES: Final = 10_000


class Summary(msgspec.Struct, frozen=True):
    """The last text and the newest image of a path. It never changes, because the id of a head covers everything above
    it."""

    snippet: str = ""
    thumb: str | None = None


class Views:
    """Builds views. `price` returns US dollars for a model's name and its usage; None if the price is not known."""

    def __init__(self, forest: Forest, queue: MessageQueue, price: Callable[[str, Usage], float | None]) -> None:
        self._forest = forest
        self._queue = queue
        self._price = price
        self._summaries: OrderedDict[str, tuple[str, Summary]] = OrderedDict()
        """The head and its summary, by session."""
        self._prices: OrderedDict[tuple[str, Usage], float | None] = OrderedDict()

    async def queued_sessions(self) -> frozenset[str]:
        """Return the ids of sessions with queued messages. Read them before the sessions: a message leaves the queue
        when its turn starts, so in the other order a session whose turn starts in between would look idle."""
        return frozenset(await self._queue.waiting())

    async def session(self, stored: StoredSession, queued: Collection[str]) -> SessionView:
        """Return the view of a session. `queued` are the ids of sessions with queued messages, read before `stored`."""
        return (await self.sessions((stored,), queued))[0]

    async def sessions(self, stored: Sequence[StoredSession], queued: Collection[str]) -> tuple[SessionView, ...]:
        """Return the views of several sessions. `queued` are the ids of sessions with queued messages, read before
        `stored`."""
        summaries = await self._summarize(stored)
        return tuple(self._session(one, summaries[one.id], queued) for one in stored)

    def drop(self, session_id: str) -> None:
        """Forget a deleted session."""
        self._summaries.pop(session_id, None)

    def _session(self, stored: StoredSession, summary: Summary, queued: Collection[str]) -> SessionView:
        return SessionView(
            id=stored.id,
            title=stored.title or ("A damaged session" if stored.damage else ""),
            model=stored.model,
            workspace=stored.workspace,
            head=stored.head_id,
            root=stored.root_id,
            rev=stored.rev,
            archived=stored.archived,
            folder=stored.folder,
            tags=stored.tags,
            pinned=stored.pinned,
            created_at=stored.created_at,
            updated_at=stored.updated_at,
            last_seq=stored.last_seq,
            state=state_of(stored, queued),
            options=stored_sampling(stored.settings.get("options")),
            snippet=stored.damage or summary.snippet,
            thumb=summary.thumb,
            agent=str(stored.settings.get(AGENT, "")),
            tools=tools_of(stored.settings),
            plan_mode=is_planning(stored.settings),
            damage=stored.damage,
            parent_session=stored.parent_session,
        )

    async def _summarize(self, stored: Sequence[StoredSession]) -> dict[str, Summary]:
        known = {one.id: self._summaries.get(one.id, ("", Summary())) for one in stored}
        unknown = dict.fromkeys(one.head_id for one in stored if known[one.id][0] != one.head_id)
        latest = await self._forest.latest(unknown) if unknown else {}
        found: dict[str, Summary] = {}
        for one in stored:
            head = one.head_id
            found[one.id] = _summary_of(latest[head]) if head in latest else known[one.id][1]
            self._summaries[one.id] = head, found[one.id]
            self._summaries.move_to_end(one.id)
        while len(self._summaries) > _REMEMBERED:
            self._summaries.popitem(last=False)
        return found

    async def messages(self, nodes: Sequence[Node], siblings: Mapping[str, tuple[str, ...]]) -> tuple[MessageView, ...]:
        # In a thread: prices are read from a file the first time.
        return await asyncio.to_thread(
            lambda: tuple(self._message(node, node.message, siblings) for node in nodes if node.message is not None)
        )

    def _message(self, node: Node, message: Message, siblings: Mapping[str, tuple[str, ...]]) -> MessageView:
        meta = node.meta
        usage = convert(meta["usage"], Usage) if isinstance(meta.get("usage"), dict) else None
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
            usd=self._usd(model, usage) if usage else None,
            stop=str(meta.get("finish_reason") or ""),
            seconds=float(seconds) if isinstance(seconds, int | float) else None,
            created_at=node.created_at,
            bookmark=node.bookmark,
            tags=node.tags,
            siblings=siblings.get(node.id, (node.id,)),
        )

    def _usd(self, model: str, usage: Usage) -> float | None:
        # Cached, because looking up a price takes longer than the rest of a message.
        wanted = model, usage
        if wanted not in self._prices:
            try:
                self._prices[wanted] = self._price(model, usage) if model else None
            except LoomError:  # the model is no longer configured
                self._prices[wanted] = None
            if len(self._prices) > _REMEMBERED_PRICES:
                self._prices.popitem(last=False)
        return self._prices[wanted]


def usage_of(messages: Iterable[MessageView], head: str) -> SessionUsage:
    """Return the usage of all answers of a tree, and of those from the root to `head`."""
    by_id = {message.node: message for message in messages}
    path: set[str] = set()
    at = by_id.get(head)
    while at is not None:
        path.add(at.node)
        at = by_id.get(at.parent or "")
    return SessionUsage(
        path=_total(message for message in by_id.values() if message.node in path), total=_total(by_id.values())
    )


def _total(messages: Iterable[MessageView]) -> UsageTotals:
    paid = [message for message in messages if message.usage is not None]
    usd = [message.usd for message in paid if message.usd is not None]
    used = sum((message.usage for message in paid if message.usage is not None), start=Usage())
    return UsageTotals(answers=len(paid), usage=used, usd=sum(usd) if len(usd) == len(paid) else None)


def state_of(session: StoredSession, queued: Collection[str]) -> SessionState:
    """Return the state of a session. `queued` are the ids of sessions with queued messages, read before `session`."""
    running = running_turn(session)
    if running.get("approvals"):
        return "waiting"
    if running.get("turn"):
        return "running"
    return "queued" if session.id in queued else "idle"


def running_turn(session: StoredSession) -> dict[str, Any]:
    """Return the stored checkpoint of the running turn; empty if there is none."""
    return session.settings.get("running", {})


def siblings_of(nodes: Iterable[Node]) -> dict[str, tuple[str, ...]]:
    """Map each node to all children of its parent."""
    families: defaultdict[str, list[str]] = defaultdict(list)
    for node in nodes:
        if node.parent_id is not None:
            families[node.parent_id].append(node.id)
    return {child: tuple(family) for family in families.values() for child in family}


def tree_node(node: Node) -> TreeNode:
    message = node.message
    media = media_of(message) if message is not None else ()
    return TreeNode(
        node=node.id,
        parent=node.parent_id,
        role=message.role if message is not None else "system",
        source=node.source,
        label=message_label(message) if message is not None else one_line(node.system or "", LABEL_CHARACTERS),
        media=tuple(MediaMark(medium.digest, kind_of(medium.media_type)) for medium in media),
        model=model_of(node),
        created_at=node.created_at,
        bookmark=node.bookmark,
        tags=node.tags,
        depth=node.depth,
    )


def kind_of(media_type: str) -> str:
    return media_kind(media_type).name


def model_of(node: Node) -> str:
    meta: dict[str, Any] = node.meta
    model = str(meta.get("model") or "")
    return f"{meta['provider']}/{model}" if meta.get("provider") and model else model


def message_label(message: Message) -> str:
    """Return the text of a message in one line; if it has none, its thinking, calls and media."""
    said = message.text if message.text.strip() else " ".join(text_of(block) for block in message.blocks)
    return one_line(said, LABEL_CHARACTERS)


def one_line(text: str, most: int) -> str:
    words = " ".join(text[: most * 8].split())
    return words if len(words) <= most else words[: most - 1].rstrip() + "…"


def _summary_of(path: Sequence[Node]) -> Summary:
    said = [node.message for node in path if node.message is not None and node.source != "system"]
    words = [message.text for message in said if message.role != "tool" and message.text.strip()]
    media = [medium for message in said for medium in media_of(message)]
    pictures = [medium.digest for medium in media if medium.media_type.startswith("image/")]
    return Summary(
        snippet=one_line(words[-1], LABEL_CHARACTERS) if words else "",
        thumb=pictures[-1] if pictures else None,
    )


async def process_views(session_id: str, processes: Sequence[BackgroundProcess]) -> tuple[ProcessView, ...]:
    """Refresh the background processes of a session, and return their views."""
    for process in processes:
        await asyncio.to_thread(process.look)
    return tuple(
        ProcessView(
            session=session_id,
            process=process.name,
            command=process.command,
            is_running=process.is_running,
            exit_code=process.exit_code,
            ports=process.ports,
            seconds=round(time.monotonic() - process.began, 1),
        )
        for process in processes
    )
