"""The API for a daemon besides `Library` and `Session`: which sessions have work, which process runs them, and the
event log that it forwards."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from loom.api_types import SessionState
from loom.content.blocks import ToolCall
from loom.errors import NotFound
from loom.models import Usage
from loom.runtime.event_log import EventLog
from loom.runtime.record import SessionStores
from loom.runtime.views import model_of, state_of
from loom.store.leases import Leases
from loom.store.queue import MessageQueue


class NodeFacts(msgspec.Struct, frozen=True):
    """The parent and the author of a node. `model` is empty if no model wrote the message."""

    parent: str | None
    model: str = ""


class SessionBrief(msgspec.Struct, frozen=True):
    """The facts about a session that a list of sessions shows while its turns run."""

    state: SessionState
    title: str
    rev: int


class Dispatch:
    """The stores that a daemon uses. `price` returns US dollars for the name of a model and its usage; None if the
    price is not known."""

    def __init__(self, stores: SessionStores, price: Callable[[str, Usage], float | None]) -> None:
        self.events: EventLog = stores.events
        self.queue: MessageQueue = stores.queue
        self.leases: Leases = stores.leases
        self.price = price
        self._stores = stores

    async def brief(self, session_id: str, queued: Collection[str]) -> SessionBrief:
        """Return the state, title and revision of a session. `queued` are the ids of sessions with queued messages,
        read before."""
        found = await self._stores.sessions.get(session_id)
        return SessionBrief(state_of(found, queued), found.title, found.rev)

    async def node_facts(self, nodes: Collection[str]) -> dict[str, NodeFacts]:
        """Return the parents and the authors of nodes; without those that were deleted."""
        found = await self._stores.forest.nodes(nodes) if nodes else {}
        return {node: NodeFacts(facts.parent_id, model_of(facts)) for node, facts in found.items()}

    async def find_call(self, session_id: str, call_id: str) -> ToolCall | None:
        """Return a call on the path of a session; None if there is none."""
        try:
            head = (await self._stores.sessions.get(session_id)).head_id
            path = await self._stores.forest.path(head)
        except NotFound:
            return None
        calls = (call for node in reversed(path) if node.message is not None for call in node.message.calls)
        return next((call for call in calls if call.id == call_id), None)
