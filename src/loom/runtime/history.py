"""History: a session as one snapshot that the stream of events continues without a gap.

A message is stored before its event, and the row of a session holds both its head and the number of its last event. So
the nodes that are read afterwards include every message that the events up to that number report. What the running turn
has streamed since its last stored message is taken from the events, and so is what ended the last turn.
"""

from __future__ import annotations

from typing import Final

import msgspec

from loom.errors import ContentError
from loom.events import (
    ApprovalAnswered,
    ApprovalRequested,
    MessageStored,
    NoticeRaised,
    TurnFailed,
    TurnFinished,
    TurnStarted,
    decode_event,
    stored_node_of,
)
from loom.message_types import EventEnvelope, History, MessageQuery, NoticeView, QueuedView, Running
from loom.runtime.record import SessionStores
from loom.runtime.session_settings import system_prompt_of
from loom.runtime.views import Views, running_turn
from loom.session import Queued
from loom.store.events import StoredEvent
from loom.store.session_rows import StoredSession

_FIRST_LOOK: Final = 200
_PAGE: Final = 1_000
_MARKS: Final = frozenset(("message_stored", "turn_started", "turn_finished", "turn_failed"))
_TURN_ENDS: Final = ("turn_finished", "turn_failed")
_TURN_FACTS: Final = ("notice", "message_stored", "turn_started", *_TURN_ENDS)


class LiveState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the running turn. `events` are those since its last stored message."""

    turn: str = ""
    model: str = ""
    events: tuple[StoredEvent, ...] = ()
    approvals: tuple[ApprovalRequested, ...] = ()


async def read_history(stores: SessionStores, views: Views, session_id: str, query: MessageQuery) -> History:
    """Return a page of the messages above a node, and the state of the session. The envelopes of the running turn are
    the stored events."""
    stored = await stores.sessions.get(session_id)
    head = query.head or stored.head_id
    page = await stores.forest.page(session_id, head, before=query.before, limit=query.limit)
    live = await live_state_of(stores, stored, head)
    failure, notices = await _last_turn(stores, stored)
    queue = await stores.queue.list(session_id)
    return History(
        messages=await views.messages(page.nodes, page.siblings),
        more=page.has_more,
        system=system_prompt_of(stored.settings, page.system),
        head=stored.head_id,
        seq=stored.last_seq,
        queue=tuple(queued_view(queued) for queued in queue if queued.message is not None),
        approvals=live.approvals,
        running=_running(session_id, live),
        branches=len(await stores.sessions.tips(session_id)),
        failure=failure,
        notices=notices,
    )


async def _last_turn(stores: SessionStores, stored: StoredSession) -> tuple[TurnFailed | None, tuple[NoticeView, ...]]:
    """Return how the last turn failed, if it did, and its notices, with those about its message, which come before its
    start; then the early ones of the next turn. A turn may fail before it starts."""
    failure: TurnFailed | None = None
    notices: list[NoticeView] = []
    early: list[NoticeView] = []
    is_running = False
    first = last = ""
    events = await stores.events.since_last(
        stored.id, "turn_started", _TURN_FACTS, ends=_TURN_ENDS, until=stored.last_seq
    )
    for event in events:
        if event.type == "message_stored" and (node := stored_node_of(event.data)):
            first, last = first or node, node
            continue
        match _decode_event(event):
            case NoticeRaised() as notice:
                (notices if is_running else early).append(NoticeView(text=notice.text, code=notice.code, after=last))
            case MessageStored(node=last):
                first = first or last
            case TurnStarted():
                notices, early, is_running = early, [], True
            case TurnFailed() | TurnFinished() as end:
                if not is_running:
                    notices, early = early, []
                failure, is_running = end if isinstance(end, TurnFailed) else None, False
            case _:
                pass
    notices += [msgspec.structs.replace(notice, is_early=True) for notice in early]
    if any(not notice.after for notice in notices):
        found = await stores.forest.nodes([first]) if first else {}  # without it if it is damaged
        begin = (found[first].parent_id or "") if first in found else stored.head_id
        notices = [msgspec.structs.replace(notice, after=notice.after or begin) for notice in notices]
    return failure, tuple(notices)


def queued_view(queued: Queued) -> QueuedView:
    blocks = queued.message.blocks if queued.message is not None else ()
    text = queued.message.text if queued.message is not None else ""
    return QueuedView(
        message=queued.id,
        text=text,
        blocks=blocks,
        created_at=queued.created_at,
        steers=queued.options.steers,
        paused=queued.is_paused,
    )


async def live_state_of(stores: SessionStores, stored: StoredSession, head_id: str) -> LiveState:
    if "running" not in stored.settings:
        return LiveState()
    head = await stores.forest.node(head_id)
    events = await _recent_events(stores, stored)
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
    running = running_turn(stored)
    is_next = head.parent_id == last_node if last_node else bool(turn)  # a turn begins at a question of the user
    if is_next and head.source != "user":
        since.clear()  # the head already contains their text; its event is about to be written
    return LiveState(
        turn=turn or running.get("turn", ""),
        model=model or running.get("model", "") or stored.model,
        events=tuple(since),
        approvals=tuple(asked.values()),
    )


def _decode_event(event: StoredEvent) -> object:
    if event.type not in _MARKS and event.type != "notice" and not event.type.startswith("approval_"):
        return None
    try:
        return decode_event(event.data)
    except ContentError:  # a damaged event is shown as damaged
        return None


async def _recent_events(stores: SessionStores, stored: StoredSession) -> list[StoredEvent]:
    """Return the events since the last stored message, or since the last start or end of a turn."""
    end = stored.last_seq
    reach = _FIRST_LOOK
    while True:
        start = max(0, end - reach)
        found = await _events_between(stores, stored.id, start, end)
        at = max((at for at, event in enumerate(found) if event.type in _MARKS), default=-1)
        if at >= 0 or start == 0:
            return found[max(at, 0) :]
        reach *= 4


async def _events_between(stores: SessionStores, session_id: str, start: int, end: int) -> list[StoredEvent]:
    found: list[StoredEvent] = []
    while start < end:
        page = await stores.events.after(session_id, start, min(_PAGE, end - start))
        if not page:
            break
        found += page
        start = page[-1].seq
    return found


def _running(session_id: str, live: LiveState) -> Running | None:
    if not live.turn:
        return None
    partial = tuple(
        EventEnvelope(seq=event.seq, type=event.type, session=session_id, data=msgspec.Raw(event.data))
        for event in live.events
    )
    return Running(turn=live.turn, model=live.model, partial=partial)
