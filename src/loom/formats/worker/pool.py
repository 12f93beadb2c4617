"""The pool of worker processes that runtimes own.

A `WorkerPool` starts children when a job first needs them, keeps them warm, and ends all of them in `close`. The
functions of `formats` use the current pool: the one that `WorkerPool.use` has set for the running context, else the
pool of the process. Every open runtime holds that one (`shared_pool`); its children end with the last runtime.
"""

from __future__ import annotations

import atexit
import contextvars
import os
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, Protocol, TypeVar, cast

import msgspec

from loom.errors import Unreadable
from loom.formats.facts import IntakeLimits
from loom.formats.worker.group import WorkerGroup, WorkerKind

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


class PoolResource(Protocol):
    """An object that lives as long as a pool: `close` ends it, `forget` releases it in a fork."""

    def close(self) -> None: ...
    def forget(self) -> None: ...


P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound=PoolResource)

_THREADS: Final = 8
"""More than there are children in any group: threads wait for children, not for the processor."""
_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()
_current: contextvars.ContextVar[WorkerPool | None] = contextvars.ContextVar("loom_worker_pool", default=None)
_default: WorkerPool | None = None
_default_lock = threading.Lock()
_holders = 0


class WorkerPool:
    """Worker processes of every kind. Calls may come from any thread."""

    def __init__(self) -> None:
        self._reset()
        _pools.add(self)

    def group(self, kind: WorkerKind) -> WorkerGroup:
        """Return the children of this kind; none is started yet. Raise `Unreadable` if the pool is closed."""
        with self._lock:
            if self._is_closed:
                raise Unreadable("The file was not read: the worker processes have been shut down.")
            group = self._groups.get(kind)
            if group is None:
                group = self._groups[kind] = WorkerGroup(kind)
            return group

    def call(
        self,
        kind: WorkerKind,
        job: bytes,
        document: bytes,
        *,
        digest: str = "",
        name: str,
        limits: IntakeLimits,
        seconds: float,
    ) -> tuple[msgspec.Raw, bytes]:
        """Run a msgpack `job` on `document` in a child of this kind; see `WorkerGroup.call`."""
        return self.group(kind).call(job, document, digest=digest, name=name, limits=limits, seconds=seconds)

    def keep(self, kind: type[R]) -> R:
        """Return the object of this class that lives with the pool; it is created at the first call and closed with the
        pool."""
        with self._lock:
            if self._is_closed:
                raise Unreadable("The file was not read: the worker processes have been shut down.")
            return cast("R", self._resources.setdefault(kind, kind()))

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking `work` in a thread of this pool, with this pool as the current one.

        A hundred images wait for one another here, and not in the threads that the rest of the program needs.
        """
        import asyncio  # imported late: children import this module too, and start faster without it

        context = contextvars.copy_context()
        context.run(_current.set, self)
        call = partial(context.run, work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._executor(), call)

    @contextmanager
    def use(self) -> Generator[WorkerPool]:
        """Make this the pool of the running context, and of the tasks and threads that inherit from it."""
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)

    def pids(self, kind: WorkerKind | None = None) -> tuple[int, ...]:
        """Return the process ids of the children, of one kind or of all."""
        with self._lock:
            groups = [group for of, group in self._groups.items() if kind in (None, of)]
        return tuple(pid for group in groups for pid in group.pids())

    def close(self) -> None:
        """End every child. Jobs that are running fail; later calls raise `Unreadable`."""
        with self._lock:
            self._is_closed = True
            groups, self._groups = list(self._groups.values()), {}
            resources, self._resources = list(self._resources.values()), {}
            threads, self._threads = self._threads, None
        for group in (*groups, *resources):
            group.close()
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    def _executor(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor

        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="loom-worker")
            return self._threads

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[WorkerKind, WorkerGroup] = {}
        self._resources: dict[type[PoolResource], PoolResource] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._is_closed = False

    def forget(self) -> None:
        """Release the parent's children in a fork without ending them."""
        for held in (*self._groups.values(), *self._resources.values()):
            held.forget()
        self._reset()


def current_pool() -> WorkerPool:
    """Return the pool of the running context, or the default pool of this process."""
    global _default
    pool = _current.get()
    if pool is not None:
        return pool
    with _default_lock:
        if _default is None:
            _default = WorkerPool()
        return _default


@contextmanager
def shared_pool() -> Generator[WorkerPool]:
    """Yield the pool of this process. When the last holder leaves, its children are ended."""
    global _default, _holders
    with _default_lock:
        pool = _default = _default or WorkerPool()
        _holders += 1
    try:
        yield pool
    finally:
        with _default_lock:
            _holders -= 1
            is_last = _holders == 0 and _default is pool
            if is_last:
                _default = None
        if is_last:
            pool.close()


def _forget_all() -> None:
    global _default_lock
    _default_lock = threading.Lock()
    for pool in list(_pools):
        pool.forget()


def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_all)
