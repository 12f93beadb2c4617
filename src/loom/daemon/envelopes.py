"""Envelopes: stored events as they are sent to clients. Deltas are joined, images become references with a preview.

An envelope is `{"seq", "type", "session", "data"}`; its JSON is made once for all clients. `data` is the stored event,
with additions that save a client further requests:

    tool_finished    is sent as `tool_call`, with the call's arguments and its images
    image            contains the URL, the size and a preview
    message_stored   contains the parent of the node
    step_finished    contains the cost, if it is known

A joined envelope has the number of the last event that it joins; a client resumes after the last number that it has.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Final

import msgspec

from loom.api_types import OLDER_NAME
from loom.content.blocks import ImageBlock, ToolCall
from loom.content.media import Media
from loom.daemon.previews import Previews
from loom.errors import ContentError, LoomError
from loom.events import (
    ImageAdded,
    MessageStored,
    NoticeRaised,
    StepFinished,
    StepStarted,
    ToolFinished,
    ToolStarted,
    decode_event,
    encode_event,
)
from loom.runtime.dispatch import Dispatch, NodeFacts
from loom.store.events import StoredEvent
from loom.struct_types import decode_json, json_decoder

TOOL_CALL: Final = "tool_call"
_JOINED: Final = {"text": "text", "thinking": "text", "call": "arguments"}
"""The field that is concatenated, by type."""
_LOOKED_AT: Final = frozenset(
    {"tool_started", "tool_finished", "image", "message_stored", "step_started", "step_finished"}
)
_REMEMBERED_CALLS: Final = 200


class EncodedEnvelope(msgspec.Struct, frozen=True, dict=True):
    """An encoded envelope for the events from `first` to `seq`. `json` is what is sent."""

    first: int
    seq: int
    type: str
    json: bytes
    pictures: tuple[Media, ...] = ()

    @cached_property
    def socket_json(self) -> str:
        """Return the packet data for Socket.IO, with the type first; cached for all clients."""
        return f'["{self.type}",{self.json.decode()}]'


class EventImage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An image in an event: a reference and a preview to show at once."""

    image_id: str
    url: str
    media_type: str
    mime: Annotated[str, OLDER_NAME]
    width: int | None = None
    height: int | None = None
    alt: str = ""
    source: str = ""
    preview: str = ""


class _Delta(msgspec.Struct):
    """The fields of a delta that are needed to join it."""

    text: str = ""
    arguments: str = ""
    index: int = 0


class _NodeField(msgspec.Struct):
    """The field of a stored message that is needed to read its node."""

    node: str


_delta = json_decoder(_Delta)
_stored = json_decoder(_NodeField)


class Composer:
    """Makes the envelopes of one session, for one reader. It remembers started calls, for their arguments, and the
    current model, for prices."""

    def __init__(self, dispatch: Dispatch, previews: Previews, session_id: str) -> None:
        self._dispatch = dispatch
        self._previews = previews
        self._session = session_id
        self._calls: OrderedDict[str, ToolCall] = OrderedDict()
        self._model = ""

    async def compose(self, events: Iterable[StoredEvent]) -> list[EncodedEnvelope]:
        made: list[EncodedEnvelope] = []
        whole = [_event_or_notice(event) for event in events]
        nodes = [_stored.decode(event.data).node for event in whole if event.type == "message_stored"]
        facts = await self._dispatch.node_facts(nodes)
        for run in _runs(whole):
            first, last = run[0], run[-1]
            if len(run) > 1:
                made.append(
                    EncodedEnvelope(first.seq, last.seq, last.type, self._json(last.seq, last.type, _join(run)))
                )
            elif last.type in _LOOKED_AT:
                made.append(await self._summarize(last, facts))
            else:
                made.append(EncodedEnvelope(last.seq, last.seq, last.type, self._json(last.seq, last.type, last.data)))
        return made

    def _json(self, seq: int, kind: str, data: bytes) -> bytes:
        return b'{"seq":%d,"type":"%s","session":"%s","data":%s}' % (seq, kind.encode(), self._session.encode(), data)

    async def _summarize(self, stored: StoredEvent, facts: Mapping[str, NodeFacts]) -> EncodedEnvelope:
        kind, data, pictures = stored.type, stored.data, ()
        match decode_event(stored.data):
            case ToolStarted(call=call):
                self._remember(call)
            case ToolFinished() as finished:
                kind, (data, pictures) = TOOL_CALL, await self._tool_call(finished)
            case ImageAdded() as added:
                shown = await self._picture(added.image)
                data = _append_fields(stored.data, msgspec.to_builtins(shown))
                pictures = (added.image.media,)
            case MessageStored() as message:
                node = facts.get(message.node, NodeFacts(None))
                self._model = node.model or self._model  # for the price of its step
                data = _append_fields(stored.data, {"parent": node.parent})
            case StepStarted(model=model):
                self._model = model
            case StepFinished() as step:
                data = _append_fields(stored.data, {"usd": await asyncio.to_thread(self._cost, step)})
            case _:
                pass
        return EncodedEnvelope(stored.seq, stored.seq, kind, self._json(stored.seq, kind, data), pictures)

    async def _tool_call(self, finished: ToolFinished) -> tuple[bytes, tuple[Media, ...]]:
        result = finished.result
        call = self._calls.pop(result.call_id, None)
        if call is None:  # the call started before this reader did
            call = await self._dispatch.find_call(self._session, result.call_id)
        blocks = [block for block in result.blocks if isinstance(block, ImageBlock)]
        shown = [await self._picture(block) for block in blocks]
        data: dict[str, Any] = {
            "type": TOOL_CALL,
            "call_id": result.call_id,
            "name": result.name or (call.name if call else ""),
            "arguments": call.arguments if call else {},
            "result": result,
            "seconds": finished.seconds,
            "is_error": result.is_error,
            **(msgspec.to_builtins(shown[0]) if shown else {}),
            "images": shown,
        }
        return msgspec.json.encode(data), tuple(block.media for block in blocks)

    async def _picture(self, block: ImageBlock) -> EventImage:
        media = block.media
        return EventImage(
            image_id=media.digest,
            url=f"/v1/media/{media.digest}",
            media_type=media.media_type,
            mime=media.media_type,
            width=media.width,
            height=media.height,
            alt=block.alt or block.description or media.label,
            source=media.source or media.name,
            preview=await self._previews.preview(media),
        )

    def _cost(self, step: StepFinished) -> float | None:
        try:
            return self._dispatch.price(self._model, step.usage) if self._model else None
        except LoomError:  # the model is no longer configured, or no prices are installed
            return None

    def _remember(self, call: ToolCall) -> None:
        self._calls[call.id] = call
        if len(self._calls) > _REMEMBERED_CALLS:
            self._calls.popitem(last=False)


def _event_or_notice(event: StoredEvent) -> StoredEvent:
    """Return the event, or a notice in its place if its row is damaged, so that the sequence has no gap."""
    try:
        if event.type in _LOOKED_AT:
            decode_event(event.data)
        elif event.type in _JOINED:
            _delta.decode(event.data)
        else:
            decode_json(event.data, dict[str, msgspec.Raw])
    except (ContentError, msgspec.DecodeError):
        notice = NoticeRaised(text=f"Event {event.seq} of this session is damaged.", code="event.damaged")
        return msgspec.structs.replace(event, type=notice.type, data=encode_event(notice))
    return event


def _runs(events: Iterable[StoredEvent]) -> Iterable[Sequence[StoredEvent]]:
    """Yield runs of consecutive events that can be joined: deltas of one block."""
    run: list[StoredEvent] = []
    index = 0
    for event in events:
        grows = event.type in _JOINED
        at = _delta.decode(event.data).index if grows else 0
        if run and not (grows and event.type == run[-1].type and at == index):
            yield run
            run = []
        run.append(event)
        index = at
        if not grows:
            yield run
            run = []
    if run:
        yield run


def _join(run: Sequence[StoredEvent]) -> bytes:
    kind, field = run[0].type, _JOINED[run[0].type]
    pieces = [_delta.decode(event.data) for event in run]
    return msgspec.json.encode(
        {"type": kind, "index": pieces[0].index, field: "".join(getattr(piece, field) for piece in pieces)}
    )


def _append_fields(data: bytes, more: dict[str, Any]) -> bytes:
    """Return a JSON object with fields appended."""
    return data[:-1] + b"," + msgspec.json.encode(more)[1:]
