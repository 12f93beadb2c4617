"""Unsuccessful ends of a turn, as events for interfaces and as exceptions for callers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from loom.errors import Conflict, LoomError
from loom.events import TurnFailed

CONTINUE_HINT: Final = "Your conversation is saved; send a message to continue."
_FINISH_REASONS: Final = {"turn.cancelled": "cancelled", "turn.interrupted": "interrupted"}


def turn_failed(turn: str, error: LoomError) -> TurnFailed:
    return TurnFailed(turn=turn, code=error.code, text=error.message, hint=error.hint)


def turn_interrupted(turn: str, why: str = "") -> TurnFailed:
    """Return the event for a turn whose process ended and that is not continued."""
    text = f"The turn was interrupted: {why}" if why else "The turn was interrupted"
    return TurnFailed(turn=turn, code="turn.interrupted", text=text, hint=CONTINUE_HINT)


def turn_cancelled(turn: str) -> TurnFailed:
    return TurnFailed(turn=turn, code="turn.cancelled", text="The turn was cancelled", hint=CONTINUE_HINT)


def finish_reason(end: TurnFailed) -> str:
    """Return the reason that is stored with the unfinished answer of a turn that ended in this way."""
    return _FINISH_REASONS.get(end.code, "incomplete")


def limit_reached(turn: str, limit: str) -> TurnFailed:
    text = f"The turn reached its limit of {limit}"
    return TurnFailed(turn=turn, code="turn.limit", text=text, hint='Send "continue" to go on.')


def lease_lost() -> Conflict:
    return Conflict(
        "This turn was stopped: another process has taken over the session, or it was deleted",
        hint="Reload the session to see its current state.",
    )


def error_of(code: str, text: str, hint: str = "") -> LoomError:
    """Return the exception for a `TurnFailed`: an instance of the class that has this code. A class is created for a
    code without one (a turn that was cancelled or reached a limit)."""
    kind = _by_code.get(code)
    if kind is None:
        kind = _by_code[code] = type("TurnEnded", (LoomError,), {"code": code})
    return kind(text, hint=hint)


def _subclasses(kind: type[LoomError]) -> Iterator[type[LoomError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _subclasses(below)


_by_code: Final = {kind.code: kind for kind in _subclasses(LoomError) if kind.__module__ == LoomError.__module__}
