"""SystemPrompts: the system prompt of a new session, and the instruction files in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from loom.agent.instructions import Instructions, read_instructions
from loom.agent.system_prompt import default_prompt, read_environment
from loom.config import Config, user_folder
from loom.config.trust import file_kinds
from loom.runtime.agents import agent_lines, agent_system, find_agent, list_agents
from loom.runtime.servers import sandbox_for
from loom.runtime.skills import find_skills, skill_lines


class SystemPrompts:
    """Builds system prompts. `given` is the prompt that the runtime was given. Without `uses_files`, new sessions get
    neither the default prompt nor AGENTS.md."""

    def __init__(self, config: Callable[[], Config], given: str, *, uses_files: bool) -> None:
        self._config = config
        self._given = given
        self._uses_files = uses_files

    async def instructions(self, workspace: Path) -> Instructions:
        """Return the instructions of AGENTS.md and similar files for a workspace."""
        if not self._uses_files:
            return Instructions()
        return await asyncio.to_thread(self._read_instructions, workspace)

    def _read_instructions(self, workspace: Path) -> Instructions:
        """Read the instructions of a workspace, with a notice about its other files that are not used."""
        config = self._config()
        own = user_folder(config.provenance.environ, workspace)
        decision = config.trust_decision(workspace)
        found = read_instructions(
            workspace,
            own,
            lambda folder: decision == "trusted" or config.is_trusted(folder),
            is_refused=decision == "refused",
        )
        if decision != "unknown" or config.is_trusted(workspace):
            return found
        kinds = file_kinds(config.trust_records(workspace).files(workspace))
        unused = [kind for kind in kinds if kind not in ("instructions", "settings")]
        if not unused:
            return found
        notice = f"This folder contains {', '.join(unused)}, ignored until trusted. Run: loom trust add {workspace}"
        return msgspec.structs.replace(found, notices=(*found.notices, notice))

    async def default(self, workspace: Path, tools: Collection[str], *, agent: str = "") -> str:
        """Return the prompt of a session without one: that of the agent, the runtime or the configuration, otherwise
        the default prompt if there are tools; followed by the text that the settings append."""
        config = self._config()
        if self._given and not agent:
            return self._given
        if not self._uses_files:
            return await asyncio.to_thread(self._agent_system, agent, workspace) if agent else ""
        system, append = config.prompt_parts()
        if agent:
            system = await asyncio.to_thread(self._agent_system, agent, workspace) or system
        if not system and tools and config.prompt.default:
            changes = await self._git_changes(workspace)
            system = default_prompt(tools, await asyncio.to_thread(read_environment, workspace, changes))
        skills = ""
        if "use_skill" in tools:
            skills = await asyncio.to_thread(lambda: skill_lines(find_skills(config, workspace).values()))
        agents = ""
        if "ask_agent" in tools:
            agents = await asyncio.to_thread(lambda: agent_lines(list_agents(config, workspace).values()))
        return "\n\n".join(part for part in (system, skills, agents, append) if part)

    def _agent_system(self, agent: str, workspace: Path) -> str:
        config = self._config()
        return agent_system(config, find_agent(config, agent, workspace))

    async def _git_changes(self, workspace: Path) -> str:
        from loom.runtime.git_facts import read_git_facts

        def is_repository() -> bool:
            return any((folder / ".git").exists() for folder in (workspace, *workspace.parents))

        if not await asyncio.to_thread(is_repository):
            return ""
        config = self._config()
        is_trusted = await asyncio.to_thread(config.may_instruct, workspace)
        return await read_git_facts(workspace, sandbox_for(config), is_trusted=is_trusted)
