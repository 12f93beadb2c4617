"""WorkspaceHooks: the hooks of the configuration, and those in settings files of Claude Code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from loom.agent.hooks import HookProgram, ToolHooks
from loom.config import Config
from loom.config.claude_settings import PROJECT_SETTINGS, SETTINGS, ClaudeEvent, ClaudeHook, read_hooks
from loom.config.schema import Hook, HookSettings, TurnHook

CHANGED: Final = "Hooks in {} have changed since Loom started. Restart Loom to use the new version."


class WorkspaceHooks:
    """What a project brings runs only where the user has decided about exactly that, or below a trusted folder as it
    was when it was first seen: else a model that may write there could run programs outside the sandbox. Without
    `uses_files`, only those of the configuration run."""

    def __init__(self, config: Callable[[], Config], *, uses_files: bool) -> None:
        self._config = config
        self._uses_files = uses_files
        self._first_seen: dict[Path, tuple[ClaudeHook, ...]] = {}

    async def find(self, workspace: Path) -> ToolHooks:
        """Return the hooks of turns in a workspace."""
        return await asyncio.to_thread(self._find, workspace)

    def _find(self, workspace: Path) -> ToolHooks:
        config = self._config()
        settings = config.hooks
        claude: list[ClaudeHook] = []
        notices: tuple[str, ...] = ()
        if self._uses_files and settings.claude_code:
            home = config.provenance.environ.get("HOME", "")
            brought, notices = self._project_hooks(config, workspace) if str(workspace) != home else ((), ())
            claude = [*(read_hooks(Path(home) / SETTINGS) if home else ()), *brought]
        if not claude and settings == HookSettings(claude_code=settings.claude_code):
            return ToolHooks(notices=notices)
        return ToolHooks(
            before=_programs(settings.before_tool, claude, "PreToolUse"),
            after=_programs(settings.after_tool, claude, "PostToolUse"),
            moments={
                "session_start": _programs((), claude, "SessionStart"),
                "turn_start": _programs(settings.turn_start, claude, "UserPromptSubmit"),
                "turn_end": _programs(settings.turn_end, claude, "Stop"),
                "before_compact": _programs(settings.before_compact, claude, "PreCompact"),
                "after_compact": _programs(settings.after_compact, (), "PreCompact"),
            },
            notices=notices,
        )

    def _project_hooks(self, config: Config, workspace: Path) -> tuple[tuple[ClaudeHook, ...], tuple[str, ...]]:
        """Return the hooks of a project that may run, and what there is to say about others."""
        found = tuple(hook for name in PROJECT_SETTINGS for hook in read_hooks(workspace / name))
        if not config.is_trusted(workspace):
            return (found if found and config.trust_decision(workspace) == "trusted" else ()), ()
        first = self._first_seen.setdefault(workspace, found)
        return first, () if first == found else (CHANGED.format(workspace / SETTINGS),)


def _programs(
    own: Sequence[Hook | TurnHook], claude: Sequence[ClaudeHook], event: ClaudeEvent
) -> tuple[HookProgram, ...]:
    """Return the programs of the configuration, then those of Claude Code for `event`."""
    configured = [
        HookProgram(
            tool=it.tool if isinstance(it, Hook) else "*", command=it.command, timeout_seconds=it.timeout_seconds
        )
        for it in own
    ]
    return (
        *configured,
        *(
            HookProgram(tool=it.matcher, command=it.command, timeout_seconds=it.timeout_seconds, is_claude=True)
            for it in claude
            if it.event == event
        ),
    )
