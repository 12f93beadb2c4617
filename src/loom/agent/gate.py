"""Approvals by code: a function that decides on every tool call, instead of rules and the user.

def approve(request: ApprovalRequest) -> Verdict:
    if request.tool == "run_command" and "rm" in request.arguments["command"]:
        return Deny("nothing is deleted here")
    return Allow()
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import msgspec

from loom.errors import ConfigError
from loom.tools.own_thread import run_in_own_thread


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is about to run."""

    tool: str
    arguments: Mapping[str, Any]
    """The arguments as the model wrote them."""
    action: str
    """What the call would do, in readable form: the exact command, or the diff of a file."""
    workspace: Path
    danger: Literal["none", "ask"] = "none"
    """Whether the tool needs approval by default."""
    call: str = ""
    """The id of the call."""
    session: str = ""
    """The id of the session."""


class Allow(msgspec.Struct, frozen=True):
    """Run the call, including everything it requests approval for while it runs. Use `arguments` instead of the
    model's, if given."""

    arguments: Mapping[str, Any] | None = None


class Deny(msgspec.Struct, frozen=True):
    """Do not run the call; the model reads `reason`."""

    reason: str = ""


class Ask(msgspec.Struct, frozen=True):
    """Ask the user: emits an `ApprovalRequested` event, which `session.answer` answers."""


Verdict: TypeAlias = Allow | Deny | Ask
Approve: TypeAlias = Callable[[ApprovalRequest], Verdict | Awaitable[Verdict]]
"""Called exactly once for each call, one call at a time. A plain function runs in a thread, so it may block."""
StringRule: TypeAlias = Callable[[str, str], Literal["allow", "ask", "deny"] | None]
"""The deprecated form: maps a tool and one subject of its call to an action. It is called several times for each
call."""


def is_string_rule(approve: Approve | StringRule) -> bool:
    """Return whether `approve` has the deprecated form, and warn if so. Raise `ConfigError` if it has neither form."""
    if not callable(approve):
        raise ConfigError(f"approve is not a function: {approve!r}.", hint="def approve(request): return loom.Allow()")
    try:
        signature = inspect.signature(approve)
    except (TypeError, ValueError):  # a callable without a signature: the new form
        return False
    if _accepts_arguments(signature, 1):
        return False
    if not _accepts_arguments(signature, 2):
        raise ConfigError("approve must take one ApprovalRequest.", hint="def approve(request): return loom.Allow()")
    warnings.warn(
        "approve(tool, action) is deprecated: take one ApprovalRequest and return Allow(), Deny(reason) or Ask()",
        DeprecationWarning,
        stacklevel=4,
    )
    return True


def _accepts_arguments(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


async def call_gate(approve: Approve, request: ApprovalRequest) -> Verdict:
    """Return the verdict of `approve`; raise `ConfigError` if it returns anything else."""
    if inspect.iscoroutinefunction(approve):
        found: object = await approve(request)
    else:
        found = await run_in_own_thread(approve, request)
        if inspect.isawaitable(found):
            found = await cast("Awaitable[object]", found)
    if not isinstance(found, Allow | Deny | Ask):
        raise ConfigError(
            f"approve returned {type(found).__name__}, and the call was not run.",
            hint="Return loom.Allow(), loom.Deny(reason) or loom.Ask().",
        )
    return found
