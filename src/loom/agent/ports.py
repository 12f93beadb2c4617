"""What the agent needs from the world. The runtime hands it in; nothing here knows a database or a socket."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from typing import Protocol, TypeVar

from loom.content.recipes import Recipe
from loom.events import DecoderEvent
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


E = TypeVar("E", bound=DerivedEntry)


class DerivedShelf(Protocol[E]):
    """Derived bytes by (digest, recipe). Entries may vanish at any time; they are made again."""

    async def get(self, digest: str, recipe: Recipe) -> E | None: ...

    async def put(self, digest: str, recipe: Recipe, rendered: Rendered) -> E: ...

    async def load(self, derived: E) -> bytes: ...

    async def open_local(self, derived: E) -> io.RawIOBase | None: ...

    def read_blocks(self, derived: E, block_bytes: int) -> AsyncIterator[bytes]: ...


class Provider(Protocol):
    """A service that answers prompts. It raises ProviderError; a stream without `Stopped` at its end was cut."""

    def stream(self, prompt: Prompt) -> AsyncIterator[DecoderEvent]: ...
