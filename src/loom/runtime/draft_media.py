"""DraftMedia: the media of a message that is not sent, in a temporary folder."""

from __future__ import annotations

import io
import tempfile
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loom.agent.ingest import Fetch, ingest
from loom.compile.ports import MediaAccess
from loom.compile.renditions import Renditions
from loom.content.inputs import Content, Ingested
from loom.formats.facts import IntakeLimits
from loom.formats.renderer import FormatRenderer
from loom.store.derived import DerivedCache
from loom.store.media import MediaStore, open_media


class DraftMedia:
    """A media store on top of another one (or none): writes go to a temporary folder, reads fall through."""

    def __init__(self, folder: Path, limits: IntakeLimits, below: MediaAccess | None = None) -> None:
        self._own: MediaStore = open_media(folder)
        self._below: MediaAccess = below or self._own
        self._limits = limits
        self.renditions: Renditions[Any] = Renditions(self, DerivedCache(self._own.place), FormatRenderer(limits))

    async def ingest(self, *content: Content, fetch: Fetch | None = None) -> Ingested:
        """Store content and return its blocks; `fetch` reads URLs."""
        return await ingest(list(content), self, limits=self._limits, fetch=fetch)

    async def put(self, data: bytes, digest: str = "") -> str:
        return await self._own.put(data, digest)

    async def refresh(self, digest: str) -> bool:
        return await (await self._store_of(digest)).refresh(digest)

    async def load(self, digest: str) -> bytes:
        return await (await self._store_of(digest)).load(digest)

    async def open_local(self, digest: str) -> io.RawIOBase | None:
        return await (await self._store_of(digest)).open_local(digest)

    async def read_blocks(self, digest: str, block_bytes: int) -> AsyncIterator[bytes]:
        async for block in (await self._store_of(digest)).read_blocks(digest, block_bytes):
            yield block

    async def _store_of(self, digest: str) -> MediaAccess:
        return self._own if await self._own.exists(digest) else self._below


@contextmanager
def draft_media(limits: IntakeLimits, below: MediaAccess | None = None) -> Generator[DraftMedia]:
    """Open a temporary media store on top of `below`."""
    with tempfile.TemporaryDirectory(prefix="loom-") as folder:
        yield DraftMedia(Path(folder), limits, below)
