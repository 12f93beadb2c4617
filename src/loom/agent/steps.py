"""The engine port: a turn runs its steps through it, so that an outside engine can record and repeat them.

A step's value is small (ids and counters, never media), and the step itself is idempotent: run again after a crash, it
finds what is stored and returns the same value. Which process continues a turn is decided by the session's lease, not
by the engine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from loom.events import StopReason


class StepValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is recorded of a step: under 2 KB, whatever the model saw."""

    node: str = ""
    calls: int = 0
    """How many tool calls its answer makes; the turn ends with an answer that makes none."""
    continues: bool = False
    """Whether the turn goes on although the answer makes no calls."""
    stop: StopReason | None = None


class Steps(Protocol):
    async def run_turn(self, turn: str, body: Callable[[], Awaitable[None]]) -> None:
        """Run the steps of a turn (`SESSION/TURN`), or continue them where another process left them. What `body`
        raises is raised here, and the engine keeps the turn open until it is continued or `end_turn` is called."""
        ...

    async def run(self, name: str, step: Callable[[], Awaitable[StepValue]]) -> StepValue:
        """Run a step, or return the value that was recorded when it ran before. Call it from the body of a turn."""
        ...

    async def end_turn(self, turn: str) -> None:
        """Note that nothing will continue this turn."""
        ...

    async def end_orphans(self, is_running: Callable[[str, str], Awaitable[bool]]) -> None:
        """End what is recorded of turns that are over; `is_running` takes the ids of a session and a turn."""
        ...


class DirectSteps:
    """Runs every step. The session's checkpoint is the only record, and leases decide which process continues."""

    async def run_turn(self, turn: str, body: Callable[[], Awaitable[None]]) -> None:
        await body()

    async def run(self, name: str, step: Callable[[], Awaitable[StepValue]]) -> StepValue:
        return await step()

    async def end_turn(self, turn: str) -> None:
        return

    async def end_orphans(self, is_running: Callable[[str, str], Awaitable[bool]]) -> None:
        return
