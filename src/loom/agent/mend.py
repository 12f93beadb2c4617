"""Mend: what a refusal teaches. What is asked is changed so that the same refusal cannot come again, and the user is
told in one sentence; what was learned is kept with the session, so that it is not learned anew on every turn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, assert_never

import msgspec

from loom.agent.renditions import AtOnce, Prepare
from loom.content.blocks import (
    AudioBlock,
    Block,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    UnknownBlock,
)
from loom.content.messages import media_of
from loom.context.cost import Calibration
from loom.context.policy import Known, Override, Placed, Policy, Request, Watermark
from loom.context.prepare import Prepared, prepare
from loom.errors import CapabilityMissing, ContextOverflow, MediaRefused, ProviderError, Refused, TooManyBytes
from loom.models import PDF, Model
from loom.prompt import Prompt, ShownMedia, ShownResult

_REASONING: Final = re.compile(
    r"thinking`?.?blocks?|thought.?signature|encrypted.?content|reasoning.{0,40}(?:invalid|not found|required|item)",
    re.IGNORECASE,
)
_KINDS: Final = {
    "audio/": re.compile(r"audio|speech", re.IGNORECASE),
    "image/": re.compile(r"image|vision|mmproj|multimodal|multi-modal|picture", re.IGNORECASE),
    PDF: re.compile(r"pdf|document|file", re.IGNORECASE),
    "tools": re.compile(r"\btools?\b|function.?call", re.IGNORECASE),
}
_KIND_NAMES: Final = {"image/": "pictures", "audio/": "sound", PDF: "PDF", "tools": "tools"}
_SMALLER: Final = 0.6
_SHRINKS: Final = 3
_SHORT_CHARS: Final = 500_000
_BLOCK_CHARS: Final = 1_000
_PAGE_CHARS: Final = 3_000
"""How long a path may be that is prepared at once; a block by itself takes as long as so many characters."""
_MOST: Final = 12
"""So many refusals of one step are mended at most."""


class Lessons(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What refusals taught a session about a model. Media that it does not take are remembered for all sessions."""

    max_bytes: int | None = None
    max_tokens: int | None = None
    takes_tools: bool = True
    takes_thinking_back: bool = True

    def policy(self, policy: Policy) -> Policy:
        return msgspec.structs.replace(
            policy,
            max_bytes=_least(policy.max_bytes, self.max_bytes),
            max_tokens=_least(policy.max_tokens, self.max_tokens),
        )

    def model(self, model: Model) -> Model:
        if not self.takes_tools:
            model = msgspec.structs.replace(
                model, capabilities=msgspec.structs.replace(model.capabilities, tools=False)
            )
        if not self.takes_thinking_back:
            model = msgspec.structs.replace(model, thinking=msgspec.structs.replace(model.thinking, replay="never"))
        return model


class Asking(msgspec.Struct, kw_only=True):
    """Everything that decides what a step sends; mending changes it."""

    path: tuple[Placed, ...]
    model: Model
    policy: Policy
    request: Request
    overrides: dict[str, Override]
    alts: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    watermark: Watermark
    calibration: Calibration
    quarantine: frozenset[str]
    lessons: Lessons = Lessons()
    refused_kinds: tuple[str, ...] = ()
    """Kinds of media that the model turned out not to take."""

    @property
    def prepared(self) -> Prepare:
        """What is sent, by what is known."""
        return AtOnce(self._prepared) if _is_short(self.path) else self._prepared

    def _prepared(self, known: Known) -> Prepared:
        return prepare(
            self.path,
            self.lessons.model(self.model),
            policy=self.lessons.policy(self.policy),
            request=self.request,
            overrides=self.overrides,
            alts=self.alts,
            watermark=self.watermark,
            calibration=self.calibration,
            known=known,
            quarantine=self.quarantine,
        )

    def learned(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """What is known of the model now, among what a session's settings hold of others."""
        known = {"calibration": self.calibration, "lessons": self.lessons}
        return {
            name: {**settings.get(name, {}), self.model.reference: msgspec.to_builtins(value)}
            for name, value in known.items()
        }


def _is_short(path: tuple[Placed, ...]) -> bool:
    """Whether preparing it takes a few milliseconds at most, texts of documents included."""
    if len(path) * _BLOCK_CHARS > _SHORT_CHARS:
        return False
    return sum(_chars(block) for placed in path for block in placed.message.blocks) <= _SHORT_CHARS


def _chars(block: Block) -> int:
    match block:
        case TextBlock() | ThinkingBlock():
            return _BLOCK_CHARS + len(block.text)
        case ToolCall():
            return _BLOCK_CHARS + len(msgspec.json.encode(block.arguments))
        case ToolResult():
            return sum(map(_chars, block.blocks))
        case DocumentBlock():
            pages = block.media.pages
            return _BLOCK_CHARS + (block.media.size_bytes if pages is None else pages * _PAGE_CHARS)
        case ImageBlock() | AudioBlock() | UnknownBlock():
            return _BLOCK_CHARS
        case _:
            assert_never(block)


def mend(asking: Asking, prepared: Prepared, error: ProviderError, tried: list[str]) -> str | None:
    """Change what is asked; the sentence for the user, or None where nothing is left to change.

    `tried` are the refusals of this step so far: the same one is not mended the same way twice.
    """
    if len(tried) >= _MOST:
        return None
    match error:
        case MediaRefused():
            return _quarantine(asking, prepared.prompt, error, tried)
        case CapabilityMissing():
            return _without(asking, error)
        case TooManyBytes() if tried.count("bytes") < _SHRINKS:
            tried.append("bytes")
            limit = int(prepared.receipt.totals.wire_bytes * _SMALLER)
            asking.lessons = msgspec.structs.replace(asking.lessons, max_bytes=limit)
            return f"{asking.model.reference} found the request too large; older media are reduced"
        case ContextOverflow() if tried.count("tokens") < _SHRINKS:
            tried.append("tokens")
            limit = int(prepared.receipt.totals.tokens * _SMALLER)
            asking.lessons = msgspec.structs.replace(asking.lessons, max_tokens=limit)
            return f"{asking.model.reference} found the conversation too long; older turns are reduced"
        case Refused() if asking.lessons.takes_thinking_back and _REASONING.search(error.message):
            asking.lessons = msgspec.structs.replace(asking.lessons, takes_thinking_back=False)
            return f"{asking.model.reference} did not accept its old reasoning back; it is left out"
        case _:
            return None


def _least(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


# A medium ------------------------------------------------------------------------------------------------------------


def _quarantine(asking: Asking, prompt: Prompt, error: MediaRefused, tried: list[str]) -> str | None:
    """The media that the provider names. Where it names none: once, the newest ones, for older ones were taken before.

    As long as it names others, the step goes on without them: one message may hold several that are damaged.
    """
    sent = {ref.digest for ref in prompt.media()}
    blamed = [digest for digest in error.digests if digest in sent]
    if not blamed and "unnamed" not in tried:
        tried.append("unnamed")
        blamed = _newest_media(prompt)
    if not blamed:
        return None
    asking.quarantine |= frozenset(blamed)
    names = ", ".join(_names(prompt, blamed, asking.path))
    its = "its text is" if len(set(blamed)) == 1 else "their texts are"
    return f"{asking.model.provider} refused {names} ({_said(error)}); {its} sent instead"


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


def _names(prompt: Prompt, digests: list[str], path: tuple[Placed, ...]) -> list[str]:
    """What each is called, and where it came from."""
    sources = {media.digest: media.source for placed in path for media in media_of(placed.message) if media.source}
    named: dict[str, str] = {}
    for message in prompt.messages:
        for shown in _shown_media(message.blocks):
            named[shown.ref.digest] = shown.name or f"a medium of type {shown.ref.media_type}"
    return [
        f"{named[digest]} from {sources[digest]}" if digest in sources else named[digest]
        for digest in dict.fromkeys(digests)
    ]


# A capability --------------------------------------------------------------------------------------------------------


def _without(asking: Asking, error: CapabilityMissing) -> str | None:
    capabilities = asking.lessons.model(asking.model).capabilities
    kind = _missing_kind(_said(error))
    if kind == "tools" and capabilities.tools:
        asking.lessons = msgspec.structs.replace(asking.lessons, takes_tools=False)
        return f"{asking.model.reference} does not take tools; it is asked without them from now on"
    if kind is None or kind == "tools" or not any(found.startswith(kind) for found in capabilities.accepts):
        return None
    asking.model = asking.model.without(kind)
    asking.refused_kinds = (*asking.refused_kinds, kind)
    return f"{asking.model.reference} does not take {_KIND_NAMES[kind]}; their text is sent from now on"


def _missing_kind(words: str) -> str | None:
    """The kind that is named first."""
    places = {kind: found.start() for kind, pattern in _KINDS.items() if (found := pattern.search(words))}
    return min(places, key=places.__getitem__, default=None)


def _said(error: ProviderError) -> str:
    """The provider's own words: a model's name in front of them may say `vision` or `tools` for itself."""
    return error.message.removeprefix(f"{error.provider}/{error.model}: ")
