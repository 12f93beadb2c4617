"""The ports that compiling a request uses; the runtime provides them. Nothing here depends on a database or a
socket."""

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
        """Store `data` once and return its digest when it is on disk. `digest` is that of `data`, if the caller has
        already computed it."""
        ...

    async def refresh(self, digest: str) -> bool:
        """Protect stored bytes from the next cleanup before a new block refers to them. Return False if they are
        gone."""
        ...


class MediaReader(Protocol):
    """Reads stored bytes. Raises `NotFound` or `Corrupt` if they are lost, other `StoreError`s if the store is
    unavailable."""

    async def load(self, digest: str) -> bytes: ...

    async def open_local(self, digest: str) -> io.RawIOBase | None: ...

    def read_blocks(self, digest: str, block_bytes: int) -> AsyncIterator[bytes]: ...


class MediaAccess(MediaWriter, MediaReader, Protocol):
    """A media store that reads and writes."""


class DerivedEntry(Protocol):
    """Facts about derived bytes that exist."""

    @property
    def media_type(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def width(self) -> int | None: ...

    @property
    def height(self) -> int | None: ...

    @property
    def is_original(self) -> bool:
        """Whether the bytes are those of the medium itself, and are read from there."""
        ...


E = TypeVar("E", bound=DerivedEntry)


class RenditionCache(Protocol[E]):
    """Derived bytes by (digest, recipe). Entries may be evicted at any time; they are then rendered again."""

    async def get(self, digest: str, recipe: Recipe) -> E | None: ...

    async def learn(self, wanted: Iterable[tuple[str, Recipe]]) -> Mapping[tuple[str, str], E]:
        """Load in one query the entries that `get` will be called for; return them by digest and key of the recipe."""
        ...

    async def put(self, digest: str, recipe: Recipe, rendered: Rendered, *, is_original: bool = False) -> E:
        """Store derived bytes. With `is_original` they are the bytes of the medium, which need not be hashed again."""
        ...

    async def load(self, derived: E) -> bytes: ...

    async def open_local(self, derived: E) -> io.RawIOBase | None: ...

    def read_blocks(self, derived: E, block_bytes: int) -> AsyncIterator[bytes]: ...


class Renderer(Protocol):
    """Renders media to derived bytes (`formats`)."""

    @property
    def reads_images(self) -> bool:
        """Whether an OCR engine is installed."""
        ...

    @property
    def transcribes(self) -> bool:
        """Whether a program or service that transcribes speech is configured."""
        ...

    def media_type_of(self, data: bytes) -> str: ...

    async def render(self, data: bytes, media: Media, recipe: Recipe) -> Rendered: ...

    def has_scans(self, rendered: Rendered) -> bool:
        """Return whether extracted text has pages without a text layer."""
        ...

    async def read_scans(self, data: bytes, media: Media, rendered: Rendered) -> Rendered:
        """Return the extracted text with its scanned pages read by OCR."""
        ...


class Provider(Protocol):
    """A service that answers prompts. Raises `ProviderError`; a stream without a final `Stopped` was cut off."""

    def stream(self, prompt: Prompt) -> AsyncIterator[DecoderEvent]: ...


class FileUploads(Protocol):
    """Files that providers store for us (`providers.files`)."""

    async def apply(self, prompt: Prompt, *, upload: bool) -> Prompt:
        """Return the prompt with file ids instead of bytes where the provider has the file.

        With `upload`, upload the files that are due now; without it, mark those that would be uploaded.
        """
        ...
