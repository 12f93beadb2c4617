"""What a turn begins with, and what is kept of it so that another process can continue it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from loom.agent.approvals import OpenApproval
from loom.compile.policy import Placed
from loom.content.messages import Message
from loom.models import Usage
from loom.sampling import Sampling
from loom.session import Queued


class NewMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a message that is not stored yet, below `parent` (the head, if empty)."""

    message: Message
    model: str = ""
    parent: str = ""
    mentioned: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    sampling: Sampling = Sampling()


class QueuedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Answer what waits in the queue: a message, or a question that gets another answer."""

    queued: Queued


class Regenerate(msgspec.Struct, frozen=True, kw_only=True):
    """Answer the question at `node` once more."""

    node: str
    model: str = ""
    tools: tuple[str, ...] | None = None
    sampling: Sampling = Sampling()


class Compact(msgspec.Struct, frozen=True, kw_only=True):
    """Summarise the path and continue from the summary."""

    model: str = ""


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    """Continue a turn that another process left."""

    checkpoint: TurnCheckpoint


TurnRequest: TypeAlias = NewMessage | QueuedMessage | Regenerate | Compact | Resume

TurnKind: TypeAlias = Literal["answer", "regenerate", "compact"]


class TurnCheckpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A running turn as it is kept with its session. Together with the path and the events it is all that another
    process needs to continue the turn."""

    turn: str = ""
    model: str = ""
    tools: list[str] | None = None
    """The tools that it may call; None means all that there are."""
    sampling: Sampling = Sampling()
    """The options of its message."""
    approvals: dict[str, OpenApproval] = {}
    usage: Usage = Usage()
    steps: int = 0
    """Steps whose answer is stored."""
    seconds: float = 0.0
    """How long it had run when this was written."""
    kind: TurnKind = "answer"
    question: str = ""
    """The node that it answers."""
    message: str = ""
    """The id that the question had in the queue."""
    previous_head: str = ""
    """Where the head stood before a question got another answer."""
    repairs: int = 0
    """How often an answer was asked for again because it did not match its schema."""
    is_paused: bool = False
    """Whether the last answer is a part that its provider continues when it is sent back."""
    deaths: int = 0
    """Processes that ended during the current step."""
    is_handed_over: bool = False
    """Whether the last process stopped in good order."""
    repeated_tokens: int = 0
    """Tokens of requests that were sent once more after a restart, in all steps."""

    def waiting_calls(self, path: Sequence[Placed]) -> dict[str, str]:
        """Return the calls at the end of the path that have not begun because an approval is pending, with its id."""
        calls = {call.id for call in path[-1].message.calls} if path else set[str]()
        return {found.call: name for name, found in self.approvals.items() if found.is_gate and found.call in calls}
