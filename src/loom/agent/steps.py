"""The engine port: a turn runs its steps through it, so that an external engine can record and repeat them.

A step's value is small (ids and counters, never media), and a step is idempotent: run again after a crash, it finds
what is stored and returns the same value. The session's lease, not the engine, decides which process continues a turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from loom.events import StopReason


class StepValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The recorded outcome of a step: less than 2 KB, whatever the model saw."""

    node: str = ""
    calls: int = 0
    """How many tool calls the answer makes. An answer without calls ends the turn, unless `continues` is set."""
    continues: bool = False
    """Whether the turn continues even though the answer makes no calls."""
    stop: StopReason | None = None


class Steps(Protocol):
    async def run_turn(self, turn: str, body: Callable[[], Awaitable[None]]) -> None:
        """Run the steps of a turn (`SESSION/TURN`), or continue them after another process. An exception of `body` is
        raised here, and the engine keeps the turn open until it is continued or `end_turn` is called."""
        ...

    async def run(self, name: str, step: Callable[[], Awaitable[StepValue]]) -> StepValue:
        """Run a step, or return the value that was recorded when it ran before. Call it from the body of a turn."""
        ...

    async def end_turn(self, turn: str) -> None:
        """Mark the turn as one that will not be continued."""
        ...

    async def end_orphans(self, is_running: Callable[[str, str], Awaitable[bool]]) -> None:
        """End recorded turns that are over; `is_running` takes the ids of a session and a turn."""
        ...


class DirectSteps:
    """Runs every step directly. The session's checkpoint is the only record, and leases decide which process
    continues."""

    async def run_turn(self, turn: str, body: Callable[[], Awaitable[None]]) -> None:
        await body()

    async def run(self, name: str, step: Callable[[], Awaitable[StepValue]]) -> StepValue:
        return await step()

    async def end_turn(self, turn: str) -> None:
        return

    async def end_orphans(self, is_running: Callable[[str, str], Awaitable[bool]]) -> None:
        return
