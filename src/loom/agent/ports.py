"""The session store as a port of the agent: one session, with a method for each operation of a turn."""

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
    """A command from another process to the running turn."""

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
    """The events, settings and overrides that a change writes in addition, given the ids of its new nodes."""

    events: Sequence[Event] = ()
    settings: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    overrides: Mapping[str, Override] = msgspec.field(default_factory=dict[str, Override])
    """Overrides to add to those of the session."""


class OpenStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that a process left unfinished, reconstructed from its events."""

    answer: tuple[ModelEvent, ...] = ()
    """The model's output since its last request."""
    model: str = ""
    """The model of that request; empty if there was none."""
    requested_tokens: int = 0
    """The estimated tokens of that request."""
    begun: frozenset[str] = frozenset()
    """The ids of the calls that had started."""
    results: Mapping[str, ToolResult] = msgspec.field(default_factory=dict[str, ToolResult])
    """The results of the calls that had ended, by call id."""
    is_damaged: bool = False
    """Whether events could not be read; if so, any call may have started."""


class SessionRecord(Protocol):
    """A stored session. Every change is on disk when its method returns. While the lease is held, every write carries
    its fencing token and raises `Conflict` once another process has acquired the session."""

    @property
    def id(self) -> str: ...

    async def snapshot(self, at: str = "") -> Snapshot:
        """Read the session and the path to its head, or to the node `at`."""
        ...

    async def commit(self, change: SessionChange, complete: Callable[[tuple[str, ...]], Completion]) -> Committed:
        """Apply a change, and what `complete` returns for the ids of its new nodes, in one transaction."""
        ...

    async def append_events(self, events: Sequence[Event]) -> int:
        """Append events of a turn to the log; return the number of the last one. Requires the lease."""
        ...

    async def question(self, node: str | None) -> str:
        """Return the node of the user's last message at or above `node` (None: the head)."""
        ...

    async def parent(self, node: str) -> str: ...

    async def summarized_end(self, node: str) -> str:
        """Return the last node of the path that the summary at `node` replaced; empty if `node` is no summary."""
        ...

    async def model(self) -> str:
        """Return the name of the session's model."""
        ...

    async def check_kept(self, node: str) -> None:
        """Raise `NotFound` if the session has no such node."""
        ...

    async def use_model(self, model: str) -> None: ...

    async def set_options(self, options: Mapping[str, Any]) -> None:
        """Replace the session's default options for messages."""
        ...

    async def has_ended(self, turn: str) -> bool:
        """Return whether the log holds the end of this turn, the last one that ran."""
        ...

    async def is_answer_complete(self, node: str) -> bool:
        """Return whether the message at `node` is an answer that the model finished."""
        ...

    async def open_step(self) -> OpenStep:
        """Read the events since the last stored message."""
        ...

    @property
    def has_lease(self) -> bool: ...

    def wait_for_store(self) -> AbstractContextManager[None]:
        """Retry while the store is unavailable, until the lease would expire. Applies to the code inside and to tasks
        started there."""
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
        """Queue a message and append `events` (called with its id); a repeated `key` returns the message queued first.
        Requires no lease."""
        ...

    async def queue(self) -> Sequence[Queued]: ...
