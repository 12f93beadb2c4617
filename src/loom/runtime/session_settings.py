"""Settings of a session besides its model and options: the system prompt and the tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, TypeVar

import msgspec

from loom.agent.plan_mode import PLAN_MODE
from loom.struct_types import convert

SYSTEM: Final = "system"
TOOLS: Final = "tools"
"""The names of session settings."""
ALL_TOOLS: Final = ("*",)
T = TypeVar("T")


def system_prompt_of(settings: Mapping[str, Any], root: str | None) -> str:
    """Return the system prompt: the one set for the session, otherwise the one that it started with."""
    return str(settings.get(SYSTEM) or root or "")


def tools_of(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the patterns of the tools that a session may use; none if the stored value cannot be read."""
    try:
        return convert(settings.get(TOOLS, ALL_TOOLS), tuple[str, ...])
    except msgspec.ValidationError:
        return ()


def matching_tools(tools: Mapping[str, T], patterns: Sequence[str]) -> Mapping[str, T]:
    """Return the tools whose names match one of the patterns."""
    return {name: it for name, it in tools.items() if any(fnmatchcase(name, pattern) for pattern in patterns)}


def settings_change(system: str | None, tools: Sequence[str] | None, plan_mode: bool | None = None) -> dict[str, Any]:
    """Return the change of a session's settings; None keeps the current value, and defaults are not stored."""
    change: dict[str, Any] = {}
    if system is not None:
        change[SYSTEM] = system or None
    if tools is not None:
        change[TOOLS] = None if tuple(tools) == ALL_TOOLS else list(tools)
    if plan_mode is not None:
        change[PLAN_MODE] = plan_mode or None
    return change
