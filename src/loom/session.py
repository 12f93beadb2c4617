"""Session: the protocol that every interface uses. A local session (`runtime.session`) and a remote one
(`client.session`) behave alike; `library.Library` finds and creates them.

    async with Runtime.open() as runtime:                 # or: Client(url, token)
        session = await runtime.library.create(model="…")
        async for event in session.stream("What is wrong here?", Path("error.png")): ...
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Coroutine, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypedDict, Unpack

import msgspec

from loom.content.blocks import ThinkingBlock
from loom.content.inputs import Content
from loom.content.messages import Message
from loom.content.output_types import schema_of
from loom.errors import ContentError
from loom.events import ApprovalRequested, Event, StopReason
from loom.models import Usage
from loom.prompt import Receipt
from loom.sampling import Choices, OutputSchema, Sampling, sampling_of

if TYPE_CHECKING:
    import io

    from loom.api_types import MediaText, OverrideChoice, SessionUsage, SessionView, TreeView
    from loom.message_types import History, MessageView, PlanView, WireView
    from loom.work_types import ChangedStep, ProcessView, Todo, UndoReport

ExportFormat: TypeAlias = Literal["md", "html", "json", "zip"]
PARENT_SESSION: Final = "parent_session"
"""The setting of a session that the agent, or an MCP server, of another session began: the id of that session."""
NumberedEvent: TypeAlias = tuple[int, Event]
"""An event and its number in its session. Numbers have no gaps, and are the same for every reader."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a turn: the model's last message, its usage and its receipt."""

    node: str
    message: Message
    usage: Usage
    stop: StopReason | None
    receipt: Receipt
    parent: str = ""
    """The parent of the question: a message that is sent below it becomes a sibling of the question."""
    output: Any = None
    """The value of the answer, if a type (`output=Type`) or a schema was requested."""
    siblings: tuple[Reply, ...] = ()
    """The other answers to the same question, if several were requested."""

    @property
    def text(self) -> str:
        return self.message.text

    def __str__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Return the content that a notebook shows: the text, folded thinking, and the usage."""
        thoughts = [block.text for block in self.message.blocks if isinstance(block, ThinkingBlock) and block.text]
        folded = "".join(
            f"<details><summary>thinking</summary><pre>{escape(text)}</pre></details>" for text in thoughts
        )
        usage = f"{self.usage.input_tokens:,} tokens in, {self.usage.output_tokens:,} out"
        facts = f"<p><small>{escape(self.receipt.model)} · {usage}</small></p>"
        words = f'<div style="white-space: pre-wrap">{escape(self.text)}</div>'
        return {"text/plain": self.text, "text/markdown": self.text, "text/html": f"{folded}{words}{facts}"}


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options of a message. They are stored with the queue."""

    model: str = ""
    """The model for this message only; empty means the session's."""
    models: tuple[str, ...] = ()
    """The models for this message only, one after another; `n` is then their number."""
    parent: str = ""
    """The node to answer below; empty means the head at that time."""
    n: int = 1
    """The number of answers; they are siblings."""
    mentioned: tuple[str, ...] = ()
    """Text files whose changes are reported to the model from then on."""
    notices: tuple[str, ...] = ()
    """Notices about its attachments; its turn shows them."""
    tools: tuple[str, ...] | None = None
    """The tools that may be called; None means all that are available then."""
    steers: bool = False
    """Whether the running turn reads it at its next step, instead of a turn of its own."""
    is_compact: bool = False
    """Whether a summary of the path is requested instead of an answer."""
    sampling: Sampling = Sampling()
    """Sampling options that differ from those of the session and the settings."""
    traceparent: str = ""
    """The span of the request that posted it, as its W3C header."""


class AnswerKeywords(TypedDict, total=False):
    """The options of an answer as callers write them; the keywords of `Session.regenerate`."""

    model: str
    """The model for this message only; by default the session's."""
    n: int
    """The number of answers; they are siblings."""
    thinking: str
    """How much the model thinks: `off` … `max`."""
    options: Choices
    """Fields of `loom.sampling.Sampling`."""
    output: Any
    """The type of the answer: a dataclass, `TypedDict`, `msgspec.Struct`, Pydantic model or JSON Schema. The value is
    `Reply.output`."""


class MessageKeywords(AnswerKeywords, total=False):
    """The options of a message as callers write them; the keywords of `Session.stream`, `send` and `post`."""

    parent: str | None
    """The node to answer below; by default the head at that time."""


def options_of(
    *,
    model: str = "",
    parent: str | None = None,
    n: int = 1,
    thinking: str = "",
    options: Choices = None,
    output: Any = None,
    tools: tuple[str, ...] | None = None,
) -> Options:
    """Return the keywords of a call as one value; raise `ContentError` for an invalid one."""
    if n < 1:
        raise ContentError(f"A message gets one answer or more, not {n}")
    sampling = sampling_of(options, thinking=thinking)
    if output is not None:
        schema, name = schema_of(output)
        sampling = sampling.override(Sampling(output_schema=OutputSchema(schema=schema, name=name)))
    return Options(model=model, parent=parent or "", n=n, tools=tools, sampling=sampling)


def with_models(options: Options, models: Sequence[str]) -> Options:
    """Return the options of a message that each of `models` answers; without any, return them unchanged."""
    if not models:
        return options
    if options.model or options.n != 1:
        raise ContentError("Expected only one of `model`, `models` and `n`.")
    return msgspec.structs.replace(options, models=tuple(models), n=len(models))


class Queued(msgspec.Struct, frozen=True, kw_only=True):
    """A message in the queue of a session."""

    id: str
    key: str
    """The idempotency key: a repeated key returns the first message. Empty if a daemon does not send it."""
    message: Message | None
    """None if its turn has started, or if it requests another answer to `node`."""
    options: Options = Options()
    node: str = ""
    """The node of the message, once its turn has started."""
    answers_left: int = 1
    """Zero if it is answered, or was removed."""
    created_at: float = 0.0
    is_paused: bool = False
    """Whether no turn takes it until it is resumed."""
    is_new: bool = True
    notices: tuple[str, ...] = ()
    """Notices about its attachments."""
    seq: int = 0
    """The number of the last event before it was queued; set where it was queued by this call."""


LeaseChange: TypeAlias = Literal["keep", "release-if-idle", "hand-over"]
"""What happens to the lease with a change: `release-if-idle` releases it if no message is queued, `hand-over` lets
another process acquire it at once and continue the turn."""


class NewNode(msgspec.Struct, frozen=True, kw_only=True):
    """A message to write. `source` names the author if the role does not."""

    message: Message
    source: Literal["system", "tool"] | None = None
    meta: Mapping[str, Any] | None = None


class SessionChange(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of one transaction, in this order: the head moves, nodes are written below it, a queued message
    follows them, columns and settings change. Only the settings that are named change; None removes one."""

    move_to: str = ""
    nodes: tuple[NewNode, ...] = ()
    queued: str = ""
    title: str | None = None
    model: str | None = None
    overrides: Mapping[str, Any] | None = None
    watermark: Mapping[str, Any] | None = None
    quarantine: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] | None = None
    lease: LeaseChange = "keep"
    reads_back: bool = False
    """Whether the outcome holds the session and its path as they are after the change."""


class EventIterator(Protocol):
    """The events of a turn, in order. `aclose` before the end cancels the turn."""

    def __aiter__(self) -> AsyncIterator[Event]: ...

    def __anext__(self) -> Awaitable[Event]: ...

    def aclose(self) -> Coroutine[Any, Any, None]: ...


class MediaBytes(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of a medium, or of a rendition, to be read once: iterate over `blocks`, or call `read`."""

    media_type: str
    size_bytes: int
    blocks: AsyncIterator[bytes]
    etag: str = ""
    file: io.RawIOBase | None = None
    """The same bytes as an open file of this machine, at the first byte; the receiver closes it."""
    is_immutable: bool = True
    """Whether the same request always returns the same bytes."""

    async def read(self) -> bytes:
        """Return all bytes."""
        if self.file is not None:
            self.file.close()
        return b"".join([block async for block in self.blocks])


class Session(Protocol):
    """A conversation that can be continued: a named head in a tree of messages.

    Methods raise `NotFound` once the session is deleted. A session object is cheap; several may exist for one session,
    in one or several processes, and all see the same state.
    """

    @property
    def id(self) -> str: ...

    # State -----------------------------------------------------------------------------------------------------------

    async def info(self) -> SessionView:
        """Return the current title, model, workspace, head, state and revision."""
        ...

    async def head(self) -> str:
        """Return the id of the node that the session points at."""
        ...

    async def path(self) -> tuple[Message, ...]:
        """Return all messages from the root to the head."""
        ...

    async def history(self, *, before: str = "", head: str = "", limit: int = 200) -> History:
        """Return the newest `limit` messages of the path with their node ids, or those above node `before`; and the
        queue, the pending approvals and the running turn. `head` is another node whose path is read.

        `watch(after=history.seq)` continues it without a gap.
        """
        ...

    async def tree(self) -> TreeView:
        """Return all branches, parents before children."""
        ...

    async def children(self, node: str) -> tuple[MessageView, ...]:
        """Return the messages directly below a node, oldest first."""
        ...

    async def usage(self) -> SessionUsage:
        """Return the tokens and the price of the answers, on the path and on all branches."""
        ...

    # Turns -----------------------------------------------------------------------------------------------------------

    def stream(self, *content: Content, **how: Unpack[MessageKeywords]) -> EventIterator:
        """Send a message and iterate over the events of its turn. The message is on disk before the first step starts,
        and waits while another turn runs.

        `how` are `MessageKeywords`, for this message only: `model` is the model to use; `parent` is the node to answer
        below (the head moves there); each of `n` answers is a turn of its own, and the head ends at the last;
        `thinking` is a level (`off` … `max`); `options` are fields of `loom.sampling.Sampling`.
        """
        ...

    async def send(self, *content: Content, **how: Unpack[MessageKeywords]) -> Reply:
        """Send a message and return the reply; raise the error of a failed turn."""
        ...

    async def post(
        self, *content: Content, key: str = "", models: Sequence[str] = (), **how: Unpack[MessageKeywords]
    ) -> Queued:
        """Queue a message without waiting for its turn. It is on disk when this returns; a repeated `key` returns the
        first message. A daemon runs it; a local session runs it with `work`. Each of `models` answers it, one after
        another; the answers are siblings."""
        ...

    async def steer(self, *content: Content, key: str = "") -> Queued:
        """Send a message to the running turn: the model reads it at its next step. If no turn runs, or the turn takes
        no further step, it is answered like any queued message."""
        ...

    async def post_again(self, node: str | None = None, *, key: str = "", **how: Unpack[AnswerKeywords]) -> Queued:
        """Queue another answer to the question above `node` (None: the last question)."""
        ...

    async def post_compact(self, *, key: str = "", model: str = "") -> Queued:
        """Queue a summary of the path."""
        ...

    def work(self) -> EventIterator:
        """Do the work that no other process does, until nothing is left: continue an unfinished turn, answer queued
        messages. For a session of a daemon this ends at once, because the daemon does the work."""
        ...

    async def leave(self) -> None:
        """Stop the turns that this object runs; another process continues them."""
        ...

    def regenerate(self, node: str | None = None, **how: Unpack[AnswerKeywords]) -> EventIterator:
        """Answer the question above `node` (None: the last question) again, as a sibling."""
        ...

    def compact(self, *, model: str = "") -> EventIterator:
        """Replace the path with a summary by a model. The original conversation stays as a branch."""
        ...

    def resume(self) -> EventIterator:
        """Continue a turn that another process left unfinished: its pending approvals are requested again, under the
        same id."""
        ...

    def watch(self, after: int | None = None) -> AsyncGenerator[NumberedEvent]:
        """Yield all events with a number greater than `after` (None: from now on), of any turn in any process. It does
        not end by itself; closing it cancels nothing."""
        ...

    async def cancel(self, turn: str = "") -> None:
        """End the running turn, in any process; with `turn`, only that one. What is stored stays."""
        ...

    async def approvals(self) -> tuple[ApprovalRequested, ...]:
        """Return the pending approvals, including those of an unfinished turn of another process."""
        ...

    async def answer(self, approval: str, answer: Literal["once", "always", "deny"], reason: str = "") -> None:
        """Answer a pending approval; raise a `LoomError` with the code `approval.gone` if it is no longer pending."""
        ...

    async def queue(self) -> tuple[Queued, ...]:
        """Return the queued messages, in order."""
        ...

    async def remove_queued(self, queued: str) -> None:
        """Remove a message from the queue; raise `NotFound` if its turn has started."""
        ...

    async def pause_queue(self, *queued: str) -> None:
        """Pause messages whose turn has not started; without ids, all of them. They stay in the queue and no turn takes
        them. Raise `NotFound` if one of them has left the queue."""
        ...

    async def resume_queue(self, *queued: str) -> None:
        """Resume paused messages; without ids, all of them. Raise `NotFound` if one of them has left the queue."""
        ...

    # Changes ---------------------------------------------------------------------------------------------------------
    # With `rev`, a change is made only if the session still has that revision, otherwise `Stale` is raised.

    async def change(
        self,
        *,
        title: str | None = None,
        model: str | None = None,
        workspace: str | None = None,
        archived: bool | None = None,
        folder: str | None = None,
        tags: Sequence[str] | None = None,
        pinned: bool | None = None,
        agent: str | None = None,
        system: str | None = None,
        tools: Sequence[str] | None = None,
        plan_mode: bool | None = None,
        rev: int | None = None,
    ) -> SessionView:
        """Make all given changes at once. `agent` is the name of a configured agent; empty means none. `system`
        replaces the system prompt; empty restores the one that the session started with. `tools` are names or patterns
        of the tools that it may use; `("*",)` means all. In `plan_mode` only tools that read are offered, until the
        user approves a plan."""
        ...

    async def use(self, model: str) -> None:
        """Set the model; raise `ConfigError` if there is none of that name."""
        ...

    async def set_options(self, options: Choices = None, *, thinking: str = "") -> None:
        """Set the options of all later messages; they replace earlier ones."""
        ...

    async def rename(self, title: str) -> None: ...

    async def go(self, node: str, *, rev: int | None = None) -> None:
        """Move the head to any node of the session; raise `Conflict` while a turn runs."""
        ...

    async def fork(self, node: str | None = None, *, title: str | None = None) -> Session:
        """Create a session that points at a node of this one (None: the head). Messages and media are shared."""
        ...

    async def mark(self, node: str, *, bookmark: str | None = None, tags: Sequence[str] | None = None) -> None:
        """Set the bookmark or the tags of a node; empty removes them."""
        ...

    async def delete(self) -> int:
        """Delete the session and the media that only it used; return the bytes that were freed, as far as known."""
        ...

    # The agent's work ------------------------------------------------------------------------------------------------

    async def todos(self) -> tuple[Todo, ...]:
        """Return the agent's current to-do list."""
        ...

    async def processes(self) -> tuple[ProcessView, ...]:
        """Return the background processes that the agent has started, in the process that runs its turns."""
        ...

    async def stop_process(self, name: str) -> None:
        """Stop a background process; raise `NotFound`, with the known names, for an unknown one."""
        ...

    async def changes(self) -> tuple[ChangedStep, ...]:
        """Return the steps of the current path that changed files."""
        ...

    async def undo(self, step: int | None = None) -> UndoReport:
        """Undo the file changes of the last step that has any, or of `step` and all later ones. The model is informed.

        A file that something else has changed since is left alone; the report names it. Raise `Conflict` while a turn
        runs or an approval is pending, `NotFound` if there is nothing to undo.
        """
        ...

    # The next request ------------------------------------------------------------------------------------------------

    async def plan(
        self,
        models: Sequence[str] = (),
        *,
        content: Sequence[Content] = (),
        overrides: Mapping[str, OverrideChoice] | None = None,
        cheaper: bool = False,
    ) -> tuple[Receipt, ...]:
        """Return the receipt of the next request for each model (none: the session's), with `content` as the next
        message. Nothing is sent. `overrides` are applied on top of those of the session. Each receipt has an
        `estimate` of its cost; with `cheaper`, that of the first names a cheaper model that receives no less, if there
        is one."""
        ...

    async def plan_table(
        self,
        models: Sequence[str] = (),
        *,
        content: Sequence[Content] = (),
        overrides: Mapping[str, OverrideChoice] | None = None,
        max_tokens: int | None = None,
        last: bool = False,
        sent: bool = False,
        thinking: str = "",
        options: Choices = None,
        cheaper: bool = False,
        compact: bool = False,
        at: str = "",
        system: str | None = None,
        tools: Sequence[str] | None = None,
    ) -> PlanView:
        """Return the plan for several models side by side: one row for each block. A model that cannot take the request
        has an `error` instead of raising one. `last` adds the last request to each model; `sent` plans that request
        again instead of the next one. Sizes may be estimates.

        To know what an action costs before it happens: `compact` plans the request for a summary, `at` a message after
        an earlier one, `system` and `tools` the next request with another system prompt or other tools. `cheaper`
        searches a cheaper model for the first of `models`.
        """
        ...

    async def wire(self, model: str = "", *, thinking: str = "", options: Choices = None) -> WireView:
        """Return the exact body of the next request for a model, with each medium as its digest and size."""
        ...

    async def overrides(self) -> Mapping[str, OverrideChoice]:
        """Return the renditions that the user chose, by the key of the block (`PlanRow.key`)."""
        ...

    async def set_overrides(self, changes: Mapping[str, OverrideChoice], *, rev: int | None = None) -> SessionView:
        """Choose renditions for blocks; `auto` removes a choice. Other choices stay."""
        ...

    async def set_captions(self, changes: Mapping[str, str], *, rev: int | None = None) -> SessionView:
        """Set the user's text alternatives for media, by digest; empty text removes one. Others stay."""
        ...

    # Content ---------------------------------------------------------------------------------------------------------

    async def open_media(self, digest: str, form: str = "full") -> MediaBytes:
        """Open a medium of this session: `full`, `low`, `thumb`, `page:N`, `thumb:N` (a small page) or `sent:MODEL`
        (the bytes in the next request). Raise `NotFound` if no message refers to it."""
        ...

    async def media_text(self, digest: str, *, page: int = 0) -> MediaText:
        """Return the text of a document or an image, of one page or of all (0)."""
        ...

    async def files(self, query: str = "") -> tuple[str, ...]:
        """Return paths of the workspace that match `query`, best first."""
        ...

    async def export(self, format: ExportFormat = "md") -> bytes:  # noqa: A002  the name of the option everywhere
        """Return the path as a file; `zip` includes the media."""
        ...
