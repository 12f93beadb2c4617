"""Turns as DBOS workflows, named SESSION/TURN; the value of every step is in DBOS's tables.

The session's lease decides which process runs a turn. So each process has its own queue, and a turn that another
process left unfinished is resumed on the queue of the process that holds the lease now. Recorded steps are not
repeated.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from loom.agent.steps import StepValue
from loom.errors import ConfigError, ExtraMissing, Unreachable
from loom.struct_types import decode_json

if TYPE_CHECKING:
    from dbos import DBOS

_WORKFLOW: Final = "loom.turn"
_SCHEMA: Final = "loom_dbos"
_VERSION: Final = "1"
"""The version of the recorded data. DBOS continues a workflow only with the version that started it."""
_POLL_SECONDS: Final = 0.1
_MAX_VALUE_BYTES: Final = 2_000
_OPEN: Final = ["PENDING", "ENQUEUED"]

_bodies: dict[str, _Body] = {}
"""The turns that run in this process, by the id of their workflow. DBOS has one set of workflows per process."""


class _Body:
    """A turn's body until its workflow runs it, and its outcome."""

    def __init__(self, run: Callable[[], Awaitable[None]]) -> None:
        self.run = run
        self.task: asyncio.Task[None] | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self, error: BaseException | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        elif isinstance(error, asyncio.CancelledError):
            self.done.cancel()
        else:
            self.done.set_exception(error)


class DbosSteps:
    """Steps that DBOS records; created by `open_dbos`. Only this process listens to `queue`."""

    def __init__(self, dbos: type[DBOS], workflow: Callable[[str], Coroutine[Any, Any, str]], queue: str) -> None:
        self._dbos = dbos
        self._workflow = workflow
        self._queue = queue

    async def run_turn(self, turn: str, body: Callable[[], Awaitable[None]]) -> None:
        found = _Body(body)
        name = await self._open_workflow(turn)
        _bodies[name] = found
        try:
            if name == turn and await self._dbos.get_workflow_status_async(name) is not None:
                await self._dbos.resume_workflow_async(name, queue_name=self._queue)
            else:
                await self._start(name)
            await asyncio.shield(found.done)
        except asyncio.CancelledError:
            if found.task is not None:
                found.task.cancel()
            raise
        finally:
            if found.task is not None:  # its outcome is recorded when it ends
                await asyncio.wait([found.task])
            found.settle(None)
            del _bodies[name]

    async def _start(self, name: str) -> None:
        from dbos import SetWorkflowID

        with SetWorkflowID(name):
            await self._dbos.start_workflow_async(self._workflow, name)

    async def _open_workflow(self, turn: str) -> str:
        """Return the id of the turn's workflow. A workflow that was ended by hand, in a dashboard, gets a successor,
        because the session decides whether a turn continues."""
        name, count = turn, 1
        while (status := await self._dbos.get_workflow_status_async(name)) is not None and status.status not in _OPEN:
            count += 1
            name = f"{turn}-{count}"
        return name

    async def run(self, name: str, step: Callable[[], Awaitable[StepValue]]) -> StepValue:
        failed: list[BaseException] = []

        async def record() -> str:
            try:
                value = msgspec.json.encode(await step())
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                # DBOS would record the error and raise it again in the process that continues the turn.
                failed.append(error)
                raise asyncio.CancelledError from error
            if len(value) > _MAX_VALUE_BYTES:
                raise AssertionError(f"the value of {name} has {len(value)} bytes")
            return value.decode()

        try:
            recorded = await self._dbos.run_step_async({"name": name}, record)
        except asyncio.CancelledError:
            if failed:
                raise failed[0] from None
            raise
        return decode_json(recorded, StepValue)

    async def end_turn(self, turn: str) -> None:
        for status in await self._dbos.list_workflows_async(workflow_id_prefix=turn, status=_OPEN, load_input=False):
            await self._dbos.cancel_workflow_async(status.workflow_id)

    async def end_orphans(self, is_running: Callable[[str, str], Awaitable[bool]]) -> None:
        """End the workflows of turns that are over in their session, because a process was killed between the two
        writes."""
        for status in await self._dbos.list_workflows_async(name=_WORKFLOW, status=_OPEN, load_input=False):
            session, _, turn = status.workflow_id.partition("/")
            if not await is_running(session, turn.partition("-")[0]):
                await self._dbos.cancel_workflow_async(status.workflow_id)


async def _run_workflow(name: str) -> str:
    """Run the body of one turn as a workflow. If the body raises, the workflow stays open."""
    body = _bodies.get(name)
    if body is None:
        raise RuntimeError("this turn runs in another process; the holder of its session's lease continues it")
    body.task = asyncio.current_task()
    try:
        await body.run()
    except BaseException as error:
        body.settle(error)
        raise asyncio.CancelledError from error
    body.settle(None)
    return "finished"


@asynccontextmanager
async def open_dbos(url: str) -> AsyncGenerator[DbosSteps]:
    """Launch DBOS in the database at `url`, in its own schema. Raise `ConfigError`, `ExtraMissing` or `Unreachable` if
    that is not possible."""
    if not url.startswith(("postgresql://", "postgres://")):
        raise ConfigError(
            'turn.engine = "dbos" needs a PostgreSQL store.',
            key="turn",
            hint='Set store.url to postgresql://user@host/name, or turn.engine to "builtin".',
        )
    try:
        import dbos
        from sqlalchemy.exc import OperationalError
    except ImportError:
        raise ExtraMissing(
            'turn.engine = "dbos" needs DBOS, which is not installed.', hint="Run: pip install 'loom-runtime[dbos]'"
        ) from None
    if _is_open.locked():
        raise ConfigError(
            "Another runtime of this process uses DBOS already.",
            key="turn",
            hint="Close it first, or open one runtime only: DBOS can be launched once per process.",
        )
    process = secrets.token_hex(16)  # a new id for every process, so that DBOS recovers nothing by itself
    queue = f"loom-{process}"
    async with _is_open:
        logging.getLogger("dbos").setLevel(logging.ERROR)
        config: dbos.DBOSConfig = {
            "name": "loom",
            "system_database_url": url,
            "dbos_system_schema": _SCHEMA,
            "executor_id": process,
            "application_version": _VERSION,
            "log_level": "ERROR",
            "use_listen_notify": False,  # turns wait for nothing in DBOS
        }
        dbos.DBOS(config=config)
        try:
            workflow = _registered_workflow()
            dbos.DBOS.listen_queues([queue])
            try:
                dbos.DBOS.launch()  # in this thread: DBOS runs workflows on the loop that launched it
            except OperationalError as error:
                raise Unreachable("DBOS cannot reach the database of store.url.", hint="Is it running?") from error
            await dbos.DBOS.register_queue_async(queue, polling_interval_sec=_POLL_SECONDS)
            yield DbosSteps(dbos.DBOS, workflow, queue)
            await dbos.DBOS.delete_queue_async(queue)
        finally:
            if recording := [it.task for it in _bodies.values() if it.task is not None and it.done.done()]:
                await asyncio.wait(recording)
            await asyncio.to_thread(dbos.DBOS.destroy)
            # DBOS replaced the loop's default threads with its own, and has ended them.
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))


_is_open = asyncio.Lock()


@functools.cache
def _registered_workflow() -> Callable[[str], Coroutine[Any, Any, str]]:
    from dbos import DBOS

    return DBOS.workflow(name=_WORKFLOW)(_run_workflow)
