"""Runtime: opens the store, the providers and the tools, and hands out what belongs together. The only place where the
parts of Loom are put together."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from loom.agent.ingest import Ingested, ingest
from loom.agent.loop import TurnLimits
from loom.agent.ports import Provider, State
from loom.agent.renditions import Renditions
from loom.agent.session import LocalSession, World
from loom.config import Config, load_config
from loom.content.inputs import Content
from loom.content.messages import Message
from loom.context.policy import Placed, Said, Watermark
from loom.errors import ConfigError
from loom.events import Event, encode_event
from loom.models import Model
from loom.providers import catalog
from loom.store.database import Database, open_database
from loom.store.derived import DerivedCache
from loom.store.events import Events
from loom.store.forest import Forest
from loom.store.media import MediaStore, open_media
from loom.store.sessions import Sessions
from loom.store.sweep import SweepReport, forget, sweep
from loom.tools.base import Tool

if TYPE_CHECKING:
    from loom.providers.http import HttpProvider

DATABASE = "loom.db"
MEDIA = "media"


class StoredRecord:
    """A session of the database, as the agent sees it."""

    def __init__(self, runtime: Runtime, session_id: str) -> None:
        self._runtime = runtime
        self.id = session_id

    async def state(self) -> State:
        found = await self._runtime.sessions.get(self.id)
        return State(
            head=found.head_id,
            model=found.model,
            workspace=found.workspace,
            title=found.title,
            overrides=found.overrides,
            watermarks=msgspec.convert(found.watermark, dict[str, Watermark]),
            quarantine=msgspec.convert(found.quarantine, dict[str, list[str]]),
            settings=found.settings,
        )

    async def path(self) -> tuple[str, tuple[Placed, ...]]:
        head = (await self._runtime.sessions.get(self.id)).head_id
        root, *nodes = await self._runtime.forest.path(head)
        return root.system or "", tuple(Said(node.id, node.message) for node in nodes if node.message is not None)

    async def append(self, messages: Sequence[Message], *, meta: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        nodes = await self._runtime.sessions.append_to_head(self.id, messages, meta=meta)
        return tuple(node.id for node in nodes)

    async def save(
        self,
        *,
        model: str | None = None,
        watermark: Mapping[str, Any] | None = None,
        quarantine: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        await self._runtime.sessions.update(
            self.id, model=model, watermark=watermark, quarantine=quarantine, settings=settings
        )

    async def emit(self, events: Sequence[Event]) -> int:
        return await self._runtime.events.append(self.id, [(event.type, encode_event(event)) for event in events])


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
        self.tools: dict[str, Tool] = {}
        self.providers: dict[str, Provider] = {}
        self._http: HttpProvider | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, config: Config | None = None) -> AsyncGenerator[Runtime]:
        """With no configuration given, the user's; with none there either, everything is in one folder of theirs."""
        config = config or load_config()
        folder = config.data_folder()
        database = await open_database(config.secret("store", "url") or str(folder / DATABASE))
        runtime: Runtime | None = None
        try:
            runtime = cls(config, database, open_media(config.secret("media", "url") or folder / MEDIA))
            yield runtime
        finally:
            if runtime is not None and runtime._http is not None:
                await runtime._http.close()
            await database.close()

    def model(self, reference: str = "") -> Model:
        """A configured name or `platform/name`; where nothing is said, the configured default or the built-in model."""
        reference = reference or self.config.model or "loom/spark"
        return resolve_model(reference, self.config)

    async def session(
        self, session_id: str = "", *, title: str = "", model: str = "", system: str = ""
    ) -> LocalSession:
        """An earlier session by its id, or a new one."""
        if session_id:
            await self.sessions.get(session_id)
        else:
            chosen = self.model(model)
            reference = model or chosen.reference
            created = await self.sessions.create(title=title, model=reference, system=system, workspace=str(Path.cwd()))
            session_id = created.id
        return LocalSession(StoredRecord(self, session_id), self._world())

    def _world(self) -> World:
        async def fork(session_id: str, node: str | None) -> str:
            return (await self.sessions.fork(session_id, node)).id

        return World(
            shelf=self.media,
            renditions=self.renditions,
            policy=self.config.context_policy(),
            limits=self.config.media_limits(),
            turn_limits=TurnLimits(),
            tools=self.tools,
            rule=self.config.action_for,
            model=self.model,
            provider=self.provider,
            open=self.session,
            fork=fork,
        )

    def provider(self, model: Model) -> Provider:
        """Who answers for a model: one given by hand, the built-in one, or the network."""
        given = self.providers.get(model.provider)
        if given is not None:
            return given
        if model.provider == "loom":
            from loom.providers.spark import Spark

            return Spark(self.renditions)
        if self._http is None:
            from loom.providers.http import HttpProvider

            self._http = HttpProvider(self.renditions, lambda provider: key_for(provider, self.config))
        return self._http

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
