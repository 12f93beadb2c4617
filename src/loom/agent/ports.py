"""What the agent needs from the world. The runtime hands it in; nothing here knows a database or a socket."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from loom.content.blocks import ToolResult
from loom.content.messages import Message
from loom.content.recipes import Recipe
from loom.context.policy import Override, Placed, Watermark
from loom.events import DecoderEvent, Event
from loom.formats.facts import Rendered
from loom.prompt import Prompt
from loom.session import Options, Queued


class Shelf(Protocol):
    """Where bytes are put before a block may refer to them."""

    async def put(self, data: bytes) -> str:
        """Keep these bytes once; the digest comes back when they are on disk."""
        ...

    async def refresh(self, digest: str) -> bool:
        """To be called before bytes that are there already are referred to again, so that no sweep takes them
        meanwhile. False when they are gone."""
        ...


class MediaShelf(Shelf, Protocol):
    """The same, to read from."""

    async def load(self, digest: str) -> bytes: ...

    async def open_local(self, digest: str) -> io.RawIOBase | None: ...

    def read_blocks(self, digest: str, block_bytes: int) -> AsyncIterator[bytes]: ...


class DerivedEntry(Protocol):
    """Facts of derived bytes that exist."""

    @property
    def media_type(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def width(self) -> int | None: ...

    @property
    def height(self) -> int | None: ...

    @property
    def pages(self) -> int | None: ...

    @property
    def is_original(self) -> bool:
        """Whether the bytes are the medium's own, and read there."""
        ...


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What a session remembers besides its messages. Watermarks, calibrations and quarantine are kept by model."""

    head: str
    model: str
    workspace: str
    title: str
    overrides: Mapping[str, Override]
    alts: Mapping[str, str]
    watermarks: Mapping[str, Watermark]
    quarantine: Mapping[str, list[str]]
    settings: Mapping[str, Any]


E = TypeVar("E", bound=DerivedEntry)


class DerivedShelf(Protocol[E]):
    """Derived bytes by (digest, recipe). Entries may vanish at any time; they are made again."""

    async def get(self, digest: str, recipe: Recipe) -> E | None: ...

    async def put(self, digest: str, recipe: Recipe, rendered: Rendered) -> E: ...

    async def load(self, derived: E) -> bytes: ...

    async def open_local(self, derived: E) -> io.RawIOBase | None: ...

    def read_blocks(self, derived: E, block_bytes: int) -> AsyncIterator[bytes]: ...


class Asked(Protocol):
    """What another process asks of the turn that runs."""

    @property
    def kind(self) -> Literal["cancel", "answer"]: ...

    @property
    def data(self) -> Mapping[str, Any]: ...


class Record(Protocol):
    """A session as it is kept: every change is on disk when the call returns."""

    @property
    def id(self) -> str: ...

    async def state(self) -> State: ...

    async def path(self) -> tuple[str, tuple[Placed, ...]]:
        """The system prompt and the messages up to the head."""
        ...

    async def append(
        self,
        messages: Sequence[Message],
        *,
        meta: Mapping[str, Any] | None = None,
        source: Literal["system", "tool"] | None = None,
    ) -> tuple[str, ...]:
        """Write below the head and move it along, all or none; gives the ids of the nodes. `source` is who speaks where
        the role does not say it."""
        ...

    async def branch(self, parent: str, message: Message, *, meta: Mapping[str, Any], source: Literal["system"]) -> str:
        """Write below any node and point the head there; gives the id of the node."""
        ...

    async def question(self, node: str | None) -> str:
        """The node of what the user said last at or above this one (None: at or above the head)."""
        ...

    async def parent(self, node: str) -> str:
        """The node above."""
        ...

    async def move(self, node: str) -> None:
        """Point the head at another node that the session keeps."""
        ...

    async def save(
        self,
        *,
        title: str | None = None,
        model: str | None = None,
        watermark: Mapping[str, Any] | None = None,
        quarantine: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Change what is given; of the settings those that are named, and None takes one away."""
        ...

    async def override(self, changes: Mapping[str, Override]) -> None:
        """Choose renditions for these blocks besides those that were chosen before."""
        ...

    async def emit(self, events: Sequence[Event]) -> int:
        """Keep events for faces that come later; gives the number of the last."""
        ...

    async def has_ended(self, turn: str) -> bool:
        """Whether the end of this turn, the last that ran, is among the events."""
        ...

    async def finished_calls(self) -> Mapping[str, ToolResult]:
        """What calls have given since the last message was stored, by call, as the events tell."""
        ...

    async def take(self) -> bool:
        """Become the only one, of all processes, who runs this session; False where somebody else is. Every write from
        now on fails with `Conflict` once somebody else has taken it over."""
        ...

    async def beat(self) -> Sequence[Asked] | None:
        """Say that we are still here; gives what others ask of the turn that runs, None where the session was taken
        over."""
        ...

    async def release(self) -> None:
        """Let others run it."""
        ...

    async def ask(self, kind: Literal["cancel", "answer"], data: Mapping[str, Any]) -> None:
        """Ask something of whoever runs it."""
        ...

    async def enqueue(self, key: str, message: Message | None, options: Options) -> Queued:
        """Keep a message until its turn comes; the same key again gives the first one back."""
        ...

    async def waiting(self) -> Sequence[Queued]:
        """What waits to be said, in order."""
        ...

    async def dequeue(self, queued: Queued) -> str | None:
        """Say it: put it below the head and take it from the queue, at once. Gives its node; None where somebody has
        removed it."""
        ...


class Provider(Protocol):
    """A service that answers prompts. It raises ProviderError; a stream without `Stopped` at its end was cut."""

    def stream(self, prompt: Prompt) -> AsyncIterator[DecoderEvent]: ...
