"""What compiling a request needs from outside; the runtime supplies it. Nothing here knows a database or a socket."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Protocol, TypeVar

from loom.content.media import Media
from loom.content.recipes import Recipe, Rendered
from loom.events import DecoderEvent
from loom.prompt import Prompt


class MediaWriter(Protocol):
    """Stores bytes before a block may refer to them."""

    async def put(self, data: bytes, digest: str = "") -> str:
        """Store `data` once and return its digest when it is on disk. `digest` is that of `data`, where the caller has
        computed it already."""
        ...

    async def refresh(self, digest: str) -> bool:
        """Protect stored bytes from the next sweep before a new block refers to them. Return False if they are gone."""
        ...


class MediaReader(Protocol):
    """Reads stored bytes. Raises `NotFound` or `Corrupt` if they are lost, other `StoreError`s if the store is away."""

    async def load(self, digest: str) -> bytes: ...

    async def open_local(self, digest: str) -> io.RawIOBase | None: ...

    def read_blocks(self, digest: str, block_bytes: int) -> AsyncIterator[bytes]: ...


class MediaAccess(MediaWriter, MediaReader, Protocol):
    """A media store, as the agent uses it."""


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


class RenditionCache(Protocol[E]):
    """Derived bytes by (digest, recipe). Entries may be evicted at any time; they are made again."""

    async def get(self, digest: str, recipe: Recipe) -> E | None: ...

    async def learn(self, wanted: Iterable[tuple[str, Recipe]]) -> Mapping[tuple[str, str], E]:
        """Read at once what is cached of these; return it by digest and key of the recipe."""
        ...

    async def put(self, digest: str, recipe: Recipe, rendered: Rendered, *, is_original: bool = False) -> E:
        """Keep derived bytes. With `is_original` they are those of the medium, which need not be hashed again."""
        ...

    async def load(self, derived: E) -> bytes: ...

    async def open_local(self, derived: E) -> io.RawIOBase | None: ...

    def read_blocks(self, derived: E, block_bytes: int) -> AsyncIterator[bytes]: ...


class Renderer(Protocol):
    """Turns bytes into derived bytes (`formats`)."""

    @property
    def reads_images(self) -> bool:
        """Whether an OCR engine is installed."""
        ...

    @property
    def transcribes(self) -> bool:
        """Whether a program or service that writes down speech is configured."""
        ...

    def media_type_of(self, data: bytes) -> str: ...

    async def render(self, data: bytes, media: Media, recipe: Recipe) -> Rendered: ...

    def has_scans(self, rendered: Rendered) -> bool:
        """Return whether extracted text has pages without a text layer."""
        ...

    async def read_scans(self, data: bytes, media: Media, rendered: Rendered) -> Rendered:
        """Return the extracted text with the scanned pages in it read by OCR."""
        ...


class Provider(Protocol):
    """A service that answers prompts. Raises `ProviderError`; a stream without a final `Stopped` was cut off."""

    def stream(self, prompt: Prompt) -> AsyncIterator[DecoderEvent]: ...


class FileUploads(Protocol):
    """Files that providers keep for us (`providers.files`)."""

    async def apply(self, prompt: Prompt, *, upload: bool) -> Prompt:
        """Return the prompt with file ids instead of bytes where the provider has them.

        With `upload`, upload what is due now; without it, mark what would be uploaded.
        """
        ...
