"""Runtime: opens the store, the providers and the tools, and hands out what belongs together. The only place where the
parts of Loom are put together."""

from __future__ import annotations

import asyncio
import os
from collections import ChainMap
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import msgspec

from loom.agent.gate import Approve, StringRule
from loom.agent.ingest import ingest
from loom.agent.instructions import Instructions, read_instructions, with_instructions
from loom.agent.plan_mode import is_planning, plan_tools
from loom.agent.services import Services, SessionLock, TurnCounters, TurnLimits
from loom.agent.sink import WriteBatching
from loom.agent.steps import DirectSteps, Steps
from loom.agent.system_prompt import default_prompt, read_environment
from loom.agent.tracked_files import SeenFile
from loom.compile.cost import Calibration
from loom.compile.descriptions import Describer
from loom.compile.media_facts import FactCache
from loom.compile.policy import Description
from loom.compile.ports import FileUploads, Provider
from loom.compile.renditions import Renditions
from loom.compile.request import NextRequest, Snapshot, next_request
from loom.compile.settle import Settler
from loom.config import Config, load_config, user_folder
from loom.config.approval import ApprovalPolicy
from loom.config.schema import BudgetSettings
from loom.config.trust import TrustRecords, unused_kinds
from loom.content.blocks import AudioBlock, VideoBlock
from loom.content.inputs import Attachment, Content, Ingested
from loom.content.media import Media
from loom.content.media_kinds import MEDIA_KINDS
from loom.content.messages import Message
from loom.content.recipes import SpokenText
from loom.errors import ConfigError, NotFound, ProviderError, StoreError, Unsupported
from loom.formats.intake import accept
from loom.formats.worker import WorkerPool, hold_pool
from loom.models import Model, Usage
from loom.prompt import Prompt
from loom.runtime.agents import AGENT, agent_model, agent_tools, find_agent, session_services
from loom.runtime.conversations import ClientConversations
from loom.runtime.custom_provider import REGISTERED, Answering, CustomProvider
from loom.runtime.dispatch import Dispatch
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
from loom.runtime.options import (
    ProviderChoice,
    RuntimeOptions,
    ToolChoice,
    approval_of,
    choose_tools,
    split_providers,
)
from loom.runtime.record import StoredRecord
from loom.runtime.servers import approval_rule, mcp_servers, sandbox_for, tool_hooks
from loom.runtime.session import LocalSession
from loom.runtime.session_users import SessionUsers
from loom.runtime.speech import SpeechServices
from loom.runtime.stores import open_stores
from loom.runtime.upkeep import Upkeep
from loom.runtime.usage import check_budget
from loom.sampling import Sampling
from loom.store.accounts import Accounts
from loom.store.database import Database, open_database
from loom.store.gateway import GatewayRecords
from loom.store.logins import Logins
from loom.store.media import MediaStore, open_media
from loom.store.model_facts import ModelFacts
from loom.store.process_identity import ProcessIdentity
from loom.store.session_members import SessionMembers
from loom.store.sweep import forget
from loom.store.uploads import UploadRecords as StoredUploads
from loom.store.user_costs import UserCosts
from loom.tools.background import BackgroundProcess, BackgroundProcesses
from loom.tools.base import Tool, ToolContext
from loom.tools.mcp import McpServers
from loom.tools.mcp.questions import SampleAnswer, SampleRequest

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
    """The composition root: it opens the store, the providers and the tools once, and hands out sessions.

    Use it as `async with Runtime.open(...) as runtime`. Everything is a keyword of `open`; its attributes cannot be
    assigned.
    """

    BUILT_IN: Final = "loom/spark"

    def __init__(
        self,
        config: Config,
        database: Database,
        media: MediaStore,
        options: RuntimeOptions,
        *,
        workers: WorkerPool,
        steps: Steps,
    ) -> None:
        self._options = options
        self._config = config
        self.accounts: Final = Accounts(database)
        self.logins: Final = Logins(database)
        self.user_costs: Final = UserCosts(database)
        self.session_users: Final = SessionUsers(self.accounts, SessionMembers(database))
        self.holder: Final = ProcessIdentity()
        self.speech: Final = SpeechServices(lambda: self.config, self.model, self._key, self._network)
        """What writes down speech, and what speaks."""
        self.stores: Final = open_stores(config, database, media, self.speech.transcriber)
        """For maintenance: interfaces use `library`."""
        self.settler: Final = Settler(self.stores.renditions, describer=self._describer, uploads=self._file_uploads())
        self._providers, own_models = split_providers(options.providers)
        if not isinstance(options.model, str):
            own_models[options.model.name] = Answering(options.model)
        self._own_models: ChainMap[str, Answering] = ChainMap(own_models, REGISTERED)
        """Providers that are no service: `NAME` and `NAME/MODEL` mean them. Those of all runtimes, and its own."""
        self._rule, self._approve = approval_of(options.approve, config)
        self.notices: Final[list[str]] = []
        self.mcp: Final = (
            mcp_servers(config, Path.cwd(), self.notices.append) if isinstance(options.mcp, bool) else options.mcp
        )
        self.mcp.use_sampler(self._sample)
        self._chosen = choose_tools(options.tools, self.built_in_tools)
        self.workers: Final = workers
        """The processes that decode files; they end with the last runtime that is open."""
        self._background: dict[str, BackgroundProcesses] = {}
        self._batching = WriteBatching()
        self.turn_counters: Final = TurnCounters()
        self._steps = steps
        self._http: Provider | None = None
        self._discovery: Discovery | None = None
        self._connections: Connections | None = None
        self._uploads: ProviderUploads | None = None
        self._describers: dict[str, Describer] = {}
        self._locks: WeakValueDictionary[str, SessionLock] = WeakValueDictionary()
        self.upkeep: Final = Upkeep(self.stores, lambda: self.config.cleanup_after_days, self._open_uploads, self.model)
        """What is deleted by itself."""
        self.library: Final = LocalLibrary(self, self.stores)
        """What interfaces use: sessions, media, models and tools."""
        self.dispatch: Final = Dispatch(self.stores, self.library.usd)
        """What a daemon uses besides."""
        self._is_complete = True

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and "_is_complete" in self.__dict__:
            raise AttributeError(f"Runtime.{name} cannot be assigned: give it to Runtime.open(...) as a keyword")
        super().__setattr__(name, value)

    @classmethod
    def open(
        cls,
        config: Config | None = None,
        *,
        model: str | CustomProvider = "",
        tools: ToolChoice = (),
        approve: Approve | StringRule | None = None,
        providers: ProviderChoice | None = None,
        store: str = "",
        media: str = "",
        system: str = "",
        mcp: bool | McpServers = True,
        instructions: bool = True,
        limits: TurnLimits | None = None,
    ) -> AbstractAsyncContextManager[Runtime]:
        """Open a runtime; without `config`, with the user's configuration.

        `model` is asked where a session names none: a name, or a provider of your own. `tools` are names of built-in
        tools, typed functions and `Tool` objects, or "all". `approve` decides on every call, once, instead of the
        configured rules: it gets an `ApprovalRequest` and returns `Allow()`, `Deny(reason)` or `Ask()`.
        `providers` answer for the platforms that they are given for. `store` and `media` say where sessions and bytes
        are kept ("postgresql://…", "s3://bucket/prefix"). `system` begins every new session that names no other.
        `mcp=False` leaves out the configured MCP servers, a `McpServers` replaces them. Without `instructions`,
        neither the default system prompt nor AGENTS.md begin a session. `limits` replace the configured ones of turns.
        """
        config = _configured(config, store, media)
        name = model if isinstance(model, str) else model.name
        if name:
            config = msgspec.structs.replace(config, model=name)
        options = RuntimeOptions(
            model=model,
            tools=tools if isinstance(tools, str | Mapping) else tuple(tools),
            approve=approve,
            providers=providers or {},
            system=system,
            mcp=mcp,
            instructions=instructions,
            limits=limits,
        )
        return cls._open(config, options)

    @classmethod
    @asynccontextmanager
    async def _open(cls, config: Config, options: RuntimeOptions) -> AsyncGenerator[Runtime]:
        folder = config.data_folder()
        database = await _opened(config.secret("store", "url"), folder / DATABASE)
        runtime: Runtime | None = None
        try:
            address = config.secret("media", "url") or folder / MEDIA
            blobs = open_media(address, timeout_seconds=config.media.timeout_seconds)
            async with AsyncExitStack() as stack:
                steps = await stack.enter_async_context(_open_steps(config))
                workers = stack.enter_context(hold_pool())
                runtime = cls(config, database, blobs, options, workers=workers, steps=steps)
                await steps.end_orphans(runtime._is_running)
                if isinstance(options.mcp, bool):
                    await stack.enter_async_context(runtime.mcp)
                yield runtime
        finally:
            if runtime is not None:
                await runtime.settler.close()
                await runtime._end_processes()
            if runtime is not None and runtime._connections is not None:
                await runtime._connections.close()
            await database.close()
            if runtime is not None:
                runtime.holder.close()

    async def _is_running(self, session_id: str, turn: str) -> bool:
        try:
            session = await self.stores.sessions.get(session_id)
        except NotFound:
            return False
        return session.settings.get("running", {}).get("turn") == turn

    def open_again(self) -> AbstractAsyncContextManager[Runtime]:
        """Open another runtime with the same configuration and keywords, for another event loop."""
        return self._open(self._config, self._options)

    @property
    def config(self) -> Config:
        return self._config

    def reconfigure(self, config: Config) -> None:
        """Take keys, models and context settings from `config` from now on; stores, rules and tools stay."""
        self._config = config

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools that sessions may use, besides those of MCP servers."""
        return MappingProxyType(self._chosen.tools)

    @property
    def providers(self) -> Mapping[str, Provider]:
        """Who answers for a platform, where that was given."""
        return MappingProxyType(self._providers)

    @property
    def describer(self) -> str:
        """The model that describes images for text-only models; empty: images are not described."""
        return self._config.context.describer

    @property
    def turn_limits(self) -> TurnLimits:
        if self._options.limits is not None:
            return self._options.limits
        found = self._config.turn
        return TurnLimits(
            steps=found.max_steps,
            seconds=found.max_seconds,
            usd=found.max_usd,
            answer_bytes=found.max_answer_bytes,
        )

    def model(self, reference: str = "") -> Model:
        """Return the model of a configured name or of `platform/name`; without a name, the configured default or the
        built-in model."""
        return resolve_model(reference or self.config.model or self.BUILT_IN, self.config, self._own_models)

    async def default_model(self) -> str:
        """Return the default model: the configured one, a service whose key is there, a server on this machine,
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
        """Every tool of Loom and of installed packages, by name; `tools` are those that sessions may use."""
        from loom.runtime.agent_tools import ask_agent_tool, recall_tool
        from loom.runtime.plugins import plugin_tools
        from loom.runtime.skills import skill_tool
        from loom.tools.builtin import builtin_tools
        from loom.tools.egress import Egress

        own = {made.name: made for made in (recall_tool(self), ask_agent_tool(self), skill_tool(self.config))}
        return (
            plugin_tools()
            | own
            | builtin_tools(
                Egress(allow=self.config.tools.allow_hosts),
                sandbox=sandbox_for(self.config),
                variables=self.config.tools.environment,
            )
        )

    def available_tools(self, names: Collection[str] | None = None) -> Mapping[str, Tool]:
        """Return the tools that sessions may use, or those of them that have these names."""
        found = self._all_tools()
        if names is None:
            return found
        unknown = next((name for name in names if name not in found), None)
        if unknown is not None:
            raise ConfigError(f"there is no tool {unknown!r}.", hint=f"These exist: {', '.join(sorted(found))}.")
        return {name: tool for name, tool in found.items() if name in names}

    def _all_tools(self) -> Mapping[str, Tool]:
        tools = dict(self.tools)
        if self._options.mcp is False:
            return tools
        of_servers, only = self.mcp.tools, self._chosen.mcp
        if only is None:
            return ChainMap(tools, of_servers)  # live: a server's tools may change while sessions are open
        return tools | {name: it for name, it in of_servers.items() if name in only}

    def resolve_tools(self, choice: Iterable[str | Tool | Callable[..., Any]]) -> tuple[str | Tool, ...]:
        """Return what a session may call by this program's own word: names of its tools, and further tools."""
        named = {item: None for item in choice if isinstance(item, str)}
        mine = [item for item in named if item in self.tools or (item not in self.built_in_tools() and "__" in item)]
        others = [item for item in choice if not isinstance(item, str) or item not in mine]
        return (*mine, *choose_tools(others, self.built_in_tools).tools.values())

    async def _sample(self, context: ToolContext, asked: SampleRequest) -> SampleAnswer:
        from loom.runtime.agent_tools import ask_for_server

        return await ask_for_server(self, context, asked)

    async def _expand_message(self, content: Sequence[Content], workspace: Path) -> list[Content]:
        from loom.runtime.expansion import expand_message

        return await expand_message(self, content, workspace)

    async def wait_tools(self, names: Collection[str] | None = None) -> None:
        """Wait until the tools of MCP servers are known, if any of theirs may be among `names` (None: all tools)."""
        if self._options.mcp is not False and (names is None or not self.tools.keys() >= set(names)):
            await self.mcp.wait_ready()

    async def known_tools(self) -> Mapping[str, Tool]:
        """Return the tools that sessions may use, once the MCP servers have answered."""
        await self.wait_tools()
        return self.available_tools()

    async def fetch(self, url: str) -> Attachment:
        """Return the file at an address that the user named: of all private hosts, only that one may be asked."""
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
        tools: Sequence[str | Tool] | None = None,
        agent: str = "",
    ) -> LocalSession:
        """Open an earlier session by its id, or begin a new one, in the working directory unless `workspace` is given.

        `tools` are those that messages sent through this object may call: names of the runtime's tools, and `Tool`
        objects of the session's own; None means all of the runtime's. `agent`
        names an agent of the configuration; an earlier session belongs to it from now on.
        """
        own = {item.name: item for item in tools or () if isinstance(item, Tool)}
        names = None if tools is None else tuple(item if isinstance(item, str) else item.name for item in tools)
        if names is not None:
            shared = [name for name in names if name not in own]
            await self.wait_tools(shared)
            self.available_tools(shared)
        entry = find_agent(self.config, agent) if agent else None
        services = self.services(names, own)
        if session_id:
            stored = await self.stores.sessions.get(session_id)
            if agent and stored.settings.get(AGENT) != agent:
                stored = await self.stores.sessions.update(session_id, settings={AGENT: agent})
            return LocalSession(self.library, self._record(session_id), services, stored.settings, tools=names)
        own_settings = {AGENT: agent} if agent else {}
        if entry is not None:
            model = model or agent_model(entry)
        offered = session_services(services, own_settings, self.config).select_tools(names)
        model = model or self.config.model or self.BUILT_IN
        self.model(model)  # before anything is stored
        place = await asyncio.to_thread(_workspace, workspace)
        found = await self._instructions(place)
        put = self.stores.media.put
        view = {file.place: SeenFile(await put(file.text.encode()), is_own=True) for file in found.files}
        created = await self.stores.sessions.create(
            title=title,
            model=model,
            system=with_instructions(system or await self.default_system(place, offered, agent=agent), found.files),
            workspace=str(place),
            settings={**({"tracked": msgspec.to_builtins(view)} if view else {}), **own_settings},
        )
        unmatched = [UNMATCHED_RULE.format(pattern) for pattern in self.unmatched_rules()]
        notices = (*found.notices, *unmatched)
        return LocalSession(
            self.library, self._record(created.id), services, own_settings, notices=notices, tools=names
        )

    @cached_property
    def conversations(self) -> ClientConversations:
        """Sessions of clients that send their whole history with each request."""
        stores = self.stores
        records = GatewayRecords(stores.database)
        return ClientConversations(stores.forest, stores.sessions, records, stores.media, self.library.intake)

    def gateway_services(self) -> Services:
        """Return what answers of the gateway are given: a client repeats its history, so nothing ages, and it waits for
        OCR and descriptions only so long."""
        services = self.services()
        seconds = self.config.gateway.ocr_seconds
        return msgspec.structs.replace(
            services,
            policy=msgspec.structs.replace(services.policy, aging="off"),
            settle=partial(self.settler.settle, patience_seconds=seconds),
        )

    async def snapshot(self, session_id: str, node: str = "") -> Snapshot:
        """Read a session and the path to a node (empty: its head)."""
        return await self._record(session_id).snapshot(node)

    def _record(self, session_id: str) -> StoredRecord:
        return StoredRecord(self.stores, session_id, self.holder.name)

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
        """Return the system prompt of a session for which none is given: the agent's, the runtime's or the configured
        one, else the default prompt where there are tools; and what the settings append to it."""
        if self._options.system and not agent:
            return self._options.system
        if not self._options.instructions:
            return self.config.system_prompt(agent) if agent else ""
        system, append = self.config.prompt_parts()
        if agent:
            system = self.config.system_prompt(agent) or system
        if not system and tools and self.config.prompt.default:
            changes = await self._git_changes(workspace)
            system = default_prompt(tools, await asyncio.to_thread(read_environment, workspace, changes))
        skills = await asyncio.to_thread(self._skill_lines, workspace) if "use_skill" in tools else ""
        return "\n\n".join(part for part in (system, skills, append) if part)

    async def _git_changes(self, workspace: Path) -> str:
        from loom.runtime.git_facts import read_git_facts

        is_repository = await asyncio.to_thread(_is_repository, workspace)
        if not is_repository:
            return ""
        is_trusted = await asyncio.to_thread(self.config.may_instruct, workspace)
        return await read_git_facts(workspace, sandbox_for(self.config), is_trusted=is_trusted)

    def _unused_tools(self, workspace: Path) -> frozenset[str]:
        """Return the tools that have no use in a workspace: `use_skill` without skills. Read files."""
        from loom.runtime.skills import find_skills

        return frozenset() if find_skills(self.config, workspace) else frozenset({"use_skill"})

    def _skill_lines(self, workspace: Path) -> str:
        from loom.runtime.skills import find_skills, skill_lines

        return skill_lines(find_skills(self.config, workspace).values())

    async def _instructions(self, workspace: Path) -> Instructions:
        if not self._options.instructions:
            return Instructions()
        own = user_folder(self.config.provenance.environ, workspace)
        return await asyncio.to_thread(self._read_instructions, workspace, own)

    def _read_instructions(self, workspace: Path, own: Path) -> Instructions:
        """Read the instructions of a workspace, and say what it brings besides that is not used."""
        decision = self.config.trust_decision(workspace)
        found = read_instructions(
            workspace,
            own,
            lambda folder: decision == "trusted" or self.config.is_trusted(folder),
            is_refused=decision == "refused",
        )
        unused = () if self.config.is_trusted(workspace) else unused_kinds(TrustRecords(own).files(workspace))
        if decision != "unknown" or not unused:
            return found
        notice = f"This folder brings {', '.join(unused)}: not used until you trust it. Run: loom trust add {workspace}"
        return msgspec.structs.replace(found, notices=(*found.notices, notice))

    def services(self, tools: Collection[str] | None = None, own: Mapping[str, Tool] | None = None) -> Services:
        """Return what sessions are given that may use `tools` (None: all), and `own` ones besides the runtime's."""
        return Services(
            media=self.stores.media,
            settle=self.settler.settle,
            recheck=self.settler.recheck,
            policy=self.config.context_policy(),
            limits=self.config.media_limits(),
            turn_limits=self.turn_limits,
            after_crash=self.config.turn.after_crash,
            steps=self._steps,
            batching=self._batching,
            counters=self.turn_counters,
            tool_output_bytes=self.config.context.tool_output_bytes,
            compact_at=self.config.context.compact_at or None,
            secrets=self._secret_values,
            auto_context=self.config.context.auto_context,
            tools={**self.available_tools(), **own} if own else self.available_tools(),
            rule=self._rule,
            approve=self._approve,
            keep_rendition=self.stores.renditions.keep,
            known_model=self.model,
            resolve_model=self.resolve_live,
            sampling=self._sampling,
            keep_calibration=self.stores.calibrations.keep,
            learn=self._learn,
            provider=self.provider,
            lost_files=_lost_files,
            forget_files=self._forget_files,
            price=self.cost,
            check_budget=self._check_budget,
            check_user_budget=self.user_costs.check_session,
            charge=self.charge,
            fetch=self.fetch,
            expand=self._expand_message,
            unused_tools=self._unused_tools,
            wait_tools=partial(
                self.wait_tools, None if tools is None else [it for it in tools if it not in (own or {})]
            ),
            lock=self._lock,
            hooks=tool_hooks(self.config),
            background=self.background,
        )

    async def _check_budget(self, session_id: str) -> None:
        budget = self.config.budget
        if budget != BudgetSettings():
            await check_budget(self.stores.database, self.library.usd, budget, session_id)

    async def charge(self, session_id: str, model: Model, usage: Usage) -> None:
        """Add what an answer has cost to what the owners of a session have spent."""
        await self.user_costs.charge(session_id, self.cost(model, usage) or 0.0)

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
        if not isinstance(self._rule, ApprovalPolicy):
            return []
        return self._rule.unmatched_rules([*self.built_in_tools(), *self.tools, *self.mcp.tools])

    async def next_request(
        self,
        snapshot: Snapshot,
        model: Model,
        *,
        tools: Sequence[str] | None = None,
        draft: Sequence[Message] = (),
        renditions: Renditions[Any] | None = None,
        sampling: Sampling | None = None,
    ) -> NextRequest:
        """Compile the next request of a conversation that is not stored, with `renditions` made elsewhere. Nothing is
        sent."""
        services = self.services()
        unused = await asyncio.to_thread(
            self._unused_tools, Path(snapshot.workspace) if snapshot.workspace else Path.cwd()
        )
        offered = services.select_tools(tools, unused)
        options = services.request_options(model, plan_tools(offered) if is_planning(snapshot.settings) else offered)
        settler = self.settler
        if renditions is not None:
            settler = Settler(renditions, describer=self._describer, uploads=self._file_uploads())
        return await next_request(snapshot, model, options, settler.settle, draft=draft, sampling=sampling)

    async def describe(self, media: Media, by: str = "") -> Description:
        """Describe an image in words by a model (the describer, if empty)."""
        return await self._describer_by(by or self.describer).describe(media)

    def _describer(self) -> Describer | None:
        return self._describer_by(self.describer) if self.describer else None

    def _describer_by(self, by: str) -> Describer:
        if by not in self._describers:
            self._describers[by] = Describer(
                by,
                self.stores.derived,
                resolve=self.model,
                resolve_live=self.resolve_live,
                provider=self.provider,
                settle=Settler(self.stores.renditions, facts=FactCache(max_digests=64)).settle,
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
        if not self._is_given(model) and kind in {row.accepted_prefix for row in MEDIA_KINDS.values()}:
            await self._discover().learn(model, without=kind)

    async def calibration(self, reference: str) -> Calibration | None:
        """Return how far the estimates of a model are off; None if no answer of it was billed yet."""
        return (await self.stores.calibrations.load()).get(reference)

    def _is_given(self, model: Model) -> bool:
        """Return whether there is no endpoint to ask: the built-in model, or a provider given by hand."""
        return model.provider in ("loom", *self._providers, *self._own_models)

    def _discover(self) -> Discovery:
        if self._discovery is None:
            from loom.providers.discovery import Discovery

            self._discovery = Discovery(ModelFacts(self.stores.database), self._key, connections=self._network())
        return self._discovery

    def _network(self) -> Connections:
        """One client for all requests."""
        if self._connections is None:
            from loom.providers.connections import Connections

            self._connections = Connections(headers=self._headers)
        return self._connections

    def _headers(self, model: Model) -> dict[str, str]:
        """Return what the user adds to the requests to a model's host."""
        entry = self.config.models.get(model.alias)
        return self.config.secrets("models", model.alias, "headers") if entry is not None else {}

    def _key(self, model: Model) -> str | None:
        """Return a model's own key, else that of its service."""
        own = self.config.secret("models", model.alias, "api_key") if model.alias else ""
        return own or key_for(model.provider, self.config)

    def provider(self, model: Model) -> Provider:
        """Return the provider of a model: one given by the caller, the built-in one, or HTTP."""
        given = self._providers.get(model.provider) or self._own_models.get(model.provider)
        if given is not None:
            return given
        if model.provider == "loom":
            from loom.providers.spark import SparkProvider

            return SparkProvider(self.stores.renditions)
        if self._http is None:
            from loom.providers.http import HttpProvider

            found = self.stores.renditions
            self._http = HttpProvider(found, self._key, connections=self._network(), on_progress=found.report)
        return self._http

    async def transcribe(self, data: bytes, name: str = "") -> str:
        """Return what is said in a recording or a video, with times where they are known. Kept by digest.

        Raises `ConfigError` where neither `audio.transcriber` nor `audio.transcribe_command` is set.
        """
        if self.speech.transcriber() is None:
            raise ConfigError(
                "No transcriber is configured.",
                hint='Set audio.transcriber = "openai/whisper-1", or audio.transcribe_command for a local program.',
            )
        accepted = await asyncio.to_thread(accept, data, name, limits=self.config.media_limits())
        if not isinstance(accepted.block, AudioBlock | VideoBlock):
            raise Unsupported(f"{name or 'The file'} is not a recording.", name=name)
        media = accepted.block.media
        await self.stores.media.put(data)
        entry = await self.stores.renditions.get(media.digest, media.media_type, SpokenText())
        return await self.stores.renditions.text(media.digest, entry)

    async def speak(self, text: str) -> bytes:
        """Return `text` as sound (MP3 or WAV). Raises `ConfigError` where no speech is configured."""
        return await self.speech.speaker().speak(text)

    def _file_uploads(self) -> FileUploads | None:
        return _LazyUploads(self._open_uploads) if self.config.media.uploads else None

    def _open_uploads(self) -> ProviderUploads:
        if self._uploads is None:
            from loom.providers.files import ProviderUploads

            stored = StoredUploads(self.stores.database)
            self._uploads = ProviderUploads(stored, self.stores.renditions, self._key, connections=self._network())
        return self._uploads

    async def _forget_files(self, model: Model, file_ids: Collection[str]) -> None:
        await self._open_uploads().forget(model, file_ids)

    async def ingest(self, *content: Content) -> Ingested:
        """Bytes, paths and addresses become blocks whose bytes are in the store."""
        return await ingest(list(content), self.stores.media, limits=self.config.media_limits(), fetch=self.fetch)

    async def delete_session(self, session_id: str) -> int:
        """Delete a session and the media that only it used, here and at providers; return the bytes freed here."""
        since = datetime.now(UTC)
        stores = self.stores
        digests = await stores.sessions.delete(session_id)
        if (processes := self._background.pop(session_id, None)) is not None:
            await processes.close()
        freed = await forget(stores.media, stores.derived, digests, stores.sessions.media_in_use, unless_since=since)
        self.settler.drop(digests)
        await self.upkeep.delete_uploads_of(digests)
        return freed


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
    """Yield the engine that records the steps of turns."""
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


def _configured(config: Config | None, store: str, media: str) -> Config:
    if config is None:
        return load_config(flags={"store.url": store or None, "media.url": media or None})
    if store or media:
        raise ConfigError(
            "config= says where things are kept.",
            hint="Set store.url and media.url there, or leave it out.",
        )
    return config


async def _opened(url: str, own: Path) -> Database:
    """Return the store at an address, else the user's own file; only here is it said where that lies."""
    try:
        return await open_database(url or str(own))
    except StoreError as error:
        if url:
            raise
        raise type(error)(error.message, hint=f"{error.hint} The store is {own}.".strip()) from error


def _workspace(written: str) -> Path:
    """Return a folder whose name can be kept with a session: text, as all that is stored."""
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


def _is_repository(workspace: Path) -> bool:
    return any((folder / ".git").exists() for folder in (workspace, *workspace.parents))
