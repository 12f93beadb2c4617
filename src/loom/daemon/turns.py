"""Turns: every session with queued work is run by one daemon, not necessarily the one that received the message.

A posted message is on disk before it is acknowledged. A worker acquires the session's lease, runs what is queued and
releases it. Workers are started by a post, by a bus message, and by polling: a session whose daemon died is continued
by another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Generator, Sequence
from contextlib import aclosing
from typing import Final, Literal

import msgspec

from loom.content.inputs import Content
from loom.daemon.background_tasks import start_task
from loom.daemon.bus import Bus, BusMessage
from loom.daemon.problems import Draining
from loom.errors import Corrupt, LoomError, NotFound
from loom.events import MessageStored, StepStarted, TurnStarted, decode_event
from loom.runtime import Runtime
from loom.runtime.session import LocalSession
from loom.sampling import Sampling
from loom.session import Queued

BEGIN_SECONDS: Final = 0.5
"""How long a response waits for the turn to start; the message is on disk anyway."""
BEGINNING: Final = 4
"""The maximum number of turns that are before their first step: of hundreds of simultaneous requests, all are accepted
before all are started."""
BEGINNING_SECONDS: Final = 0.1
"""A turn that takes longer to start (its provider is queried for the model's capabilities) lets the next one start."""
LOOK_SECONDS: Final = 2.0
"""How often the store is polled for sessions without a worker."""
_log = logging.getLogger(__name__)


class AcceptedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is on disk. `node` is its node once its turn has started; watch from `seq` on."""

    message: str
    node: str | None
    turn: str | None
    queued: bool
    seq: int
    notices: tuple[str, ...]
    is_new: bool


class _BegunTurn(msgspec.Struct, frozen=True):
    node: str
    turn: str


class _Worker:
    def __init__(self, session: LocalSession) -> None:
        self.session = session
        self.is_wanted = True
        """Whether a message was posted since the worker last checked the queue."""
        self.task: asyncio.Task[None] | None = None


class Turns:
    def __init__(self, runtime: Runtime, bus: Bus) -> None:
        self.draining = False
        self._runtime = runtime
        self._dispatch = runtime.dispatch
        self._bus = bus
        self._workers: dict[str, _Worker] = {}
        self._soon_begun: set[asyncio.Task[None]] = set()
        self._beginning = asyncio.Semaphore(BEGINNING)
        self._looker: asyncio.Task[None] | None = None

    @property
    def active(self) -> int:
        """The number of sessions that this daemon works on."""
        return len(self._workers)

    async def start(self) -> None:
        self._dispatch.events.subscribe(self._on_events)
        self._bus.listeners.append(self._on_bus_message)
        self._looker = start_task(self._poll(), "polling for unfinished work")

    async def stop(self, seconds: float = 10.0) -> None:
        """Accept nothing new, and give running turns `seconds` to end. After that, turns with pending approvals stay
        open for the session's next worker; the others are closed."""
        self.draining = True
        if self._looker is None:
            return
        self._looker.cancel()
        await asyncio.gather(self._looker, *self._soon_begun, return_exceptions=True)
        self._looker = None
        workers = list(self._workers.values())
        for worker in workers:
            worker.session.rest()
        tasks = [worker.task for worker in workers if worker.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
            left = await asyncio.gather(*(worker.session.leave() for worker in workers), return_exceptions=True)
            for error in [found for found in left if isinstance(found, BaseException)]:
                _log.warning(
                    "a turn could not be closed; the next holder of its lease closes it: %s", type(error).__name__
                )
            await asyncio.gather(*tasks, return_exceptions=True)
        self._dispatch.events.unsubscribe(self._on_events)
        self._bus.listeners.remove(self._on_bus_message)

    # Requests ----------------------------------------------------------------------------------------------

    async def post(
        self,
        session: LocalSession,
        *content: Content,
        key: str = "",
        model: str = "",
        models: Sequence[str] = (),
        parent: str | None = None,
        n: int = 1,
        sampling: Sampling | None = None,
        steer: bool = False,
        traceparent: str = "",
    ) -> AcceptedMessage:
        """Queue a message and start its turn if no other one runs. A repeated `key` returns the first result.
        `traceparent` is the span of the request that posts it."""
        self._check_open()
        session.set_trace_parent(traceparent)
        if steer:
            queued = await session.steer(*content, key=key)
        else:
            queued = await session.post(
                *content, key=key, model=model, models=models, parent=parent, n=n, options=sampling
            )
        return await self._accept(session, queued)

    async def regenerate(
        self,
        session_id: str,
        *,
        node: str | None = None,
        key: str = "",
        model: str = "",
        n: int = 1,
        tools: Sequence[str] | None = None,
        sampling: Sampling | None = None,
    ) -> AcceptedMessage:
        """Generate other answers to the user message above `node`; without one, to the last user message."""
        self._check_open()
        session = await self._runtime.library.open(session_id, tools=tools)
        queued = await session.post_again(node, key=key, model=model, n=n, options=sampling)
        return await self._accept(session, queued)

    async def compact(self, session_id: str, *, key: str = "", model: str = "") -> AcceptedMessage:
        """Queue a summary of the conversation."""
        self._check_open()
        session = await self._runtime.library.open(session_id)
        return await self._accept(session, await session.post_compact(key=key, model=model))

    async def cancel(self, session_id: str, turn: str = "", *, pause_queue: bool = False) -> None:
        """End the running turn, in any process; with `turn`, only that one. The next queued message starts, unless
        `pause_queue` pauses them all first."""
        session = await self._runtime.library.open(session_id)
        if pause_queue:
            await session.pause_queue()
        await session.cancel(turn)
        self._bus.publish(BusMessage("request", session_id))

    async def change_queue(self, session_id: str, messages: Sequence[str], *, paused: bool) -> LocalSession:
        """Pause or resume queued messages (none: all); those that are resumed run when it is their turn."""
        session = await self._runtime.library.open(session_id)
        if paused:
            await session.pause_queue(*messages)
        else:
            self._check_open()
            await session.resume_queue(*messages)
            self._begin(session)
            self._bus.publish(BusMessage("work", session_id))
        await self.announce_change(session_id)
        return session

    async def answer(
        self, session_id: str, approval: str, answer: Literal["once", "always", "deny"], reason: str = "", by: str = ""
    ) -> None:
        """Answer a pending approval; `by` is the user who answers."""
        session = await self._runtime.library.open(session_id)
        await session.answer(approval, answer, reason, by=by)
        self._bus.publish(BusMessage("request", session_id))
        self._begin(session)  # if no worker runs its turn, it continues here

    async def announce_change(self, session_id: str, *, deleted: bool = False) -> None:
        """Notify all processes that the session's record has changed, or was deleted."""
        self._bus.publish(BusMessage("deleted" if deleted else "changed", session_id))

    # Workers -------------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.draining:
            raise Draining("The daemon is stopping.", hint="Try again in a moment.")

    async def _accept(self, session: LocalSession, queued: Queued) -> AcceptedMessage:
        """Start the turn if nothing else runs, and wait for it a moment, to return its id. While many turns start at
        once, do not wait: that would mean waiting for the turns of others."""
        is_next = queued.is_new and not self._beginning.locked() and await self._is_free(session.id)
        with self._start_of(session.id, queued.id) if is_next else contextlib.nullcontext() as start:
            self._begin(session)
            self._bus.publish(BusMessage("work", session.id))
            begun: _BegunTurn | None = None
            if start is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(BEGIN_SECONDS):
                        begun = await start
        return AcceptedMessage(
            message=queued.id,
            node=(begun.node if begun is not None else "") or queued.node or None,
            turn=begun.turn if begun is not None else None,
            queued=begun is None and queued.answers_left > 0,
            seq=queued.seq,
            notices=queued.notices,
            is_new=queued.is_new,
        )

    async def _is_free(self, session_id: str) -> bool:
        return session_id not in self._workers and not await self._dispatch.leases.holder(session_id)

    @contextlib.contextmanager
    def _start_of(self, session_id: str, message: str) -> Generator[asyncio.Future[_BegunTurn]]:
        """Yield a future for the turn that answers a queued message; it resolves if the turn starts in this process."""
        start: asyncio.Future[_BegunTurn] = asyncio.get_running_loop().create_future()
        node = ""

        def on_events(session: str, _: int, events: Sequence[tuple[str, bytes]]) -> None:
            nonlocal node
            if session != session_id:
                return
            for event in (decode_event(data) for kind, data in events if kind in ("message_stored", "turn_started")):
                match event:
                    case MessageStored(node=stored):
                        node = stored
                    case TurnStarted(turn=turn, message=answered) if answered == message and not start.done():
                        start.set_result(_BegunTurn(node, turn))
                    case _:
                        pass

        self._dispatch.events.subscribe(on_events)
        try:
            yield start
        finally:
            self._dispatch.events.unsubscribe(on_events)
            start.cancel()

    def _begin(self, session: LocalSession) -> None:
        """Make sure that queued work is run. A running worker checks the queue again before it ends."""
        if self.draining:
            return
        worker = self._workers.setdefault(session.id, _Worker(session))
        worker.is_wanted = True
        if worker.task is None:
            worker.task = start_task(self._work(session.id, worker), "work on a session")

    async def _work(self, session_id: str, worker: _Worker) -> None:
        try:
            while worker.is_wanted and not self.draining:
                worker.is_wanted = False
                await self._work_on(worker.session)
        except NotFound:
            _log.info("session %s was deleted while a turn was running", session_id)
        except LoomError as error:
            _log.warning("work on session %s stopped: %s", session_id, error.code)
        finally:
            if self._workers.get(session_id) is worker:
                del self._workers[session_id]
            self._bus.publish(BusMessage("changed", session_id))

    async def _work_on(self, session: LocalSession) -> None:
        await self._beginning.acquire()
        begun = contextlib.ExitStack()
        begun.callback(self._beginning.release)
        late = asyncio.get_running_loop().call_later(BEGINNING_SECONDS, begun.close)
        try:
            async with aclosing(session.work()) as events:
                async for event in events:
                    if isinstance(event, StepStarted):
                        begun.close()
        finally:
            late.cancel()
            begun.close()

    # Bus and polling -------------------------------------------------------------------------------------------------

    def _on_events(self, session_id: str, seq: int, _: Sequence[tuple[str, bytes]]) -> None:
        self._bus.publish(BusMessage("events", session_id, seq))

    def _on_bus_message(self, message: BusMessage) -> None:
        match message.what:
            case "work":
                self._schedule(message.session)
            case "request":
                self._runtime.nudge(message.session)
            case _:
                pass

    def _schedule(self, session_id: str) -> None:
        if session_id in self._workers:
            self._workers[session_id].is_wanted = True
            return
        task = start_task(self._resume(session_id), "resuming a session")
        self._soon_begun.add(task)
        task.add_done_callback(self._soon_begun.discard)

    async def _resume(self, session_id: str) -> None:
        try:
            self._begin(await self._runtime.library.open(session_id))
        except LoomError as error:
            _log.warning("session %s could not be resumed: %s", session_id, error.code)
        except Exception:  # noqa: BLE001  a bug in one session must not keep the others waiting
            _log.exception("session %s could not be resumed", session_id)

    async def _poll(self) -> None:
        """Poll for sessions without a worker: posted to a daemon that died, or left in the middle of a turn."""
        while True:
            try:
                for session_id in await self._unfinished_sessions():
                    await self._resume(session_id)
            except LoomError as error:
                _log.warning("pending work could not be read from the store: %s", error.code)
            await asyncio.sleep(LOOK_SECONDS)

    async def _unfinished_sessions(self) -> list[str]:
        left = list(await self._dispatch.leases.list_abandoned())
        for session_id in await self._dispatch.queue.waiting():
            with contextlib.suppress(Corrupt, NotFound):  # damaged or deleted: the others continue
                if await self._is_free(session_id):
                    left.append(session_id)
        return left
