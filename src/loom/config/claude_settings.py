"""Hooks in the settings files of Claude Code: `.claude/settings.json` of the user and of a project.

Only `hooks` is read; permissions, models and the like of these files mean nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import msgspec

from loom.content.json_values import get_object

SETTINGS: Final = ".claude/settings.json"
PROJECT_SETTINGS: Final = (SETTINGS, ".claude/settings.local.json")
MAX_BYTES: Final = 1_000_000
TIMEOUT_SECONDS: Final = 60.0
ClaudeEvent: TypeAlias = Literal["SessionStart", "PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "PreCompact"]
_EVENTS: Final[tuple[ClaudeEvent, ...]] = get_args(ClaudeEvent)


class ClaudeHook(msgspec.Struct, frozen=True, kw_only=True):
    """A command line for an event. `matcher` is a regular expression for names of Claude Code's tools."""

    event: ClaudeEvent
    matcher: str
    command: str
    timeout_seconds: float


def has_hooks(file: Path) -> bool:
    """Return whether a file brings hooks that Loom would run."""
    return bool(read_hooks(file))


def read_hooks(file: Path) -> tuple[ClaudeHook, ...]:
    """Return the hooks of a settings file; none if it is not there, or not such a file."""
    try:
        with file.open("rb") as stream:
            found = msgspec.json.decode(stream.read(MAX_BYTES))
    except (OSError, ValueError, RecursionError, msgspec.DecodeError):
        return ()
    settings = get_object(found)
    if settings.get("disableAllHooks") is True:
        return ()
    return tuple(_hooks(get_object(settings.get("hooks"))))


def _hooks(events: Mapping[str, Any]) -> Iterator[ClaudeHook]:
    for event in _EVENTS:
        for group in _tables(events.get(event)):
            for hook in _tables(group.get("hooks")):
                command, timeout = hook.get("command"), hook.get("timeout")
                if hook.get("type", "command") != "command" or not isinstance(command, str) or not command.strip():
                    continue  # questions to a model, calls of a server: those have no program
                yield ClaudeHook(
                    event=event,
                    matcher=str(group.get("matcher") or ""),
                    command=command,
                    timeout_seconds=float(timeout)
                    if isinstance(timeout, int | float) and timeout > 0
                    else TIMEOUT_SECONDS,
                )


def _tables(value: object) -> list[Mapping[str, Any]]:
    return [get_object(item) for item in cast("list[object]", value)] if isinstance(value, list) else []
