"""Turn the parts of an answer into model events: small deltas, at a pace, up to the token limit, with usage."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final, assert_never

import msgspec

from loom.compile import cost
from loom.compile.limits import PAGE_TEXT_TOKENS
from loom.content.blocks import Opaque, TextBlock, ThinkingBlock, ToolCall
from loom.content.messages import text_of
from loom.errors import LoomError
from loom.events import (
    CallDelta,
    CallFinished,
    CallStarted,
    Cited,
    DecoderEvent,
    MediaArrived,
    Stopped,
    TextDelta,
    ThinkingDelta,
    ThinkingSealed,
    UsageReported,
)
from loom.models import TokenRule, Usage
from loom.prompt import CONTINUE_ANSWER, Prompt, ShownBlock, ShownMedia, ShownRaw, ShownResult
from loom.providers.media_body import MediaSource
from loom.providers.spark.answer import SparkReader, answer
from loom.providers.spark.answer_parts import AnswerPart, CallPart, CutOffError, ImagePart, TextPart, ThinkingPart
from loom.providers.spark.conversation import read_turn
from loom.providers.spark.directives import pace_of

_PIECES: Final = re.compile(r".{1,24}\S{0,56}\s*", re.DOTALL)
_WORDS: Final = re.compile(r"\s*\S{0,80}\s*", re.DOTALL)


class SparkProvider:
    """Answers prompts for loom/spark. `reads_text` False disables OCR, which takes seconds."""

    def __init__(self, source: MediaSource, *, reads_text: bool = True) -> None:
        self._source = source
        self._reads_text = reads_text

    async def stream(self, prompt: Prompt) -> AsyncIterator[DecoderEvent]:
        """Answer a prompt. To continue an answer that was cut off, make it again without the part already shown."""
        begun = ""
        if len(prompt.messages) > 1:
            *earlier, cut, last = prompt.messages
            asked = [block.text for block in last.blocks if isinstance(block, TextBlock)]
            if cut.role == "assistant" and last.role == "user" and asked == [CONTINUE_ANSWER]:
                begun = "".join(block.text for block in cut.blocks if isinstance(block, TextBlock))
                prompt = msgspec.structs.replace(prompt, messages=tuple(earlier))
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
        deltas = _Deltas(prompt, pace_of(turn.directives))
        try:
            async for part in answer(turn, prompt, reader):
                async for event in deltas.of(part):
                    yield event
                if deltas.is_full:
                    break
        except CutOffError:
            return
        for event in deltas.seal():
            yield event
        tokens = cost.message_tokens() + cost.text_tokens(prompt.system, prompt.model.tokens)
        tokens += cost.text_tokens("".join(msgspec.json.encode(t).decode() for t in prompt.tools), prompt.model.tokens)
        for message in prompt.messages:
            tokens += cost.message_tokens() + await _tokens(message.blocks, prompt.model.tokens, reader)
        spent, thinking = deltas.spent.values(), deltas.spent[ThinkingPart]
        usage = Usage(input_tokens=tokens, output_tokens=round(sum(spent)), thinking_tokens=round(thinking))
        yield UsageReported(usage=usage)
        yield Stopped(reason="max_tokens" if deltas.is_full else "tool_calls" if deltas.calls else "end")

    async def close(self) -> None:
        """Do nothing: there is no connection to close."""


class _Deltas:
    """Tracks the open block, its length, and the tokens spent."""

    def __init__(self, prompt: Prompt, tokens_per_second: float | None) -> None:
        self._prompt = prompt
        self._pace = tokens_per_second
        self._most = prompt.sampling.max_tokens or prompt.model.limits.max_output_tokens
        self._index = -1
        self._kind: type[AnswerPart] | None = None
        self._length = 0
        self.spent = dict.fromkeys((ThinkingPart, TextPart, ImagePart, CallPart), 0.0)
        self.calls = 0
        self.is_full = False

    async def of(self, part: AnswerPart) -> AsyncIterator[DecoderEvent]:
        """Yield the events of a part: in the open block if that is text or thinking of the same kind, else in a new
        one."""
        if type(part) is not self._kind or isinstance(part, ImagePart | CallPart):
            for event in self.seal():
                yield event
            self._index += 1
            self._kind, self._length = type(part), 0
        match part:
            case ThinkingPart():
                for piece in self._pieces(f"\n{part.text}" if self._length else part.text):
                    yield ThinkingDelta(text=piece, index=self._index)
                    await asyncio.sleep(0)
            case TextPart():
                gap = "\n\n" if self._length else ""
                start = self._length + len(gap)
                for piece in self._pieces(gap + part.text):
                    await asyncio.sleep(
                        _fine_tokens(piece, self._prompt.model.tokens) / self._pace if self._pace else 0
                    )
                    yield TextDelta(text=piece, index=self._index)
                for one in part.citations:
                    first, last = (one.start or 0) + start, (one.end or 0) + start
                    if last <= self._length:
                        yield Cited(index=self._index, citation=msgspec.structs.replace(one, start=first, end=last))
            case ImagePart():
                yield MediaArrived(index=self._index, media_type="image/png", data=part.png)
            case CallPart():
                self.calls += 1
                # The id differs from those of all earlier steps, and is the same for the same prompt.
                digest = hashlib.sha256(msgspec.json.encode(self._prompt.messages)).hexdigest()[:12]
                yield CallStarted(index=self._index, id=f"spark_{digest}_{self.calls}", name=part.name)
                for piece in self._pieces(part.arguments):
                    yield CallDelta(index=self._index, arguments=piece)
                    await asyncio.sleep(0)
                if not self.is_full:
                    yield CallFinished(index=self._index)
            case _:
                assert_never(part)

    def seal(self) -> Iterator[DecoderEvent]:
        """End a block of thinking with opaque data, so that it is sent back only to this model."""
        if self._kind is ThinkingPart:
            self._kind = None
            model = self._prompt.model
            opaque = Opaque(provider=model.opaque_owner, model=model.name, data={})
            yield ThinkingSealed(index=self._index, opaque=opaque)

    def _pieces(self, text: str) -> Iterator[str]:
        """Yield a few words at a time (one if there is a pace) until the token limit is reached."""
        for piece in (_WORDS if self._pace else _PIECES).findall(text):
            tokens = _fine_tokens(piece, self._prompt.model.tokens)
            if sum(self.spent.values()) + tokens > self._most:
                self.is_full = True
                return
            self.spent[self._kind or TextPart] += tokens
            self._length += len(piece)
            if piece:
                yield piece


def _fine_tokens(piece: str, rule: TokenRule) -> float:
    """Return the tokens of a piece as a fraction. Rounding up each piece would overstate the answer's length."""
    return cost.text_tokens(piece * 100, rule) / 100


async def _tokens(blocks: Sequence[ShownBlock], rule: TokenRule, reader: SparkReader) -> int:
    """Return the tokens of blocks by the rule with which `prepare` estimates them."""
    total = 0
    for block in blocks:
        match block:
            case ShownResult():
                total += await _tokens(block.blocks, rule, reader)
            case ShownMedia(kind="image"):
                total += cost.image_tokens(block.ref.width or 1, block.ref.height or 1, rule, block.detail)
            case ShownMedia():
                pages = block.ref.pages or 1
                total += pages * cost.page_tokens(rule)
                try:
                    total += cost.text_tokens(await reader.text(block.ref, block.name), rule)
                except LoomError:  # the answer says so if it is about this document
                    total += pages * PAGE_TEXT_TOKENS
            case TextBlock() | ThinkingBlock():
                total += cost.text_tokens(block.text, rule)
            case ToolCall():
                total += cost.text_tokens(text_of(block), rule)
            case ShownRaw():
                total += cost.text_tokens(msgspec.json.encode(block.data).decode(), rule)
            case _:
                assert_never(block)
    return total
