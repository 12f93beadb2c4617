"""Session: the protocol that every face talks to. A local session and a remote one cannot be told apart."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Coroutine, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from loom.content.inputs import Content
from loom.content.messages import Message
from loom.events import ApprovalRequested, Event, StopReason
from loom.models import Usage
from loom.prompt import Receipt
from loom.sampling import Choices, Sampling


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A turn, folded: the model's last message and what it took to get there."""

    node: str
    message: Message
    usage: Usage
    stop: StopReason | None
    receipt: Receipt
    parent: str = ""
    """The node below which the question stands: say something else there, and it is a sibling of the question."""
    siblings: tuple[Reply, ...] = ()
    """The other answers to the same question, where several were asked for."""

    @property
    def text(self) -> str:
        return self.message.text

    def __str__(self) -> str:
        return self.text


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a message is to be answered."""

    model: str = ""
    """Whom to ask this once; empty means the session's model."""
    parent: str = ""
    """The node below which it is said; empty means the head as it is then."""
    n: int = 1
    """How many answers are wanted; they are siblings."""
    mentioned: tuple[str, ...] = ()
    """Text files that the agent is kept informed of from then on."""
    tools: tuple[str, ...] | None = None
    """The tools that may be called; None means all that there are then."""
    sampling: Sampling = Sampling()
    """How to answer, where it differs from what the session and the settings say."""


class Queued(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is kept until its turn comes."""

    id: str
    key: str
    """Who sends the same key again gets the first one back."""
    message: Message | None
    """None where it was taken already, or where another answer to what `node` says is wanted."""
    options: Options = Options()
    node: str = ""
    """Where the message stands in the forest, once it does."""
    answers_left: int = 1
    """Zero: all of it is done, or it was removed."""
    created_at: float = 0.0
    is_new: bool = True
    notices: tuple[str, ...] = ()
    """What there was to say of its media when it was posted."""


LeaseWish: TypeAlias = Literal["keep", "release-if-idle", "hand-over"]
"""What becomes of the lease with a change: `release-if-idle` ends it where no message is queued, `hand-over` lets
another process acquire it at once and continue the turn."""


class NewNode(msgspec.Struct, frozen=True, kw_only=True):
    """A message to write. `source` says who speaks where the role does not."""

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
    """The events of turns, as they are stored. Closing it early cancels the turn that runs."""

    def __aiter__(self) -> AsyncIterator[Event]: ...

    def __anext__(self) -> Awaitable[Event]: ...

    def aclose(self) -> Coroutine[Any, Any, None]: ...


class Session(Protocol):
    """What a person resumes: a named head in the forest."""

    @property
    def id(self) -> str: ...

    def stream(
        self,
        *content: Content,
        model: str = "",
        parent: str | None = None,
        n: int = 1,
        thinking: str = "",
        options: Choices = None,
    ) -> EventIterator:
        """Send a message and iterate the events of its turn. Every message is on disk before the next step begins.

        `model` answers this once; `parent` is the node to answer below (the head moves there); of `n` answers each is a
        turn of its own, and the head ends at the last. `thinking` is a level (`off` … `max`), `options` are those of
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
        """The same, folded."""
        ...

    def regenerate(
        self, node: str | None = None, *, model: str = "", n: int = 1, thinking: str = "", options: Choices = None
    ) -> EventIterator:
        """Another answer to the question above `node`, beside those that are there."""
        ...

    async def set_options(self, options: Choices = None, *, thinking: str = "") -> None:
        """Set the options of all later messages; they replace those that were set before."""
        ...

    async def path(self) -> tuple[Message, ...]: ...

    async def use(self, model: str) -> None:
        """Ask another model from now on."""
        ...

    async def go(self, node: str) -> None:
        """Move the head to any node that the session keeps."""
        ...

    async def fork(self, node: str | None = None) -> Session: ...

    async def plan(self, models: Sequence[str] = ()) -> tuple[Receipt, ...]:
        """What the next request would carry, for these models. Nothing is sent by looking."""
        ...

    async def cancel(self) -> None: ...

    async def approvals(self) -> tuple[ApprovalRequested, ...]:
        """What waits for an answer, also of a turn whose process is gone."""
        ...

    async def answer(self, approval: str, answer: Literal["once", "always", "deny"], reason: str = "") -> None: ...

    def resume(self) -> EventIterator:
        """Go on with a turn whose process went away while it waited for approvals: each is asked again, under the same
        name, what is allowed runs, and the turn goes on to its end. Leaving it early cancels it."""
        ...
