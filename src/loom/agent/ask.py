"""Ask: one step. The path is prepared and settled, the provider is asked, and what it refuses is mended.

A refusal never ends a session: the picture that a provider cannot take goes into quarantine, a capability that is not
there is remembered, a request that is too large is cut, reasoning that is no longer accepted is left out; then the step
is tried again, and the user is told.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from loom.agent.mend import Asking, Lessons, mend
from loom.agent.ports import Provider
from loom.content.blocks import ContentBlock, ImageBlock
from loom.context.policy import Known
from loom.context.prepare import Prepared
from loom.errors import ContentError, Corrupt, MediaError, NotFound, ProviderError, WireError
from loom.events import (
    DecoderEvent,
    Fold,
    Folded,
    ImageAdded,
    MediaArrived,
    ModelEvent,
    NoticeRaised,
    StepStarted,
    UsageReported,
)
from loom.prompt import Prompt


class Answer(msgspec.Struct, kw_only=True):
    """What came of a step, also while it is still coming."""

    prepared: Prepared | None = None
    folding: Fold | None = None
    error: ProviderError | None = None
    """Set where the answer was cut off; what arrived before it is in `folded`."""
    is_stored: bool = False
    seconds: float = 0.0
    """From the question to the last word."""

    @property
    def folded(self) -> Folded | None:
        return self.folding.result() if self.folding is not None else None

    @property
    def meta(self) -> dict[str, Any]:
        """What is kept with its message: who said it, at what price, and whether pictures were kept from them."""
        folded = self.folded
        if self.prepared is None or folded is None:
            return {}
        model, rows = self.prepared.prompt.model, self.prepared.receipt.rows
        is_blind = any(row.kind == "image" and row.reason == "capability" for row in rows)
        return {
            "provider": model.provider,
            "model": model.name,
            "usage": msgspec.to_builtins(folded.usage),
            "finish_reason": folded.stop or "incomplete",
            "seconds": round(self.seconds, 3),
            **({"is_blind": True} if is_blind else {}),
        }


class Desk(msgspec.Struct, frozen=True, kw_only=True):
    """What asking needs from the world."""

    provider: Provider
    settle: Callable[[Callable[[Known], Prepared]], Awaitable[Prepared]]
    recheck: Callable[[Prompt], Awaitable[frozenset[str]]]
    """Looks which media of a prompt are gone; gives their digests."""
    keep: Callable[[bytes], Awaitable[ContentBlock]]


async def ask(
    asking: Asking, answer: Answer, desk: Desk, *, step: int
) -> AsyncGenerator[ModelEvent | StepStarted | NoticeRaised]:
    """Stream one step; `answer` holds the outcome when it ends. Raises what cannot be mended."""
    tried: list[str] = []
    known = asking.lessons
    while True:
        prepared = answer.prepared = await desk.settle(asking.prepared)
        folding = answer.folding = Fold()
        totals = prepared.receipt.totals
        yield StepStarted(step=step, model=asking.model.reference, tokens=totals.tokens, wire_bytes=totals.wire_bytes)
        begun = False
        try:
            async with _closing(desk.provider.stream(prepared.prompt)) as events:
                async for event in events:
                    begun = begun or not isinstance(event, UsageReported)
                    shown = await _stored(event, desk) if isinstance(event, MediaArrived) else event
                    if not isinstance(shown, NoticeRaised):
                        folding.add(shown)
                    yield shown
            return
        except (NotFound, Corrupt) as error:
            notice = await _gone(prepared.prompt, desk, tried)
            if notice is None:
                raise
            yield NoticeRaised(text=notice, code=error.code)
        except ContentError as error:
            answer.error = WireError(
                f"{asking.model.reference}: {error.message}", hint="What arrived is kept. Try again."
            )
            return
        except ProviderError as error:
            notice = None if begun else mend(asking, prepared, error, tried)
            if notice is None and begun:
                answer.error = error
                return
            if notice is None:
                asking.lessons = _unproven(asking.lessons, known)
                raise
            yield NoticeRaised(text=notice, code=error.code)


def _unproven(lessons: Lessons, known: Lessons) -> Lessons:
    """Sizes that were tried in vain say nothing about what the model takes: they are forgotten."""
    return msgspec.structs.replace(lessons, max_bytes=known.max_bytes, max_tokens=known.max_tokens)


@asynccontextmanager
async def _closing(events: AsyncIterator[DecoderEvent]) -> AsyncGenerator[AsyncIterator[DecoderEvent]]:
    """However the step ends, the connection is closed with it."""
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


async def _stored(event: MediaArrived, desk: Desk) -> ModelEvent | NoticeRaised:
    """What a model made is in the store before anybody sees it. What is no picture is said, not dropped in silence."""
    try:
        block = await desk.keep(event.data)
    except MediaError as error:
        return NoticeRaised(text=f"the model sent {event.media_type} that cannot be shown: {error}", code=error.code)
    if isinstance(block, ImageBlock):
        return ImageAdded(index=event.index, image=block)
    return NoticeRaised(text=f"the model sent {event.media_type}, which an answer cannot hold", code="media")


async def _gone(prompt: Prompt, desk: Desk, tried: list[str]) -> str | None:
    """Bytes that vanished after the prompt was settled: once, it is made anew without them, and the step begins again.
    What a model that reads them while it speaks had said until then is given up."""
    if "gone" in tried:
        return None
    tried.append("gone")
    lost = await desk.recheck(prompt)
    what = f"{len(lost)} media are" if len(lost) != 1 else "a medium is"
    return f"{what} not in the store any more; what is known of it is sent as text"
