"""Approvals: what a tool may do without asking, and what the user says when asked.

Answers are kept with the session, so that any face can give them, also after a restart.
"""

from __future__ import annotations

import asyncio
import secrets
import unicodedata
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from loom.content.blocks import ToolCall
from loom.errors import ToolError
from loom.events import ApprovalAnswered, ApprovalRequested, Event

Action: TypeAlias = Literal["allow", "ask", "deny"]
Said: TypeAlias = Literal["once", "always", "deny"]
Rule: TypeAlias = Callable[[str, str], Action]
"""(tool, what it would do) → allow, ask or deny."""


class Approvals:
    """`rule` is the user's policy, `emit` tells every face."""

    def __init__(self, rule: Rule, emit: Callable[[Event], Awaitable[None]]) -> None:
        self._rule = rule
        self._emit = emit
        self._open: dict[str, asyncio.Future[tuple[Said, str]]] = {}
        self._always: set[tuple[str, str]] = set()

    async def ask(self, call: ToolCall, action: str, *, needed: bool) -> None:
        """Returns when the call may go on; a ToolError that the model reads otherwise.

        `needed` is whether the tool itself asks; a rule of the user's can allow, ask or deny all the same.
        """
        decided = self._rule(call.name, action)
        if decided == "deny":
            raise ToolError(f"the user's policy does not allow {call.name} here")
        if decided == "allow" or not needed or (call.name, action) in self._always:
            return
        approval = secrets.token_hex(16)
        waiting: asyncio.Future[tuple[Said, str]] = asyncio.get_running_loop().create_future()
        self._open[approval] = waiting
        try:
            await self._emit(ApprovalRequested(approval=approval, call=call, action=visible(action), pattern=action))
            answer, reason = await waiting
        finally:
            del self._open[approval]
        await self._emit(ApprovalAnswered(approval=approval, answer=answer, reason=reason))
        if answer == "deny":
            raise ToolError(f"the user said no{f': {reason}' if reason else ''}")
        if answer == "always":
            self._always.add((call.name, action))

    def answer(self, approval: str, answer: Said, reason: str = "") -> bool:
        """False where nobody waits for it any more."""
        waiting = self._open.get(approval)
        if waiting is None or waiting.done():
            return False
        waiting.set_result((answer, reason))
        return True


def visible(text: str) -> str:
    """Control, bidirectional and invisible characters as escapes: what is approved is what is seen."""
    return "".join(
        character
        if character in "\n\t" or (unicodedata.category(character) not in ("Cc", "Cf", "Co", "Cn", "Zl", "Zp"))
        else f"\\u{{{ord(character):04x}}}"
        for character in text
    )
