"""The ways in which a turn can start, and the checkpoint from which another process can continue it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from loom.agent.approvals import OpenApproval
from loom.compile.policy import Placed
from loom.compile.request import Snapshot
from loom.content.messages import Message
from loom.events import ApprovalRequested
from loom.models import Usage
from loom.sampling import Sampling
from loom.session import Queued
from loom.struct_types import convert
from loom.work_types import FileChange


class NewMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Answer a message that is not stored yet, below `parent` (the head, if empty)."""

    message: Message
    model: str = ""
    parent: str = ""
    mentioned: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    sampling: Sampling = Sampling()


class QueuedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Answer the next item of the queue: a message, or a question to answer again."""

    queued: Queued


class Regenerate(msgspec.Struct, frozen=True, kw_only=True):
    """Answer the question at `node` again."""

    node: str
    model: str = ""
    tools: tuple[str, ...] | None = None
    sampling: Sampling = Sampling()


class Compact(msgspec.Struct, frozen=True, kw_only=True):
    """Summarize the path and continue from the summary."""

    model: str = ""


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    """Continue a turn that another process left unfinished."""

    checkpoint: TurnCheckpoint


TurnRequest: TypeAlias = NewMessage | QueuedMessage | Regenerate | Compact | Resume

TurnKind: TypeAlias = Literal["answer", "regenerate", "compact"]


class TurnCheckpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored state of a running turn. Together with the path and the events it lets another process continue the
    turn."""

    turn: str = ""
    model: str = ""
    tools: list[str] | None = None
    """The names of the tools that the turn may call; None means all."""
    sampling: Sampling = Sampling()
    """The sampling options of the message."""
    approvals: dict[str, OpenApproval] = {}
    changes: dict[str, tuple[FileChange, ...]] = {}
    """The changes of files by the calls that run now, by call id. Each is stored before it is made."""
    usage: Usage = Usage()
    steps: int = 0
    """Steps whose answer is stored."""
    seconds: float = 0.0
    """How long the turn had run when the checkpoint was written."""
    kind: TurnKind = "answer"
    question: str = ""
    """The node that the turn answers."""
    message: str = ""
    """The id of the question in the queue."""
    previous_head: str = ""
    """The head before a question was answered again."""
    traceparent: str = ""
    """The span of the request that posted the question."""
    repairs: int = 0
    """How often the model was asked to correct an answer that did not match its schema."""
    is_paused: bool = False
    """Whether the provider paused the last answer and continues it when it is sent back."""
    deaths: int = 0
    """How many processes ended during the current step."""
    is_handed_over: bool = False
    """Whether the last process stopped cleanly."""
    repeated_tokens: int = 0
    """Estimated tokens of requests that were sent again after a restart, over all steps."""

    def approval_requests(self, path: Sequence[Placed]) -> tuple[ApprovalRequested, ...]:
        """Return the pending approvals of the calls at the end of `path`."""
        calls = {call.id: call for call in path[-1].message.calls} if path else {}
        return tuple(
            ApprovalRequested(approval=name, call=calls[found.call], action=found.action, pattern=found.pattern)
            for name, found in self.approvals.items()
            if found.call in calls
        )

    def waiting_calls(self, path: Sequence[Placed]) -> dict[str, str]:
        """Map each call at the end of `path` that has not started because an approval is pending to the id of that
        approval."""
        calls = {call.id for call in path[-1].message.calls} if path else set[str]()
        return {found.call: name for name, found in self.approvals.items() if found.is_gate and found.call in calls}


def checkpoint_of(snapshot: Snapshot) -> TurnCheckpoint:
    """Return the checkpoint of the running or unfinished turn of a session; without a turn if there is none."""
    return convert(snapshot.settings.get("running", {}), TurnCheckpoint)
