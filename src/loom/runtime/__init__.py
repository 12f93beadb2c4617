"""Runtime: opens the store, the providers and the tools, and connects them. The only module where the parts of Loom are
put together."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from loom.agent.gate import Approve, StringRule
from loom.agent.observer import Observers
from loom.agent.services import Services, SessionLock, TurnCounters, TurnLimits
from loom.agent.sink import WriteBatching
from loom.agent.steps import DirectSteps, Steps
from loom.compile.settle import Settler
from loom.config import Config, load_config
from loom.config.schema import BudgetSettings
from loom.errors import ConfigError, NotFound, StoreError
from loom.formats.worker import WorkerPool, shared_pool
from loom.models import Model, Usage
from loom.runtime.agent_tools import ask_agent_tool, recall_tool, sample_for_server
from loom.runtime.conversations import ClientConversations
from loom.runtime.custom_provider import CustomProvider, CustomProviderAdapter
from loom.runtime.describers import Describers
from loom.runtime.dispatch import Dispatch
from loom.runtime.expansion import expand_message
from loom.runtime.fetched_file import fetch_file
from loom.runtime.library import LocalLibrary
from loom.runtime.model_access import ModelAccess, lost_files
from loom.runtime.model_resolution import FIRST_CHOICES, key_for, key_names, price, resolve_model
from loom.runtime.options import (
    ProviderChoice,
    RuntimeOptions,
    ToolChoice,
    approval_of,
    model_name,
    split_providers,
)
from loom.runtime.secret_values import SecretValues
from loom.runtime.servers import approval_rule, mcp_servers
from loom.runtime.session import LocalSession
from loom.runtime.session_factory import SessionFactory
from loom.runtime.session_processes import SessionProcesses
from loom.runtime.session_users import SessionUsers
from loom.runtime.speech import SpeechServices
from loom.runtime.stores import open_stores
from loom.runtime.system_prompts import SystemPrompts
from loom.runtime.telemetry import open_telemetry
from loom.runtime.toolbox import Toolbox
from loom.runtime.upkeep import Upkeep
from loom.runtime.usage import check_budget
from loom.runtime.workspace_hooks import WorkspaceHooks
from loom.store.accounts import Accounts
from loom.store.database import Database, open_database
from loom.store.gateway import GatewayRecords
from loom.store.logins import Logins
from loom.store.media import MediaStore, open_media
from loom.store.process_identity import ProcessIdentity
from loom.store.session_members import SessionMembers
from loom.store.user_costs import UserCosts
from loom.tools.base import Tool
from loom.tools.mcp import McpServers

__all__ = ["FIRST_CHOICES", "Runtime", "approval_rule", "key_for", "key_names", "mcp_servers", "price", "resolve_model"]

DATABASE = "loom.db"
MEDIA = "media"


class Runtime:
    """The composition root: it opens the store, the providers and the tools once, and creates sessions.

    Use it as `async with Runtime.open(...) as runtime`. All options are keywords of `open`; attributes cannot be
    assigned.
    """

    def __init__(
        self,
        config: Config,
        database: Database,
        media: MediaStore,
        options: RuntimeOptions,
        *,
        workers: WorkerPool,
        steps: Steps,
        observers: Observers,
    ) -> None:
        self._options = options
        self._config = config
        self._steps = steps
        self._observers = observers
        self._batching = WriteBatching()
        self._hooks = WorkspaceHooks(self._current_config, uses_files=options.instructions)
        self._locks: WeakValueDictionary[str, SessionLock] = WeakValueDictionary()
        self._shown_problems: dict[str, Sequence[str]] = {}
        self._rule, self._approve = approval_of(options.approve, config)
        self.holder: Final = ProcessIdentity()
        self.turn_counters: Final = TurnCounters()
        self.secrets: Final = SecretValues(self._current_config)
        self.accounts: Final = Accounts(database)
        self.logins: Final = Logins(database)
        self.user_costs: Final = UserCosts(database)
        self.session_users: Final = SessionUsers(self.accounts, SessionMembers(database))
        self.workers: Final = workers
        """The processes that decode files; they end with the last open runtime."""
        given, own = split_providers(options.providers)
        if not isinstance(options.model, str):
            own[options.model.name] = CustomProviderAdapter(options.model)
        self.models: Final = ModelAccess(
            self._current_config,
            given=given,
            own=own,
            database=database,
            renditions=lambda: self.stores.renditions,
            observers=observers,
        )
        """Resolves model names, and returns the provider of a model."""
        self.speech: Final = SpeechServices(self._current_config, self.models, lambda: self.stores)
        """Transcribes and synthesizes speech."""
        self.stores: Final = open_stores(config, database, media, self.speech.transcriber, self.models.calibrations)
        """For maintenance; interfaces use `library`."""
        self.describers: Final = Describers(self._current_config, self.models, self.stores)
        self.settler: Final = Settler(
            self.stores.renditions,
            describer=self.describers.current,
            uploads=self.models if config.media.uploads else None,
        )
        self.notices: Final[list[str]] = []
        self.mcp: Final = (
            mcp_servers(config, Path.cwd(), self.notices.append) if isinstance(options.mcp, bool) else options.mcp
        )
        self.mcp.use_sampler(partial(sample_for_server, self))
        self.processes: Final = SessionProcesses()
        """The background processes of all sessions."""
        self.toolbox: Final = Toolbox(
            self._current_config,
            options.tools,
            lambda: (recall_tool(self), ask_agent_tool(self)),
            self.mcp,
            uses_mcp=options.mcp is not False,
        )
        """The tools that sessions may use."""
        self.upkeep: Final = Upkeep(
            self.stores, lambda: self._config.cleanup_after_days, self.models.files, self.models.resolve
        )
        """The automatic cleanup."""
        self.library: Final = LocalLibrary(self, self.stores)
        """The API for interfaces: sessions, media, models and tools."""
        self.dispatch: Final = Dispatch(self.stores, self.models.cost_by_name)
        """The additional API for a daemon."""
        prompts = SystemPrompts(self._current_config, options.system, uses_files=options.instructions)
        self.sessions: Final = SessionFactory(
            self._current_config,
            self.stores,
            self.library,
            models=self.models,
            toolbox=self.toolbox,
            prompts=prompts,
            services=self.services,
            holder=self.holder.name,
        )
        self._is_complete = True

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and "_is_complete" in self.__dict__:
            raise AttributeError(f"Runtime.{name} cannot be assigned: pass it to Runtime.open(...) as a keyword")
        super().__setattr__(name, value)

    # Open ------------------------------------------------------------------------------------------------------------

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

        `model` is the default model of sessions: a name, or a custom provider. `tools` are names of built-in tools,
        typed functions and `Tool` objects, or "all". `approve` decides on every call, once, instead of the configured
        rules: it receives an `ApprovalRequest` and returns `Allow()`, `Deny(reason)` or `Ask()`. `providers` replace
        the providers of the platforms that they are given for. `store` and `media` are the locations of sessions and
        bytes ("postgresql://…", "s3://bucket/prefix"). `system` is the default system prompt of new sessions.
        `mcp=False` disables the configured MCP servers; a `McpServers` replaces them. Without `instructions`, new
        sessions get neither the default system prompt nor AGENTS.md. `limits` replace the configured limits of turns.
        """
        config = _runtime_config(config, store, media)
        if name := model_name(model):
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
        async with AsyncExitStack() as stack:
            database = await _open_store(config.secret("store", "url"), folder / DATABASE)
            stack.push_async_callback(database.close)
            address = config.secret("media", "url") or folder / MEDIA
            blobs = open_media(address, timeout_seconds=config.media.timeout_seconds)
            steps = await stack.enter_async_context(_open_steps(config))
            observers = await stack.enter_async_context(open_telemetry(config))
            workers = stack.enter_context(shared_pool())
            runtime = cls(config, database, blobs, options, workers=workers, steps=steps, observers=observers)
            stack.callback(runtime.holder.close)
            stack.push_async_callback(runtime.models.close)
            stack.push_async_callback(runtime.processes.close)
            stack.push_async_callback(runtime.settler.close)
            await steps.end_orphans(runtime._is_running)
            if isinstance(options.mcp, bool):
                await stack.enter_async_context(runtime.mcp)
            yield runtime

    async def _is_running(self, session_id: str, turn: str) -> bool:
        try:
            session = await self.stores.sessions.get(session_id)
        except NotFound:
            return False
        return session.settings.get("running", {}).get("turn") == turn

    def open_again(self) -> AbstractAsyncContextManager[Runtime]:
        """Open another runtime with the same configuration and keywords, for another event loop."""
        return self._open(self._config, self._options)

    # Configuration ---------------------------------------------------------------------------------------------------

    @property
    def config(self) -> Config:
        return self._config

    def _current_config(self) -> Config:
        return self._config

    def reconfigure(self, config: Config) -> None:
        """Use the keys, models and context settings of `config` from now on; stores, rules and tools stay."""
        self._config = config

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

    # Sessions --------------------------------------------------------------------------------------------------------

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
        """Open an existing session by its id, or create one, in the working directory unless `workspace` is given.

        `tools` are those that messages sent through this object may call: names of the runtime's tools, and `Tool`
        objects for this session only; None means all of the runtime's. `agent` names a configured agent; an existing
        session is assigned to it.
        """
        if session_id:
            return await self.sessions.open(session_id, tools=tools, agent=agent)
        return await self.sessions.begin(
            title=title, model=model, system=system, workspace=workspace, tools=tools, agent=agent
        )

    @cached_property
    def conversations(self) -> ClientConversations:
        """Sessions of clients that send their whole history with each request."""
        return ClientConversations(self.stores, GatewayRecords(self.stores.database), self.library.intake)

    def services(self, tools: Collection[str] | None = None, own: Mapping[str, Tool] | None = None) -> Services:
        """Return the services of sessions that may use `tools` (None: all), and `own` tools in addition to the
        runtime's."""
        config = self._config
        shared = None if tools is None else [name for name in tools if name not in (own or {})]
        return Services(
            media=self.stores.media,
            settle=self.settler.settle,
            recheck=self.settler.recheck,
            policy=config.context_policy(),
            limits=config.media_limits(),
            turn_limits=self.turn_limits,
            after_crash=config.turn.after_crash,
            steps=self._steps,
            batching=self._batching,
            counters=self.turn_counters,
            observers=self._observers,
            tool_output_bytes=config.context.tool_output_bytes,
            compact_at=config.context.compact_at or None,
            secrets=self.secrets.values,
            auto_context=config.context.auto_context,
            tools={**self.toolbox.available_tools(), **own} if own else self.toolbox.available_tools(),
            rule=self._rule,
            approve=self._approve,
            keep_rendition=self.stores.renditions.keep,
            known_model=self.models.resolve,
            resolve_model=self.models.resolve_live,
            sampling=self.models.sampling,
            keep_calibration=self.models.calibrations.keep,
            learn=self.models.learn,
            provider=self.models.provider,
            lost_files=lost_files,
            forget_files=self.models.forget_files,
            price=self.models.cost,
            check_budget=self._check_budget,
            check_user_budget=self.user_costs.check_session,
            charge=self.charge,
            fetch=fetch_file,
            expand=partial(expand_message, self),
            unused_tools=self.toolbox.unused_tools,
            wait_tools=partial(self.toolbox.wait_ready, shared),
            shown_problems=self._shown_problems,
            lock=lambda session_id: self._locks.setdefault(session_id, SessionLock()),
            hooks=self._hooks.find,
            background=self.processes.of,
        )

    def gateway_services(self) -> Services:
        """Return the services for answers of the gateway. A client repeats its history, so nothing ages, and OCR and
        descriptions are awaited only for a limited time."""
        services = self.services()
        return msgspec.structs.replace(
            services,
            policy=msgspec.structs.replace(services.policy, aging="off"),
            settle=partial(self.settler.settle, patience_seconds=self._config.gateway.ocr_seconds),
        )

    async def _check_budget(self, session_id: str) -> None:
        budget = self._config.budget
        if budget != BudgetSettings():
            await check_budget(self.stores.database, self.models.cost_by_name, budget, session_id)

    async def charge(self, session_id: str, model: Model, usage: Usage) -> None:
        """Add the cost of an answer to what the owners of a session have spent."""
        await self.user_costs.charge(session_id, price(model, usage) or 0.0)

    def nudge(self, session_id: str) -> None:
        """Wake the turn of a session, because another process has sent it a command."""
        found = self._locks.get(session_id)
        if found is not None:
            found.wake.set()


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


def _runtime_config(config: Config | None, store: str, media: str) -> Config:
    if config is None:
        return load_config(flags={"store.url": store or None, "media.url": media or None})
    if store or media:
        raise ConfigError(
            "store= and media= cannot be combined with config=.",
            hint="Set store.url and media.url in the configuration instead.",
        )
    if not isinstance(config, Config):  # pyright: ignore[reportUnnecessaryIsInstance]  from an untyped program
        raise ConfigError(
            f"config is a {type(config).__name__}, not a loom.config.Config.",
            hint="Load one with loom.config.load_config(flags={...}).",
        )
    return config


async def _open_store(url: str, own: Path) -> Database:
    """Open the store at `url`, or the user's own file. Only the error for the latter names the path."""
    try:
        return await open_database(url or str(own))
    except StoreError as error:
        if url:
            raise
        raise type(error)(error.message, hint=f"{error.hint} The store is {own}.".strip()) from error
