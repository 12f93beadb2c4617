"""Plan mode: a session offers only tools that read, until the user approves a plan."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from loom.content.blocks import ToolResult
from loom.errors import ToolError
from loom.tools.base import Tool, ToolContext, text_result

PLAN_MODE: Final = "plan_mode"
"""The session setting that is true in plan mode."""
PRESENT_PLAN: Final = "present_plan"
_ALSO_OFFERED: Final = frozenset({"update_todos"})
"""Tools that change nothing but the conversation."""
APPROVED: Final = "The user approved the plan. Plan mode is over: carry the plan out now. All tools are offered again."


def is_planning(settings: Mapping[str, Any]) -> bool:
    return settings.get(PLAN_MODE) is True


def plan_tools(tools: Mapping[str, Tool], leave: Callable[[], Awaitable[None]] | None = None) -> dict[str, Tool]:
    """Return the tools of plan mode: those that only read, and the one that presents the plan. `leave` is called to end
    plan mode."""
    if not tools:
        return {}

    async def present_plan(context: ToolContext, plan: str) -> ToolResult:
        """You are in plan mode: nothing may be changed yet. Find out what you need with the tools that read, then call
        this with your plan. The user approves it or says what is wrong with it. Do not describe the plan elsewhere.

        plan: the steps, as Markdown: which files change and how, and how the result is checked
        """
        if not plan.strip():
            raise ToolError("the plan is empty")
        await context.confirm(plan, why="the plan")
        if leave is not None:
            await leave()
        return text_result(APPROVED)

    offered = {name: it for name, it in tools.items() if it.reads_only or name in _ALSO_OFFERED}
    return {**offered, PRESENT_PLAN: Tool(present_plan)}
