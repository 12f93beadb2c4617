"""What the agent needs from the world. The runtime hands it in; nothing here knows a database or a socket."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from loom.content.messages import Message
from loom.content.recipes import Recipe
from loom.context.policy import Override, Placed, Watermark
from loom.events import DecoderEvent, Event
from loom.formats.facts import Rendered
from loom.prompt import Prompt


class Shelf(Protocol):
    """Where bytes are put before a block may refer to them."""

    async def put(self, data: bytes) -> str:
        """Keep these bytes once; the digest comes back when they are on disk."""
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
        source: Literal["system"] | None = None,
    ) -> tuple[str, ...]:
        """Write below the head and move it along, all or none; gives the ids of the nodes. `source` is who speaks where
        the role does not say it."""
        ...

    async def save(
        self,
        *,
        model: str | None = None,
        watermark: Mapping[str, Any] | None = None,
        quarantine: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None: ...

    async def emit(self, events: Sequence[Event]) -> int:
        """Keep events for faces that come later; gives the number of the last."""
        ...


class Provider(Protocol):
    """A service that answers prompts. It raises ProviderError; a stream without `Stopped` at its end was cut."""

    def stream(self, prompt: Prompt) -> AsyncIterator[DecoderEvent]: ...
