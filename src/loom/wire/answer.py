"""Encode answers: model events in, the bytes of a protocol's stream out. The reverse of the decoders, for the gateway.

`AnswerWriter` is the common part of the protocols: it writes blocks one after another and keeps them, because each
protocol repeats the whole answer at its end or sends it instead of a stream. Subclasses encode the beginning, the
deltas and the end of a block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal, TypeAlias, cast, final

import msgspec

from loom.content.blocks import Citation, Opaque, UnknownBlock
from loom.content.provider_blocks import PROVIDER_BLOCK
from loom.errors import LoomError
from loom.events import (
    BlockAdded,
    BlockEvent,
    CallDelta,
    CallFinished,
    CallStarted,
    Cited,
    ImageAdded,
    ModelEvent,
    Stopped,
    StopReason,
    TextDelta,
    TextSealed,
    ThinkingDelta,
    ThinkingSealed,
    UsageReported,
    parse_arguments,
)
from loom.models import Usage

BlockKind: TypeAlias = Literal["text", "thinking", "call", "raw"]

SignThinking: TypeAlias = Callable[[int, Opaque | None], str]
"""Returns the text that a client must send back with thinking block `index`: the provider's signature, or a handle."""


class ForeignTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as the client defined it. `name` is the client's name for it, without the namespace."""

    name: str
    namespace: str = ""
    is_freeform: bool = False
    """Whether its input is text instead of a JSON object; models get a tool with one parameter, `input`."""


class AnswerHead(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of an answer that are known before it starts."""

    id: str
    model: str
    """The model name in the client's request."""
    created_at: int = 0
    usage: Usage = Usage()
    """The estimated input tokens; the billed usage is known only at the end."""
    tools: Mapping[str, ForeignTool] = msgspec.field(default_factory=dict[str, ForeignTool])
    """The client's tools that have another name or kind at the model, by their name there."""


@final
class WrittenBlock:
    """The written part of a block. `index` is its number in the model events, `place` its number in the answer."""

    def __init__(self, kind: BlockKind, index: int, place: int) -> None:
        self.kind: BlockKind = kind
        self.index = index
        self.place = place
        self.pieces: list[str] = []
        self.citations: list[Citation] = []
        self.opaque: Opaque | None = None
        self.is_redacted = False
        self.call_id = ""
        self.name = ""
        self.raw: dict[str, Any] = {}
        """A block that only the protocol's own provider has, such as a call of a tool that it runs."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class AnswerWriter(ABC):
    """Encodes one answer as a stream (`start`, `write` …, `finish` or `fail`) or as an object (`write` …, `flush`,
    `to_object`)."""

    OWNER: ClassVar[str] = ""
    """The provider whose own blocks clients of this protocol understand."""

    def __init__(self, head: AnswerHead, sign: SignThinking) -> None:
        self.head = head
        self.sign = sign
        self.blocks: list[WrittenBlock] = []
        self.usage = head.usage
        self.stop: StopReason = "other"
        self._sequence = Sequencer()
        self._open: WrittenBlock | None = None

    @abstractmethod
    def start(self) -> bytes:
        """Return the start of the stream."""

    def write(self, event: ModelEvent) -> bytes:
        """Return the bytes for one event; often empty."""
        match event:
            case UsageReported():
                self.usage = event.usage
            case Stopped():
                self.stop = event.reason
            case BlockAdded(block=block) if not owned_block(block, self.OWNER):
                pass  # a block that only another provider has, and that this protocol cannot express
            case _:
                return b"".join(self._write_block(found) for found in self._sequence.add(event))
        return b""

    def finish(self) -> bytes:
        """Return the end of a complete answer."""
        return self.flush() + self.end()

    def flush(self) -> bytes:
        """Return the events held back, and the end of the last block."""
        rest = b"".join(self._write_block(found) for found in self._sequence.finish())
        return rest + self._close()

    @abstractmethod
    def end(self) -> bytes:
        """Return the end of the stream, after the last block."""

    @abstractmethod
    def fail(self, error: LoomError) -> bytes:
        """Return the end of a stream that failed in the middle."""

    @abstractmethod
    def to_object(self) -> dict[str, Any]:
        """Return the complete answer as one JSON object; call `flush` first."""

    @abstractmethod
    def begin_block(self, block: WrittenBlock) -> bytes: ...

    @abstractmethod
    def add_text(self, block: WrittenBlock, text: str) -> bytes:
        """Return the bytes for a piece of text, thinking, or a call's arguments."""

    def add_citation(self, block: WrittenBlock, citation: Citation) -> bytes:
        """Return the bytes for a citation."""
        return b""

    @abstractmethod
    def end_block(self, block: WrittenBlock) -> bytes: ...

    def _write_block(self, event: BlockEvent) -> bytes:
        head = self._enter(event)
        block = self._open
        if block is None:
            raise AssertionError("an event has a block")
        match event:
            case TextDelta(text=text) | ThinkingDelta(text=text) | CallDelta(arguments=text):
                return head + self._add(block, text)
            case ImageAdded(image=image):
                return head + self._add(block, f"[image: {image.media.name or image.media.digest}]")
            case Cited(citation=citation):
                block.citations.append(citation)
                return head + self.add_citation(block, citation)
            case ThinkingSealed():
                block.opaque, block.is_redacted = event.opaque, event.redacted
                return head
            case TextSealed() | CallStarted() | BlockAdded():
                return head
            case CallFinished():
                return head + self._close()

    def _add(self, block: WrittenBlock, text: str) -> bytes:
        block.pieces.append(text)
        return self.add_text(block, text) if text else b""

    def _enter(self, event: BlockEvent) -> bytes:
        if self._open is not None and self._open.index == event.index:
            return b""
        ended = self._close()
        kind: BlockKind = "text"
        if isinstance(event, BlockAdded):
            kind = "raw"
        elif isinstance(event, ThinkingDelta | ThinkingSealed):
            kind = "thinking"
        elif isinstance(event, CallStarted | CallDelta | CallFinished):
            kind = "call"
        block = self._open = WrittenBlock(kind, event.index, len(self.blocks))
        if isinstance(event, CallStarted):
            block.call_id, block.name = event.id, event.name
        if isinstance(event, ThinkingSealed):
            block.is_redacted = event.redacted
        if isinstance(event, BlockAdded):
            block.raw = owned_block(event.block, self.OWNER)
        self.blocks.append(block)
        return ended + self.begin_block(block)

    def _close(self) -> bytes:
        block, self._open = self._open, None
        return self.end_block(block) if block is not None else b""


@final
class Sequencer:
    """Reorders events so that those of one block are consecutive: some services interleave parallel calls.

    Text and thinking are complete when another block starts, a call at its `CallFinished`. Until then, events of other
    blocks are held back.
    """

    def __init__(self) -> None:
        self._call: int | None = None
        self._last: int | None = None
        self._complete: set[int] = set()
        self._held: dict[int, list[BlockEvent]] = {}

    def add(self, event: BlockEvent) -> Iterator[BlockEvent]:
        """Yield the events that may be written now."""
        if event.index in self._complete:  # a signature that came too late for the stream; it is in the store
            return
        if self._call is not None and event.index != self._call:
            self._held.setdefault(event.index, []).append(event)
            return
        yield from self._pass(event)
        while self._call is None and self._held:
            for held in self._held.pop(next(iter(self._held))):
                yield from self._pass(held)

    def finish(self) -> Iterator[BlockEvent]:
        """Yield the events still held back because the answer ended within a call."""
        held, self._held = self._held, {}
        for events in held.values():
            yield from events

    def _pass(self, event: BlockEvent) -> Iterator[BlockEvent]:
        if self._last is not None and self._last != event.index:
            self._complete.add(self._last)
        self._last = event.index
        match event:
            case CallStarted():
                self._call = event.index
            case CallFinished():
                self._call = None
                self._complete.add(event.index)
            case _:
                pass
        yield event


def owned_block(block: UnknownBlock, owner: str) -> dict[str, Any]:
    """Return the original data of a block that only `owner` has; empty for other blocks."""
    if block.data.get("type") != PROVIDER_BLOCK or block.data.get("provider") != owner:
        return {}
    return cast("dict[str, Any]", block.data.get("block") or {})


def sse(data: Any, event: str = "") -> bytes:
    """Return one server-sent event."""
    text = b"data: " + msgspec.json.encode(data) + b"\n\n"
    return f"event: {event}\n".encode() + text if event else text


def freeform_input(arguments: str) -> str:
    """Return the text that a model passed to a freeform tool in its only parameter."""
    value = parse_arguments(arguments)[0].get("input")
    return value if isinstance(value, str) else arguments
