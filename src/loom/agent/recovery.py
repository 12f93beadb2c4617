"""Recovery from refusals: change the request so that the same refusal cannot occur again, and notify the user. What was
learned is stored with the session, so that later turns do not repeat the refusal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from loom.compile.policy import Placed
from loom.compile.prepare import Prepared
from loom.compile.request import RequestInput
from loom.content.messages import media_of
from loom.errors import CapabilityMissing, ContextOverflow, MediaRefused, ProviderError, Refused, TooManyBytes
from loom.models import PDF
from loom.prompt import Prompt, ShownMedia, ShownResult

_REASONING: Final = re.compile(
    r"thinking`?.?blocks?|thought.?signature|encrypted.?content|reasoning.{0,40}(?:invalid|not found|required|item)",
    re.IGNORECASE,
)
_KINDS: Final = {
    "audio/": re.compile(r"audio|speech", re.IGNORECASE),
    "video/": re.compile(r"video", re.IGNORECASE),
    "image/": re.compile(r"image|vision|mmproj|multimodal|multi-modal|picture", re.IGNORECASE),
    PDF: re.compile(r"pdf|document|file", re.IGNORECASE),
    "tools": re.compile(r"\btools?\b|function.?call", re.IGNORECASE),
}
_KIND_NAMES: Final = {"image/": "images", "audio/": "audio", "video/": "video", PDF: "PDF", "tools": "tools"}
_REFUSED_HISTORY: Final = (400, 422, None)
"""HTTP statuses with which a server refuses the content of a request."""
_SMALLER: Final = 0.6
_SHRINKS: Final = 3
_MAX_RECOVERIES: Final = 12
"""The limit for one step."""


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """The changed request, and the notice for the user."""

    request: RequestInput
    notice: str
    refused_kind: str = ""
    """A kind of media that the model turned out not to support."""


def recover(request: RequestInput, prepared: Prepared, error: ProviderError, tried: list[str]) -> Recovery | None:
    """Return a request that avoids the refusal `error`, or None if nothing is left to change.

    `tried` lists the recoveries of this step so far, so that none is tried twice in the same way.
    """
    if len(tried) >= _MAX_RECOVERIES:
        return None
    reference = request.model.reference
    match error:
        case MediaRefused():
            return _quarantine(request, prepared.prompt, error, tried)
        case CapabilityMissing():
            return _without_capability(request, error)
        case TooManyBytes() if tried.count("bytes") < _SHRINKS:
            tried.append("bytes")
            limit = int(prepared.receipt.totals.wire_bytes * _SMALLER)
            limits = msgspec.structs.replace(request.limits, max_bytes=limit)
            notice = f"The request was too large for {reference}; older media are reduced."
        case ContextOverflow() if tried.count("tokens") < _SHRINKS:
            tried.append("tokens")
            limit = int(prepared.receipt.totals.tokens * _SMALLER)
            limits = msgspec.structs.replace(request.limits, max_tokens=limit)
            notice = f"The conversation was too long for {reference}; older turns are reduced."
        case Refused() if request.limits.takes_thinking_back and _REASONING.search(error.message):
            limits = msgspec.structs.replace(request.limits, takes_thinking_back=False)
            notice = f"{reference} did not accept its earlier reasoning; it is left out."
        case Refused() if error.status in _REFUSED_HISTORY:
            return _rewrite_history(request, prepared, error)
        case _:
            return None
    return Recovery(request=msgspec.structs.replace(request, limits=limits), notice=notice)


# A history -----------------------------------------------------------------------------------------------------------


def _rewrite_history(request: RequestInput, prepared: Prepared, error: ProviderError) -> Recovery | None:
    """Compile messages that were sent unchanged. As a last resort, send old calls and their results as text: a server
    may require fields with them that this conversation lacks, and would refuse it on every turn."""
    reference, limits, path = request.model.reference, request.limits, request.full_path
    why = _provider_message(error)
    calls = [at for at, placed in enumerate(path) if placed.message.calls]
    if any(message.form is not None for message in prepared.prompt.messages):
        limits = msgspec.structs.replace(limits, takes_forms=False)
        notice = f"{reference} refused the messages in their original form ({why}); they are compiled instead."
    elif prepared.prompt.body is not None:
        limits = msgspec.structs.replace(limits, takes_body=False)
        notice = f"{reference} refused the request in its original form ({why}); it is compiled instead."
    elif calls and calls[-1] >= limits.calls_as_text_before and request.model.capabilities.tools and limits.takes_tools:
        limits = msgspec.structs.replace(limits, calls_as_text_before=len(path))
        notice = f"{reference} refused the history ({why}); its tool calls and results are sent as text from now on."
    else:
        return None
    return Recovery(request=msgspec.structs.replace(request, limits=limits), notice=notice)


# A medium ------------------------------------------------------------------------------------------------------------


def _quarantine(request: RequestInput, prompt: Prompt, error: MediaRefused, tried: list[str]) -> Recovery | None:
    """Leave out the media that the provider names. If it names none, leave out the newest ones once, because older ones
    were accepted before.

    This repeats while the provider names further media: one message may hold several that are damaged.
    """
    sent = {ref.digest for ref in prompt.media()}
    blamed = [digest for digest in error.digests if digest in sent]
    if not blamed and "unnamed" not in tried:
        tried.append("unnamed")
        blamed = _newest_media(prompt)
    if not blamed:
        return None
    names = ", ".join(_media_names(prompt, blamed, request.path))
    its = "its text is" if len(set(blamed)) == 1 else "their texts are"
    return Recovery(
        request=msgspec.structs.replace(request, quarantine=request.quarantine | frozenset(blamed)),
        notice=f"{request.model.provider} refused {names} ({_provider_message(error)}); {its} sent instead.",
    )


def _newest_media(prompt: Prompt) -> list[str]:
    for message in reversed(prompt.messages):
        shown = list(_shown_media(message.blocks))
        if shown:
            return [block.ref.digest for block in shown]
    return []


def _shown_media(blocks: tuple[object, ...]) -> Iterator[ShownMedia]:
    for block in blocks:
        if isinstance(block, ShownMedia):
            yield block
        elif isinstance(block, ShownResult):
            yield from _shown_media(block.blocks)


def _media_names(prompt: Prompt, digests: list[str], path: tuple[Placed, ...]) -> list[str]:
    """Return the name and the source of each medium."""
    sources = {media.digest: media.source for placed in path for media in media_of(placed.message) if media.source}
    named: dict[str, str] = {}
    for message in prompt.messages:
        for shown in _shown_media(message.blocks):
            named[shown.ref.digest] = shown.name or f"a file of type {shown.ref.media_type}"
    return [
        f"{named[digest]} from {sources[digest]}" if digest in sources else named[digest]
        for digest in dict.fromkeys(digests)
    ]


# A capability --------------------------------------------------------------------------------------------------------


def _without_capability(request: RequestInput, error: CapabilityMissing) -> Recovery | None:
    """Leave out the kind of media, or the tools, that the provider's message names first."""
    reference = request.model.reference
    capabilities = request.limits.limit_model(request.model).capabilities
    message = _provider_message(error)
    positions = {kind: match.start() for kind, pattern in _KINDS.items() if (match := pattern.search(message))}
    kind = min(positions, key=positions.__getitem__, default=None)
    if kind == "tools" and capabilities.tools:
        limits = msgspec.structs.replace(request.limits, takes_tools=False)
        return Recovery(
            request=msgspec.structs.replace(request, limits=limits),
            notice=f"{reference} does not support tools; requests leave them out from now on.",
        )
    if kind is None or kind == "tools" or not any(found.startswith(kind) for found in capabilities.accepts):
        return None
    return Recovery(
        request=msgspec.structs.replace(request, model=request.model.without(kind)),
        notice=f"{reference} does not support {_KIND_NAMES[kind]}; their text is sent from now on.",
        refused_kind=kind,
    )


def _provider_message(error: ProviderError) -> str:
    """Return the provider's message without the model's name, which may itself contain `vision` or `tools`."""
    return error.message.removeprefix(f"{error.provider}/{error.model}: ")
