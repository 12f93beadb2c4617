"""Session: the protocol that every interface uses. A local session (`runtime.session`) and a remote one
(`client.session`) behave alike; `library.Library` finds and creates them.

    async with Runtime.open() as runtime:                 # or: Client(url, token)
        session = await runtime.library.create(model="…")
        async for event in session.stream("What is wrong here?", Path("error.png")): ...
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import msgspec

from loom.content.inputs import Content
from loom.content.messages import Message
from loom.events import ApprovalRequested, Event, StopReason
from loom.models import Usage
from loom.prompt import Receipt
from loom.sampling import Choices, Sampling

if TYPE_CHECKING:
    import io

    from loom.api_types import MediaText, OverrideChoice, SessionUsage, SessionView, TreeView
    from loom.message_types import History, MessageView, PlanView, WireView

ExportFormat: TypeAlias = Literal["md", "html", "json", "zip"]
NumberedEvent: TypeAlias = tuple[int, Event]
"""An event and its number in its session: numbers have no gaps, and are the same for every reader."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a turn: the model's last message and what it took to get there."""

    node: str
    message: Message
    usage: Usage
    stop: StopReason | None
    receipt: Receipt
    parent: str = ""
    """The parent of the question: a message that is sent below it becomes a sibling of the question."""
    output: Any = None
    """The JSON value of the answer, where a schema was asked for (`options={"output_schema": …}`)."""
    siblings: tuple[Reply, ...] = ()
    """The other answers to the same question, if several were requested."""

    @property
    def text(self) -> str:
        return self.message.text

    def __str__(self) -> str:
        return self.text


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a message is to be answered. It is stored with the queue."""

    model: str = ""
    """The model that answers this once; empty means the session's."""
    parent: str = ""
    """The node to answer below; empty means the head at that time."""
    n: int = 1
    """The number of answers; they are siblings."""
    mentioned: tuple[str, ...] = ()
    """Text files whose changes are reported to the model from then on."""
    tools: tuple[str, ...] | None = None
    """The tools that may be called; None means all that are available then."""
    steers: bool = False
    """Whether a turn that runs reads it at its next step, instead of a turn of its own."""
    is_compact: bool = False
    """Whether a summary of the path is requested instead of an answer."""
    sampling: Sampling = Sampling()
    """How to answer, where it differs from what the session and the settings say."""


class Queued(msgspec.Struct, frozen=True, kw_only=True):
    """A message in the queue of a session."""

    id: str
    key: str
    """The idempotency key: the same key again returns the first message. Empty where a daemon does not send it."""
    message: Message | None
    """None if its turn has begun, or if it requests another answer to `node`."""
    options: Options = Options()
    node: str = ""
    """The node of the message, once its turn has begun."""
    answers_left: int = 1
    """Zero: it is answered, or was removed."""
    created_at: float = 0.0
    is_new: bool = True
    notices: tuple[str, ...] = ()
    """Notices about its attachments."""


LeaseWish: TypeAlias = Literal["keep", "release-if-idle", "hand-over"]
"""What becomes of the lease with a change: `release-if-idle` ends it where no message is queued, `hand-over` lets
another process acquire it at once and continue the turn."""


class NewNode(msgspec.Struct, frozen=True, kw_only=True):
    """A message to write. `source` names the author where the role does not."""

    message: Message
    source: Literal["system", "tool"] | None = None
    meta: Mapping[str, Any] | None = None


class SessionChange(msgspec.Struct, frozen=True, kw_only=True):
    """What one transaction changes, in this order: the head moves, nodes are written below it, a queued message follows
    them, columns and settings change. Of the settings those that are named change, and None removes one."""

    move_to: str = ""
    nodes: tuple[NewNode, ...] = ()
    queued: str = ""
    title: str | None = None
    model: str | None = None
    overrides: Mapping[str, Any] | None = None
    watermark: Mapping[str, Any] | None = None
    quarantine: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] | None = None
    lease: LeaseWish = "keep"


class EventIterator(Protocol):
    """The events of a turn, in order. `aclose` before the end cancels the turn."""

    def __aiter__(self) -> AsyncIterator[Event]: ...

    def __anext__(self) -> Awaitable[Event]: ...

    def aclose(self) -> Coroutine[Any, Any, None]: ...


class MediaBytes(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of a medium, or of what was derived from it, to be read once: iterate `blocks`, or call `read`."""

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
    in one process or in many, and all see the same state.
    """

    @property
    def id(self) -> str: ...

    # State -----------------------------------------------------------------------------------------------------------

    async def info(self) -> SessionView:
        """Return title, model, workspace, head, state and revision, as they are now."""
        ...

    async def head(self) -> str:
        """Return the id of the node that the session points at."""
        ...

    async def path(self) -> tuple[Message, ...]:
        """Return all messages from the root to the head."""
        ...

    async def history(self, *, before: str = "", head: str = "", limit: int = 200) -> History:
        """Return the newest `limit` messages of the path with their node ids, those above node `before` if given; and
        the queue, the pending approvals and the running turn. `head` is another node whose path is read.

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

    def stream(
        self,
        *content: Content,
        model: str = "",
        parent: str | None = None,
        n: int = 1,
        thinking: str = "",
        options: Choices = None,
    ) -> EventIterator:
        """Send a message and iterate the events of its turn. The message is on disk before the first step begins, and
        waits while another turn runs.

        `model` answers this once; `parent` is the node to answer below (the head moves there); each of `n` answers is a
        turn of its own, and the head ends at the last. `thinking` is a level (`off` … `max`), `options` are fields of
        `loom.sampling.Sampling`; both are for this message only.
        """
        ...

    async def send(
        self,
        *content: Content,
        model: str = "",
        parent: str | None = None,
        n: int = 1,
        thinking: str = "",
        options: Choices = None,
    ) -> Reply:
        """Send a message and return the reply; raise the error of a failed turn."""
        ...

    async def post(
        self,
        *content: Content,
        key: str = "",
        model: str = "",
        parent: str | None = None,
        n: int = 1,
        thinking: str = "",
        options: Choices = None,
    ) -> Queued:
        """Queue a message without waiting for its turn. It is on disk when this returns; the same `key` again returns
        the first one. A daemon runs it; a local session runs it with `work`."""
        ...

    def regenerate(
        self, node: str | None = None, *, model: str = "", n: int = 1, thinking: str = "", options: Choices = None
    ) -> EventIterator:
        """Answer the question above `node` (None: the last question) once more, as a sibling."""
        ...

    def compact(self, *, model: str = "") -> EventIterator:
        """Replace the path by a summary that a model writes. The whole conversation stays as a branch."""
        ...

    def resume(self) -> EventIterator:
        """Continue a turn that another process left: its pending approvals are requested again, under the same id."""
        ...

    def watch(self, after: int | None = None) -> AsyncGenerator[NumberedEvent]:
        """Yield all events with a number greater than `after` (None: from now on), of any turn, whichever process runs
        it. Never ends by itself; closing it cancels nothing."""
        ...

    async def cancel(self, turn: str = "") -> None:
        """End the running turn, whichever process runs it; with `turn`, only that one. What is stored stays."""
        ...

    async def approvals(self) -> tuple[ApprovalRequested, ...]:
        """Return the pending approvals, also of a turn that another process left."""
        ...

    async def answer(self, approval: str, answer: Literal["once", "always", "deny"], reason: str = "") -> None:
        """Answer a pending approval; raise a `LoomError` with the code `approval.gone` if it is no longer pending."""
        ...

    async def queue(self) -> tuple[Queued, ...]:
        """Return the queued messages, in order."""
        ...

    async def remove_queued(self, queued: str) -> None:
        """Remove a message from the queue; raise `NotFound` if its turn has begun."""
        ...

    # Changes ---------------------------------------------------------------------------------------------------------
    # With `rev`, a change is made only if the session still has that revision, else `Stale` is raised.

    async def change(
        self,
        *,
        title: str | None = None,
        model: str | None = None,
        workspace: str | None = None,
        archived: bool | None = None,
        agent: str | None = None,
        rev: int | None = None,
    ) -> SessionView:
        """Change what is given, at once. `agent` is the name of a configured agent; empty means none."""
        ...

    async def use(self, model: str) -> None:
        """Set the model; raise `ConfigError` if there is none of that name."""
        ...

    async def set_options(self, options: Choices = None, *, thinking: str = "") -> None:
        """Set the options of all later messages; they replace those that were set before."""
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

    # The next request ------------------------------------------------------------------------------------------------

    async def plan(
        self,
        models: Sequence[str] = (),
        *,
        content: Sequence[Content] = (),
        overrides: Mapping[str, OverrideChoice] | None = None,
    ) -> tuple[Receipt, ...]:
        """Return the receipt of the next request for each model (none: the session's), with `content` sent. Nothing is
        sent. `overrides` are applied on top of those of the session."""
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
    ) -> PlanView:
        """Return the same for several models side by side: one row for each block. A model that cannot take the request
        has an `error` instead of raising one. `last` adds what each model was sent last; `sent` plans that request
        again instead of the next one. Sizes may be estimates."""
        ...

    async def wire(self, model: str = "", *, thinking: str = "", options: Choices = None) -> WireView:
        """Return the exact body of the next request for a model, each medium as its digest and size."""
        ...

    async def overrides(self) -> Mapping[str, OverrideChoice]:
        """Return the renditions that the user chose, by the key of the block (`PlanRow.key`)."""
        ...

    async def set_overrides(self, changes: Mapping[str, OverrideChoice], *, rev: int | None = None) -> SessionView:
        """Choose renditions for blocks; `auto` removes a choice. Others stay."""
        ...

    async def set_captions(self, changes: Mapping[str, str], *, rev: int | None = None) -> SessionView:
        """Set the user's own text for media, by digest; empty text removes it. Others stay."""
        ...

    # Content ---------------------------------------------------------------------------------------------------------

    async def open_media(self, digest: str, form: str = "full") -> MediaBytes:
        """Open a medium of this session: `full`, `low`, `thumb`, `page:N`, `thumb:N` (a small page) or `sent:MODEL`
        (the bytes that the next request carries). Raise `NotFound` if no message refers to it."""
        ...

    async def media_text(self, digest: str, *, page: int = 0) -> MediaText:
        """Return the text of a document or an image, of one page or of all (0)."""
        ...

    async def files(self, query: str = "") -> tuple[str, ...]:
        """Return paths of the workspace that match, best first."""
        ...

    async def export(self, format: ExportFormat = "md") -> bytes:  # noqa: A002  the name of the option everywhere
        """Return the path as a file; `zip` includes the media."""
        ...
