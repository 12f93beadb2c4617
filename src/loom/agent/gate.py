"""Approvals as code: a function that decides on every call of a tool, instead of rules and people.

def approve(request: ApprovalRequest) -> Verdict:
    if request.tool == "run_command" and "rm" in request.arguments["command"]:
        return Deny("nothing is deleted here")
    return Allow()
"""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import msgspec

from loom.errors import ConfigError


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A call that is about to run."""

    tool: str
    arguments: Mapping[str, Any]
    """As the model wrote them."""
    action: str
    """What the call would do, as a person would read it: the exact command, or the difference in a file."""
    workspace: Path
    danger: Literal["none", "ask"] = "none"
    """Whether the tool asks for approval where nothing else is said."""
    call: str = ""
    """The id of the call."""
    session: str = ""
    """The id of the session."""


class Allow(msgspec.Struct, frozen=True):
    """Run the call, with everything that it asks for on the way; with other `arguments`, if given."""

    arguments: Mapping[str, Any] | None = None


class Deny(msgspec.Struct, frozen=True):
    """Do not run the call; the model reads the `reason`."""

    reason: str = ""


class Ask(msgspec.Struct, frozen=True):
    """Ask a person: an `ApprovalRequested` event, answered by `session.answer`."""


Verdict: TypeAlias = Allow | Deny | Ask
Approve: TypeAlias = Callable[[ApprovalRequest], Verdict | Awaitable[Verdict]]
"""Called exactly once for each call, one call at a time. A plain function runs in a thread, so it may block."""
StringRule: TypeAlias = Callable[[str, str], Literal["allow", "ask", "deny"] | None]
"""The old form: (tool, one of the things that its call is about) → a word. It is called several times for a call."""


def is_string_rule(approve: Approve | StringRule) -> bool:
    """Return whether `approve` has the old form, and warn if so."""
    try:
        signature = inspect.signature(approve)
    except (TypeError, ValueError):  # a callable without a signature: the new form
        return False
    if _takes(signature, 1):
        return False
    if not _takes(signature, 2):
        raise ConfigError("approve must take one ApprovalRequest.", hint="def approve(request): return loom.Allow()")
    warnings.warn(
        "approve(tool, action) is deprecated: take one ApprovalRequest and return Allow(), Deny(reason) or Ask()",
        DeprecationWarning,
        stacklevel=4,
    )
    return True


def _takes(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


async def call_gate(approve: Approve, request: ApprovalRequest) -> Verdict:
    """Return what `approve` decides; raise `ConfigError` if it returns anything but a verdict."""
    if inspect.iscoroutinefunction(approve):
        found: object = await approve(request)
    else:
        found = await asyncio.to_thread(approve, request)
        if inspect.isawaitable(found):
            found = await cast("Awaitable[object]", found)
    if not isinstance(found, Allow | Deny | Ask):
        raise ConfigError(
            f"approve returned {type(found).__name__}, and the call was not run.",
            hint="Return loom.Allow(), loom.Deny(reason) or loom.Ask().",
        )
    return found
