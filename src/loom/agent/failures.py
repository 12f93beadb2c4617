"""How a turn ends that did not finish, as an event for interfaces and as an exception for callers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from loom.errors import Conflict, LoomError
from loom.events import TurnFailed

CONTINUE_HINT: Final = "Your conversation is saved; send a message to continue."


def turn_failed(turn: str, error: LoomError) -> TurnFailed:
    return TurnFailed(turn=turn, code=error.code, text=error.message, hint=error.hint)


def turn_interrupted(turn: str, why: str = "") -> TurnFailed:
    """Its process died, and it is not continued."""
    text = f"the turn was interrupted: {why}" if why else "the turn was interrupted"
    return TurnFailed(turn=turn, code="turn.interrupted", text=text, hint=CONTINUE_HINT)


def turn_cancelled(turn: str) -> TurnFailed:
    return TurnFailed(turn=turn, code="turn.cancelled", text="the turn was cancelled", hint=CONTINUE_HINT)


def limit_reached(turn: str, limit: str) -> TurnFailed:
    text = f"the turn was ended after {limit}"
    return TurnFailed(turn=turn, code="turn.limit", text=text, hint='Send "continue" to go on.')


def lease_lost() -> Conflict:
    return Conflict(
        "another process runs this session now, or it was deleted; this turn was given up here",
        hint="Load it again to see how it continues.",
    )


def error_of(code: str, text: str, hint: str = "") -> LoomError:
    """Return the exception for a `TurnFailed`: its class is the one with that code. Codes that name no class (a turn
    that was cancelled or reached a limit) have a class made for them."""
    kind = _by_code.get(code)
    if kind is None:
        kind = _by_code[code] = type("TurnEnded", (LoomError,), {"code": code})
    return kind(text, hint=hint)


def _subclasses(kind: type[LoomError]) -> Iterator[type[LoomError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _subclasses(below)


_by_code: Final = {kind.code: kind for kind in _subclasses(LoomError) if kind.__module__ == LoomError.__module__}
