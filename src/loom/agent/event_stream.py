"""The events of a turn as an async iterator: the one place where a turn's events become something to iterate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeAlias

from loom.events import Event

Job: TypeAlias = Callable[[Callable[[Event], None]], Coroutine[Any, Any, None]]
"""Runs turns and hands their events to the function that it is given."""


class EventStream:
    """Iterate it, or close it: leaving it early (`aclose`, `async with`) cancels the turn that runs.

    The job starts with the first event that is asked for, and an error of the job is raised where its events end.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._is_closed:
            raise StopAsyncIteration
        if self._task is None:
            events = self._events
            self._task = asyncio.create_task(self._job(events.put_nowait))
            self._task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            event = await self._events.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if event is not None:
            return event
        self._is_closed = True
        if not self._task.cancelled():
            self._task.result()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Cancel what still runs and wait until it is over."""
        self._is_closed = True
        task = self._task
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if self._task is not None and not self._task.done() and not self._task.get_loop().is_closed():
            self._task.cancel()
