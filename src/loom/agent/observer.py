"""Observers of turns: they receive each event at the moment when it is emitted, before it is written."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Protocol

from loom.events import Event
from loom.models import Model
from loom.prompt import MediaRef


class TurnObserver(Protocol):
    """Observes one turn, or one answer of the gateway. It is entered in the task that runs the turn; leaving it ends
    everything that is still open. No method waits or raises."""

    def __enter__(self) -> TurnObserver: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def set_session(self, session_id: str) -> None:
        """Set the session, if it was not known before."""
        ...

    def set_parent(self, traceparent: str) -> None:
        """Set the span of the request that caused this, as its W3C header `traceparent`; empty changes nothing."""
        ...

    def take_up(self, turn: str) -> None:
        """Note that this is `turn`, which another process left unfinished."""
        ...

    def observe(self, event: Event) -> None:
        """Note an event, in the task that emits it."""
        ...


class Observers(Protocol):
    """Creates the observers of turns and of uploads."""

    def observe_turn(self, session_id: str = "", *, agent: str = "", secrets: Collection[str] = ()) -> TurnObserver:
        """Return the observer of a turn of a session that belongs to `agent`; `secrets` are values to mask."""
        ...

    def observe_upload(self, model: Model, media: MediaRef) -> AbstractContextManager[None]:
        """Observe the upload of a file to the provider of `model`."""
        ...


class NullObserver:
    """Observes nothing."""

    def observe_turn(self, session_id: str = "", *, agent: str = "", secrets: Collection[str] = ()) -> NullObserver:
        return self

    def observe_upload(self, model: Model, media: MediaRef) -> AbstractContextManager[None]:
        return nullcontext()

    def __enter__(self) -> NullObserver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def set_session(self, session_id: str) -> None: ...

    def set_parent(self, traceparent: str) -> None: ...

    def take_up(self, turn: str) -> None: ...

    def observe(self, event: Event) -> None: ...
