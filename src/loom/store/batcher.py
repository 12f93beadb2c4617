"""Batcher: coalesce the requests of concurrent tasks into one call.

Two hundred sessions that each check their lease once a second cost one query a second, not two hundred.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


class Batcher(Generic[Q, A]):
    """Collect the questions of one iteration of the event loop and pass them to `answer`, which returns one answer for
    each, in order. If `answer` raises, every caller of that batch gets the exception."""

    def __init__(self, answer: Callable[[Sequence[Q]], Awaitable[Sequence[A]]]) -> None:
        self._answer = answer
        self._asked: list[tuple[Q, asyncio.Future[A]]] = []
        self._next: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()

    async def submit(self, question: Q) -> A:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[A] = loop.create_future()
        self._asked.append((question, future))
        if self._next is None or self._next.done():  # done: it was cancelled before it started
            self._next = loop.create_task(self._answer_all())
            self._answering.add(self._next)
            self._next.add_done_callback(self._answering.discard)
        return await future

    async def _answer_all(self) -> None:
        asked, self._asked, self._next = self._asked, [], None
        waiting = [future for _, future in asked]
        try:
            answers = await self._answer([question for question, _ in asked])
        except Exception as error:  # noqa: BLE001 - passed on to the callers of `submit`
            for future in waiting:
                if not future.done():
                    future.set_exception(error)
        except asyncio.CancelledError:
            for future in waiting:
                future.cancel()
            raise
        else:
            for future, answer in zip(waiting, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
