"""Events: what a model says while it speaks, and what faces see. One fold turns deltas into the message that is stored.

Model events carry the `index` of the block they belong to; blocks stand in the message in the order of their index.
No event carries bytes: a picture that a model drew arrives here as the media that the store already holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias, assert_never, cast

import msgspec

from loom.content.blocks import (
    Block,
    Citation,
    ImageBlock,
    Opaque,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    clean_text,
)
from loom.content.media import make_plain
from loom.content.messages import Message
from loom.errors import ContentError
from loom.models import Usage

StopReason: TypeAlias = Literal[
    "end", "tool_calls", "max_tokens", "stop_sequence", "refusal", "pause", "overflow", "other"
]


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    @property
    def type(self) -> str:
        return cast("str", self.__struct_config__.tag)


# What a decoder gives ----------------------------------------------------------------------------------------------


class TextDelta(_Event, frozen=True, tag="text"):
    text: str
    index: int = 0


class TextSealed(_Event, frozen=True, tag="text_sealed"):
    """Data that the provider wants back with this text."""

    index: int
    opaque: Opaque


class Cited(_Event, frozen=True, tag="cited"):
    index: int
    citation: Citation


class ThinkingDelta(_Event, frozen=True, tag="thinking"):
    text: str
    index: int = 0


class ThinkingSealed(_Event, frozen=True, tag="thinking_sealed"):
    """The signature of a thinking block, or the whole of a redacted one."""

    index: int
    opaque: Opaque
    redacted: bool = False


class CallStarted(_Event, frozen=True, tag="call_started"):
    index: int
    id: str
    name: str


class CallDelta(_Event, frozen=True, tag="call"):
    """A fragment of the arguments' JSON text."""

    index: int
    arguments: str


class CallFinished(_Event, frozen=True, tag="call_finished"):
    """The arguments are whole. A call without this event was cut off and must not run."""

    index: int
    opaque: Opaque | None = None


class ImageAdded(_Event, frozen=True, tag="image"):
    index: int
    image: ImageBlock


class UsageReported(_Event, frozen=True, tag="usage"):
    """Cumulative for the step; the last one counts."""

    usage: Usage


class Stopped(_Event, frozen=True, tag="stopped"):
    """The provider's terminal event. A stream that ends without it is incomplete."""

    reason: StopReason
    detail: str = ""


class MediaArrived(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that a model made. Only a decoder gives it; it becomes `ImageAdded` once the store holds them."""

    index: int
    media_type: str
    data: bytes


ModelEvent: TypeAlias = (
    TextDelta
    | TextSealed
    | Cited
    | ThinkingDelta
    | ThinkingSealed
    | CallStarted
    | CallDelta
    | CallFinished
    | ImageAdded
    | UsageReported
    | Stopped
)


DecoderEvent: TypeAlias = ModelEvent | MediaArrived


# What faces see besides --------------------------------------------------------------------------------------------


class TurnStarted(_Event, frozen=True, tag="turn_started"):
    """`message` is the id of the queued message that it answers, where it was queued."""

    turn: str
    model: str
    message: str = ""


class MessageStored(_Event, frozen=True, tag="message_stored"):
    """A message is on disk as this node; what was streamed before is what it holds."""

    node: str
    message: Message


class StepStarted(_Event, frozen=True, tag="step_started"):
    step: int
    model: str
    tokens: int = 0
    wire_bytes: int = 0


class StepFinished(_Event, frozen=True, tag="step_finished"):
    step: int
    usage: Usage
    stop: StopReason | None = None
    """None where the stream was cut."""
    seconds: float = 0.0


class ToolStarted(_Event, frozen=True, tag="tool_started"):
    call: ToolCall


class ToolProgressed(_Event, frozen=True, tag="tool_progressed"):
    call_id: str
    text: str
    fraction: float | None = None

    def __post_init__(self) -> None:
        """A tool says what it likes, file names too: it must not end the turn that records it."""
        if type(self.text) is not str:
            make_plain(self, "text")
        if not self.text.isascii():
            msgspec.structs.force_setattr(self, "text", clean_text(self.text))
        if self.fraction is not None and type(self.fraction) is not float:
            msgspec.structs.force_setattr(self, "fraction", _number(self.fraction))


class ToolFinished(_Event, frozen=True, tag="tool_finished"):
    result: ToolResult
    seconds: float = 0.0


class ApprovalRequested(_Event, frozen=True, tag="approval_requested"):
    """`action` is the real command or diff, with control characters made visible."""

    approval: str
    call: ToolCall
    action: str
    pattern: str = ""


class ApprovalAnswered(_Event, frozen=True, tag="approval_answered"):
    approval: str
    answer: Literal["once", "always", "deny"]
    reason: str = ""


class NoticeRaised(_Event, frozen=True, tag="notice"):
    """One sentence for the user: something was reduced, repaired, retried or learned."""

    text: str
    code: str = ""


class MessageQueued(_Event, frozen=True, tag="message_queued"):
    """`id` is its place in the queue; empty where only who asked waits."""

    message: Message
    id: str = ""


class TurnFinished(_Event, frozen=True, tag="turn_finished"):
    turn: str
    node: str
    stop: StopReason | None
    usage: Usage


class TurnFailed(_Event, frozen=True, tag="turn_failed"):
    """`code` is the error's, `text` its sentence, `hint` the next step."""

    turn: str
    code: str
    text: str
    hint: str = ""


Event: TypeAlias = (
    ModelEvent
    | TurnStarted
    | MessageStored
    | StepStarted
    | StepFinished
    | ToolStarted
    | ToolProgressed
    | ToolFinished
    | ApprovalRequested
    | ApprovalAnswered
    | NoticeRaised
    | MessageQueued
    | TurnFinished
    | TurnFailed
)


class Envelope(msgspec.Struct, frozen=True):
    """An event in its place: `seq` counts within the session, without gaps."""

    seq: int
    session: str
    event: Event


_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def _number(fraction: Any) -> float:
    try:
        return float(fraction)
    except (TypeError, ValueError, OverflowError):
        raise ContentError(f"how far a tool is, is a number, not {repr(fraction)[:80]}") from None


def encode_event(event: Event) -> bytes:
    return msgspec.json.encode(event)


def decode_event(data: bytes | str) -> Event:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise ContentError(f"not an event: {error}") from None


# The fold ----------------------------------------------------------------------------------------------------------


class Folded(msgspec.Struct, frozen=True, kw_only=True):
    """What a step amounts to. `complete` only with the provider's terminal event; `cut_calls` were not whole."""

    message: Message | None
    usage: Usage
    stop: StopReason | None
    cut_calls: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return self.stop is not None


class _Draft:
    """One block in the making."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.citations: list[Citation] = []
        self.opaque: Opaque | None = None
        self.redacted = False
        self.call_id = ""
        self.name = ""
        self.finished = False
        self.image: ImageBlock | None = None


class Fold:
    """Feed it model events in order; `result()` may be asked at any time, also after a cut."""

    def __init__(self) -> None:
        self._drafts: dict[int, _Draft] = {}
        self._usage = Usage()
        self._stop: StopReason | None = None

    def add(self, event: ModelEvent) -> None:
        match event:
            case TextDelta():
                self._draft(event.index, "text").pieces.append(event.text)
            case TextSealed():
                self._draft(event.index, "text").opaque = event.opaque
            case Cited():
                self._draft(event.index, "text").citations.append(event.citation)
            case ThinkingDelta():
                self._draft(event.index, "thinking").pieces.append(event.text)
            case ThinkingSealed():
                draft = self._draft(event.index, "thinking")
                draft.opaque, draft.redacted = event.opaque, event.redacted
            case CallStarted():
                draft = self._draft(event.index, "call")
                draft.call_id, draft.name = event.id, event.name
            case CallDelta():
                self._draft(event.index, "call").pieces.append(event.arguments)
            case CallFinished():
                draft = self._draft(event.index, "call")
                draft.finished, draft.opaque = True, event.opaque
            case ImageAdded():
                self._draft(event.index, "image").image = event.image
            case UsageReported():
                self._usage = event.usage
            case Stopped():
                self._stop = event.reason
            case _:
                assert_never(event)

    def result(self) -> Folded:
        blocks: list[Block] = []
        cut: list[str] = []
        seen: set[str] = set()
        for index in sorted(self._drafts):
            draft = self._drafts[index]
            if draft.kind == "call" and not draft.finished:
                cut.append(draft.name)
                continue
            block = _finish(draft, index, seen)
            if block is not None:
                blocks.append(block)
        message = Message("assistant", tuple(blocks)) if blocks else None
        return Folded(message=message, usage=self._usage, stop=self._stop, cut_calls=tuple(cut))

    def _draft(self, index: int, kind: str) -> _Draft:
        draft = self._drafts.get(index)
        if draft is None:
            draft = self._drafts[index] = _Draft(kind)
        elif draft.kind != kind:
            raise ContentError(f"block {index} began as {draft.kind} and goes on as {kind}")
        return draft


def fold(events: Iterable[ModelEvent]) -> Folded:
    folding = Fold()
    for event in events:
        folding.add(event)
    return folding.result()


def _finish(draft: _Draft, index: int, seen: set[str]) -> Block | None:
    text = clean_text("".join(draft.pieces))
    match draft.kind:
        case "text":
            return TextBlock(text, tuple(draft.citations), draft.opaque) if text.strip() else None
        case "thinking":
            if not text.strip() and draft.opaque is None:
                return None
            return ThinkingBlock(text, draft.redacted, draft.opaque)
        case "image":
            return draft.image
        case _:
            return _call(draft, text, index, seen)


def _call(draft: _Draft, text: str, index: int, seen: set[str]) -> ToolCall:
    """Some servers give no id, or one id twice: a call must still be answerable."""
    call_id = clean_text(draft.call_id) or f"call_{index}"
    while call_id in seen:
        call_id += f"_{index}"
    seen.add(call_id)
    name = clean_text(draft.name) or "unnamed"
    arguments, raw = parse_arguments(text)
    return ToolCall(call_id, name, arguments, raw, draft.opaque)


def parse_arguments(text: str) -> tuple[dict[str, Any], str | None]:
    """The arguments that a model wrote: an object, or nothing and the raw text that was none."""
    if not text.strip():
        return {}, None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}, text
    if not isinstance(value, dict):
        return ({}, None) if value is None else ({}, text)
    arguments = cast("dict[str, Any]", value)
    try:
        ToolCall("-", "-", arguments)
    except ContentError:
        return {}, text
    return arguments, None
