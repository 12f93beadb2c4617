"""The user's hooks at the start and the end of one turn, or of one summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from loom.agent.claude_hooks import HookAnswer
from loom.agent.hooks import HookMoment, HookNotice, ToolHooks
from loom.agent.ports import SessionRecord
from loom.compile.policy import Placed
from loom.errors import ToolError


class TurnHooks:
    """Runs hooks with the `facts` about their turn, and shows what they print with `notice`."""

    def __init__(
        self,
        notice: HookNotice,
        tools: ToolHooks | None = None,
        facts: Mapping[str, str] | None = None,
        *,
        is_summary: bool = False,
    ) -> None:
        self.tools = tools or ToolHooks()
        """The hooks of tool calls."""
        self._notice = notice
        self._facts = facts or {}
        self._is_summary = is_summary

    async def start(self, record: SessionRecord, path: Sequence[Placed]) -> str:
        """Run the hooks of a turn that begins; return what they add for the model. Raise `ToolError` if one of them
        refuses the turn."""
        for text in self.tools.notices:
            await self._notice(text)
        found: list[HookAnswer] = []
        if not self._is_summary and (source := await self._beginning(record, path)):
            found.append(await self._run("session_start", "running", source=source))
        found.append(await self._run("before_compact" if self._is_summary else "turn_start", "running"))
        for answer in found:
            if answer.refusal:
                raise ToolError(f"Your hook refused the turn: {answer.refusal}")
        return "" if self._is_summary else "\n".join(answer.context for answer in found if answer.context)

    async def end(self, state: str) -> None:
        """Run the hooks of a turn that is over."""
        if state not in (("finished",) if self._is_summary else ("finished", "failed", "interrupted")):
            return
        found = await self._run("after_compact" if self._is_summary else "turn_end", state)
        for text in (found.context, found.refusal):
            if text:
                await self._notice(text)

    async def _run(self, moment: HookMoment, state: str, **others: str) -> HookAnswer:
        return await self.tools.run_moment(moment, {**self._facts, "state": state, **others}, self._notice)

    async def _beginning(self, record: SessionRecord, path: Sequence[Placed]) -> Literal["", "startup", "compact"]:
        """Return how the session began if this is its first turn, or the first after a summary; else empty."""
        if not self.tools.moments.get("session_start") or any(it.message.role == "assistant" for it in path):
            return ""
        return "compact" if await record.summarized_end(path[0].id) else "startup"
