"""The values of messages, events and plans. See `api_types`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from loom.api_types import OLDER_NAME, Caption, Key, Name, OverrideChoice, ProblemText, RequestChoices, SessionView
from loom.content.blocks import AudioBlock, Block, DocumentBlock, ImageBlock, TextBlock, UnknownBlock, VideoBlock
from loom.content.messages import Role
from loom.estimates import Estimate
from loom.events import ApprovalRequested, TurnFailed
from loom.models import ThinkingLevel, Usage
from loom.prompt import Reason, Rendition

# Messages -------------------------------------------------------------------------------------------------------------


class ImageReference(msgspec.Struct, frozen=True, tag="image_ref"):
    """An image in the store."""

    image_id: Key
    name: Name = ""


class MediaReference(msgspec.Struct, frozen=True, tag="media"):
    """A file in the store; for a document, possibly only some pages."""

    digest: Key
    name: Name = ""
    pages: Annotated[str, Meta(max_length=40)] = ""


class FileReference(msgspec.Struct, frozen=True, tag="file"):
    """A file of the session's workspace."""

    path: Annotated[str, Meta(min_length=1, max_length=4_096)]


ContentInput: TypeAlias = (
    TextBlock
    | ImageBlock
    | DocumentBlock
    | AudioBlock
    | VideoBlock
    | UnknownBlock
    | ImageReference
    | MediaReference
    | FileReference
)


class ImageInput(msgspec.Struct, frozen=True, kw_only=True):
    """An image. `base64` may be a data: URL. `media_type` is not trusted: the type is detected from the bytes."""

    base64: str = ""
    url: Annotated[str, Meta(max_length=8_000)] = ""
    media_type: Name = ""
    name: Name = ""
    data: Annotated[str, OLDER_NAME] = ""
    mime: Annotated[Name, OLDER_NAME] = ""


class MessageBody(msgspec.Struct, frozen=True, kw_only=True):
    text: Caption = ""
    message: Annotated[Caption, OLDER_NAME] = ""
    blocks: Annotated[tuple[ContentInput, ...], Meta(max_length=200)] = ()
    images: Annotated[tuple[ImageInput, ...], Meta(max_length=64)] = ()
    workspace: Annotated[str, Meta(max_length=4_096)] = ""
    model: Name = ""
    models: Annotated[tuple[Name, ...], Meta(max_length=8)] = ()
    """Several models that answer it, one after another; their answers are siblings."""
    parent: Key | None = None
    """Answer this node instead of the head: edit and resend."""
    n: Annotated[int, Meta(ge=1, le=10)] = 1
    tools: Annotated[tuple[Name, ...], Meta(max_length=200)] | None = None
    """The tools that may be called for it; null means all that are available."""
    thinking: ThinkingLevel = ""
    """How much the model thinks about this message; empty uses the default of the session and the settings."""
    options: RequestChoices | None = None
    """The options of this message only."""
    steer: bool = False
    """Let the running turn read it at its next step, instead of starting a turn of its own."""


class PostedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is on disk. `events` is the path at which to watch its turn."""

    message: str
    node: str | None
    turn: str | None
    queued: bool
    events: str
    notices: tuple[str, ...]


class CompactBody(msgspec.Struct, frozen=True, kw_only=True):
    model: Name = ""
    """The model that writes the summary; empty means the session's."""


class RegenerateBody(msgspec.Struct, frozen=True, kw_only=True):
    node: Key | None = None
    model: Name = ""
    n: Annotated[int, Meta(ge=1, le=10)] = 1
    tools: Annotated[tuple[Name, ...], Meta(max_length=200)] | None = None
    thinking: ThinkingLevel = ""
    options: RequestChoices | None = None


class Cancel(msgspec.Struct, frozen=True, kw_only=True):
    turn: Annotated[str, Meta(max_length=300)] = ""
    """Cancel only this turn; without it, cancel the turn that is running."""
    pause_queue: bool = False
    """Pause the queued messages first, so that none of them starts."""


class ApprovalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    answer: Literal["once", "always", "deny"]
    reason: Annotated[str, Meta(max_length=10_000)] = ""


class MessageQuery(msgspec.Struct, frozen=True, kw_only=True):
    before: Annotated[str, Meta(max_length=300)] = ""
    head: Annotated[str, Meta(max_length=300)] = ""
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 200


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    parent: str | None
    role: Role
    source: str
    blocks: tuple[Block, ...]
    model: str
    usage: Usage | None
    usd: float | None
    stop: str
    seconds: float | None
    created_at: float
    bookmark: str
    tags: tuple[str, ...]
    siblings: tuple[str, ...]
    """All children of the same parent, this one included, oldest first."""


class Children(msgspec.Struct, frozen=True):
    children: tuple[MessageView, ...]


class ConversationMessage(msgspec.Struct, frozen=True, kw_only=True):
    role: Role
    blocks: tuple[Block, ...]


class NewImport(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation of another program. Its media must be in the store."""

    messages: Annotated[tuple[ConversationMessage, ...], Meta(min_length=1, max_length=100_000)]
    title: Name = ""
    model: Name = ""
    system: Caption = ""
    workspace: Annotated[str, Meta(max_length=4_096)] = ""


class ImportView(msgspec.Struct, frozen=True, kw_only=True):
    """The session of an import. `is_new`: whether no session had this conversation at its head; `shared`: how many of
    its messages, from the first one, were already stored."""

    session: SessionView
    is_new: bool
    shared: int


class ImportedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation of a file, and the session that contains it now."""

    kind: str
    """The program that wrote it, as far as known."""
    session: str
    title: str
    messages: int
    """The number of messages on all branches."""
    media: int
    shared: int
    """How many of its messages were already stored."""
    is_new: bool
    notices: tuple[str, ...]
    """Notices about repairs, and about content that was left out or missing in the file."""


class ImportReport(msgspec.Struct, frozen=True):
    """The result of an import. `notices` are about the file as a whole."""

    sessions: tuple[ImportedSession, ...]
    notices: tuple[str, ...] = ()


class QueuedView(msgspec.Struct, frozen=True, kw_only=True):
    message: str
    text: str
    blocks: tuple[Block, ...]
    created_at: float
    steers: bool = False
    """Whether the running turn reads it at its next step."""
    paused: bool = False
    """Whether no turn takes it until it is resumed."""


class QueueView(msgspec.Struct, frozen=True):
    queue: tuple[QueuedView, ...]


class QueueChange(msgspec.Struct, frozen=True, kw_only=True):
    paused: bool
    """True pauses messages: they stay in the queue and no turn takes them. False resumes them."""
    messages: Annotated[tuple[Annotated[str, Meta(max_length=300)], ...], Meta(max_length=1000)] = ()
    """The ids of the messages; without them, all whose turn has not started."""


class ApprovalList(msgspec.Struct, frozen=True):
    approvals: tuple[ApprovalRequested, ...]


class SessionApprovals(msgspec.Struct, frozen=True, kw_only=True):
    """A session and its pending approvals."""

    session: SessionView
    approvals: tuple[ApprovalRequested, ...]


class ApprovalOverview(msgspec.Struct, frozen=True):
    sessions: tuple[SessionApprovals, ...]


class EventEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """A stored event with its number. `data` is the JSON of the event."""

    type: str
    data: msgspec.Raw
    seq: int = 0
    """Zero for an error, which is not stored."""
    session: str = ""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    turn: str
    model: str
    partial: tuple[EventEnvelope, ...]
    """The events since the last stored message."""


class NoticeView(msgspec.Struct, frozen=True, kw_only=True):
    """A notice of a turn. `after`: the node of the message that was the last one then. `is_early`: whether it is about
    a message whose turn has not started yet."""

    text: str
    code: str
    after: str
    is_early: bool = False


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the path to a node, oldest first, and the state of the session. `watch(after=seq)` continues it without
    a gap. `more`: whether there are older messages; pass the node of the first one as `before`."""

    messages: tuple[MessageView, ...]
    more: bool
    system: str
    head: str
    seq: int
    queue: tuple[QueuedView, ...]
    approvals: tuple[ApprovalRequested, ...]
    running: Running | None
    branches: int = 1
    """The number of branches of the session."""
    failure: TurnFailed | None = None
    """How the last turn ended if it did not finish: with an error, cancelled or interrupted. Null once another turn has
    started."""
    notices: tuple[NoticeView, ...] = ()
    """The notices of the last turn, which may be running."""


# Plans ----------------------------------------------------------------------------------------------------------------


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True):
    models: Annotated[tuple[Name, ...], Meta(max_length=20)] = ()
    overrides: dict[Key, OverrideChoice] = msgspec.field(default_factory=dict[Key, OverrideChoice])
    text: Caption = ""
    blocks: Annotated[tuple[ContentInput, ...], Meta(max_length=200)] = ()
    max_tokens: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    thinking: ThinkingLevel = ""
    options: RequestChoices | None = None
    """The options of the message that is planned."""
    last: bool = False
    """Whether to include the last request to each model."""
    limit: Annotated[int, Meta(ge=0, le=100_000)] = 0
    """The number of rows, counted from the newest; 0 means all. Totals are always those of the whole request."""
    before: Annotated[str, Meta(max_length=300)] = ""
    """`next` of the previous page: rows above it."""
    sent: bool = False
    """Plan the last request again, as it was sent, instead of the next one; for a model without a request so far, plan
    the next one."""
    cheaper: bool = False
    """Whether to search a cheaper model for the first of `models` that receives no less. It takes longer."""
    compact: bool = False
    """Plan the request for a summary, which compaction sends, instead of the next one."""
    at: Annotated[str, Meta(max_length=100)] = ""
    """Plan the request of a message after this one instead of the newest, as if an earlier message was edited."""
    system: Caption | None = None
    """Plan with this system prompt; empty: the one that the session started with."""
    tools: Annotated[tuple[Name, ...], Meta(max_length=200)] | None = None
    """Plan with these tools, as patterns of names."""


class PlanTokens(msgspec.Struct, frozen=True, kw_only=True, rename={"incoming": "in"}):
    incoming: int
    budget: int | None
    """None if there is no limit."""
    exact: bool


class LastRow(msgspec.Struct, frozen=True, kw_only=True):
    """A block of the last request to a model."""

    key: str
    kind: str
    label: str
    digest: str
    rendition: Rendition
    tokens: int
    bytes: int


class PlanCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """Billed tokens of a model divided by the estimated ones, and the number of answers that this was learned from."""

    ratio: float
    answers: int


class PlanModel(msgspec.Struct, frozen=True, kw_only=True):
    tokens: PlanTokens
    bytes: int
    images: int
    pages: int
    usd: float | None
    limit: int
    cached_rows: int
    notices: tuple[str, ...]
    error: ProblemText | None
    rendition_tokens: dict[Rendition, int] = msgspec.field(default_factory=dict[Rendition, int])
    """The tokens of all rows, by rendition."""
    calibration: PlanCalibration | None = None
    """What `tokens` are corrected by; None where no answer was billed yet."""
    last: tuple[LastRow, ...] | None = None
    """The blocks of the last request that was sent to it; None if there was none."""
    estimate: Estimate | None = None
    """What the request will cost; None if there is no request."""
    is_preparing: bool = False
    """Whether images are still being scaled in the background: sizes are estimates until then."""


class PlanCell(msgspec.Struct, frozen=True, kw_only=True):
    rendition: Rendition
    tokens: int
    bytes: int
    reason: Reason
    detail: str


class PlanRow(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    """The key of this block in overrides."""
    node: str
    message: int
    block: int
    inner: int | None
    role: str
    kind: str
    label: str
    digest: str
    alt: str
    """The user's text alternative for it in this session."""
    by_model: dict[str, PlanCell]


class PlanView(msgspec.Struct, frozen=True, kw_only=True):
    models: dict[str, PlanModel]
    rows: tuple[PlanRow, ...]
    rev: int
    next: str | None = None
    """The `before` for the rows above; null at the beginning of the conversation."""
    above: int = 0
    """How many rows are above."""


class WireQuery(msgspec.Struct, frozen=True):
    model: Name = ""
    thinking: ThinkingLevel = ""


class WireView(msgspec.Struct, frozen=True):
    """The exact request body; each medium is shown as its digest and size."""

    provider: str
    model: str
    request: dict[str, Any]
    notices: tuple[str, ...] = ()
    """What was reduced, and whether something else is sent first."""


class EventQuery(msgspec.Struct, frozen=True):
    """`after`: the number of the last event that was received, or `now`."""

    after: Annotated[str, Meta(max_length=20, pattern="^([0-9]+|now)$")] = "0"
