"""Number the blocks of protocols that stream text, thinking and calls without block numbers.

A new block starts whenever the kind changes. The opaque data of thinking is the field that it came in, `{"field": …}`,
and in which it is sent back: `reasoning_content`, `reasoning` or `thinking`; or `content` for thinking between
`<think>` tags in the text, which is never sent back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from loom.events import DecoderEvent, TextDelta, ThinkingDelta, ThinkingSealed
from loom.models import Model
from loom.wire import shapes

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"


class ThinkTags:
    """Separates `<think>…</think>` at the start of a text from the rest, for any chunking."""

    def __init__(self) -> None:
        self._state: Literal["start", "thinking", "after", "text"] = "start"
        self._held = ""

    def feed(self, text: str) -> Iterator[tuple[Literal["text", "thinking"], str]]:
        self._held += text
        if self._state == "start":
            begun = self._held.lstrip()
            if begun.startswith(_OPEN):
                self._state, self._held = "thinking", begun[len(_OPEN) :]
            elif not _OPEN.startswith(begun):
                self._state = "text"
        if self._state == "thinking":
            thought, closed, rest = self._held.partition(_CLOSE)
            if closed:
                self._state, self._held = "after", rest
            else:
                kept = _overlap(thought)
                thought, self._held = thought[: len(thought) - kept], thought[len(thought) - kept :]
            if thought:
                yield "thinking", thought
        if self._state == "after":
            self._held = self._held.lstrip()
            if self._held:
                self._state = "text"
        if self._state == "text" and self._held:
            held, self._held = self._held, ""
            yield "text", held

    def end(self) -> Iterator[tuple[Literal["text", "thinking"], str]]:
        """Yield the text that was held back because it could have been the start of a tag."""
        held, self._held = self._held, ""
        kind: Literal["text", "thinking"] = "thinking" if self._state == "thinking" else "text"
        self._state = "text"
        if held:
            yield kind, held


class Deltas:
    def __init__(self, model: Model, *, tags: bool) -> None:
        self._model = model
        self._tags = ThinkTags() if tags else None
        self._next = 0
        self._open: Literal["", "text", "thinking"] = ""
        self._field = ""
        self._index = 0
        self.first_thinking: int | None = None
        self.first_field = ""
        self.last_text: int | None = None
        """The latest text block, which annotations belong to."""

    def content(self, text: str) -> Iterator[DecoderEvent]:
        if self._tags is None:
            yield from self._text(text)
            return
        for kind, piece in self._tags.feed(text):
            yield from self._text(piece) if kind == "text" else self.thinking(piece, "content")

    def thinking(self, text: str, field: str) -> Iterator[DecoderEvent]:
        if not text:
            return
        yield from self._enter("thinking")
        self._field = field
        if self.first_thinking is None:
            self.first_thinking, self.first_field = self._index, field
        yield ThinkingDelta(index=self._index, text=text)

    def call(self) -> int:
        """Return the number of a new call. Call `end` first if a block is open."""
        self._next += 1
        return self._next - 1

    def end(self) -> Iterator[DecoderEvent]:
        """End the open block."""
        if self._tags is not None:
            for kind, piece in self._tags.end():
                yield from self._text(piece) if kind == "text" else self.thinking(piece, "content")
        yield from self._seal()
        self._open = ""

    def _text(self, text: str) -> Iterator[DecoderEvent]:
        if text:
            yield from self._enter("text")
            self.last_text = self._index
            yield TextDelta(index=self._index, text=text)

    def _enter(self, kind: Literal["text", "thinking"]) -> Iterator[DecoderEvent]:
        if self._open != kind:
            yield from self._seal()
            self._open, self._index = kind, self.call()

    def _seal(self) -> Iterator[DecoderEvent]:
        if self._open == "thinking":
            opaque = shapes.opaque_of(self._model, {"field": self._field})
            yield ThinkingSealed(index=self._index, opaque=opaque)


def _overlap(text: str) -> int:
    """Return the number of characters at the end of the text that could be the start of the closing tag."""
    sizes = range(min(len(text), len(_CLOSE) - 1), 0, -1)
    return next((size for size in sizes if text.endswith(_CLOSE[:size])), 0)
