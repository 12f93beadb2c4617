"""The values that a session library takes and returns, local or over HTTP. They are defined only here: `Library` and
`Session` use them, the daemon and its client send them, and the OpenAPI document and the web client's types are
generated from them.

Times are seconds since the epoch. Nodes, media and sessions are identified by the ids of the store.
"""

from __future__ import annotations

from html import escape
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from loom.content.blocks import ContentBlock
from loom.models import FactOrigin, ThinkingLevel, Usage
from loom.sampling import Sampling, sampling_of

Name: TypeAlias = Annotated[str, Meta(max_length=1_000)]
Caption: TypeAlias = Annotated[str, Meta(max_length=1_000_000)]
ToolPatterns: TypeAlias = Annotated[tuple[Name, ...], Meta(max_length=200)]
"""Names of tools, or patterns such as `SERVER__*`; `["*"]` means all tools."""
Key: TypeAlias = Annotated[str, Meta(min_length=1, max_length=300)]
FORMS: Final = r"^(full|low|thumb|(page|thumb):[1-9][0-9]{0,5}|sent:.+)$"
"""The forms in which a medium is served."""
SessionState: TypeAlias = Literal["idle", "running", "waiting", "queued"]
OverrideChoice: TypeAlias = Literal["full", "low", "text", "omitted", "auto"]


class ProblemText(msgspec.Struct, frozen=True):
    """An error: `code` is for programs, `message` describes the problem, `hint` the next step."""

    code: str
    message: str
    hint: str = ""


class ProblemBody(msgspec.Struct, frozen=True, kw_only=True):
    """A problem as in RFC 9457: `title` describes the problem, `detail` the next step, `code` is for programs."""

    type: str = ""
    title: str = ""
    status: int = 0
    detail: str = ""
    code: str = ""
    error: ProblemText
    """The error in the format of older versions."""


class Status(msgspec.Struct, frozen=True, omit_defaults=True):
    """The daemon's health. `degraded` names parts that are unavailable while the daemon works without them."""

    status: str
    degraded: tuple[str, ...] = ()


class Version(msgspec.Struct, frozen=True):
    version: str
    api: int


class RunningDaemon(msgspec.Struct, frozen=True):
    """The file that a running daemon writes for clients of the same machine. `certificate` is the file of its TLS
    certificate, which they trust."""

    pid: int
    url: str
    certificate: str = ""


# Sign in --------------------------------------------------------------------------------------------------------------


class Login(msgspec.Struct, frozen=True):
    password: Annotated[str, Meta(max_length=1_000)]


class AuthMethods(msgspec.Struct, frozen=True):
    """The supported sign-in methods. `password`: whether `POST /v1/login` accepts a password or a user's key."""

    password: bool


class UserView(msgspec.Struct, frozen=True):
    """A user of this daemon."""

    name: str
    role: Literal["admin", "user", "viewer"]


class MemberView(msgspec.Struct, frozen=True):
    """A user of a session: `view` may read it, `edit` may also send messages and answer approvals, `own` may also share
    and delete it. `user` is a name, or `everyone`."""

    user: str
    access: Literal["view", "edit", "own"]


class MemberList(msgspec.Struct, frozen=True):
    members: tuple[MemberView, ...]


class MemberChange(msgspec.Struct, frozen=True):
    access: Literal["view", "edit", "own"] = "edit"


class LoginView(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that is signed in. `current` is the one that sent the request."""

    id: str
    user: str
    address: str
    agent: str
    created_at: float
    seen_at: float
    current: bool


class LoginList(msgspec.Struct, frozen=True):
    logins: tuple[LoginView, ...]


class LoginLink(msgspec.Struct, frozen=True):
    """A link that opens the web client once."""

    url: str


class Token(msgspec.Struct, frozen=True):
    token: str


# Settings -------------------------------------------------------------------------------------------------------------


class ImageLimits(msgspec.Struct, frozen=True):
    max_per_message: int
    max_size_bytes: int
    max_per_session: int


class DocumentLimits(msgspec.Struct, frozen=True):
    max_pdf_bytes: int
    max_office_bytes: int
    pages_per_read: int


class AudioLimits(msgspec.Struct, frozen=True):
    max_size_bytes: int


class UploadLimits(msgspec.Struct, frozen=True):
    max_bytes: int


class ConfigView(msgspec.Struct, frozen=True, kw_only=True):
    images: ImageLimits
    documents: DocumentLimits
    audio: AudioLimits
    upload: UploadLimits
    model: str
    """The default model."""
    workspace: str
    offline: bool


class CapabilityView(msgspec.Struct, frozen=True, kw_only=True):
    vision: bool
    native_pdf: bool
    thinking: bool
    tools: bool
    audio: bool
    video: bool
    citations: bool


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    reference: str
    name: str
    provider: str
    context_tokens: int
    capabilities: CapabilityView
    origins: dict[str, FactOrigin]
    """The origin of each capability; one that is not listed is declared."""
    input_usd_per_million: float | None
    output_usd_per_million: float | None
    ready: bool
    needs: str
    """The command to run before it can be used; empty if it is ready."""


class GatewayModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model in the format of the OpenAI and Anthropic APIs."""

    id: str
    object: Literal["model"] = "model"
    type: Literal["model"] = "model"
    display_name: str
    created: int
    created_at: str
    owned_by: str


class ModelList(msgspec.Struct, frozen=True):
    """The available models. `models` is Loom's own list; the other fields are for clients of the OpenAI and Anthropic
    APIs."""

    models: tuple[ModelView, ...]
    default: str
    object: Literal["list"] = "list"
    data: tuple[GatewayModel, ...] = ()
    has_more: bool = False
    first_id: str | None = None
    last_id: str | None = None


class ToolView(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that sessions may use. `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]


class ToolList(msgspec.Struct, frozen=True):
    tools: tuple[ToolView, ...]


class AgentView(msgspec.Struct, frozen=True, kw_only=True):
    """An agent. Empty `model` means the default model; `tools` null means all. `origin` is the file that defines it;
    `notices` say what of the file has no effect here."""

    name: str
    description: str
    model: str
    tools: tuple[str, ...] | None
    origin: str = ""
    notices: tuple[str, ...] = ()


class AgentQuery(msgspec.Struct, frozen=True):
    workspace: Annotated[str, Meta(max_length=4_096)] = ""


class AgentList(msgspec.Struct, frozen=True):
    agents: tuple[AgentView, ...]


class CommandView(msgspec.Struct, frozen=True, kw_only=True):
    """A slash command of the user or of the workspace. `$ARGUMENTS` in `text` is replaced with the text after the
    command, `$1` to `$9` with its words; a session expands `/NAME` itself."""

    name: str
    description: str
    text: str


class CommandQuery(msgspec.Struct, frozen=True):
    workspace: Annotated[str, Meta(max_length=4_096)] = ""


class CommandList(msgspec.Struct, frozen=True):
    commands: tuple[CommandView, ...]


class TrustQuery(msgspec.Struct, frozen=True):
    workspace: Annotated[str, Meta(max_length=4_096)] = ""


class FolderFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that instructs the model or configures Loom. `text` is its beginning; `is_foreign`: of another user."""

    name: str
    bytes: int
    is_foreign: bool
    text: str


class FolderTrustView(msgspec.Struct, frozen=True, kw_only=True):
    """Instructions and settings of a folder, and the decision about them. `digest` stands for exactly these files;
    empty if they are too many to decide about. `more` counts files that are not in `files`."""

    folder: str
    state: Literal["trusted", "refused", "unknown"]
    needs_decision: bool
    kinds: tuple[str, ...]
    """Of `instructions`, `settings`, `MCP servers`, `skills`, `commands`, `hooks`."""
    digest: str
    files: tuple[FolderFile, ...]
    more: int


class TrustDecisionBody(msgspec.Struct, frozen=True, kw_only=True):
    """A decision about the files that `digest` stands for. `workspace` empty: the working directory."""

    workspace: Annotated[str, Meta(max_length=4_096)] = ""
    digest: Annotated[str, Meta(min_length=1, max_length=200)]
    trusted: bool


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    provider: str
    set: bool
    env: str
    last4: str


class KeyList(msgspec.Struct, frozen=True):
    keys: tuple[KeyView, ...]


class NewKey(msgspec.Struct, frozen=True):
    key: Annotated[str, Meta(min_length=1, max_length=1_000)]


# Media ----------------------------------------------------------------------------------------------------------------


OLDER_NAME: Final = Meta(extra_json_schema={"deprecated": True})
"""A name of earlier versions. Today: `media_type`, not `mime`; `size_bytes`, not `bytes`; `base64`, not `data`; `text`,
not `message`."""


class MediaView(msgspec.Struct, frozen=True, kw_only=True):
    """A file in the store. `block` is the block that shows it in a message."""

    id: str
    digest: str
    kind: Literal["image", "document", "audio", "video", "text"]
    media_type: str
    size_bytes: int
    mime: Annotated[str, OLDER_NAME]
    bytes: Annotated[int, OLDER_NAME]
    width: int | None
    height: int | None
    pages: int | None
    duration: float | None
    name: str
    new: bool
    """Whether the store did not have it before."""
    block: ContentBlock
    notices: tuple[str, ...]


class NewMedia(msgspec.Struct, frozen=True, kw_only=True):
    """A file to store, as one of three: bytes in base64, a URL to fetch, or the digest of bytes that may already be
    stored."""

    base64: str = ""
    url: Annotated[str, Meta(max_length=8_000)] = ""
    digest: Annotated[str, Meta(max_length=100)] = ""
    name: Name = ""
    password: Annotated[str, Meta(max_length=500)] = ""
    """The password of a PDF. A decrypted copy is stored."""


class MediaName(msgspec.Struct, frozen=True):
    name: Name = ""


class MediaForm(msgspec.Struct, frozen=True):
    """The form of a medium. `v`: full, low, thumb, page:N, thumb:N (a small page), sent:MODEL; `session`: the session
    whose plan `sent` uses."""

    v: Annotated[str, Meta(max_length=300, pattern=FORMS)] = "full"
    session: Annotated[str, Meta(max_length=100)] = ""
    name: Name = ""


class MediaText(msgspec.Struct, frozen=True):
    text: str
    pages: int | None


class NewDescription(msgspec.Struct, frozen=True):
    """A request for a description. Empty `model` means the configured describer."""

    model: Name = ""


class DescriptionView(msgspec.Struct, frozen=True):
    text: str
    by: str


class MediaPage(msgspec.Struct, frozen=True):
    page: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Zero means all pages."""


class SampleView(msgspec.Struct, frozen=True):
    name: str
    title: str
    prompt: str
    media: MediaView


class SampleList(msgspec.Struct, frozen=True):
    samples: tuple[SampleView, ...]


# Prompts --------------------------------------------------------------------------------------------------------------


class PromptBody(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt of the library. `$name` in its text is a field; `$input` is the user's input."""

    text: Caption
    system: Caption = ""
    model: Name = ""
    params: dict[str, Annotated[str, Meta(max_length=10_000)]] = msgspec.field(default_factory=dict[str, str])
    """Default values of fields."""


class PromptView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    text: str
    system: str
    model: str
    params: dict[str, str]
    fields: tuple[str, ...]
    """The names of fields that need a value."""
    is_shared: bool
    """Whether all users have it. Only administrators change such prompts; every user also has prompts of their own."""


class PromptList(msgspec.Struct, frozen=True):
    prompts: tuple[PromptView, ...]


# Sessions -------------------------------------------------------------------------------------------------------------


class RequestChoices(Sampling, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Options of an answer; they take precedence over the model's settings. Options that a platform does not support
    are not sent, and a notice names them."""


def sampling_of_body(thinking: ThinkingLevel, options: RequestChoices | None) -> Sampling:
    """Return the options of a request body; its `thinking` takes precedence over the one in its options."""
    return sampling_of(None if options is None else msgspec.to_builtins(options), thinking=thinking)


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    title: Name = ""
    model: Name = ""
    system: Caption = ""
    workspace: Annotated[str, Meta(max_length=4_096)] = ""
    thinking: ThinkingLevel = ""
    options: RequestChoices | None = None
    """The options of all its messages."""
    agent: Name = ""
    """The name of a configured agent."""
    tools: ToolPatterns = ("*",)
    """The tools that it may use."""
    plan_mode: bool = False
    """Offer only tools that read, until the user approves a plan."""


class SessionChangeBody(msgspec.Struct, frozen=True, kw_only=True):
    title: Name | None = None
    model: Name | None = None
    archived: bool | None = None
    folder: Name | None = None
    """A path of names, such as `Work/Invoices`; empty: no folder."""
    tags: Annotated[tuple[Annotated[str, Meta(max_length=100)], ...], Meta(max_length=50)] | None = None
    pinned: bool | None = None
    workspace: Annotated[str, Meta(max_length=4_096)] | None = None
    thinking: ThinkingLevel | None = None
    """Empty restores the model's default."""
    options: RequestChoices | None = None
    """Replaces the options of the session."""
    agent: Name | None = None
    """Its tools and rules apply from the next message on; the system prompt stays. Empty: no agent."""
    system: Caption | None = None
    """The system prompt from the next message on; empty restores the one that the session started with."""
    tools: ToolPatterns | None = None
    """The tools that it may use from the next message on."""
    plan_mode: bool | None = None


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """A session. `title` is the beginning of the first message until the session is renamed; `rev` counts every change,
    and is the ETag."""

    id: str
    title: str
    model: str
    workspace: str
    head: str
    root: str
    rev: int
    archived: bool
    created_at: float
    updated_at: float
    last_seq: int
    state: SessionState
    options: Sampling
    """The options of all its messages."""
    snippet: str
    thumb: str | None
    """The digest of the newest image."""
    agent: str = ""
    tools: tuple[str, ...] = ("*",)
    """The tools that it may use, or patterns."""
    plan_mode: bool = False
    """Whether only tools that read are offered, until the user approves a plan."""
    damage: str = ""
    """The problem with a session that cannot be read."""
    folder: str = ""
    tags: tuple[str, ...] = ()
    pinned: bool = False
    parent_session: str = ""
    """The session whose agent or MCP server began it; empty for a session of the user."""


class MessagePlace(msgspec.Struct, frozen=True):
    """A message by its full id, and the newest session that contains it."""

    node: str
    session: SessionView


class FolderList(msgspec.Struct, frozen=True):
    """The folders and tags of sessions that are not archived, and how many sessions are in each."""

    folders: dict[str, int]
    tags: dict[str, int]


class NewShare(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    days: Annotated[float, Meta(ge=0, le=36_500)] = 0
    """How long the link works; 0: until it is deleted."""


class ShareView(msgspec.Struct, frozen=True, kw_only=True):
    """A link to a conversation as it was when it was shared."""

    id: str
    node: str
    """The last message that is shared."""
    path: str
    """The path on this server; only known when the link is created."""
    created_at: float
    expires_at: float | None


class ShareList(msgspec.Struct, frozen=True):
    shares: tuple[ShareView, ...]


class SessionPage(msgspec.Struct, frozen=True):
    sessions: tuple[SessionView, ...]
    next: str | None
    """The `before` of the next page; None at the end."""


class SessionQuery(msgspec.Struct, frozen=True, kw_only=True):
    q: Name = ""
    archived: bool = False
    folder: Name | None = None
    tag: Name = ""
    pinned: bool | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    before: Annotated[str, Meta(max_length=100, pattern=r"^([0-9.e+]+\.[0-9A-Z]{26})?$")] = ""


class UsageTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of the answers on a path, or on all branches."""

    answers: int
    usage: Usage
    usd: float | None
    """None if the price of an answer is not known."""


class SessionUsage(msgspec.Struct, frozen=True, kw_only=True):
    path: UsageTotals
    """The answers from the root to the head."""
    total: UsageTotals
    """The answers on all branches."""


class UsageQuery(msgspec.Struct, frozen=True):
    days: Annotated[int, Meta(ge=1, le=366)] = 30
    tools: bool = False
    """Whether the use of tools is counted, too, which reads every result of the period."""


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of one model in one session on one day, in the time zone of the server."""

    day: str
    """`YYYY-MM-DD`."""
    model: str
    """Empty if the model is not known."""
    session: str
    title: str
    answers: int = 0
    usage: Usage = Usage()
    estimated_tokens: int = 0
    """The estimated tokens of the requests before they were sent."""
    estimated_input_tokens: int = 0
    """The billed input tokens of the requests that were estimated."""
    usd: float = 0.0
    """The price of the answers whose price is known."""
    unpriced: int = 0
    """The number of answers whose price is not known."""


class ToolUsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """The use of one tool in one session on one day, in the time zone of the server."""

    day: str
    """`YYYY-MM-DD`."""
    tool: str
    """Empty if the name is not known."""
    session: str
    title: str
    calls: int = 0
    failed: int = 0
    text_tokens: int = 0
    """The estimated tokens of the text of the results, which every later request contains until it is trimmed."""
    media: int = 0
    """The number of images and other media in the results."""


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of today and the days before it, oldest first."""

    days: int
    rows: tuple[UsageRow, ...]
    tools: tuple[ToolUsageRow, ...] = ()
    """The use of tools, if it was requested."""


class NewHead(msgspec.Struct, frozen=True):
    node: Key


class NewFork(msgspec.Struct, frozen=True, kw_only=True):
    node: Key | None = None
    title: Name | None = None


class MediaMark(msgspec.Struct, frozen=True):
    digest: str
    kind: str


class TreeNode(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    parent: str | None
    role: str
    source: str
    label: str
    media: tuple[MediaMark, ...]
    model: str
    created_at: float
    bookmark: str
    tags: tuple[str, ...]
    depth: int


class TreeView(msgspec.Struct, frozen=True):
    root: str
    head: str
    nodes: tuple[TreeNode, ...]
    next: str | None = None
    """The `after` of the next page; null at the end."""

    def _repr_html_(self) -> str:
        """Return the outline that a notebook shows; the head is bold."""
        lines = [
            f'<div style="margin-left: {min(node.depth, 40)}em">'
            f"{escape(node.role)}: {'<b>' * is_head}{escape(node.label)}{'</b>' * is_head}</div>"
            for node in self.nodes
            for is_head in (node.node == self.head,)
        ]
        return "".join(lines)


class TreeQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the tree, parents before children. `after` is the last node of the previous page; `limit` 0 means
    all."""

    after: Annotated[str, Meta(max_length=300)] = ""
    limit: Annotated[int, Meta(ge=0, le=100_000)] = 0


class NodeChange(msgspec.Struct, frozen=True, kw_only=True):
    bookmark: Annotated[str, Meta(max_length=300)] | None = None
    tags: Annotated[tuple[Annotated[str, Meta(max_length=100)], ...], Meta(max_length=50)] | None = None


class FileList(msgspec.Struct, frozen=True):
    files: tuple[str, ...]


class FileQuery(msgspec.Struct, frozen=True):
    q: Name = ""


class ExportQuery(msgspec.Struct, frozen=True):
    format: Literal["md", "html", "json", "zip"] = "md"


class SearchQuery(msgspec.Struct, frozen=True, kw_only=True):
    q: Annotated[str, Meta(min_length=1, max_length=1_000)]
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    session: str
    title: str
    node: str
    role: str
    snippet: str
    media: str | None
    where: Literal["text", "document", "picture"]


class SearchResults(msgspec.Struct, frozen=True):
    results: tuple[SearchResult, ...]
