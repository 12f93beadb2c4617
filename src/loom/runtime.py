"""Runtime: opens the store, the providers and the tools, and hands out what belongs together. The only place where the
parts of Loom are put together."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import ChainMap
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import msgspec

from loom.agent.approvals import Action, Rule
from loom.agent.ingest import Ingested, ingest
from loom.agent.instructions import Instructions, read_instructions, with_instructions
from loom.agent.loop import TurnLimits
from loom.agent.ports import Provider, State
from loom.agent.renditions import Renditions
from loom.agent.session import LocalSession, World
from loom.agent.tracked_files import Seen
from loom.config import Config, load_config, user_folder
from loom.config.approval import decide
from loom.content.inputs import Attachment, Content
from loom.content.messages import Message
from loom.context.policy import Placed, Said, Watermark
from loom.errors import ConfigError
from loom.events import Event, encode_event
from loom.models import PDF, Model, Usage
from loom.providers import catalog
from loom.store.database import Database, open_database
from loom.store.derived import DerivedCache
from loom.store.events import Events
from loom.store.forest import Forest
from loom.store.learned import Learned
from loom.store.media import MediaStore, open_media
from loom.store.sessions import Sessions
from loom.store.sweep import SweepReport, forget, sweep
from loom.store.uploads import Uploads as StoredUploads
from loom.tools.base import Tool
from loom.tools.mcp import McpServers
from loom.tools.mcp_pins import Pins
from loom.tools.mcp_specs import ServerSpec, project_servers

if TYPE_CHECKING:
    from loom.providers.connections import Connections
    from loom.providers.discover import Discovery
    from loom.providers.endpoints import LocalServer

DATABASE = "loom.db"
MEDIA = "media"
FIRST_CHOICES: Final = {
    "anthropic": "claude-sonnet-5",
    "openai": "gpt-5.5",
    "gemini": "gemini-4-argon",
    "mistral": "mistral-medium-latest",
    "deepseek": "deepseek-flash",
}
"""The model to begin with where a service's key is there and nothing is configured; in this order."""
LOCAL_KINDS: Final = ("lm-studio", "llama.cpp")
"""Servers of the compatible kind that have a usual port, and so a name of their own: `lm-studio/qwen3-vl`."""
_PROBE_SECONDS: Final = 2.5


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

    async def append(
        self,
        messages: Sequence[Message],
        *,
        meta: Mapping[str, Any] | None = None,
        source: Literal["system"] | None = None,
    ) -> tuple[str, ...]:
        nodes = await self._runtime.sessions.append_to_head(self.id, messages, source=source, meta=meta)
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

    BUILT_IN: Final = "loom/spark"

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
        self.rule: Rule = approval_rule(config)
        self.turn_limits = TurnLimits()
        self.auto_context: tuple[str, ...] = ()
        """Globs of text files that every session is kept informed of."""
        self.reads_instructions = True
        """Whether a new session begins with what AGENTS.md says."""
        self.notices: list[str] = []
        self.mcp = mcp_servers(config, Path.cwd(), self.notices.append)
        self.offers_mcp = True
        """Whether sessions may use all tools of those servers; without it, only those that are among `tools`."""
        self._http: Provider | None = None
        self._discovery: Discovery | None = None
        self._connections: Connections | None = None
        self._busy: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

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
            async with runtime.mcp:
                yield runtime
        finally:
            if runtime is not None and runtime._connections is not None:
                await runtime._connections.close()
            await database.close()

    def model(self, reference: str = "") -> Model:
        """A configured name or `platform/name`; where nothing is said, the configured default or the built-in model."""
        return resolve_model(reference or self.config.model or self.BUILT_IN, self.config)

    async def default_model(self) -> str:
        """Whom to ask where nobody says: the configured model, a service whose key is there, a server on this machine,
        the built-in model."""
        if self.config.model:
            return self.config.model
        for platform, name in FIRST_CHOICES.items():
            if key_for(platform, self.config):
                return f"{platform}/{name}"
        local = [name for server in await self.local_servers() for name in server.models]
        seeing = [name for name in local if self.model(name).capabilities.vision]
        return next(iter([*seeing, *local]), self.BUILT_IN)

    async def local_servers(self) -> tuple[LocalServer, ...]:
        """Model servers on this machine. Where no port of theirs is open, nothing is asked and next to no time lost;
        LOOM_OFFLINE keeps even that from happening."""
        if os.environ.get("LOOM_OFFLINE", "0") not in ("", "0"):
            return ()
        from loom.providers.endpoints import USUAL_PLACES

        opened = await asyncio.gather(*(_is_open(base_url) for _, base_url in USUAL_PLACES))
        places = [place for place, is_open in zip(USUAL_PLACES, opened, strict=True) if is_open]
        if not places:
            return ()
        from loom.providers.discover import local_servers

        found = await local_servers(places)
        return tuple(
            msgspec.structs.replace(
                server, models=tuple(f"{server.kind}/{name.partition('/')[2]}" for name in server.models)
            )
            for server in found
        )

    def built_in_tools(self) -> dict[str, Tool]:
        """Every tool that comes with Loom, by name; `tools` are those that sessions may use."""
        from loom.tools.builtin import builtin_tools

        return builtin_tools()

    async def fetch(self, url: str) -> Attachment:
        """The file at an address that the user named: of all private hosts, only that one may be asked."""
        from loom.tools.download import download
        from loom.tools.egress import Egress, place_of

        place = place_of(url)
        found = await download(url, Egress(allow=(f"{place.host}:{place.port}",)))
        return Attachment(source=found.data, name=found.name)

    def cost(self, model: Model, usage: Usage) -> float | None:
        """US dollars; None where the price is not known."""
        return price(model, usage)

    async def session(
        self, session_id: str = "", *, title: str = "", model: str = "", system: str = "", workspace: str = ""
    ) -> LocalSession:
        """An earlier session by its id, or a new one; its workspace is the working directory unless said otherwise."""
        if self.offers_mcp:
            await self.mcp.ready()
        if session_id:
            await self.sessions.get(session_id)
            return LocalSession(StoredRecord(self, session_id), self._world())
        reference = model or self.model(model).reference
        place = await asyncio.to_thread(Path(workspace).resolve)
        found = await self._instructions(place)
        view = {file.place: Seen(await self.media.put(file.text.encode()), is_own=True) for file in found.files}
        created = await self.sessions.create(
            title=title,
            model=reference,
            system=with_instructions(system, found.files),
            workspace=str(place),
            settings={"tracked": msgspec.to_builtins(view)} if view else {},
        )
        return LocalSession(StoredRecord(self, created.id), self._world(), notices=found.notices)

    async def system_for(self, system: str, workspace: Path) -> str:
        """The system prompt that a new session would begin with: what is said, and what AGENTS.md says."""
        return with_instructions(system, (await self._instructions(workspace)).files)

    async def _instructions(self, workspace: Path) -> Instructions:
        if not self.reads_instructions:
            return Instructions()
        own = user_folder(self.config.provenance.environ, workspace)
        return await asyncio.to_thread(read_instructions, workspace, own)

    def _world(self) -> World:
        async def fork(session_id: str, node: str | None) -> str:
            made = await self.sessions.fork(session_id, node)
            if "running" in made.settings:  # the turn that runs there is not the fork's
                others = {key: value for key, value in made.settings.items() if key != "running"}
                await self.sessions.update(made.id, settings=others)
            return made.id

        return World(
            shelf=self.media,
            renditions=self.renditions,
            policy=self.config.context_policy(),
            limits=self.config.media_limits(),
            turn_limits=self.turn_limits,
            tool_output_bytes=self.config.context.tool_output_bytes,
            auto_context=self.auto_context,
            tools=ChainMap(self.tools, self.mcp.tools) if self.offers_mcp else self.tools,
            rule=self.rule,
            model=self.informed,
            learn=self._learn,
            provider=self.provider,
            price=self.cost,
            fetch=self.fetch,
            open=self.session,
            fork=fork,
            busy=lambda session_id: self._busy.setdefault(session_id, asyncio.Lock()),
        )

    async def informed(self, reference: str = "") -> Model:
        """The same as `model`, with what its endpoint says of it and what refusals have taught."""
        model = self.model(reference)
        return model if self._is_given(model) else await self._discover().informed(model)

    async def _learn(self, model: Model, kind: str) -> None:
        if not self._is_given(model) and kind in ("image/", PDF, "audio/"):
            await self._discover().learn(model, without=kind)

    def _is_given(self, model: Model) -> bool:
        """Whether there is no endpoint to ask: the built-in model, or a provider given by hand."""
        return model.provider == "loom" or model.provider in self.providers

    def _discover(self) -> Discovery:
        if self._discovery is None:
            from loom.providers.discover import Discovery

            self._discovery = Discovery(Learned(self.database), self._key, connections=self._network())
        return self._discovery

    def _network(self) -> Connections:
        """One client for all requests."""
        if self._connections is None:
            from loom.providers.connections import Connections

            self._connections = Connections()
        return self._connections

    def _key(self, model: Model) -> str | None:
        """A model's own key, else that of its service."""
        own = self.config.secret("models", model.alias, "api_key") if model.alias else ""
        return own or key_for(model.provider, self.config)

    def provider(self, model: Model) -> Provider:
        """Who answers for a model: one given by hand, the built-in one, or the network."""
        given = self.providers.get(model.provider)
        if given is not None:
            return given
        if model.provider == "loom":
            from loom.providers.spark import SparkProvider

            return SparkProvider(self.renditions)
        if self._http is None:
            from loom.providers.files import UploadingProvider, Uploads
            from loom.providers.http import HttpProvider

            network = self._network()
            uploads = Uploads(StoredUploads(self.database), self.renditions, self._key, connections=network)
            self._http = UploadingProvider(HttpProvider(self.renditions, self._key, connections=network), uploads)
        return self._http

    async def ingest(self, *content: Content) -> Ingested:
        """Bytes, paths and addresses become blocks whose bytes are in the store."""
        return await ingest(list(content), self.media, limits=self.config.media_limits(), fetch=self.fetch)

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


def mcp_servers(config: Config, cwd: Path, notice: Callable[[str], None]) -> McpServers:
    """The configured servers and, in a trusted folder, the project's; one of the user's own wins over its name."""
    own = [
        ServerSpec(
            name=name,
            command=entry.command,
            args=entry.args,
            env=config.secrets("mcp", "servers", name, "env"),
            url=config.secret("mcp", "servers", name, "url"),
            headers=config.secrets("mcp", "servers", name, "headers"),
            timeout_seconds=entry.timeout_seconds,
        )
        for name, entry in config.mcp.servers.items()
        if entry.enabled
    ]
    project = project_servers(cwd, [Path(folder).expanduser() for folder in config.trusted_folders])
    for warning in project.warnings:
        notice(warning)
    theirs = [spec for spec in project.specs if spec.name not in config.mcp.servers]
    return McpServers([*own, *theirs], pins=Pins(config.state_folder() / "mcp-tools.json"), notice=notice)


def approval_rule(config: Config) -> Rule:
    """What the user's and the project's rules say. The default `ask` is no rule: it leaves it to the tool whether a
    call needs the user's word; a rule that says `ask` asks for every call that it matches."""
    rules_only = msgspec.structs.replace(config.approval, default="allow")

    def rule(tool: str, subject: str) -> Action | None:
        decided = config.action_for(tool, subject)
        by_default = decide(rules_only, config.project_approval, tool, (subject,)) == "allow"
        return None if decided == "ask" and by_default else decided

    return rule


def resolve_model(reference: str, config: Config) -> Model:
    """Configured names first; `spark` alone means the built-in model."""
    if reference == "spark":
        reference = "loom/spark"
    entry = config.models.get(reference)
    if entry is None:
        platform, _, name = reference.partition("/")
        if platform in LOCAL_KINDS and name:
            from loom.providers.endpoints import USUAL_PLACES

            base_url = next(url for kind, url in USUAL_PLACES if kind == platform)
            return catalog.model(f"compatible/{name}", catalog.ModelOverrides(base_url=base_url))
        return catalog.model(reference if "/" in reference else f"{_platform_of(reference, config)}/{reference}")
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
    return msgspec.structs.replace(catalog.model(written, overrides), alias=reference)


def _platform_of(name: str, config: Config) -> str:
    """Whose model a bare name is, where a family of the catalogue tells: `gpt-5.5` is OpenAI's."""
    for platform in FIRST_CHOICES:
        families = catalog.platforms()[platform].get("families", [])
        if any(re.fullmatch(family["match"], name, re.IGNORECASE) for family in families):
            return platform
    known = ", ".join([*config.models, "spark"])
    raise ConfigError(
        f"there is no model {name!r}.", hint=f"Configured: {known}. Or write platform/name, such as ollama/llava."
    )


def price(model: Model, usage: Usage) -> float | None:
    """US dollars for this usage; None where the price is not known."""
    from loom.providers import prices

    found = prices.cost(model, usage)
    return None if found is None else float(found)


async def _is_open(base_url: str) -> bool:
    """Whether something listens there; on this machine that is known at once."""
    place = urlsplit(base_url)
    try:
        async with asyncio.timeout(_PROBE_SECONDS):
            _, writer = await asyncio.open_connection(place.hostname, place.port)
    except OSError:  # TimeoutError is one
        return False
    writer.close()
    return True


def key_for(provider: str, config: Config, environ: Mapping[str, str] | None = None) -> str | None:
    """The key of a service: the configured one, else the variable that the service itself names."""
    environ = os.environ if environ is None else environ
    keys = config.secrets("keys")
    own = next((keys[name] for name in key_names(provider) if keys.get(name)), None)
    return own or environ.get(catalog.key_env(provider)) or None


def key_names(provider: str) -> tuple[str, ...]:
    """The names under which the key of a service may be kept: one key opens all doors of a house."""
    platform = catalog.ALIASES.get(provider, provider)
    facts = catalog.platforms().get(platform, {})
    extended = "" if "key_env" in facts else facts.get("extends", "")
    return tuple(dict.fromkeys(name for name in (platform, provider, extended) if name))
