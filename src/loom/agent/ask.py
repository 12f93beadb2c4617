"""Ask: one step. The path is prepared and settled, the provider is asked, and what it refuses is mended once.

A refusal never ends a session: the picture that a provider cannot take goes into quarantine, a capability that is not
there is remembered, a request that is too large is cut, reasoning that is no longer accepted is left out; then the step
is tried again, and the user is told.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import msgspec

from loom.agent.ports import Provider
from loom.content.blocks import ContentBlock, ImageBlock
from loom.context.cost import Calibration
from loom.context.policy import Known, Override, Placed, Policy, Request, Watermark
from loom.context.prepare import Prepared, prepare
from loom.errors import CapabilityMissing, ContextOverflow, MediaRefused, ProviderError, Refused, TooManyBytes
from loom.events import Fold, Folded, ImageAdded, MediaArrived, ModelEvent, NoticeRaised, StepStarted
from loom.models import PDF, Model
from loom.prompt import Prompt, ShownMedia, ShownResult

_REASONING: Final = re.compile(
    r"thinking block|thought.?signature|encrypted.?content|reasoning.{0,40}(?:invalid|not found|required|item)",
    re.IGNORECASE,
)
_SMALLER: Final = 0.7


class Asking(msgspec.Struct, kw_only=True):
    """Everything that decides what a step sends; mending changes it."""

    path: tuple[Placed, ...]
    model: Model
    policy: Policy
    request: Request
    overrides: dict[str, Override]
    watermark: Watermark
    calibration: Calibration
    quarantine: frozenset[str]

    def prepared(self, known: Known) -> Prepared:
        return prepare(
            self.path,
            self.model,
            policy=self.policy,
            request=self.request,
            overrides=self.overrides,
            watermark=self.watermark,
            calibration=self.calibration,
            known=known,
            quarantine=self.quarantine,
        )


class Answer(msgspec.Struct, kw_only=True):
    """What came of a step."""

    prepared: Prepared | None = None
    folded: Folded | None = None
    error: ProviderError | None = None
    """Set where the answer was cut off; what arrived before is in `folded`."""


async def ask(
    asking: Asking,
    answer: Answer,
    *,
    step: int,
    settle: Callable[[Callable[[Known], Prepared]], Awaitable[Prepared]],
    provider: Provider,
    keep: Callable[[bytes], Awaitable[ContentBlock]],
) -> AsyncIterator[ModelEvent | StepStarted | NoticeRaised]:
    """Stream one step; `answer` holds the outcome when it ends. Raises what cannot be mended."""
    mended: set[str] = set()
    while True:
        prepared = await settle(asking.prepared)
        answer.prepared = prepared
        totals = prepared.receipt.totals
        yield StepStarted(step=step, model=asking.model.reference, tokens=totals.tokens, wire_bytes=totals.wire_bytes)
        folding = Fold()
        begun = False
        try:
            async for event in provider.stream(prepared.prompt):
                begun = True
                shown = await _stored(event, keep) if isinstance(event, MediaArrived) else event
                if shown is not None:
                    folding.add(shown)
                    yield shown
        except ProviderError as error:
            notice = None if begun else mend(asking, prepared, error, mended)
            if notice is None:
                answer.folded, answer.error = folding.result(), error
                if not begun:
                    raise
                return
            yield NoticeRaised(text=notice, code=error.code)
            continue
        answer.folded = folding.result()
        return


async def _stored(event: MediaArrived, keep: Callable[[bytes], Awaitable[ContentBlock]]) -> ModelEvent | None:
    block = await keep(event.data)
    return ImageAdded(index=event.index, image=block) if isinstance(block, ImageBlock) else None


def mend(asking: Asking, prepared: Prepared, error: ProviderError, mended: set[str]) -> str | None:
    """Change what is asked so that the same refusal cannot come again; the sentence for the user, or None."""
    kind = type(error).__name__
    if kind in mended:
        return None
    mended.add(kind)
    match error:
        case MediaRefused():
            return _quarantine(asking, prepared.prompt, error)
        case CapabilityMissing():
            lost = _missing_kind(error.message)
            if lost is None or not any(found.startswith(lost) for found in asking.model.capabilities.accepts):
                return None
            asking.model = asking.model.without(lost)
            return f"{asking.model.reference} does not take {_kind_name(lost)}; its text is sent from now on"
        case TooManyBytes():
            limit = int(prepared.receipt.totals.wire_bytes * _SMALLER)
            asking.policy = msgspec.structs.replace(asking.policy, max_bytes=limit)
            return f"{asking.model.reference} found the request too large; older media were reduced"
        case ContextOverflow():
            limit = int(prepared.receipt.totals.tokens * _SMALLER)
            asking.policy = msgspec.structs.replace(asking.policy, max_tokens=limit)
            return f"{asking.model.reference} found the conversation too long; older turns were reduced"
        case Refused() if _REASONING.search(error.message):
            thinking = msgspec.structs.replace(asking.model.thinking, replay="never")
            asking.model = msgspec.structs.replace(asking.model, thinking=thinking)
            return f"{asking.model.reference} did not accept its old reasoning back; it was left out"
        case _:
            return None


def _quarantine(asking: Asking, prompt: Prompt, error: MediaRefused) -> str | None:
    """The media that the provider names; where it names none, the newest ones: older ones were taken before."""
    sent = {ref.digest for ref in prompt.media()}
    blamed = [digest for digest in error.digests if digest in sent] or _newest_media(prompt)
    if not blamed:
        return None
    asking.quarantine |= frozenset(blamed)
    names = ", ".join(_names(prompt, blamed))
    return f"{asking.model.provider} refused {names} ({error.message}); its text is sent instead"


def _newest_media(prompt: Prompt) -> list[str]:
    for message in reversed(prompt.messages):
        shown = [block for block in message.blocks if isinstance(block, ShownMedia)]
        for block in message.blocks:
            if isinstance(block, ShownResult):
                shown += [inner for inner in block.blocks if isinstance(inner, ShownMedia)]
        if shown:
            return [block.ref.digest for block in shown]
    return []


def _names(prompt: Prompt, digests: list[str]) -> list[str]:
    named: dict[str, str] = {}
    for message in prompt.messages:
        for block in message.blocks:
            inside = block.blocks if isinstance(block, ShownResult) else (block,)
            for shown in inside:
                if isinstance(shown, ShownMedia):
                    named[shown.ref.digest] = shown.name or shown.ref.media_type
    return [named.get(digest, digest[:19]) for digest in dict.fromkeys(digests)]


def _missing_kind(words: str) -> str | None:
    lowered = words.lower()
    if "audio" in lowered:
        return "audio/"
    if "pdf" in lowered or "document" in lowered or "file" in lowered:
        return PDF
    if any(word in lowered for word in ("image", "vision", "mmproj", "multimodal", "picture")):
        return "image/"
    return None


def _kind_name(kind: str) -> str:
    return {"image/": "pictures", "audio/": "sound", PDF: "PDF"}[kind]
