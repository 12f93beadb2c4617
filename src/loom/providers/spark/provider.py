"""Turn the parts of an answer into model events: small deltas, at a pace, up to the token limit, with usage."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Iterator
from typing import Final, assert_never

import msgspec

from loom.compile import cost
from loom.content.blocks import Opaque, TextBlock, ThinkingBlock, ToolCall
from loom.content.messages import text_of
from loom.events import (
    CallDelta,
    CallFinished,
    CallStarted,
    Cited,
    DecoderEvent,
    MediaArrived,
    Stopped,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ThinkingSealed,
    UsageReported,
)
from loom.models import TokenRule, Usage
from loom.prompt import CONTINUE_ANSWER, Prompt, ShownBlock, ShownMedia, ShownRaw, ShownResult
from loom.providers.media_body import MediaSource
from loom.providers.spark.answer import answer
from loom.providers.spark.answer_parts import (
    CallPart,
    CutOffPart,
    ErrorPart,
    ImagePart,
    PausePart,
    TextPart,
    ThinkingPart,
)
from loom.providers.spark.directives import pace_of
from loom.providers.spark.media_reader import SparkReader
from loom.providers.spark.turn import read_turn

DELTA_CHARS: Final = 24
_PAGE_TEXT_TOKENS: Final = 500
"""A page that was not read yet, as `prepare` estimates it."""
_LONGEST_WORD: Final = 80
_WORDS: Final = re.compile(r"\s*\S+\s*")


class SparkProvider:
    """Answers prompts for loom/spark. Without `reads_text` there is no OCR, which saves seconds."""

    def __init__(self, source: MediaSource, *, reads_text: bool = True) -> None:
        self._source = source
        self._reads_text = reads_text

    async def stream(self, prompt: Prompt) -> AsyncIterator[DecoderEvent]:
        """Answer a prompt. An answer that was cut off is continued where it stopped."""
        prompt, begun = _split_cut_answer(prompt)
        async for event in self._answer(prompt):
            match event:
                case TextDelta() if begun and begun.startswith(event.text):
                    begun = begun[len(event.text) :]
                case TextDelta() if begun and event.text.startswith(begun):
                    rest, begun = event.text[len(begun) :], ""
                    yield msgspec.structs.replace(event, text=rest)
                case ThinkingDelta() | ThinkingSealed() if begun:
                    pass
                case _:
                    yield event

    async def _answer(self, prompt: Prompt) -> AsyncIterator[DecoderEvent]:
        turn = read_turn(prompt)
        reader = SparkReader(self._source, reads_text=self._reads_text)
        speech = _Speech(prompt, pace_of(turn.directives))
        async for part in answer(turn, prompt, reader):
            match part:
                case ErrorPart():
                    raise part.error
                case CutOffPart():
                    return
                case PausePart():
                    await asyncio.sleep(part.seconds)
                    continue
                case _:
                    pass
            async for event in speech.events(part):
                yield event
            if speech.is_full:
                break
        for event in speech.end(reader):
            yield event

    async def close(self) -> None:
        """Close nothing: no connection is held open."""


def _split_cut_answer(prompt: Prompt) -> tuple[Prompt, str]:
    """Return the prompt without an answer that is to be continued, and the text of that answer."""
    *earlier, cut, last = prompt.messages if len(prompt.messages) > 1 else (None, None)
    if cut is None or last is None or cut.role != "assistant" or last.role != "user":
        return prompt, ""
    asked = [block.text for block in last.blocks if isinstance(block, TextBlock)]
    if asked != [CONTINUE_ANSWER]:
        return prompt, ""
    begun = "".join(block.text for block in cut.blocks if isinstance(block, TextBlock))
    return msgspec.structs.replace(prompt, messages=tuple(earlier)), begun


class _Speech:
    """Tracks the open block, its length, and the tokens spent."""

    def __init__(self, prompt: Prompt, tokens_per_second: float | None) -> None:
        self._prompt = prompt
        self._pace = tokens_per_second
        self._most = prompt.sampling.max_tokens or prompt.model.limits.max_output_tokens
        self._index = -1
        self._kind: str = ""
        self._length = 0
        self._text_tokens = 0.0
        self._thinking_tokens = 0.0
        self._calls = 0
        self.is_full = False

    async def events(self, part: TextPart | ThinkingPart | ImagePart | CallPart) -> AsyncIterator[DecoderEvent]:
        match part:
            case ThinkingPart():
                opened = self._open("thinking")
            case TextPart():
                opened = self._open("text")
            case ImagePart() | CallPart():
                opened = self._open("")
            case _:
                assert_never(part)
        for event in opened:
            yield event
        match part:
            case ThinkingPart():
                for piece in self._pieces(f"\n{part.text}" if self._length else part.text):
                    self._length += len(piece)
                    yield ThinkingDelta(text=piece, index=self._index)
                    await asyncio.sleep(0)
            case TextPart():
                async for event in self._text_events(part):
                    yield event
            case ImagePart():
                yield MediaArrived(index=self._index, media_type="image/png", data=part.data)
            case CallPart():
                for event in self._call_events(part):
                    yield event
                    await asyncio.sleep(0)

    def end(self, reader: SparkReader) -> Iterator[DecoderEvent]:
        yield from self._seal()
        yield UsageReported(usage=self._usage(reader))
        reason: StopReason = "max_tokens" if self.is_full else "tool_calls" if self._calls else "end"
        yield Stopped(reason=reason)

    def _open(self, kind: str) -> list[DecoderEvent]:
        """Go on in the open block where it is of this kind, else begin the next one."""
        if kind and kind == self._kind:
            return []
        sealed = self._seal()
        self._index += 1
        self._kind, self._length = kind, 0
        return sealed

    def _seal(self) -> list[DecoderEvent]:
        """Thinking comes back to the model that made it, and to no other."""
        if self._kind != "thinking":
            return []
        self._kind = ""
        model = self._prompt.model
        return [
            ThinkingSealed(index=self._index, opaque=Opaque(provider=model.opaque_owner, model=model.name, data={}))
        ]

    async def _text_events(self, part: TextPart) -> AsyncIterator[DecoderEvent]:
        gap = "\n\n" if self._length else ""
        start = self._length + len(gap)
        for piece in self._pieces(gap + part.text):
            await asyncio.sleep(_fine_tokens(piece, self._prompt.model.tokens) / self._pace if self._pace else 0)
            self._length += len(piece)
            yield TextDelta(text=piece, index=self._index)
        for citation in part.citations:
            first, last = (citation.start or 0) + start, (citation.end or 0) + start
            if last <= self._length:
                yield Cited(index=self._index, citation=msgspec.structs.replace(citation, start=first, end=last))

    def _call_events(self, part: CallPart) -> Iterator[DecoderEvent]:
        self._calls += 1
        call_id = f"spark_{_digest(self._prompt)}_{self._calls}"
        yield CallStarted(index=self._index, id=call_id, name=part.name)
        for piece in self._pieces(part.arguments):
            yield CallDelta(index=self._index, arguments=piece)
        if not self.is_full:
            yield CallFinished(index=self._index)

    def _pieces(self, text: str) -> Iterator[str]:
        """A few words at a time, one at a time where there is a pace, until the limit of tokens is reached."""
        rule = self._prompt.model.tokens
        for piece in _group_words(text, 1 if self._pace else DELTA_CHARS):
            tokens = _fine_tokens(piece, rule)
            if self._text_tokens + self._thinking_tokens + tokens > self._most:
                self.is_full = True
                return
            if self._kind == "thinking":
                self._thinking_tokens += tokens
            else:
                self._text_tokens += tokens
            yield piece

    def _usage(self, reader: SparkReader) -> Usage:
        spent = self._text_tokens + self._thinking_tokens
        return Usage(
            input_tokens=_input_tokens(self._prompt, reader),
            output_tokens=round(spent),
            thinking_tokens=round(self._thinking_tokens),
        )


def _fine_tokens(piece: str, rule: TokenRule) -> float:
    """Pieces are counted a hundred at a time: to round up each of them would make an answer longer than it is."""
    return cost.text_tokens(piece * 100, rule) / 100


def _group_words(text: str, least_chars: int) -> Iterator[str]:
    """Yield whole words with the white space around them, joined until they are long enough; very long ones are cut."""
    waiting = ""
    for match in _WORDS.finditer(text):
        word = match[0]
        waiting += word[:_LONGEST_WORD]
        for at in range(_LONGEST_WORD, len(word), _LONGEST_WORD):
            yield waiting
            waiting = word[at : at + _LONGEST_WORD]
        if len(waiting) >= least_chars:
            yield waiting
            waiting = ""
    if waiting:
        yield waiting


def _digest(prompt: Prompt) -> str:
    """Ids of calls differ from those of every earlier step, and are the same for the same prompt."""
    return hashlib.sha256(msgspec.json.encode(prompt.messages)).hexdigest()[:12]


def _input_tokens(prompt: Prompt, reader: SparkReader) -> int:
    rule = prompt.model.tokens
    tools = "".join(msgspec.json.encode(tool).decode() for tool in prompt.tools)
    blocks = sum(_block_tokens(block, prompt, reader) for message in prompt.messages for block in message.blocks)
    around = len(prompt.messages) * cost.message_tokens()
    return cost.text_tokens(prompt.system, rule) + cost.text_tokens(tools, rule) + blocks + around


def _block_tokens(block: ShownBlock, prompt: Prompt, reader: SparkReader) -> int:
    rule = prompt.model.tokens
    match block:
        case TextBlock() | ThinkingBlock():
            return cost.text_tokens(block.text, rule)
        case ToolCall():
            return cost.text_tokens(text_of(block), rule)
        case ShownResult():
            return sum(_block_tokens(inner, prompt, reader) for inner in block.blocks)
        case ShownMedia(kind="image"):
            return cost.image_tokens(block.ref.width or 1, block.ref.height or 1, rule, block.detail)
        case ShownMedia():
            pages = block.ref.pages or 1
            words = reader.texts.get(block.ref)
            text = cost.text_tokens(words, rule) if words is not None else pages * _PAGE_TEXT_TOKENS
            return pages * cost.page_tokens(rule) + text
        case ShownRaw():
            return cost.text_tokens(msgspec.json.encode(block.data).decode(), rule)
        case _:
            assert_never(block)
