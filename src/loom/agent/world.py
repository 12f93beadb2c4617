"""What turns need from the runtime, in one value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from loom.agent.approvals import Rule
from loom.agent.describe import Settle
from loom.agent.ingest import Fetch
from loom.agent.loop import TurnLimits
from loom.agent.outbox import Pace
from loom.agent.ports import MediaShelf, Provider
from loom.agent.renditions import Renditions
from loom.context.policy import Policy
from loom.formats.facts import Limits
from loom.models import Model, Usage
from loom.prompt import Sampling
from loom.tools.base import Tool


class TurnWorld(msgspec.Struct, frozen=True, kw_only=True):
    """What turns need from the runtime."""

    shelf: MediaShelf
    renditions: Renditions[Any]
    policy: Policy
    limits: Limits
    turn_limits: TurnLimits
    pace: Pace
    tool_output_bytes: int
    auto_context: tuple[str, ...]
    tools: Mapping[str, Tool]
    rule: Rule
    model: Callable[[str], Awaitable[Model]]
    """The model with everything that is known of it."""
    sampling: Callable[[Model], Sampling]
    """How the user wants it to answer."""
    learn: Callable[[Model, str], Awaitable[None]]
    """A model turned out not to take a kind of media."""
    provider: Callable[[Model], Provider]
    price: Callable[[Model, Usage], float | None]
    fetch: Fetch
    settle: Settle
    """Makes what a prompt lacks, descriptions included; `look` does the same and sends nothing."""
    look: Settle
