"""What the terminal UI knows of the world: one library of conversations, in this process or on a daemon.

The screens see these two protocols and nothing of the stores behind them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

from loom.content.blocks import ContentBlock
from loom.content.inputs import Content
from loom.content.messages import Message
from loom.events import ApprovalRequested, Event
from loom.models import Usage
from loom.prompt import Receipt, ReceiptRow

if TYPE_CHECKING:  # the first paint does not wait for these
    from loom.compile.policy import Override
    from loom.session import Queued

AnswerChoice: TypeAlias = Literal["once", "always", "deny"]
ActivityState: TypeAlias = Literal["idle", "running", "waiting", "queued"]


class PathMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the current path. `speaker` is the model that wrote it, where that is known."""

    node: str
    message: Message
    speaker: str = ""


class TreeMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the tree; `parent` is None at a root, `media` are the kinds of its media."""

    node: str
    parent: str | None
    role: str
    label: str
    media: tuple[str, ...] = ()
    speaker: str = ""


class ConversationFacts(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    title: str
    model: str
    workspace: str
    head: str


class SessionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the session board. `snippet` is where a search found its words."""

    id: str
    title: str
    model: str
    workspace: str
    updated_at: float
    state: ActivityState = "idle"
    snippet: str = ""


class ListedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model to choose. Flags are `yes`, `no` or `?`; `note` says what is missing, such as a key."""

    name: str
    reference: str
    context_tokens: int
    vision: str
    pdf: str
    thinking: str
    tools: str
    usd_per_million: float | None
    note: str = ""


class IngestedInput(msgspec.Struct, frozen=True, kw_only=True):
    blocks: tuple[ContentBlock, ...]
    notices: tuple[str, ...] = ()


class OpenConversation(Protocol):
    """An open session."""

    @property
    def id(self) -> str: ...

    async def info(self) -> ConversationFacts: ...

    async def path(self, *, newest: int = 0) -> tuple[PathMessage, ...]:
        """Return the messages from the root to the head, or only the newest."""
        ...

    async def tree(self) -> tuple[TreeMessage, ...]: ...

    def events(self) -> AsyncGenerator[Event]:
        """Yield all events from now on, without end. A turn that was left is continued."""
        ...

    async def post(self, *content: Content, parent: str | None = None) -> Queued:
        """Queue a message. It is on disk when this returns."""
        ...

    async def queue(self) -> tuple[Queued, ...]: ...

    async def unqueue(self, queued: str) -> bool:
        """Remove a message that waits; False if it was taken already."""
        ...

    async def regenerate(self, node: str | None = None, *, model: str = "") -> None: ...

    async def compact(self) -> None: ...

    async def cancel(self) -> None: ...

    async def approvals(self) -> tuple[ApprovalRequested, ...]: ...

    async def answer(self, approval: str, answer: AnswerChoice, reason: str = "") -> None: ...

    async def use(self, model: str) -> None: ...

    async def rename(self, title: str) -> None: ...

    async def go(self, node: str) -> None: ...

    async def fork(self, node: str | None = None) -> str:
        """Return the id of a new session that continues from `node` (None: from the head)."""
        ...

    async def undo(self, step: int | None = None) -> tuple[str, ...]:
        """Undo file changes of the last step that has any, or of `step` and all later ones; return what became of each
        file."""
        ...

    async def plan(self, models: Sequence[str] = ()) -> tuple[Receipt, ...]: ...

    async def override(self, row: ReceiptRow, rendition: Override | None) -> None:
        """Choose the rendition of one block; None leaves it to the policy."""
        ...


class Backend(Protocol):
    """The library: in process, or through a daemon."""

    @property
    def place(self) -> str:
        """The daemon's URL; empty in process."""
        ...

    async def new(self, *, title: str = "", model: str = "") -> OpenConversation: ...

    async def open(self, session_id: str) -> OpenConversation: ...

    async def default_model(self) -> str: ...

    async def sessions(self, query: str = "", *, limit: int = 100) -> tuple[SessionEntry, ...]: ...

    async def models(self) -> tuple[ListedModel, ...]: ...

    async def ingest(self, *content: Content) -> IngestedInput: ...

    async def media(self, digest: str) -> bytes: ...

    def price(self, model: str, usage: Usage) -> float | None:
        """Return US dollars; None if the price is not known."""
        ...

    def warnings(self) -> tuple[str, ...]:
        """Return what is odd about the configuration or the tool servers; each once."""
        ...

    async def close(self) -> None: ...
