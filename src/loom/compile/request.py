"""The next request of a session: the only code that decides what it contains.

    snapshot         the session as it is on disk, read once
    request_input    everything that decides the request for one model
    prepare          pure: age, adapt, trim
    settle           renders what the prompt lacks, with exact sizes

A turn, `Session.plan`, `loom context`, `loom wire`, `--dry-run`, the daemon's routes and the gateway all call
`next_request`, so what is shown is what is sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, assert_never

import msgspec

from loom.compile.cost import Calibration
from loom.compile.policy import DetachedMessage, Known, Override, Placed, Policy, Request, Watermark
from loom.compile.prepare import Prepared, prepare
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
    VideoBlock,
)
from loom.content.messages import Message, media_of, user
from loom.content.wire_forms import BodyForm
from loom.errors import ContentError
from loom.models import Model
from loom.prompt import Prompt, Receipt, ToolSpec
from loom.sampling import Sampling, stored_sampling

NEXT_MESSAGE: Final = "[your next message]"
"""A placeholder for the message that starts the next turn, while the user has not written it yet."""

COMPACTED_FIRST: Final = (
    "The context window is almost full. The conversation will be summarized before this message is answered; all of"
    " it stays as a branch."
)
"""Notice of a preview whose request is not the next one that is sent."""

_SHORTEST_COMPACTED: Final = 8
"""Messages of a conversation that is summarized automatically."""

DRAFT: Final = "draft"
"""The id of a message that is not stored."""
_SHORT_CHARS: Final = 500_000
_BLOCK_CHARS: Final = 1_000
_PAGE_CHARS: Final = 3_000
"""A path up to this length is prepared on the event loop; each block counts as 1,000 additional characters."""

SettleMode: TypeAlias = Literal["send", "preview", "estimate"]
"""`send` renders everything and may call a describer or upload files; `preview` renders everything that stays on this
machine; `estimate` also skips what takes seconds (page images, OCR), with a notice."""


class LearnedLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits of one model that a session has learned from refusals."""

    max_bytes: int | None = None
    max_tokens: int | None = None
    takes_tools: bool = True
    takes_thinking_back: bool = True
    takes_forms: bool = True
    """Whether messages may be sent exactly as they were received; if the provider refused them, they are compiled
    instead."""
    calls_as_text_before: int = 0
    """Calls and results of the messages before this position are sent as text, because the server refused the history
    otherwise."""
    takes_body: bool = True
    """Whether the other fields of a request in the provider's own protocol may be sent unchanged."""

    def limit_policy(self, policy: Policy) -> Policy:
        return msgspec.structs.replace(
            policy,
            max_bytes=_min_known(policy.max_bytes, self.max_bytes),
            max_tokens=_min_known(policy.max_tokens, self.max_tokens),
        )

    def limit_model(self, model: Model) -> Model:
        if not self.takes_tools:
            model = msgspec.structs.replace(
                model, capabilities=msgspec.structs.replace(model.capabilities, tools=False)
            )
        if not self.takes_thinking_back:
            model = msgspec.structs.replace(model, thinking=msgspec.structs.replace(model.thinking, replay="never"))
        return model


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is on disk. Watermarks, calibrations and limits are by model, quarantined digests by provider."""

    head: str = ""
    model: str = ""
    workspace: str = ""
    title: str = ""
    system: str = ""
    path: tuple[Placed, ...] = ()
    overrides: Mapping[str, Override] = msgspec.field(default_factory=dict[str, Override])
    alts: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    watermarks: Mapping[str, Watermark] = msgspec.field(default_factory=dict[str, Watermark])
    calibrations: Mapping[str, Calibration] = msgspec.field(default_factory=dict[str, Calibration])
    limits: Mapping[str, LearnedLimits] = msgspec.field(default_factory=dict[str, LearnedLimits])
    quarantine: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict[str, Sequence[str]])
    settings: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])

    @property
    def sampling(self) -> Sampling:
        """The session's default options for messages."""
        return stored_sampling(self.settings.get("options"))


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The user's settings for requests to a model."""

    policy: Policy = Policy()
    tools: tuple[ToolSpec, ...] = ()
    sampling: Sampling = Sampling()
    body: BodyForm | None = None
    """The body of a client's request in its original form."""
    compact_at: float | None = None
    """The share of the token budget from which on a conversation is summarized; None: never."""


class RequestInput(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides one request."""

    path: tuple[Placed, ...]
    model: Model
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    sampling: Sampling = Sampling()
    policy: Policy = Policy()
    overrides: Mapping[str, Override] = msgspec.field(default_factory=dict[str, Override])
    alts: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    watermark: Watermark = Watermark()
    calibration: Calibration = Calibration()
    quarantine: frozenset[str] = frozenset()
    limits: LearnedLimits = LearnedLimits()
    draft: tuple[Message, ...] = ()
    """Messages after the path that are not stored."""
    ends_with_assistant: bool = False
    """Whether the path ends with a part of an answer that the provider continues when it is sent back unchanged."""
    is_placeholder: bool = False
    """Whether the draft is only a placeholder for a message that is not written yet; it has no row in the receipt."""
    body: BodyForm | None = None
    """The body of a client's request in its original form."""

    def prepare(self, known: Known) -> Prepared:
        """Compile the prompt with the known facts about derived media. Pure."""
        prepared = prepare(
            self.full_path,
            self.limits.limit_model(self.model),
            policy=self.limits.limit_policy(self.policy),
            request=Request(
                system=self.system,
                tools=self.tools,
                sampling=self.sampling,
                ends_with_assistant=self.ends_with_assistant,
                body=self.body if self.limits.takes_body else None,
                takes_forms=self.limits.takes_forms,
                calls_as_text_before=self.limits.calls_as_text_before,
            ),
            overrides=self.overrides,
            alts=self.alts,
            watermark=self.watermark,
            calibration=self.calibration,
            known=known,
            quarantine=self.quarantine,
        )
        if not self.is_placeholder:
            return prepared
        rows = tuple(row for row in prepared.receipt.rows if row.message < len(self.path))
        return msgspec.structs.replace(prepared, receipt=msgspec.structs.replace(prepared.receipt, rows=rows))

    @property
    def full_path(self) -> tuple[Placed, ...]:
        return (*self.path, *(DetachedMessage(DRAFT, message) for message in self.draft))

    @property
    def digests(self) -> frozenset[str]:
        """The digests of all media that the request may show."""
        return frozenset(media.digest for placed in self.full_path for media in media_of(placed.message))

    @property
    def is_short(self) -> bool:
        """Whether preparing the request takes at most a few milliseconds, including the text of documents."""
        path = self.full_path
        if len(path) * _BLOCK_CHARS > _SHORT_CHARS:
            return False
        return sum(_chars(block) for placed in path for block in placed.message.blocks) <= _SHORT_CHARS

    def extend(self, placed: Sequence[Placed]) -> RequestInput:
        """Return the input for the step after these messages were stored."""
        return msgspec.structs.replace(self, path=(*self.path, *placed))


class NextRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request for one model: the prompt, its receipt, and its input."""

    input: RequestInput
    prepared: Prepared
    is_compacted_first: bool = False
    """Whether the conversation is summarized before its next message, which this request holds, is answered."""

    @property
    def prompt(self) -> Prompt:
        return self.prepared.prompt

    @property
    def receipt(self) -> Receipt:
        return self.prepared.receipt

    def announce_compaction(self) -> NextRequest:
        """Say in the receipt that a summary comes first, so that this is not the next request that is sent."""
        receipt = msgspec.structs.replace(self.receipt, notices=(*self.receipt.notices, COMPACTED_FIRST))
        prepared = msgspec.structs.replace(self.prepared, receipt=receipt)
        return msgspec.structs.replace(self, prepared=prepared, is_compacted_first=True)


Settle: TypeAlias = Callable[[RequestInput, SettleMode], Awaitable[Prepared]]


def request_input(
    snapshot: Snapshot,
    model: Model,
    options: RequestOptions,
    *,
    draft: Sequence[Message] = (),
    overrides: Mapping[str, Override] | None = None,
    sampling: Sampling | None = None,
) -> RequestInput:
    """Return the input of the next request to `model`.

    `draft` are messages that are not stored yet; `overrides` replace those of the session. `sampling` are the options
    of the message; they take precedence over those of the session, which take precedence over the settings.
    """
    reference = model.reference
    if overrides is None:  # overrides of other branches, such as earlier summaries, would only make each request slower
        nodes = {placed.id for placed in snapshot.path}
        overrides = {key: value for key, value in snapshot.overrides.items() if key.partition("/")[0] in nodes}
    return RequestInput(
        path=snapshot.path,
        model=model,
        system=snapshot.system,
        tools=options.tools,
        sampling=options.sampling.override(snapshot.sampling).override(sampling or Sampling()),
        policy=options.policy,
        overrides=dict(overrides),
        alts=dict(snapshot.alts),
        watermark=snapshot.watermarks.get(reference, Watermark()),
        calibration=snapshot.calibrations.get(reference, Calibration()),
        quarantine=frozenset(snapshot.quarantine.get(model.provider, ())),
        limits=snapshot.limits.get(reference, LearnedLimits()),
        draft=tuple(draft),
        body=options.body,
    )


async def next_request(
    snapshot: Snapshot,
    model: Model,
    options: RequestOptions,
    settle: Settle,
    *,
    mode: SettleMode = "preview",
    draft: Sequence[Message] = (),
    overrides: Mapping[str, Override] | None = None,
    sampling: Sampling | None = None,
    awaits_message: bool = False,
) -> NextRequest:
    """Compile the next request of a session for `model`; raise `ContentError` if it has no message.

    Ages count from the next turn: with `awaits_message`, if no turn is open and there is no `draft`, a placeholder
    represents the message that the user has not written yet.
    """
    found = request_input(snapshot, model, options, draft=draft, overrides=overrides, sampling=sampling)
    if not found.full_path:
        raise ContentError("Nothing to plan: the session has no message yet")
    is_open = "running" in snapshot.settings and found.path[-1].message.role != "assistant"
    if awaits_message and not draft and not is_open:
        found = msgspec.structs.replace(found, draft=(user(NEXT_MESSAGE),), is_placeholder=True)
    request = NextRequest(input=found, prepared=await settle(found, mode))
    if found.draft and _is_compaction_due(request, options.compact_at):
        return request.announce_compaction()
    return request


def may_compact(path: Sequence[Placed], threshold: float | None) -> bool:
    """Return whether automatic compaction is on and the conversation is long enough for it."""
    return threshold is not None and len(path) >= _SHORTEST_COMPACTED


def _is_compaction_due(request: NextRequest, threshold: float | None) -> bool:
    """Return whether the request fills more than `threshold` of its token budget, or turns were left out of it.

    The budget is the window less the room for the answer: a request is trimmed to that, so it never fills the window.
    """
    if threshold is None or not may_compact(request.input.path, threshold):
        return False
    receipt = request.receipt
    is_cut = any(row.kind == "text" and row.reason == "budget" and row.rendition == "omitted" for row in receipt.rows)
    return is_cut or receipt.totals.tokens >= threshold * receipt.budgets.tokens


def _min_known(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


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
        case ImageBlock() | AudioBlock() | VideoBlock() | UnknownBlock():
            return _BLOCK_CHARS
        case _:
            assert_never(block)
