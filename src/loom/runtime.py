"""Runtime: opens the store, the providers and the tools, and hands out what belongs together. The only place where the
parts of Loom are put together."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec

from loom.agent.ingest import Ingested, ingest
from loom.agent.renditions import Renditions
from loom.config import Config, load_config
from loom.content.inputs import Content
from loom.errors import ConfigError
from loom.models import Model
from loom.providers import catalog
from loom.store.database import Database, open_database
from loom.store.derived import DerivedCache
from loom.store.events import Events
from loom.store.forest import Forest
from loom.store.media import MediaStore, open_media
from loom.store.sessions import Sessions
from loom.store.sweep import SweepReport, forget, sweep

DATABASE = "loom.db"
MEDIA = "media"


class Runtime:
    """Use it as `async with Runtime.open() as runtime`."""

    def __init__(self, config: Config, database: Database, media: MediaStore) -> None:
        self.config = config
        self.database = database
        self.media = media
        self.forest = Forest(database)
        self.sessions = Sessions(database)
        self.events = Events(database)
        self.derived = DerivedCache(media.place, max_bytes=config.media.derived_max_bytes)
        self.renditions = Renditions(media, self.derived, limits=config.media_limits())

    @classmethod
    @asynccontextmanager
    async def open(cls, config: Config | None = None) -> AsyncGenerator[Runtime]:
        """With no configuration given, the user's; with none there either, everything is in one folder of theirs."""
        config = config or load_config()
        folder = config.data_folder()
        database = await open_database(config.secret("store", "url") or str(folder / DATABASE))
        try:
            yield cls(config, database, open_media(config.secret("media", "url") or folder / MEDIA))
        finally:
            await database.close()

    def model(self, reference: str = "") -> Model:
        """A configured name or `platform/name`; where nothing is said, the configured default or the built-in model."""
        reference = reference or self.config.model or "loom/spark"
        return resolve_model(reference, self.config)

    async def ingest(self, *content: Content) -> Ingested:
        """Bytes and paths become blocks whose bytes are in the store."""
        return await ingest(list(content), self.media, limits=self.config.media_limits())

    async def delete_session(self, session_id: str) -> int:
        """Delete a session and the media that only it used; gives the bytes freed."""
        since = datetime.now(UTC)
        digests = await self.sessions.delete(session_id)
        return await forget(self.media, self.derived, digests, unless_since=since)

    async def sweep(self, *, max_bytes: int | None = None) -> SweepReport:
        """Delete media that no message refers to and that are old enough, or too many."""

        async def referenced() -> set[str]:
            return set(await self.sessions.referenced_digests())

        return await sweep(
            self.media,
            referenced,
            now=datetime.fromtimestamp(time.time(), UTC),
            derived=self.derived,
            cleanup_after_days=self.config.cleanup_after_days,
            max_bytes=max_bytes,
        )


def resolve_model(reference: str, config: Config) -> Model:
    """Configured names first; `spark` alone means the built-in model."""
    if reference == "spark":
        reference = "loom/spark"
    entry = config.models.get(reference)
    if entry is None:
        if "/" not in reference:
            known = ", ".join([*config.models, "spark"])
            raise ConfigError(
                f"there is no model {reference!r}.",
                hint=f"Configured: {known}. Or write platform/name, such as ollama/llava.",
            )
        return catalog.model(reference)
    told = entry.capabilities
    overrides = catalog.ModelOverrides(
        **{
            field: getattr(told, field)
            for field in catalog.ModelOverrides.__struct_fields__
            if getattr(told, field, None) is not None
        }
    )
    overrides = msgspec.structs.replace(overrides, base_url=config.secret("models", reference, "base_url"))
    written = f"{entry.provider}/{entry.model or reference}" if entry.provider else entry.model or reference
    return catalog.model(written, overrides)


def key_for(provider: str, config: Config, environ: Mapping[str, str] | None = None) -> str | None:
    """The key of a service: the configured one, else the variable that the service itself names."""
    environ = os.environ if environ is None else environ
    keys = config.secrets("keys")
    return keys.get(provider) or environ.get(catalog.key_env(provider)) or None
