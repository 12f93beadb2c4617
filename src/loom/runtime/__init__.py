"""Runtime: opens the store, the providers and the tools, and hands out what belongs together. The only place where the
parts of Loom are put together."""

from __future__ import annotations

import asyncio
import os
import time
from collections import ChainMap
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import msgspec

from loom.agent.approvals import Rule
from loom.agent.ingest import Ingested, ingest
from loom.agent.instructions import Instructions, read_instructions, with_instructions
from loom.agent.services import Services, SessionLock, TurnLimits
from loom.agent.sink import WriteBatching
from loom.agent.steps import DirectSteps, Steps
from loom.agent.system_prompt import default_prompt, read_environment
from loom.agent.tracked_files import SeenFile
from loom.compile.descriptions import Describer
from loom.compile.media_facts import FactCache
from loom.compile.policy import Description
from loom.compile.ports import FileUploads, Provider
from loom.compile.renditions import Renditions
from loom.compile.request import NextRequest, Snapshot, next_request
from loom.compile.settle import Settler
from loom.config import Config, load_config, user_folder
from loom.config.approval import ApprovalPolicy
from loom.content.inputs import Attachment, Content
from loom.content.media import Media
from loom.content.messages import Message
from loom.errors import ConfigError, NotFound, ProviderError, StoreError
from loom.formats.renderer import FormatRenderer
from loom.formats.worker import WorkerPool, hold_pool
from loom.models import PDF, Model, Usage
from loom.prompt import Prompt, Sampling
from loom.runtime.agents import AGENT, agent_model, agent_services, agent_tools, find_agent
from loom.runtime.conversations import ClientConversations
from loom.runtime.custom_provider import REGISTERED, Answering
from loom.runtime.dispatch import Dispatch
from loom.runtime.event_log import EventLog
from loom.runtime.library import LocalLibrary
from loom.runtime.model_resolution import (
    FIRST_CHOICES,
    key_for,
    key_names,
    local_servers,
    price,
    resolve_model,
    sampling_for,
)
from loom.runtime.record import SessionStores, StoredRecord
from loom.runtime.servers import approval_rule, mcp_servers, sandbox_for
from loom.runtime.session import LocalSession
from loom.store.accounts import Accounts
from loom.store.commands import Commands
from loom.store.database import Database, open_database
from loom.store.derived import DerivedCache
from loom.store.events import Events
from loom.store.forest import Forest
from loom.store.gateway import GatewayRecords
from loom.store.journal import Journal
from loom.store.leases import Leases
from loom.store.logins import Logins
from loom.store.media import MediaStore, open_media
from loom.store.media_text import MediaTexts
from loom.store.model_facts import ModelFacts
from loom.store.process_identity import ProcessIdentity
from loom.store.queue import MessageQueue
from loom.store.sessions import Sessions
from loom.store.sweep import SweepReport, forget, sweep
from loom.store.uploads import UploadRecords as StoredUploads
from loom.tools.background import BackgroundProcess, BackgroundProcesses
from loom.tools.base import Tool

if TYPE_CHECKING:
    from loom.providers.connections import Connections
    from loom.providers.discovery import Discovery
    from loom.providers.endpoints import LocalServer
    from loom.providers.files import ProviderUploads

__all__ = ["FIRST_CHOICES", "Runtime", "approval_rule", "key_for", "key_names", "mcp_servers", "price", "resolve_model"]

MIN_UPLOAD_BYTES: Final = 1_000_000
UNMATCHED_RULE: Final = "the approval rule for {!r} matches no tool and does nothing: check the name"
DATABASE = "loom.db"
MEDIA = "media"


class Runtime:
    """Use it as `async with Runtime.open() as runtime`."""

    BUILT_IN: Final = "loom/spark"

    def __init__(self, config: Config, database: Database, media: MediaStore, *, steps: Steps | None = None) -> None:
        self.config = config
        self.database = database
        self.media = media
        self.forest = Forest(database)
        self.sessions = Sessions(database)
        self.events = EventLog(Events(database), self.forest)
        self.queue = MessageQueue(database)
        self.leases = Leases(database)
        self.requests = Commands(database)
        self.accounts = Accounts(database)
        self.logins = Logins(database)
        self.holder = ProcessIdentity()
        self._stores = SessionStores(
            sessions=self.sessions,
            forest=self.forest,
            journal=Journal(database),
            events=self.events,
            queue=self.queue,
            leases=self.leases,
            requests=self.requests,
        )
        self.derived = DerivedCache(media.place, max_bytes=config.media.derived_max_bytes)
        self.renditions = Renditions(
            media, self.derived, FormatRenderer(config.media_limits()), on_text=MediaTexts(database).save
        )
        self.describer: str = config.context.describer
        """The model that describes images for text-only models; empty: images are not described."""
        self.settler = Settler(self.renditions, describer=self._describer, uploads=self._file_uploads())
        self.tools: dict[str, Tool] = {}
        self.providers: dict[str, Provider] = {}
        self.own_models: ChainMap[str, Answering] = ChainMap({}, REGISTERED)
        """Providers that are no service: `NAME` and `NAME/MODEL` mean them. Those of all runtimes, and its own."""
        self.rule: Rule = approval_rule(config)
        limits = config.turn
        self.turn_limits = TurnLimits(
            steps=limits.max_steps,
            seconds=limits.max_seconds,
            usd=limits.max_usd,
            answer_bytes=limits.max_answer_bytes,
        )
        self.auto_context: tuple[str, ...] = config.context.auto_context
        """Globs of text files that every session is kept informed of."""
        self.reads_instructions = True
        """Whether a new session begins with the default system prompt and what AGENTS.md says."""
        self.notices: list[str] = []
        self.mcp = mcp_servers(config, Path.cwd(), self.notices.append)
        self.offers_mcp = True
        """Whether sessions may use all tools of those servers; without it, only those that are among `tools`."""
        self.workers: WorkerPool | None = None
        """The processes that decode files; they end with the last runtime that is open."""
        self._background: dict[str, BackgroundProcesses] = {}
        self._batching = WriteBatching()
        self._steps: Steps = steps or DirectSteps()
        self._http: Provider | None = None
        self._discovery: Discovery | None = None
        self._connections: Connections | None = None
        self._uploads: ProviderUploads | None = None
        self._describers: dict[str, Describer] = {}
        self._locks: WeakValueDictionary[str, SessionLock] = WeakValueDictionary()
        self.library = LocalLibrary(self, self._stores)
        """What interfaces use: sessions, media, models and tools."""
        self.dispatch = Dispatch(self._stores, self.library.usd)
        """What a daemon uses besides."""

    @classmethod
    @asynccontextmanager
    async def open(cls, config: Config | None = None) -> AsyncGenerator[Runtime]:
        """With no configuration given, the user's; with none there either, everything is in one folder of theirs."""
        config = config or load_config()
        folder = config.data_folder()
        database = await _opened(config.secret("store", "url"), folder / DATABASE)
        runtime: Runtime | None = None
        try:
            address = config.secret("media", "url") or folder / MEDIA
            media = open_media(address, timeout_seconds=config.media.timeout_seconds)
            async with _open_steps(config) as steps:
                runtime = cls(config, database, media, steps=steps)
                await steps.end_orphans(runtime._is_running)
                with hold_pool() as runtime.workers:
                    async with runtime.mcp:
                        yield runtime
        finally:
            if runtime is not None:
                await runtime._end_processes()
            if runtime is not None and runtime._connections is not None:
                await runtime._connections.close()
            await database.close()
            if runtime is not None:
                runtime.holder.close()

    async def _is_running(self, session_id: str, turn: str) -> bool:
        try:
            session = await self.sessions.get(session_id)
        except NotFound:
            return False
        return session.settings.get("running", {}).get("turn") == turn

    def copy_from(self, other: Runtime) -> None:
        """Have the tools, models and rules of another one, which may live in another thread."""
        self.tools = dict(other.tools)
        self.providers = dict(other.providers)
        self.own_models.maps[0].update(other.own_models.maps[0])
        self.rule = other.rule
        self.describer = other.describer
        self.turn_limits = other.turn_limits
        self.auto_context = other.auto_context
        self.reads_instructions = other.reads_instructions

    def model(self, reference: str = "") -> Model:
        """A configured name or `platform/name`; where nothing is said, the configured default or the built-in model."""
        return resolve_model(reference or self.config.model or self.BUILT_IN, self.config, self.own_models)

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
        """Model servers on this machine; none where LOOM_OFFLINE is set."""
        return await local_servers()

    def built_in_tools(self) -> dict[str, Tool]:
        """Every tool that comes with Loom, by name; `tools` are those that sessions may use."""
        from loom.runtime.agent_tools import ask_agent_tool, recall_tool
        from loom.tools.builtin import builtin_tools
        from loom.tools.egress import Egress

        own = {made.name: made for made in (recall_tool(self), ask_agent_tool(self))}
        return own | builtin_tools(
            Egress(allow=self.config.tools.allow_hosts),
            sandbox=sandbox_for(self.config),
            variables=self.config.tools.environment,
        )

    def available_tools(self, names: Collection[str] | None = None) -> Mapping[str, Tool]:
        """The tools that sessions may use, or those of them that have these names."""
        found = ChainMap(self.tools, self.mcp.tools) if self.offers_mcp else self.tools
        if names is None:
            return found
        unknown = next((name for name in names if name not in found), None)
        if unknown is not None:
            raise ConfigError(f"there is no tool {unknown!r}.", hint=f"These exist: {', '.join(sorted(found))}.")
        return {name: tool for name, tool in found.items() if name in names}

    async def wait_tools(self) -> None:
        """Wait until the tools of MCP servers are known."""
        if self.offers_mcp:
            await self.mcp.wait_ready()

    async def known_tools(self) -> Mapping[str, Tool]:
        """Return the tools that sessions may use, once the MCP servers have answered."""
        await self.wait_tools()
        return self.available_tools()

    async def fetch(self, url: str) -> Attachment:
        """The file at an address that the user named: of all private hosts, only that one may be asked."""
        from loom.tools.download import download
        from loom.tools.egress import Egress, destination_of

        place = destination_of(url)
        found = await download(url, Egress(allow=(f"{place.host}:{place.port}",)))
        return Attachment(source=found.data, name=found.name)

    def cost(self, model: Model, usage: Usage) -> float | None:
        """US dollars; None where the price is not known."""
        return price(model, usage)

    async def session(
        self,
        session_id: str = "",
        *,
        title: str = "",
        model: str = "",
        system: str = "",
        workspace: str = "",
        tools: Sequence[str] | None = None,
        agent: str = "",
    ) -> LocalSession:
        """Open an earlier session by its id, or begin a new one, in the working directory unless `workspace` is given.

        `tools` are those that messages sent through this object may call; None means all of the runtime's. `agent`
        names an agent of the configuration; an earlier session belongs to it from now on.
        """
        if tools is not None:
            await self.wait_tools()
            self.available_tools(tools)
        entry = find_agent(self.config, agent) if agent else None
        services = self.services()
        if session_id:
            stored = await self.sessions.get(session_id)
            if agent and stored.settings.get(AGENT) != agent:
                stored = await self.sessions.update(session_id, settings={AGENT: agent})
            if name := str(stored.settings.get(AGENT, "")):
                services = agent_services(services, self.config.agents.get(name), self.config)
            return LocalSession(self.library, self._record(session_id), services, tools=tools)
        if entry is not None:
            services = agent_services(services, entry, self.config)
            model = model or agent_model(entry)
        resolved = self.model(model)  # before anything is stored
        place = await asyncio.to_thread(_workspace, workspace)
        found = await self._instructions(place)
        view = {file.place: SeenFile(await self.media.put(file.text.encode()), is_own=True) for file in found.files}
        created = await self.sessions.create(
            title=title,
            model=model or resolved.reference,
            system=with_instructions(
                system or await self.default_system(place, services.select_tools(tools), agent=agent), found.files
            ),
            workspace=str(place),
            settings={
                **({"tracked": msgspec.to_builtins(view)} if view else {}),
                **({AGENT: agent} if agent else {}),
            },
        )
        unmatched = [UNMATCHED_RULE.format(pattern) for pattern in self.unmatched_rules()]
        notices = (*found.notices, *unmatched)
        return LocalSession(self.library, self._record(created.id), services, notices=notices, tools=tools)

    @cached_property
    def conversations(self) -> ClientConversations:
        """Sessions of clients that send their whole history with each request."""
        return ClientConversations(self.forest, self.sessions, GatewayRecords(self.database))

    async def snapshot(self, session_id: str, node: str = "") -> Snapshot:
        """Read a session and the path to a node (empty: its head)."""
        return await self._record(session_id).snapshot(node)

    def _record(self, session_id: str) -> StoredRecord:
        return StoredRecord(self._stores, session_id, self.holder.name)

    async def system_for(
        self, system: str, workspace: Path, *, tools: Collection[str] | None = None, agent: str = ""
    ) -> str:
        """Return the system prompt that a new session would begin with: `system` or the default one, and what
        AGENTS.md says."""
        if not system:
            offered = self.services().select_tools(tools)
            if agent:
                offered = agent_tools(find_agent(self.config, agent), offered)
            system = await self.default_system(workspace, offered, agent=agent)
        return with_instructions(system, (await self._instructions(workspace)).files)

    async def default_system(self, workspace: Path, tools: Collection[str], *, agent: str = "") -> str:
        """Return the system prompt of a session for which none is given: the agent's or the configured one, else the
        default prompt where there are tools; and what the settings append to it."""
        if not self.reads_instructions:
            return self.config.system_prompt(agent) if agent else ""
        system, append = self.config.prompt_parts()
        if agent:
            system = self.config.system_prompt(agent) or system
        if not system and tools and self.config.prompt.default:
            system = default_prompt(tools, await asyncio.to_thread(read_environment, workspace))
        return "\n\n".join(part for part in (system, append) if part)

    async def _instructions(self, workspace: Path) -> Instructions:
        if not self.reads_instructions:
            return Instructions()
        own = user_folder(self.config.provenance.environ, workspace)
        return await asyncio.to_thread(read_instructions, workspace, own, self.config.is_trusted)

    def services(self) -> Services:
        """Return what sessions are given."""
        return Services(
            media=self.media,
            settle=self.settler.settle,
            recheck=self.settler.recheck,
            policy=self.config.context_policy(),
            limits=self.config.media_limits(),
            turn_limits=self.turn_limits,
            after_crash=self.config.turn.after_crash,
            steps=self._steps,
            batching=self._batching,
            tool_output_bytes=self.config.context.tool_output_bytes,
            compact_at=self.config.context.compact_at or None,
            secrets=self._secret_values,
            auto_context=self.auto_context,
            tools=self.available_tools(),
            rule=self.rule,
            resolve_model=self.resolve_live,
            sampling=self._sampling,
            learn=self._learn,
            provider=self.provider,
            lost_files=_lost_files,
            forget_files=self._forget_files,
            price=self.cost,
            fetch=self.fetch,
            wait_tools=self.wait_tools,
            lock=self._lock,
            background=self.background,
        )

    def background(self, session_id: str) -> BackgroundProcesses:
        """Return the background processes of a session: they end with it, at the latest with this runtime."""
        return self._background.setdefault(session_id, BackgroundProcesses())

    def all_processes(self) -> dict[str, tuple[BackgroundProcess, ...]]:
        """Return the background processes of every session, by session."""
        return {session_id: found.list_processes() for session_id, found in self._background.items()}

    async def _end_processes(self) -> None:
        found, self._background = list(self._background.values()), {}
        for processes in found:
            await processes.close()

    @cached_property
    def _secret_values(self) -> frozenset[str]:
        from loom.tools.secret_mask import environment_secrets

        return self.config.secret_values() | environment_secrets(os.environ)

    def mask(self, text: str) -> str:
        """Return `text` with every configured secret masked."""
        from loom.tools.secret_mask import mask_secrets

        return mask_secrets(text, self._secret_values)

    def unmatched_rules(self) -> list[str]:
        """Return the tool patterns of approval rules that match no tool, so that they do nothing."""
        if not isinstance(self.rule, ApprovalPolicy):
            return []
        return self.rule.unmatched_rules([*self.built_in_tools(), *self.tools, *self.mcp.tools])

    async def next_request(
        self,
        snapshot: Snapshot,
        model: Model,
        *,
        tools: Sequence[str] | None = None,
        draft: Sequence[Message] = (),
        renditions: Renditions[Any] | None = None,
    ) -> NextRequest:
        """Compile the next request of a conversation that is not stored, with `renditions` made elsewhere. Nothing is
        sent."""
        services = self.services()
        options = services.request_options(model, services.select_tools(tools))
        settler = self.settler
        if renditions is not None:
            settler = Settler(renditions, describer=self._describer, uploads=self._file_uploads())
        return await next_request(snapshot, model, options, settler.settle, draft=draft)

    async def describe(self, media: Media, by: str = "") -> Description:
        """Describe an image in words by a model (the describer, if empty)."""
        return await self._describer_by(by or self.describer).describe(media)

    def _describer(self) -> Describer | None:
        return self._describer_by(self.describer) if self.describer else None

    def _describer_by(self, by: str) -> Describer:
        if by not in self._describers:
            self._describers[by] = Describer(
                by,
                self.derived,
                resolve=self.model,
                resolve_live=self.resolve_live,
                provider=self.provider,
                settle=Settler(self.renditions, facts=FactCache(max_digests=64)).settle,
            )
        return self._describers[by]

    def _lock(self, session_id: str) -> SessionLock:
        return self._locks.setdefault(session_id, SessionLock())

    def nudge(self, session_id: str) -> None:
        """Another process has sent a command to a turn that may run here (`requests`): look at once."""
        found = self._locks.get(session_id)
        if found is not None:
            found.wake.set()

    def _sampling(self, model: Model) -> Sampling:
        return sampling_for(model, self.config)

    async def resolve_live(self, reference: str = "") -> Model:
        """The same as `model`, with what its endpoint says of it and what refusals have taught."""
        model = self.model(reference)
        return model if self._is_given(model) else await self._discover().resolve_live(model)

    async def _learn(self, model: Model, kind: str) -> None:
        if not self._is_given(model) and kind in ("image/", PDF, "audio/"):
            await self._discover().learn(model, without=kind)

    def _is_given(self, model: Model) -> bool:
        """Whether there is no endpoint to ask: the built-in model, or a provider given by hand."""
        return model.provider in ("loom", *self.providers, *self.own_models)

    def _discover(self) -> Discovery:
        if self._discovery is None:
            from loom.providers.discovery import Discovery

            self._discovery = Discovery(ModelFacts(self.database), self._key, connections=self._network())
        return self._discovery

    def _network(self) -> Connections:
        """One client for all requests."""
        if self._connections is None:
            from loom.providers.connections import Connections

            self._connections = Connections(headers=self._headers)
        return self._connections

    def _headers(self, model: Model) -> dict[str, str]:
        """What the user adds to the requests to a model's host."""
        entry = self.config.models.get(model.alias)
        return self.config.secrets("models", model.alias, "headers") if entry is not None else {}

    def _key(self, model: Model) -> str | None:
        """A model's own key, else that of its service."""
        own = self.config.secret("models", model.alias, "api_key") if model.alias else ""
        return own or key_for(model.provider, self.config)

    def provider(self, model: Model) -> Provider:
        """Who answers for a model: one given by hand, the built-in one, or the network."""
        given = self.providers.get(model.provider) or self.own_models.get(model.provider)
        if given is not None:
            return given
        if model.provider == "loom":
            from loom.providers.spark import SparkProvider

            return SparkProvider(self.renditions)
        if self._http is None:
            from loom.providers.http import HttpProvider

            self._http = HttpProvider(
                self.renditions, self._key, connections=self._network(), on_progress=self.renditions.report
            )
        return self._http

    def _file_uploads(self) -> FileUploads | None:
        return _LazyUploads(self._open_uploads) if self.config.media.uploads else None

    def _open_uploads(self) -> ProviderUploads:
        if self._uploads is None:
            from loom.providers.files import ProviderUploads

            stored = StoredUploads(self.database)
            self._uploads = ProviderUploads(stored, self.renditions, self._key, connections=self._network())
        return self._uploads

    async def _forget_files(self, model: Model, file_ids: Collection[str]) -> None:
        await self._open_uploads().forget(model, file_ids)

    async def ingest(self, *content: Content) -> Ingested:
        """Bytes, paths and addresses become blocks whose bytes are in the store."""
        return await ingest(list(content), self.media, limits=self.config.media_limits(), fetch=self.fetch)

    async def delete_session(self, session_id: str) -> int:
        """Delete a session and the media that only it used; gives the bytes freed."""
        since = datetime.now(UTC)
        digests = await self.sessions.delete(session_id)
        if (processes := self._background.pop(session_id, None)) is not None:
            await processes.close()
        freed = await forget(self.media, self.derived, digests, self.sessions.media_in_use, unless_since=since)
        self.settler.drop(digests)
        return freed

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


class _LazyUploads:
    """File uploads that load the network client with the first prompt that has a large attachment."""

    def __init__(self, open_uploads: Callable[[], ProviderUploads]) -> None:
        self._open = open_uploads

    async def apply(self, prompt: Prompt, *, upload: bool) -> Prompt:
        if all(ref.size_bytes < MIN_UPLOAD_BYTES for ref in prompt.media()):
            return prompt
        return await self._open().apply(prompt, upload=upload)


@asynccontextmanager
async def _open_steps(config: Config) -> AsyncGenerator[Steps]:
    """The engine that records the steps of turns."""
    match config.turn.engine:
        case "builtin":
            yield DirectSteps()
        case "dbos":
            from loom.runtime.dbos_steps import open_dbos

            async with open_dbos(config.secret("store", "url")) as steps:
                yield steps


def _lost_files(error: ProviderError, prompt: Prompt) -> tuple[str, ...]:
    from loom.providers.files import lost_files

    return lost_files(error, prompt)


async def _opened(url: str, own: Path) -> Database:
    """The store at an address, else the user's own file; only here is it said where that lies."""
    try:
        return await open_database(url or str(own))
    except StoreError as error:
        if url:
            raise
        raise type(error)(error.message, hint=f"{error.hint} The store is {own}.".strip()) from error


def _workspace(written: str) -> Path:
    """A folder whose name can be kept with a session: text, as all that is stored."""
    place = Path(written).resolve()
    try:
        str(place).encode()
    except UnicodeEncodeError:
        name = os.fsencode(place).decode(errors="backslashreplace")
        raise ConfigError(
            f"the folder {name} has a name that is not UTF-8, so no session can work there.",
            hint="Rename it, or work in another folder.",
        ) from None
    return place
