"""Failures: how a turn ends that did not finish, as an event for faces and as an exception for callers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from loom.errors import Conflict, LoomError
from loom.events import TurnFailed

GO_ON: Final = "What was said is kept; say something to go on."


def failed(turn: str, error: LoomError) -> TurnFailed:
    return TurnFailed(turn=turn, code=error.code, text=error.message, hint=error.hint)


def interrupted(turn: str) -> TurnFailed:
    """Its process died."""
    return TurnFailed(turn=turn, code="turn.interrupted", text="the turn was interrupted", hint=GO_ON)


def cancelled(turn: str) -> TurnFailed:
    return TurnFailed(turn=turn, code="turn.cancelled", text="the turn was cancelled", hint=GO_ON)


def taken_over() -> Conflict:
    return Conflict(
        "this session was taken over by another process, or deleted; this turn was given up",
        hint="Load it again to see how it went on.",
    )


def error_of(code: str, text: str, hint: str = "") -> LoomError:
    """The exception that a `TurnFailed` was made of: its class is the one with that code. Codes that name no class (a
    turn that was cancelled or ran into a limit) have a class made for them."""
    kind = _by_code.get(code)
    if kind is None:
        kind = _by_code[code] = type("TurnEnded", (LoomError,), {"code": code})
    return kind(text, hint=hint)


def _all(kind: type[LoomError]) -> Iterator[type[LoomError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _all(below)


_by_code: Final = {kind.code: kind for kind in _all(LoomError) if kind.__module__ == LoomError.__module__}
