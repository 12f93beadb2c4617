"""The services that the runtime gives to sessions and turns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from loom.agent.approvals import Rule
from loom.agent.gate import Approve
from loom.agent.hooks import ToolHooks
from loom.agent.ingest import Fetch, KeepRendition, Prerender
from loom.agent.observer import Observers
from loom.agent.plan_mode import is_planning, plan_tools
from loom.agent.sink import WriteBatching
from loom.agent.steps import Steps
from loom.compile.cost import Calibration
from loom.compile.limits import full_image, image_formats
from loom.compile.policy import Policy
from loom.compile.ports import MediaAccess, Provider
from loom.compile.request import RequestOptions, Settle, Snapshot
from loom.content.inputs import Content
from loom.errors import ProviderError
from loom.formats.facts import IntakeLimits
from loom.models import Model, Usage
from loom.prompt import Prompt
from loom.sampling import Sampling
from loom.tools.background import BackgroundProcesses
from loom.tools.base import Tool

if TYPE_CHECKING:
    from loom.agent.file_commands import ExpandedMessage, FileCommandRunner
    from loom.agent.turn import Turn

AfterCrash: TypeAlias = Literal["continue", "stop"]


class TurnLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits at which a turn is ended. Time during which an approval is pending does not count."""

    steps: int = 50
    seconds: float = 3_600.0
    usd: float | None = None
    answer_bytes: int = 16_000_000
    """The size of one answer; a longer one is cut off."""


class TurnCounters(msgspec.Struct):
    """Counts since the process started."""

    continued: int = 0
    """Turns that were continued after a restart."""
    repeated_tokens: int = 0
    """Estimated tokens of requests that were sent again after a restart, and are therefore paid twice."""


class SessionLock:
    """State that all objects of one session in this process share, so that one turn runs at a time."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.wake = asyncio.Event()
        """Set when a command for the running turn has arrived."""
        self.turn: Turn | None = None
        """The running turn."""


class Services(msgspec.Struct, frozen=True, kw_only=True):
    media: MediaAccess
    settle: Settle
    recheck: Callable[[Prompt], Awaitable[frozenset[str]]]
    """Returns which media of a prompt are gone."""
    policy: Policy
    limits: IntakeLimits
    turn_limits: TurnLimits
    after_crash: AfterCrash
    steps: Steps
    batching: WriteBatching
    counters: TurnCounters
    observers: Observers
    tool_output_bytes: int
    compact_at: float | None
    """The share of a request's token budget at which the conversation is summarized; None: never."""
    secrets: frozenset[str]
    """Values to mask in every tool result."""
    auto_context: tuple[str, ...]
    tools: Mapping[str, Tool]
    rule: Rule
    approve: Approve | None
    """Decides on every call, instead of rules and the user."""
    keep_rendition: KeepRendition
    known_model: Callable[[str], Model]
    """Returns the model as the catalog and the settings describe it, without contacting its endpoint."""
    resolve_model: Callable[[str], Awaitable[Model]]
    """Returns the model with everything known about it."""
    sampling: Callable[[Model], Sampling]
    keep_calibration: Callable[[str, Calibration], Awaitable[None]]
    """Stores the calibration of a model's token estimates, by its reference."""
    learn: Callable[[Model, str], Awaitable[None]]
    """Stores that a model does not support a kind of media."""
    provider: Callable[[Model], Provider]
    lost_files: Callable[[ProviderError, Prompt], Collection[str]]
    """Returns the uploaded files of a prompt that, according to a refusal, are gone."""
    forget_files: Callable[[Model, Collection[str]], Awaitable[None]]
    """Removes uploaded files that their provider no longer has from the index."""
    price: Callable[[Model, Usage], float | None]
    check_budget: Callable[[str], Awaitable[None]]
    """Raises `BudgetSpent` if a session may not start another turn."""
    check_user_budget: Callable[[str], Awaitable[None]]
    """Raises `BudgetSpent` if an owner of a session has used up today's budget."""
    charge: Callable[[str, Model, Usage], Awaitable[None]]
    """Adds the cost of an answer to what the owners of a session have spent."""
    fetch: Fetch
    expand: Callable[[Sequence[Content], Path, FileCommandRunner | None], Awaitable[ExpandedMessage]]
    """Returns a message with its slash command and its mentions expanded. Without a runner, no shell command of a
    command file runs."""
    wait_tools: Callable[[], Awaitable[Sequence[str]]]
    """Waits until the tools of MCP servers are known; returns a sentence for each server whose tools are missing."""
    shown_problems: dict[str, Sequence[str]]
    """The sentences about missing tools that the last turn of each session has shown."""
    lock: Callable[[str], SessionLock]
    hooks: Callable[[Path], Awaitable[ToolHooks]]
    """Returns the hooks of turns in a workspace."""
    background: Callable[[str], BackgroundProcesses]
    """Returns the background processes of a session."""
    unused_tools: Callable[[Path], frozenset[str]]
    """Returns the tools that are of no use in a workspace. It reads files."""
    agent: str = ""
    """The name of the configured agent to which the session belongs."""

    def select_tools(self, names: Collection[str] | None, unused: Collection[str] = ()) -> Mapping[str, Tool]:
        """Return the tools called `names` (None: all) that are not `unused`."""
        if names is None and not any(name in self.tools for name in unused):
            return self.tools
        chosen = self.tools if names is None else names
        return {name: it for name, it in self.tools.items() if name in chosen and name not in unused}

    async def offered_tools(self, snapshot: Snapshot, names: Collection[str] | None) -> Mapping[str, Tool]:
        """Return the tools that the next turn of a session offers, if its messages may call `names` (None: all)."""
        unused = await asyncio.to_thread(self.unused_tools, workspace_of(snapshot))
        found = self.select_tools(names, unused)
        return plan_tools(found) if is_planning(snapshot.settings) else found

    def prerender(self, model: Model) -> Prerender:
        """Return the renditions for `model` that are made when images are stored."""
        accepts = model.capabilities.accepts
        recipes = (full_image(model, self.policy, accepts),) if image_formats(accepts) else ()
        return Prerender(recipes, self.keep_rendition)

    def request_options(self, model: Model, tools: Mapping[str, Tool]) -> RequestOptions:
        """Return the user's settings for requests to `model`."""
        specs = tuple(tool.spec for tool in tools.values())
        return RequestOptions(
            policy=self.policy, tools=specs, sampling=self.sampling(model), compact_at=self.compact_at
        )


def workspace_of(snapshot: Snapshot) -> Path:
    return Path(snapshot.workspace) if snapshot.workspace else Path.cwd()
