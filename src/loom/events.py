"""Events of a running turn: deltas from the model, and events for interfaces. A fold turns them into a message.

Model events carry the `index` of their block; the message holds its blocks in the order of their index. No event
carries bytes: an image from a model is stored first and arrives as a media reference.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, assert_never, cast, get_args

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
    UnknownBlock,
    clean_text,
)
from loom.content.media import require_text
from loom.content.messages import Message
from loom.errors import ContentError, LoomError
from loom.models import Usage
from loom.struct_types import json_decoder

if TYPE_CHECKING:
    from typing_extensions import TypeIs

StopReason: TypeAlias = Literal[
    "end", "tool_calls", "max_tokens", "stop_sequence", "refusal", "pause", "overflow", "other"
]


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """The base of all events. `type` is a literal of each class, so a type checker narrows an `Event` by `event.type ==
    "text"` and by `match`."""


# Events from a decoder ----------------------------------------------------------------------------------------------


class TextDelta(_Event, frozen=True, tag="text"):
    type: ClassVar[Literal["text"]] = "text"
    text: str
    index: int = 0


class TextSealed(_Event, frozen=True, tag="text_sealed"):
    """Opaque data to send back with this text."""

    type: ClassVar[Literal["text_sealed"]] = "text_sealed"
    index: int
    opaque: Opaque


class Cited(_Event, frozen=True, tag="cited"):
    type: ClassVar[Literal["cited"]] = "cited"
    index: int
    citation: Citation


class ThinkingDelta(_Event, frozen=True, tag="thinking"):
    type: ClassVar[Literal["thinking"]] = "thinking"
    text: str
    index: int = 0


class ThinkingSealed(_Event, frozen=True, tag="thinking_sealed"):
    """The signature of a thinking block, or the content of a redacted one."""

    type: ClassVar[Literal["thinking_sealed"]] = "thinking_sealed"
    index: int
    opaque: Opaque
    redacted: bool = False


class CallStarted(_Event, frozen=True, tag="call_started"):
    type: ClassVar[Literal["call_started"]] = "call_started"
    index: int
    id: str
    name: str


class CallDelta(_Event, frozen=True, tag="call"):
    """A fragment of the arguments' JSON text."""

    type: ClassVar[Literal["call"]] = "call"
    index: int
    arguments: str


class CallFinished(_Event, frozen=True, tag="call_finished"):
    """The arguments are complete. A call without this event was cut off and must not run."""

    type: ClassVar[Literal["call_finished"]] = "call_finished"
    index: int
    opaque: Opaque | None = None


class ImageAdded(_Event, frozen=True, tag="image"):
    type: ClassVar[Literal["image"]] = "image"
    index: int
    image: ImageBlock


class BlockAdded(_Event, frozen=True, tag="block"):
    """A complete provider-specific block: a call of a tool that the provider runs itself, or its result."""

    type: ClassVar[Literal["block"]] = "block"
    index: int
    block: UnknownBlock


class UsageReported(_Event, frozen=True, tag="usage"):
    """Cumulative for the step; the last one counts."""

    type: ClassVar[Literal["usage"]] = "usage"
    usage: Usage


class Stopped(_Event, frozen=True, tag="stopped"):
    """The provider's terminal event. A stream that ends without it is incomplete."""

    type: ClassVar[Literal["stopped"]] = "stopped"
    reason: StopReason
    detail: str = ""
    model: str = ""
    """The model that answered, as the server names it. It may be another than the requested one: an alias or a router
    chooses it."""
    response_id: str = ""
    """The server's name for this answer, for its support and its logs."""


class MediaArrived(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that a model produced. Only decoders emit it; it becomes `ImageAdded` once the bytes are stored."""

    index: int
    media_type: str
    data: bytes


BlockEvent: TypeAlias = (
    TextDelta
    | TextSealed
    | Cited
    | ThinkingDelta
    | ThinkingSealed
    | CallStarted
    | CallDelta
    | CallFinished
    | ImageAdded
    | BlockAdded
)
"""Events about the blocks of an answer."""

ModelEvent: TypeAlias = BlockEvent | UsageReported | Stopped


_MODEL_EVENTS = get_args(ModelEvent)


def is_model_event(event: object) -> TypeIs[ModelEvent]:
    return isinstance(event, _MODEL_EVENTS)


class RetryScheduled(msgspec.Struct, frozen=True, kw_only=True):
    """A provider waits before it sends the request again. Only providers emit it, before the first part of an answer;
    it becomes a notice."""

    seconds: float
    error: LoomError


DecoderEvent: TypeAlias = ModelEvent | MediaArrived | RetryScheduled


# Events for interfaces ---------------------------------------------------------------------------------------------


class TurnStarted(_Event, frozen=True, tag="turn_started"):
    """A turn has started. `message` is the id of the queued message that it answers; empty if it was not queued."""

    type: ClassVar[Literal["turn_started"]] = "turn_started"
    turn: str
    model: str
    message: str = ""


class MessageStored(_Event, frozen=True, tag="message_stored"):
    """The message is stored as this node. It equals what was streamed before."""

    type: ClassVar[Literal["message_stored"]] = "message_stored"
    node: str
    message: Message


class StepStarted(_Event, frozen=True, tag="step_started"):
    type: ClassVar[Literal["step_started"]] = "step_started"
    step: int
    model: str
    tokens: int = 0
    wire_bytes: int = 0


class StepFinished(_Event, frozen=True, tag="step_finished"):
    type: ClassVar[Literal["step_finished"]] = "step_finished"
    step: int
    usage: Usage
    stop: StopReason | None = None
    """None if the stream was cut off."""
    seconds: float = 0.0


class ToolStarted(_Event, frozen=True, tag="tool_started"):
    type: ClassVar[Literal["tool_started"]] = "tool_started"
    call: ToolCall


class ToolProgressed(_Event, frozen=True, tag="tool_progressed"):
    type: ClassVar[Literal["tool_progressed"]] = "tool_progressed"
    call_id: str
    text: str
    fraction: float | None = None

    def __post_init__(self) -> None:
        """Clean the text: file names and tool output may hold characters that cannot be stored."""
        if type(self.text) is not str:
            require_text(self, "text")
        if not self.text.isascii():
            msgspec.structs.force_setattr(self, "text", clean_text(self.text))
        if self.fraction is not None and type(self.fraction) is not float:
            msgspec.structs.force_setattr(self, "fraction", _number(self.fraction))


class ToolFinished(_Event, frozen=True, tag="tool_finished"):
    type: ClassVar[Literal["tool_finished"]] = "tool_finished"
    result: ToolResult
    seconds: float = 0.0


class ApprovalRequested(_Event, frozen=True, tag="approval_requested"):
    """An approval is pending. `action` is the exact command or diff, with control characters escaped."""

    type: ClassVar[Literal["approval_requested"]] = "approval_requested"
    approval: str
    call: ToolCall
    action: str
    pattern: str = ""
    values: dict[str, Any] | None = None
    """The JSON Schema of values to enter: the answer carries them as `reason`. None: yes or no."""


class ApprovalAnswered(_Event, frozen=True, tag="approval_answered"):
    type: ClassVar[Literal["approval_answered"]] = "approval_answered"
    approval: str
    answer: Literal["once", "always", "deny"]
    reason: str = ""
    by: str = ""
    """The user of the daemon who answered; empty for the owner, and if the request was closed without an answer."""


class NoticeRaised(_Event, frozen=True, tag="notice"):
    """A sentence for the user: something was reduced, repaired, retried or learned."""

    type: ClassVar[Literal["notice"]] = "notice"
    text: str
    code: str = ""


class MessageQueued(_Event, frozen=True, tag="message_queued"):
    """A message was queued, paused or resumed. `id` identifies it in the queue; empty if the sender waits for the turn
    instead. `steers`: the running turn reads it at its next step. `paused`: no turn takes it until it is resumed."""

    type: ClassVar[Literal["message_queued"]] = "message_queued"
    message: Message
    id: str = ""
    steers: bool = False
    paused: bool = False


class TurnFinished(_Event, frozen=True, tag="turn_finished"):
    type: ClassVar[Literal["turn_finished"]] = "turn_finished"
    turn: str
    node: str
    stop: StopReason | None
    usage: Usage


class TurnFailed(_Event, frozen=True, tag="turn_failed"):
    """A turn has failed. `code`, `text` and `hint` are those of the error."""

    type: ClassVar[Literal["turn_failed"]] = "turn_failed"
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
    """An event with its number: `seq` counts within the session. The store has every number; on a socket or a stream,
    consecutive parts of a text may be joined, with the number of the last one."""

    seq: int
    session: str
    event: Event


_decoder: msgspec.json.Decoder[Event] = json_decoder(Event)


def _number(fraction: Any) -> float:
    try:
        return float(fraction)
    except (TypeError, ValueError, OverflowError):
        raise ContentError(f"The progress of a tool must be a number, not {repr(fraction)[:80]}") from None


class _StoredMessage(msgspec.Struct, frozen=True):
    """A `MessageStored` in the log: the message itself is in the forest. Older logs contain both."""

    node: str
    type: str = "message_stored"
    message: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_stored_messages = json_decoder(_StoredMessage)


def encode_event(event: Event, *, for_log: bool = False) -> bytes:
    """Return the event as JSON; `for_log` refers to a stored message by its node."""
    if for_log and isinstance(event, MessageStored):
        return msgspec.json.encode(_StoredMessage(event.node))
    return msgspec.json.encode(event)


def stored_node_of(data: bytes) -> str:
    """Return the node that a `MessageStored` of the log refers to; empty if it holds its message."""
    try:
        found = _stored_messages.decode(data)
    except msgspec.DecodeError:
        return ""
    return found.node if found.message is msgspec.UNSET else ""


def decode_event(data: bytes | str) -> Event:
    """Return the event in `data`; raise `ContentError` if it is not an event."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise ContentError(f"Not an event: {error}") from None


# The fold ----------------------------------------------------------------------------------------------------------


class Folded(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a step. `complete` requires the provider's terminal event; `cut_calls` were interrupted."""

    message: Message | None
    usage: Usage
    stop: StopReason | None
    cut_calls: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return self.stop is not None


class _Draft:
    """A block whose deltas are still arriving."""

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
        self.block: UnknownBlock | None = None


class Fold:
    """Collects model events in order. `result()` may be called at any time, also after an interrupted stream."""

    def __init__(self) -> None:
        self._drafts: dict[int, _Draft] = {}
        self._usage = Usage()
        self._stop: StopReason | None = None
        self._result: Folded | None = None

    def add(self, event: ModelEvent) -> None:
        self._result = None
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
            case BlockAdded():
                self._draft(event.index, "block").block = event.block
            case UsageReported():
                self._usage = event.usage
            case Stopped():
                self._stop = event.reason
            case _:
                assert_never(event)

    def result(self) -> Folded:
        if self._result is not None:
            return self._result
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
        self._result = Folded(message=message, usage=self._usage, stop=self._stop, cut_calls=tuple(cut))
        return self._result

    def _draft(self, index: int, kind: str) -> _Draft:
        draft = self._drafts.get(index)
        if draft is None:
            draft = self._drafts[index] = _Draft(kind)
        elif draft.kind != kind:
            raise ContentError(f"Block {index} started as {draft.kind} and continued as {kind}")
        return draft


def fold(events: Iterable[ModelEvent]) -> Folded:
    """Fold all events of a step at once."""
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
        case "block":
            return draft.block
        case _:
            return _call(draft, text, index, seen)


def _call(draft: _Draft, text: str, index: int, seen: set[str]) -> ToolCall:
    """Return the call with a unique id: some servers send none, or the same one twice."""
    call_id = clean_text(draft.call_id) or f"call_{index}"
    while call_id in seen:
        call_id += f"_{index}"
    seen.add(call_id)
    name = clean_text(draft.name) or "unnamed"
    arguments, raw = parse_arguments(text)
    return ToolCall(call_id, name, arguments, raw, draft.opaque)


def parse_arguments(text: str) -> tuple[dict[str, Any], str | None]:
    """Return the arguments as an object, or an empty one and the raw text if it is not a JSON object."""
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
