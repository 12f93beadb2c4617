"""The worker processes of one kind, seen from the parent.

A `WorkerGroup` keeps a few children that run the same module. Calls come from any thread; each borrows a child, so that
one child serves one job at a time. A child that dies, exceeds its deadline or fills its memory is ended and replaced,
and only its job fails, with a typed error. If a child had done other jobs before, they may have caused its failure, so
its job is retried once in a new child.

Children end with their parent: they read end-of-file when its socket closes, and an alarm ends one that is stuck in a
job. (PR_SET_PDEATHSIG would end them with the *thread* that started them, which in a pool is not the parent.)
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Final

import msgspec

from loom.content.media import size_label
from loom.errors import Encrypted, MediaError, TooLarge, Unreadable, Unsupported
from loom.formats.facts import IntakeLimits
from loom.formats.worker.channel import OversizeMessage, receive, send
from loom.formats.worker.loop import DocumentMissing, JobDone, JobFailed, Task, WorkerAnswer, WorkerReady
from loom.struct_types import msgpack_decoder

START_SECONDS: Final = 60.0
MAX_ANSWER_BYTES: Final = 64_000_000
_HELD_DOCUMENTS: Final = 4
_KEPT_VARIABLES: Final = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "TESSDATA_PREFIX")
_ALLOCATOR: Final = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "67108864",
}
"""Few arenas keep the address space within its limit; kept buffers save a sixth of the time of rendering pages."""
_ERRORS: Final[dict[str, type[MediaError]]] = {
    error.code: error for error in (Unreadable, Unsupported, TooLarge, Encrypted)
}
_log = logging.getLogger("loom.formats")


def environment() -> dict[str, str]:
    """Return the environment variables of a child process: never an API key or a token."""
    return {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}


class WorkerKind(msgspec.Struct, frozen=True):
    """Up to `size` children that run `python -m module`; each may use `memory_share` times `worker_memory_bytes`."""

    module: str
    size: int = 1
    memory_share: int = 1


class _ChildLost(Exception):
    """The child has died or is unusable; `error` and `sentence` describe it to the caller."""

    def __init__(self, error: type[MediaError], sentence: str, *, is_retryable: bool) -> None:
        super().__init__(sentence)
        self.error = error
        self.sentence = sentence
        self.is_retryable = is_retryable


class WorkerGroup:
    def __init__(self, kind: WorkerKind) -> None:
        self._kind = kind
        self._reset()

    def call(
        self, job: bytes, document: bytes, *, digest: str = "", name: str, limits: IntakeLimits, seconds: float
    ) -> tuple[msgspec.Raw, bytes]:
        """Run a msgpack `job` on `document` and return its result (msgpack) and its blob.

        The document is not sent to a child that already has the document of this `digest`; without a digest it always
        is. Raise a `MediaError` that contains `name`.
        """
        task = Task(
            digest=digest,
            limits=limits,
            memory_bytes=limits.worker_memory_bytes * self._kind.memory_share,
            seconds=seconds,
            has_document=False,
            job=msgspec.Raw(job),
        )
        with self._slots:
            try:
                return self._run(task, document)
            except _ChildLost as lost:
                raise lost.error(f"{name} {lost.sentence}.", name=name) from None
            except TimeoutError:
                raise TooLarge(f"{name} takes longer than {seconds:g} s to read.", name=name) from None
            except MediaError as error:
                raise type(error)(f"{name} {error.message}.", name=name, hint=error.hint) from None

    def close(self) -> None:
        """End every child for good. A running job fails, and its caller cleans up."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            self._all = [child for child in self._all if child not in idle]
            busy = list(self._all)
        for child in idle:
            child.end()
        for child in busy:
            child.kill()

    def pids(self) -> tuple[int, ...]:
        with self._lock:
            return tuple(child.pid for child in self._all)

    def forget(self) -> None:
        """Release the children in a fork: it must neither communicate with the children of its parent nor end them."""
        for child in self._all:
            child.disown()
        self._reset()

    def _reset(self) -> None:
        self._slots = threading.Semaphore(self._kind.size)
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._all: list[_Child] = []
        self._is_closed = False

    def _run(self, task: Task, document: bytes) -> tuple[msgspec.Raw, bytes]:
        began = time.monotonic()
        used = self._take(task.digest)
        if used is not None:
            try:
                return self._ask(used, task, document)
            except _ChildLost as lost:
                if not lost.is_retryable or self._is_closed:
                    raise
            left = task.seconds - (time.monotonic() - began)
            if left <= 0:
                raise TimeoutError
            task = msgspec.structs.replace(task, seconds=left)
        return self._ask(self._start(), task, document)

    def _take(self, digest: str) -> _Child | None:
        """Return an idle child, preferably one that has the document."""
        with self._lock:
            for child in self._idle:
                if digest in child.held:
                    self._idle.remove(child)
                    return child
            return self._idle.pop() if self._idle else None

    def _start(self) -> _Child:
        if self._is_closed:
            raise _shutdown_error()
        child = _Child(self._kind.module)
        with self._lock:
            if not self._is_closed:
                self._all.append(child)
                return child
        child.end()  # closed while it started
        raise _shutdown_error()

    def _drop(self, child: _Child) -> None:
        child.end()
        with self._lock:
            self._all.remove(child)

    def _ask(self, child: _Child, task: Task, document: bytes) -> tuple[msgspec.Raw, bytes]:
        keep = False
        try:
            answer, blob = child.ask(task, document)
            match answer:
                case JobDone():
                    keep = not answer.recycle
                    return answer.result, blob
                case JobFailed():
                    keep = not answer.recycle
                    if (
                        answer.trace
                    ):  # for developers; the caller gets the sentence, and a terminal must not show the trace
                        _log.debug("a worker of %s failed: %s", self._kind.module, answer.trace)
                    if answer.is_retryable:
                        raise _ChildLost(_ERRORS[answer.code], answer.sentence, is_retryable=True)
                    raise _ERRORS[answer.code](answer.sentence, hint=answer.hint)
                case WorkerReady() | DocumentMissing():
                    raise _ChildLost(Unreadable, "could not be read: the worker process lost it", is_retryable=True)
        finally:
            with self._lock:
                keep = keep and not self._is_closed
                if keep:
                    self._idle.append(child)
            if not keep:
                self._drop(child)


class _Child:
    """One process and the socket to it."""

    def __init__(self, module: str) -> None:
        self.held: OrderedDict[str, None] = OrderedDict()
        """The digests of the documents that it was sent last; it may have dropped some of them."""
        self._decode = msgpack_decoder(WorkerAnswer).decode
        self._link, theirs = socket.socketpair()
        path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry)
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", module, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env=environment() | _ALLOCATOR | {"PYTHONPATH": path},
                    cwd="/",
                    start_new_session=True,
                )
            except OSError as error:
                self._link.close()
                raise _start_error(error.strerror or "no process") from None
        try:
            self._receive(time.monotonic() + START_SECONDS)
        except (OSError, EOFError):
            self.end()
            raise _start_error(_ending(self._process.returncode)) from None

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, task: Task, document: bytes) -> tuple[WorkerAnswer, bytes]:
        """Return the response. Raise `TimeoutError` at the deadline and `_ChildLost` if the child has died; the caller
        then drops it."""
        deadline = time.monotonic() + task.seconds
        is_held = bool(task.digest) and task.digest in self.held
        try:
            answer, blob = self._exchange(task, b"" if is_held else document, deadline)
            if isinstance(answer, DocumentMissing):
                answer, blob = self._exchange(task, document, deadline)
        except TimeoutError:
            raise
        except (OSError, EOFError):
            self.end()
            raise _crash_error(self._process.returncode, task) from None
        if task.digest:
            self.held[task.digest] = None
            self.held.move_to_end(task.digest)
            if len(self.held) > _HELD_DOCUMENTS:
                self.held.popitem(last=False)
        return answer, blob

    def end(self) -> None:
        """Kill and reap the child, with everything that it has started."""
        self.kill()
        self._process.wait()
        self._link.close()

    def kill(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(self._process.pid, signal.SIGKILL)

    def disown(self) -> None:
        """Release the socket and the process in a fork, which may not wait for it."""
        self._link.close()
        self._process.returncode = 0

    def _exchange(self, task: Task, document: bytes, deadline: float) -> tuple[WorkerAnswer, bytes]:
        part = msgspec.msgpack.encode(msgspec.structs.replace(task, has_document=bool(document)))
        self._link.settimeout(max(0.001, deadline - time.monotonic()))
        send(self._link, part, document)
        return self._receive(deadline)

    def _receive(self, deadline: float) -> tuple[WorkerAnswer, bytes]:
        try:
            message = receive(self._link, max_bytes=MAX_ANSWER_BYTES, deadline=deadline)
        except OversizeMessage as found:
            sentence = f"produces {size_label(found.size_bytes)}, over the limit of {size_label(MAX_ANSWER_BYTES)}"
            raise _ChildLost(TooLarge, sentence, is_retryable=False) from None
        if message is None:
            raise EOFError
        return self._decode(message.part), message.blob


def _start_error(why: str) -> _ChildLost:
    return _ChildLost(Unreadable, f"could not be read: the reader process did not start ({why})", is_retryable=False)


def _shutdown_error() -> _ChildLost:
    return _ChildLost(Unreadable, "was not read: the worker processes have been shut down", is_retryable=False)


def _crash_error(returncode: int | None, task: Task) -> _ChildLost:
    """Return the error for a dead child. C++ and Rust libraries abort or trap if they get no memory."""
    if returncode is not None and -returncode in (signal.SIGTRAP, signal.SIGABRT, signal.SIGILL):
        sentence = f"needs more than {task.memory_bytes / 1e9:.1f} GB of memory, or is damaged"
        return _ChildLost(TooLarge, sentence, is_retryable=True)
    return _ChildLost(Unreadable, f"could not be read: the reader ended ({_ending(returncode)})", is_retryable=True)


def _ending(returncode: int | None) -> str:
    if returncode is None or returncode >= 0:
        return f"exit {returncode}"
    return signal.Signals(-returncode).name
