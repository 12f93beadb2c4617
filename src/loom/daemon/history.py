"""History: a session as one snapshot that the stream of events continues exactly.

A message is stored before the event that tells of it, and a session's record holds its head and the number of its last
event side by side. So every message that the events up to that number tell of is among the nodes read after it; what
the running turn has said since its last stored message is in the events, and given along.
"""

from __future__ import annotations

from typing import Final

import msgspec

from loom.daemon.envelopes import Composer
from loom.daemon.services import Daemon
from loom.daemon.views import path_in, siblings_of
from loom.errors import ContentError, NotFound
from loom.events import (
    ApprovalAnswered,
    ApprovalRequested,
    MessageStored,
    TurnFailed,
    TurnFinished,
    TurnStarted,
    decode_event,
)
from loom.message_types import EventEnvelope, History, MessageQuery, QueuedView, Running
from loom.session import Queued
from loom.store.events import StoredEvent
from loom.store.nodes import Node
from loom.store.session_rows import StoredSession

_FIRST_LOOK: Final = 200
_PAGE: Final = 1_000
_MARKS: Final = frozenset(("message_stored", "turn_started", "turn_finished", "turn_failed"))


class LiveState(msgspec.Struct, frozen=True, kw_only=True):
    """What the running turn is at: the events since its last stored message."""

    turn: str = ""
    model: str = ""
    events: tuple[StoredEvent, ...] = ()
    approvals: tuple[ApprovalRequested, ...] = ()


async def history(daemon: Daemon, session_id: str, query: MessageQuery) -> History:
    runtime = daemon.runtime
    stored = await runtime.sessions.get(session_id)
    nodes = await runtime.forest.tree(session_id)
    head = _full(nodes, query.head) if query.head else stored.head_id
    path = path_in(nodes, head) or await runtime.forest.path(head)  # which says what is damaged on the way
    root, said = path[0], [node for node in path if node.message is not None]
    end = _place(said, _full(nodes, query.before)) if query.before else len(said)
    start = max(0, end - query.limit)
    moment = await live_state_of(daemon, stored, path[-1])
    queue = await runtime.queue.list(session_id)
    return History(
        messages=await daemon.views.messages(said[start:end], siblings_of(nodes)),
        more=start > 0,
        system=root.system or "",
        head=stored.head_id,
        seq=stored.last_seq,
        queue=tuple(queued_view(queued) for queued in queue if queued.message is not None),
        approvals=moment.approvals,
        running=await _running(daemon, session_id, moment),
    )


def _full(nodes: tuple[Node, ...], node_id: str) -> str:
    if not any(node.id == node_id for node in nodes):
        raise NotFound("That message is not part of this session.", hint="Look at its tree.")
    return node_id


def _place(said: list[Node], node_id: str) -> int:
    found = next((at for at, node in enumerate(said) if node.id == node_id), None)
    if found is None:
        raise ContentError("That message is not above the head.", hint="Give `head` of the branch that it is on.")
    return found


def queued_view(queued: Queued) -> QueuedView:
    blocks = queued.message.blocks if queued.message is not None else ()
    text = queued.message.text if queued.message is not None else ""
    return QueuedView(message=queued.id, text=text, blocks=blocks, created_at=queued.created_at)


async def live_state_of(daemon: Daemon, stored: StoredSession, head: Node) -> LiveState:
    if "running" not in stored.settings:
        return LiveState()
    events = await _recent(daemon, stored)
    if not events or events[0].type in ("turn_finished", "turn_failed"):
        return LiveState()
    turn, model, last_node = "", "", ""
    since: list[StoredEvent] = []
    asked: dict[str, ApprovalRequested] = {}
    for event in events:
        match _decode_event(event):
            case TurnStarted() as started:
                turn, model = started.turn, started.model
                since.append(event)
            case MessageStored() as message:
                last_node = message.node
                since.clear()
            case ApprovalRequested() as request:
                asked[request.approval] = request
                since.append(event)
            case ApprovalAnswered() as answer:
                asked.pop(answer.approval, None)
                since.append(event)
            case TurnFinished() | TurnFailed():
                return LiveState()
            case _:
                since.append(event)
    running: dict[str, str] = stored.settings["running"]
    is_next = head.parent_id == last_node if last_node else bool(turn)  # a turn begins at a question of the user
    if is_next and head.source != "user":
        since.clear()  # the head holds what they say; the event that tells so is about to be written
    return LiveState(
        turn=turn or running.get("turn", ""),
        model=model or running.get("model", "") or stored.model,
        events=tuple(since),
        approvals=tuple(asked.values()),
    )


def _decode_event(event: StoredEvent) -> object:
    if event.type not in _MARKS and not event.type.startswith("approval_"):
        return None
    try:
        return decode_event(event.data)
    except ContentError:  # damaged: it is shown as such, and says nothing here
        return None


async def _recent(daemon: Daemon, stored: StoredSession) -> list[StoredEvent]:
    """From the last mark on, whichever it is: a stored message, or the beginning or end of a turn."""
    end = stored.last_seq
    reach = _FIRST_LOOK
    while True:
        start = max(0, end - reach)
        found = await _between(daemon, stored.id, start, end)
        at = max((at for at, event in enumerate(found) if event.type in _MARKS), default=-1)
        if at >= 0 or start == 0:
            return found[max(at, 0) :]
        reach *= 4


async def _between(daemon: Daemon, session_id: str, start: int, end: int) -> list[StoredEvent]:
    found: list[StoredEvent] = []
    while start < end:
        page = await daemon.runtime.events.after(session_id, start, min(_PAGE, end - start))
        if not page:
            break
        found += page
        start = page[-1].seq
    return found


async def _running(daemon: Daemon, session_id: str, moment: LiveState) -> Running | None:
    if not moment.turn:
        return None
    composer = Composer(daemon.runtime, daemon.feeds.previews, session_id)
    partial = await composer.compose(moment.events)
    envelopes = tuple(msgspec.json.decode(envelope.json, type=EventEnvelope) for envelope in partial)
    return Running(
        turn=moment.turn,
        model=moment.model,
        partial=envelopes,
    )
