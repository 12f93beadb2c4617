"""SessionFactory: opens existing sessions and creates new ones, with their tools, agent and system prompt."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from loom.agent.instructions import with_instructions
from loom.agent.services import Services
from loom.agent.tracked_files import SeenFile
from loom.config import Config
from loom.config.approval import ApprovalPolicy
from loom.errors import ConfigError
from loom.runtime.agents import AGENT, agent_model, agent_tools, find_agent, session_services
from loom.runtime.library import LocalLibrary
from loom.runtime.model_access import ModelAccess
from loom.runtime.model_resolution import BUILT_IN_MODEL
from loom.runtime.record import StoredRecord
from loom.runtime.session import LocalSession
from loom.runtime.stores import Stores
from loom.runtime.system_prompts import SystemPrompts
from loom.runtime.toolbox import Toolbox
from loom.tools.base import Tool

UNMATCHED_RULE: Final = "the approval rule for {!r} matches no tool and does nothing: check the name"


class SessionFactory:
    """Opens and creates sessions. `services` returns the services for a selection of tools (None: all) and additional
    tools; `holder` is the name of this process in leases."""

    def __init__(
        self,
        config: Callable[[], Config],
        stores: Stores,
        library: LocalLibrary,
        *,
        models: ModelAccess,
        toolbox: Toolbox,
        prompts: SystemPrompts,
        services: Callable[[Collection[str] | None, Mapping[str, Tool] | None], Services],
        holder: str,
    ) -> None:
        self._config = config
        self._stores = stores
        self._library = library
        self._models = models
        self._toolbox = toolbox
        self._prompts = prompts
        self._services = services
        self._holder = holder

    async def open(
        self, session_id: str, *, tools: Sequence[str | Tool] | None = None, agent: str = ""
    ) -> LocalSession:
        """Open an existing session; with `agent`, assign it to that agent."""
        names, services = await self._tools_and_services(tools)
        stored = await self._stores.sessions.get(session_id)
        if agent:
            await asyncio.to_thread(find_agent, self._config(), agent, Path(stored.workspace or "."))
        if agent and stored.settings.get(AGENT) != agent:
            stored = await self._stores.sessions.update(session_id, settings={AGENT: agent})
        return LocalSession(self._library, self.record(session_id), services, stored, tools=names)

    async def begin(
        self,
        *,
        title: str = "",
        model: str = "",
        system: str = "",
        workspace: str = "",
        tools: Sequence[str | Tool] | None = None,
        agent: str = "",
        settings: Mapping[str, Any] | None = None,
    ) -> LocalSession:
        """Create a session, in the working directory unless `workspace` is given; `settings` are stored with it."""
        names, services = await self._tools_and_services(tools)
        config = self._config()
        settings = {**(settings or {}), **({AGENT: agent} if agent else {})}
        place = await asyncio.to_thread(_workspace, workspace)
        notices: list[str] = []
        if agent:
            chosen = await asyncio.to_thread(find_agent, config, agent, place)
            notices += chosen.notices
            if chosen.temperature is not None:
                settings["options"] = {"temperature": chosen.temperature}
            if not model:
                model, notice = agent_model(chosen, self._models)
                notices += [notice] if notice else []
        model = model or config.model or BUILT_IN_MODEL
        self._models.resolve(model)  # fail before anything is stored
        if not system:
            offered = session_services(services, settings, config, place).select_tools(names)
            system = await self._prompts.default(place, offered, agent=agent)
        found = await self._prompts.instructions(place)
        view = {
            file.place: SeenFile(await self._stores.media.put(file.text.encode()), is_own=True) for file in found.files
        }
        created = await self._stores.sessions.create(
            title=title,
            model=model,
            system=with_instructions(system, found.files),
            workspace=str(place),
            settings={**({"tracked": msgspec.to_builtins(view)} if view else {}), **settings},
        )
        unmatched = [UNMATCHED_RULE.format(pattern) for pattern in self.unmatched_rules(services)]
        return LocalSession(
            self._library,
            self.record(created.id),
            services,
            created,
            notices=(*notices, *found.notices, *unmatched),
            tools=names,
        )

    async def _tools_and_services(self, tools: Sequence[str | Tool] | None) -> tuple[tuple[str, ...] | None, Services]:
        """Return the names of the tools that a session may call (None: all), and its services. Raise `ConfigError` for
        a tool that does not exist."""
        if tools is None:
            return None, self._services(None, None)
        own = {item.name: item for item in tools if isinstance(item, Tool)}
        names = tuple(item if isinstance(item, str) else item.name for item in tools)
        shared = [name for name in names if name not in own]
        await self._toolbox.wait_ready(shared)
        self._toolbox.available_tools(shared)
        return names, self._services(names, own)

    def record(self, session_id: str) -> StoredRecord:
        """Return the record of a session for turns of this process."""
        return StoredRecord(self._stores, session_id, self._holder)

    async def system_for(
        self, system: str, workspace: Path, *, tools: Collection[str] | None = None, agent: str = ""
    ) -> str:
        """Return the system prompt of a new session: `system` or the default one, followed by the contents of
        AGENTS.md."""
        if not system:
            offered = self._services(None, None).select_tools(tools)
            if agent:
                offered = agent_tools(await asyncio.to_thread(find_agent, self._config(), agent, workspace), offered)
            system = await self._prompts.default(workspace, offered, agent=agent)
        return with_instructions(system, (await self._prompts.instructions(workspace)).files)

    def unmatched_rules(self, services: Services | None = None) -> list[str]:
        """Return the tool patterns of approval rules that match no tool and therefore have no effect."""
        rule = (services or self._services(None, None)).rule
        return rule.unmatched_rules(self._toolbox.all_names) if isinstance(rule, ApprovalPolicy) else []


def _workspace(written: str) -> Path:
    """Return the resolved folder; raise `ConfigError` if its name is not UTF-8 and cannot be stored."""
    place = Path(written).resolve()
    try:
        str(place).encode()
    except UnicodeEncodeError:
        name = os.fsencode(place).decode(errors="backslashreplace")
        raise ConfigError(
            f"The folder {name} has a name that is not UTF-8, so no session can work there.",
            hint="Rename it, or work in another folder.",
        ) from None
    return place
