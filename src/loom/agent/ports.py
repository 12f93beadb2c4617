"""The store as the agent sees it: one session, with methods that say what a turn does with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

import msgspec

from loom.compile.policy import Override
from loom.compile.request import Snapshot
from loom.content.blocks import ToolResult
from loom.content.messages import Message
from loom.events import Event, ModelEvent
from loom.session import Options, Queued, SessionChange


class Command(Protocol):
    """What another process wants from the turn that runs."""

    @property
    def kind(self) -> Literal["cancel", "answer"]: ...

    @property
    def data(self) -> Mapping[str, Any]: ...


class Committed(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a change."""

    nodes: tuple[str, ...] = ()
    """The ids of the new nodes."""
    is_gone: bool = False
    """Whether the queued message had been removed, so that nothing changed."""
    is_released: bool = False
    """Whether the lease ended with the change."""
    snapshot: Snapshot | None = None
    """The session after the change, where the change reads back and no retry hid it."""


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """What a change writes once the ids of its new nodes are known."""

    events: Sequence[Event] = ()
    settings: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    overrides: Mapping[str, Override] = msgspec.field(default_factory=dict[str, Override])
    """Renditions chosen for blocks besides those that were chosen before."""


class OpenStep(msgspec.Struct, frozen=True, kw_only=True):
    """What the events tell of a step that a process left without an end."""

    answer: tuple[ModelEvent, ...] = ()
    """The model's words since its last request."""
    requested_tokens: int = 0
    """What that request carried, by our estimate; 0 if there was none."""
    begun: frozenset[str] = frozenset()
    """The calls that had begun."""
    results: Mapping[str, ToolResult] = msgspec.field(default_factory=dict[str, ToolResult])
    """The results of those that had ended, by call."""
    is_damaged: bool = False
    """Whether events could not be read: any call may have begun."""


class SessionRecord(Protocol):
    """A session as it is kept. Every change is on disk when the call returns; while the lease is held, every write
    carries its fence and raises `Conflict` once another process has acquired the session."""

    @property
    def id(self) -> str: ...

    async def snapshot(self, at: str = "") -> Snapshot:
        """Read the session and the path to its head, or to another node."""
        ...

    async def commit(self, change: SessionChange, complete: Callable[[tuple[str, ...]], Completion]) -> Committed:
        """Apply a change together with what `complete` returns for the ids of the new nodes, in one transaction."""
        ...

    async def append_events(self, events: Sequence[Event]) -> int:
        """Append events of a turn to the log; return the number of the last. Requires the lease."""
        ...

    async def question(self, node: str | None) -> str:
        """Return the node of the user's last message at or above `node` (None: the head)."""
        ...

    async def parent(self, node: str) -> str: ...

    async def model(self) -> str:
        """Return the name of the session's model."""
        ...

    async def check_kept(self, node: str) -> None:
        """Raise `NotFound` if a node is not part of this session."""
        ...

    async def use_model(self, model: str) -> None: ...

    async def set_options(self, options: Mapping[str, Any]) -> None:
        """Replace the options that the session sets for its messages."""
        ...

    async def has_ended(self, turn: str) -> bool:
        """Return whether the end of this turn, the last that ran, is among the events."""
        ...

    async def is_answer_complete(self, node: str) -> bool:
        """Return whether the message at `node` is an answer that the model finished."""
        ...

    async def open_step(self) -> OpenStep:
        """Read what the events tell since the last message was stored."""
        ...

    @property
    def has_lease(self) -> bool: ...

    def wait_for_store(self) -> AbstractContextManager[None]:
        """Inside, and in tasks that are started inside, a store that cannot be reached is waited for, until the lease
        would be lost."""
        ...

    async def acquire(self) -> bool:
        """Acquire the session's lease; return False while another live process holds it."""
        ...

    async def heartbeat(self) -> Sequence[Command] | None:
        """Renew the lease; return pending commands, or None if the lease was lost."""
        ...

    async def release(self) -> None: ...

    async def send_command(self, kind: Literal["cancel", "answer"], data: Mapping[str, Any]) -> None:
        """Send a command to the process that runs the session."""
        ...

    async def enqueue(
        self, key: str, message: Message | None, options: Options, events: Callable[[str], Sequence[Event]]
    ) -> Queued:
        """Queue a message, with `events` (called with its id) in the log; the same key again returns the first one.
        Requires no lease."""
        ...

    async def queue(self) -> Sequence[Queued]: ...
