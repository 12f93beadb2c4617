"""The list of sessions as it changes, for subscribed clients. Frequent changes of one session are coalesced."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from loom.api_types import SessionState
from loom.daemon.background_tasks import start_task
from loom.daemon.bus import Bus, BusMessage
from loom.errors import LoomError, NotFound
from loom.runtime.dispatch import Dispatch

TOLD_SECONDS: Final = 0.25
LINES_PER_SECOND: Final = 200
"""The maximum updates per second: when hundreds of sessions change at once, they are sent a little later."""
_REMEMBERED: Final = 1_000
_log = logging.getLogger(__name__)


class ListedSession(msgspec.Struct, frozen=True):
    """An entry of the list."""

    session: str
    state: SessionState = "idle"
    title: str = ""
    rev: int = 0
    deleted: bool = False


class SessionList:
    def __init__(self, dispatch: Dispatch, bus: Bus, show: Callable[[ListedSession], Awaitable[None]]) -> None:
        self._dispatch = dispatch
        self._bus = bus
        self._show = show
        self._moved: dict[str, bool] = {}
        """Changed sessions, and whether each was deleted."""
        self._shown: OrderedDict[str, ListedSession] = OrderedDict()
        self._news = asyncio.Event()
        self._teller: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Subscribe to changes; the present list is read separately."""
        if self._teller is None:
            self._bus.listeners.append(self._on_bus_message)
            self._teller = start_task(self._tell_on(), "announcing changes of sessions")

    async def stop(self) -> None:
        teller, self._teller = self._teller, None
        if teller is None:
            return
        self._bus.listeners.remove(self._on_bus_message)
        teller.cancel()
        if teller is not asyncio.current_task():  # it may run this itself, if it dropped the last subscriber
            await asyncio.gather(teller, return_exceptions=True)

    def _on_bus_message(self, message: BusMessage) -> None:
        if message.session:
            self._moved[message.session] = message.what == "deleted"
            self._news.set()

    async def _tell_on(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            moved, self._moved = self._moved, {}
            try:
                await self._publish_changes(moved)
            except LoomError as error:  # the store is unavailable: try again after the pause
                _log.warning("the list of sessions could not be read: %s", error.code)
                self._moved = moved | self._moved
                self._news.set()
            await asyncio.sleep(max(TOLD_SECONDS, len(moved) / LINES_PER_SECOND))

    async def _publish_changes(self, moved: dict[str, bool]) -> None:
        queued = set(await self._dispatch.queue.waiting())
        for session_id, is_deleted in moved.items():
            line = ListedSession(session_id, deleted=True) if is_deleted else await self._line(session_id, queued)
            if self._shown.get(session_id) != line:
                self._remember(line)
                await self._show(line)

    async def _line(self, session_id: str, queued: set[str]) -> ListedSession:
        try:
            found = await self._dispatch.brief(session_id, queued)
        except NotFound:
            return ListedSession(session_id, deleted=True)
        return ListedSession(session_id, found.state, found.title, found.rev)

    def _remember(self, line: ListedSession) -> None:
        self._shown[line.session] = line
        self._shown.move_to_end(line.session)
        if len(self._shown) > _REMEMBERED:
            self._shown.popitem(last=False)
