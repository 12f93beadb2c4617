"""Worker processes, seen from the parent: children that run what may crash, hang or take gigabytes.

A `Crew` keeps a few children of one kind. Calls come from any thread; each borrows a child, so that one child serves
one job at a time. A child that dies, overruns its deadline or fills its memory is ended and replaced, and only its job
fails, with a typed error. A child that had done other jobs before may have died of what they left behind, so its
job is tried once more in a new one.

Children end with their parent: they read end-of-file when its socket closes, and an alarm ends one that is stuck in a
job. (PR_SET_PDEATHSIG would end them with the *thread* that started them, which in a pool is not the parent.)
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

import msgspec

from loom.content.media import size_label
from loom.errors import Encrypted, MediaError, TooLarge, Unreadable, Unsupported
from loom.formats.facts import Limits
from loom.formats.worker.loop import HEADER, Answer, Done, Failed, Missing, Ready, Task

START_SECONDS: Final = 60.0
MAX_ANSWER_BYTES: Final = 64_000_000
_KEPT_VARIABLES: Final = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "TESSDATA_PREFIX")
_ALLOCATOR: Final = {
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "67108864",
}
"""Few arenas keep the address space within its limit; kept buffers save a sixth of the time of drawing pages."""
_ERRORS: Final[dict[str, type[MediaError]]] = {
    error.code: error for error in (Unreadable, Unsupported, TooLarge, Encrypted)
}
_log = logging.getLogger("loom.formats")


def environment() -> dict[str, str]:
    """What a child process gets to know: never a key or a token of ours."""
    return {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}


class _Lost(Exception):
    """The child is gone or of no use; `error` and `sentence` are what its job is told."""

    def __init__(self, error: type[MediaError], sentence: str, *, worth_retrying: bool) -> None:
        super().__init__(sentence)
        self.error = error
        self.sentence = sentence
        self.worth_retrying = worth_retrying


class Crew:
    """Up to `size` children that run `python -m module`; `memory_share` times the memory limit of a worker each."""

    def __init__(self, module: str, *, size: int = 1, memory_share: int = 1) -> None:
        self._module = module
        self._size = size
        self._memory_share = memory_share
        self._reset()
        atexit.register(self.close)
        # A fork must neither talk to the children of its parent nor end them.
        os.register_at_fork(after_in_child=self._forget)

    def call(
        self, job: bytes, document: bytes, *, digest: str, name: str, limits: Limits, seconds: float
    ) -> tuple[msgspec.Raw, bytes]:
        """Run a msgpack job on a document; its result (msgpack) and its blob, or a MediaError that names `name`."""
        task = Task(
            digest=digest,
            limits=limits,
            memory_bytes=limits.worker_memory_bytes * self._memory_share,
            seconds=seconds,
            has_document=False,
            job=msgspec.Raw(job),
        )
        with self._slots:
            try:
                return self._run(task, document)
            except _Lost as lost:
                raise lost.error(f"{name} {lost.sentence}.", name=name) from None
            except TimeoutError:
                raise TooLarge(f"{name} takes longer than {seconds:g} s to read.", name=name) from None
            except MediaError as error:
                raise type(error)(f"{name} {error.message}.", name=name, hint=error.hint) from None

    def close(self) -> None:
        """End every child; a job that one of them is running fails, and its caller clears up after it."""
        with self._lock:
            self._closings += 1
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

    def _reset(self) -> None:
        self._slots = threading.Semaphore(self._size)
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._all: list[_Child] = []
        self._closings = 0

    def _forget(self) -> None:
        for child in self._all:
            child.disown()
        self._reset()

    def _run(self, task: Task, document: bytes) -> tuple[msgspec.Raw, bytes]:
        began, closings = time.monotonic(), self._closings
        used = self._take(task.digest)
        if used is not None:
            try:
                return self._ask(used, task, document)
            except _Lost as lost:
                if not lost.worth_retrying or closings != self._closings:
                    raise
            left = task.seconds - (time.monotonic() - began)
            if left <= 0:
                raise TimeoutError
            task = msgspec.structs.replace(task, seconds=left)
        return self._ask(self._start(), task, document)

    def _take(self, digest: str) -> _Child | None:
        """An idle child, best the one that holds the document."""
        with self._lock:
            for child in self._idle:
                if digest in child.held:
                    self._idle.remove(child)
                    return child
            return self._idle.pop() if self._idle else None

    def _start(self) -> _Child:
        child = _Child(self._module)
        with self._lock:
            self._all.append(child)
        return child

    def _drop(self, child: _Child) -> None:
        child.end()
        with self._lock:
            self._all.remove(child)

    def _ask(self, child: _Child, task: Task, document: bytes) -> tuple[msgspec.Raw, bytes]:
        keep = False
        try:
            answer, blob = child.ask(task, document)
            match answer:
                case Done():
                    keep = not answer.spent
                    return answer.result, blob
                case Failed():
                    keep = not answer.spent
                    if answer.trace:
                        _log.warning("a document could not be read: %s", answer.trace)
                    if answer.doubtful:
                        raise _Lost(_ERRORS[answer.code], answer.sentence, worth_retrying=True)
                    raise _ERRORS[answer.code](answer.sentence, hint=answer.hint)
                case Ready() | Missing():
                    raise _Lost(Unreadable, "could not be read: the reader lost it", worth_retrying=True)
        finally:
            if keep:
                with self._lock:
                    self._idle.append(child)
            else:
                self._drop(child)


class _Child:
    """One process and the socket to it."""

    def __init__(self, module: str) -> None:
        self.held: set[str] = set()
        self._decode = msgspec.msgpack.Decoder(Answer).decode
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
                raise _not_started(error.strerror or "no process") from None
        try:
            self._receive(time.monotonic() + START_SECONDS)
        except (OSError, EOFError):
            self.end()
            raise _not_started(_ending(self._process.returncode)) from None

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, task: Task, document: bytes) -> tuple[Answer, bytes]:
        """Raises TimeoutError at the deadline and _Lost when the child is gone; the caller then drops it."""
        deadline = time.monotonic() + task.seconds
        try:
            answer, blob = self._exchange(task, b"" if task.digest in self.held else document, deadline)
            if isinstance(answer, Missing):
                answer, blob = self._exchange(task, document, deadline)
        except TimeoutError:
            raise
        except (OSError, EOFError):
            self.end()
            raise _crashed(self._process.returncode, task) from None
        self.held.add(task.digest)
        return answer, blob

    def end(self) -> None:
        """Kill and reap, with everything that the child has started."""
        self.kill()
        self._process.wait()
        self._link.close()

    def kill(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself just now
                os.killpg(self._process.pid, signal.SIGKILL)

    def disown(self) -> None:
        """In a fork: let go of the socket and forget a process that is not ours to wait for."""
        self._link.close()
        self._process.returncode = 0

    def _exchange(self, task: Task, document: bytes, deadline: float) -> tuple[Answer, bytes]:
        part = msgspec.msgpack.encode(msgspec.structs.replace(task, has_document=bool(document)))
        self._link.settimeout(max(0.001, deadline - time.monotonic()))
        self._link.sendall(HEADER.pack(len(part), len(document)) + part)
        self._link.sendall(document)
        return self._receive(deadline)

    def _receive(self, deadline: float) -> tuple[Answer, bytes]:
        part_bytes, blob_bytes = HEADER.unpack(self._read(HEADER.size, deadline))
        if part_bytes + blob_bytes > MAX_ANSWER_BYTES:
            sentence = (
                f"gives {size_label(blob_bytes)}, more than the {size_label(MAX_ANSWER_BYTES)} that are passed on"
            )
            raise _Lost(TooLarge, sentence, worth_retrying=False)
        part = self._read(part_bytes, deadline)
        return self._decode(part), bytes(self._read(blob_bytes, deadline))

    def _read(self, size: int, deadline: float) -> bytearray:
        buffer = bytearray(size)
        view = memoryview(buffer)
        while view:
            self._link.settimeout(max(0.001, deadline - time.monotonic()))
            count = self._link.recv_into(view)
            if not count:
                raise EOFError
            view = view[count:]
        return buffer


def _not_started(why: str) -> _Lost:
    return _Lost(Unreadable, f"could not be read: the reader process did not start ({why})", worth_retrying=False)


def _crashed(returncode: int | None, task: Task) -> _Lost:
    """Libraries in C++ and Rust end the process with an abort or a trap when they get no memory."""
    if returncode is not None and -returncode in (signal.SIGTRAP, signal.SIGABRT, signal.SIGILL):
        sentence = f"needs more than {task.memory_bytes / 1e9:.1f} GB of memory, or is damaged"
        return _Lost(TooLarge, sentence, worth_retrying=True)
    return _Lost(Unreadable, f"could not be read: the reader ended ({_ending(returncode)})", worth_retrying=True)


def _ending(returncode: int | None) -> str:
    if returncode is None or returncode >= 0:
        return f"exit {returncode}"
    return signal.Signals(-returncode).name
