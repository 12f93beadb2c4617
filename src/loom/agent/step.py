"""One step of a turn: compile the request, call the model, recover from refusals.

A refusal does not end a session: a medium that a provider refuses is quarantined, a missing capability is remembered, a
request that is too large is reduced, reasoning that is no longer accepted is left out. Then the step is tried again,
and the user is notified.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from loom.agent.recovery import recover
from loom.agent.services import Services
from loom.compile.prepare import Prepared, notice_hash
from loom.compile.property_names import KeyRenamer
from loom.compile.request import RequestInput
from loom.content.blocks import ContentBlock, ImageBlock, TextBlock, ThinkingBlock
from loom.content.messages import Message
from loom.errors import (
    ContentError,
    MediaError,
    Overloaded,
    ProviderError,
    RateLimited,
    StoreError,
    Unavailable,
    WireError,
)
from loom.events import (
    CallDelta,
    CallFinished,
    CallStarted,
    DecoderEvent,
    Event,
    Fold,
    Folded,
    ImageAdded,
    MediaArrived,
    ModelEvent,
    NoticeRaised,
    RetryScheduled,
    StepStarted,
    Stopped,
    TextDelta,
    ThinkingDelta,
    UsageReported,
)
from loom.prompt import Prompt, ShownMedia

Emit = Callable[[Event], Awaitable[None]]

_INTERRUPTED: Final = (Unavailable, Overloaded, RateLimited, WireError)
"""Errors in the middle of an answer after which another request may succeed."""


class ModelAnswer(msgspec.Struct, kw_only=True):
    """The outcome of a step, available while it still arrives."""

    request: RequestInput
    """The input of the request, including changes that recoveries made."""
    prepared: Prepared | None = None
    fold: Fold | None = None
    error: ProviderError | None = None
    """Set if the answer was cut off; what arrived before is in `result`."""
    refused_kinds: list[str] = msgspec.field(default_factory=list[str])
    seconds: float = 0.0
    """Time from the request to the end of the answer."""

    @property
    def result(self) -> Folded | None:
        return self.fold.result() if self.fold is not None else None

    @property
    def is_complete(self) -> bool:
        folded = self.result
        return self.error is None and folded is not None and folded.complete

    @property
    def may_continue(self) -> bool:
        """Whether another request can complete an answer that was cut off."""
        return self.error is None or isinstance(self.error, _INTERRUPTED)

    @property
    def meta(self) -> dict[str, Any]:
        """The metadata stored with the message: the model, the usage, and whether images were hidden from the model."""
        folded = self.result
        if self.prepared is None or folded is None:
            return {}
        model, rows = self.prepared.prompt.model, self.prepared.receipt.rows
        is_blind = any(row.kind == "image" and row.reason == "capability" for row in rows)
        return {
            "provider": model.provider,
            "model": model.name,
            "usage": msgspec.to_builtins(folded.usage),
            "estimated_tokens": self.prepared.receipt.totals.tokens,
            "finish_reason": (folded.stop if self.is_complete else None) or "incomplete",
            "seconds": round(self.seconds, 3),
            **({"is_blind": True} if is_blind else {}),
        }


KeepMedia = Callable[[bytes], Awaitable[ContentBlock]]
"""Stores bytes that a model generated and returns their block."""


class StepOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The outputs of a step."""

    emit: Emit
    announce: Callable[[Sequence[str]], Awaitable[None]]
    """Shows notices of the receipt, each once per turn."""
    keep_media: KeepMedia


async def ask_model(answer: ModelAnswer, step: int, services: Services, out: StepOutput) -> None:
    """Run one step; `answer` holds the outcome. Raise errors that recovery does not handle."""
    emit = out.emit
    tried: list[str] = []
    known_limits = answer.request.limits
    started = time.monotonic()
    while True:
        prepared = answer.prepared = await services.settle(answer.request, "send")
        answer.fold = Fold()
        totals = prepared.receipt.totals
        reference = answer.request.model.reference
        await emit(StepStarted(step=step, model=reference, tokens=totals.tokens, wire_bytes=totals.wire_bytes))
        told = answer.request.watermark.told
        await out.announce(
            [
                notice
                for notice in prepared.receipt.notices
                if notice not in prepared.receipt.once or notice_hash(notice) not in told
            ]
        )
        max_bytes = services.turn_limits.answer_bytes
        reader = _AnswerReader(answer.fold, max_bytes, emit, out.keep_media, prepared.prompt)
        try:
            await reader.read(services.provider(prepared.prompt.model).stream(prepared.prompt))
            answer.seconds = time.monotonic() - started
            return
        except _UnreadableMedia as unreadable:
            notice = await _without_lost_media(prepared.prompt, services, tried)
            if notice is None:
                raise unreadable.error from unreadable
            await emit(NoticeRaised(text=notice, code=unreadable.error.code))
        except ContentError as error:
            answer.error = WireError(f"{reference}: {error.message}", hint="The partial answer is kept. Try again.")
            return
        except ProviderError as error:
            if reader.has_begun:
                answer.error = error
                answer.seconds = time.monotonic() - started
                return
            found = await _recover_files(answer, prepared.prompt, error, services, tried)
            if found is None:
                found = _recover(answer, prepared, error, tried)
            if found is None:
                # Limits that did not help say nothing about what the model accepts.
                limits = msgspec.structs.replace(
                    answer.request.limits,
                    max_bytes=known_limits.max_bytes,
                    max_tokens=known_limits.max_tokens,
                    takes_forms=known_limits.takes_forms,
                    takes_body=known_limits.takes_body,
                    calls_as_text_before=known_limits.calls_as_text_before,
                )
                answer.request = msgspec.structs.replace(answer.request, limits=limits)
                raise
            await emit(NoticeRaised(text=found, code=error.code))


class _AnswerReader:
    """Reads a stream of model events into the fold and the sink."""

    def __init__(self, fold: Fold, max_bytes: int, emit: Emit, keep: KeepMedia, prompt: Prompt) -> None:
        self._fold = fold
        self._left_bytes = max_bytes
        self._emit = emit
        self._keep = keep
        self._prompt = prompt
        self._renamers: dict[int, KeyRenamer] = {}
        self.has_begun = False

    async def read(self, stream: AsyncIterator[DecoderEvent]) -> None:
        async with _closing_connection(stream) as events:
            while (event := await _next_event(events)) is not None:
                self.has_begun = self.has_begun or not isinstance(event, UsageReported | RetryScheduled)
                await self._add(event)
                if self._left_bytes < 0:
                    await self._stop_flood()
                    return

    async def _add(self, event: DecoderEvent) -> None:
        match event:
            case MediaArrived():
                shown = await self._store_media(event)
                if isinstance(shown, NoticeRaised):
                    await self._emit(shown)
                    return
            case RetryScheduled():
                await self._emit(NoticeRaised(text=retry_notice(event), code=event.error.code))
                return
            case CallStarted(index=index, name=name):
                if names := self._prompt.property_names.get(name):
                    self._renamers[index] = KeyRenamer(names)
                shown = msgspec.structs.replace(event, name=self._prompt.tool_names.get(name, name))
            case CallDelta(index=index, arguments=text) if index in self._renamers:
                self._left_bytes -= len(text)
                shown = CallDelta(index=index, arguments=self._renamers[index].add(text))
            case CallFinished(index=index) if index in self._renamers:
                if rest := self._renamers.pop(index).finish():
                    await self._show(CallDelta(index=index, arguments=rest))
                shown = event
            case TextDelta(text=text) | ThinkingDelta(text=text) | CallDelta(arguments=text):
                self._left_bytes -= len(text)
                shown = event
            case _:
                shown = event
        await self._show(shown)

    async def _show(self, event: ModelEvent) -> None:
        self._fold.add(event)
        await self._emit(event)

    async def _store_media(self, event: MediaArrived) -> ModelEvent | NoticeRaised:
        """Store an image that the model generated, before it is shown. Return a notice if it is not an image."""
        try:
            block = await self._keep(event.data)
        except MediaError as error:
            text = f"The model sent {event.media_type} that cannot be shown: {error}"
            return NoticeRaised(text=text, code=error.code)
        if isinstance(block, ImageBlock):
            name = f"made-{block.media.digest[7:15]}.{block.media.media_type.partition('/')[2]}"
            media = msgspec.structs.replace(block.media, name=name, source=image_lineage(self._prompt))
            return ImageAdded(index=event.index, image=msgspec.structs.replace(block, media=media))
        return NoticeRaised(text=f"The model sent {event.media_type}, which an answer cannot contain.", code="media")

    async def _stop_flood(self) -> None:
        stopped = Stopped(reason="max_tokens", detail="the answer exceeds turn.max_answer_bytes")
        self._fold.add(stopped)
        await self._emit(stopped)
        await self._emit(
            NoticeRaised(
                text="The answer was stopped: it exceeds turn.max_answer_bytes. Raise the limit to keep more.",
                code="answer.too_long",
            )
        )


def retry_notice(event: RetryScheduled) -> str:
    """Return the notice that the user reads while waiting for a provider."""
    seconds = max(round(event.seconds), 1)
    return f"{event.error.message.rstrip('.')}. Trying again in {seconds} s."


def image_lineage(prompt: Prompt) -> str:
    """Return the origin of an image that answers this prompt: the model, and the images of the last message that has
    any."""
    given: tuple[str, ...] = ()
    for message in prompt.messages:
        shown = [
            block.ref.digest for block in message.blocks if isinstance(block, ShownMedia) and block.kind == "image"
        ]
        given = tuple(dict.fromkeys(shown)) or given
    return f"made by {prompt.model.reference}" + (f" from {', '.join(given)}" if given else "")


class _UnreadableMedia(Exception):
    """Raised if media could not be read from the store while the request was written."""

    def __init__(self, error: StoreError) -> None:
        super().__init__(error.code)
        self.error = error


async def _next_event(events: AsyncIterator[DecoderEvent]) -> DecoderEvent | None:
    try:
        return await anext(events, None)
    except StoreError as error:
        raise _UnreadableMedia(error) from error


@asynccontextmanager
async def _closing_connection(events: AsyncIterator[DecoderEvent]) -> AsyncGenerator[AsyncIterator[DecoderEvent]]:
    """Close the connection however the step ends."""
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


def _recover(answer: ModelAnswer, prepared: Prepared, error: ProviderError, tried: list[str]) -> str | None:
    found = recover(answer.request, prepared, error, tried)
    if found is None:
        return None
    answer.request = found.request
    if found.refused_kind:
        answer.refused_kinds.append(found.refused_kind)
    return found.notice


async def _recover_files(
    answer: ModelAnswer, prompt: Prompt, error: ProviderError, services: Services, tried: list[str]
) -> str | None:
    """Forget uploaded files that the provider no longer has, so that they are sent as bytes again. Return the notice,
    or None if there are none or this was tried before."""
    lost = services.lost_files(error, prompt)
    if not lost or "files" in tried:
        return None
    tried.append("files")
    await services.forget_files(answer.request.model, lost)
    count = "a file" if len(lost) == 1 else f"{len(lost)} files"
    return f"{answer.request.model.provider} no longer has {count} that were uploaded earlier; they are sent again"


async def _without_lost_media(prompt: Prompt, services: Services, tried: list[str]) -> str | None:
    """Recheck media that could not be read while the request was written, so that it is compiled again without them.
    Return the notice, or None if this was tried before."""
    if "media" in tried or not prompt.media():
        return None
    tried.append("media")
    lost = await services.recheck(prompt)
    count = "1 attachment" if len(lost) == 1 else f"{len(lost)} attachments"
    return f"{count} could not be read from the media store; their text is sent instead"


def words_of(message: Message | None) -> Message | None:
    """Return the parts of an interrupted answer that the reader has seen: text, thinking and images, but no calls."""
    if message is None:
        return None
    blocks = tuple(block for block in message.blocks if isinstance(block, TextBlock | ThinkingBlock | ImageBlock))
    return Message("assistant", blocks) if blocks else None
