"""The child's side of a worker process: read a job, run it within its limits, respond, repeat.

Parsers written in C crash, hang and use gigabytes on hostile files, so they run in a child (see `pool`). The blob of a
message is the document in a request and derived bytes in a response.
"""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from loom.errors import MediaError, TooLarge, Unreadable
from loom.formats.facts import IntakeLimits
from loom.formats.worker.channel import receive, send
from loom.struct_types import msgpack_decoder

SUICIDE_SECONDS: Final = 1.0
"""The child ends itself this long after the deadline, in case its parent has died and cannot end it."""


KEPT_BYTES: Final = 200_000_000


class Task(msgspec.Struct, frozen=True):
    """One job for a child. The document is the blob unless the child should still have it by its digest."""

    digest: str
    limits: IntakeLimits
    memory_bytes: int
    seconds: float
    has_document: bool
    job: msgspec.Raw


class WorkerReady(msgspec.Struct, frozen=True, tag="ready"):
    """The child has loaded its libraries: the deadline of the first job may start."""


class JobDone(msgspec.Struct, frozen=True, tag="done"):
    """`recycle` means that the child keeps so much memory that the next job should use another one."""

    result: msgspec.Raw
    recycle: bool


class JobFailed(msgspec.Struct, frozen=True, tag="failed"):
    """`code` is the code of a `MediaError`; `sentence` follows the name of the document.

    `is_retryable` means that earlier jobs of this child may be the cause.
    """

    code: str
    sentence: str
    hint: str = ""
    recycle: bool = True
    is_retryable: bool = False
    trace: str = ""


class DocumentMissing(msgspec.Struct, frozen=True, tag="missing"):
    """The child no longer has the document."""


WorkerAnswer: TypeAlias = WorkerReady | JobDone | JobFailed | DocumentMissing
RunJob: TypeAlias = Callable[[Task, bytes | None], tuple[bytes, bytes] | None]
"""Runs a job on a document and returns (msgpack result, blob), or None if it does not have the document."""


def serve(run: RunJob) -> None:
    """Run jobs from the socket whose number is the first argument, until the other side closes it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with socket.socket(fileno=int(sys.argv[1])) as link:
        _send(link, WorkerReady(), b"")
        decode = msgpack_decoder(Task).decode
        while (message := receive(link)) is not None:
            task = decode(message.part)
            document = message.blob if task.has_document else None
            del message
            _set_bounds(task)
            answer, blob = _answer(run, task, document)
            signal.setitimer(signal.ITIMER_REAL, 0)
            del document
            _send(link, answer, blob)
            del answer, blob
            _release_memory()


def _set_bounds(task: Task) -> None:
    """Set the limits. SIGALRM keeps its default action, so that the kernel ends even a loop inside a C library."""
    if sys.platform == "linux":
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        soft = task.memory_bytes if hard == resource.RLIM_INFINITY else min(task.memory_bytes, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    signal.setitimer(signal.ITIMER_REAL, task.seconds + SUICIDE_SECONDS)


def _answer(run: RunJob, task: Task, document: bytes | None) -> tuple[WorkerAnswer, bytes]:
    try:
        made = run(task, document)
        if made is None:
            return DocumentMissing(), b""
        result, blob = made
        return JobDone(result=msgspec.Raw(result), recycle=_holds_too_much(task)), blob
    except MemoryError:
        sentence = f"needs more than {task.memory_bytes / 1e9:.1f} GB of memory"
        return JobFailed(code=TooLarge.code, sentence=sentence, is_retryable=True), b""
    except MediaError as error:
        return JobFailed(code=error.code, sentence=error.message, hint=error.hint, recycle=_holds_too_much(task)), b""
    except Exception as error:  # noqa: BLE001 - the exceptions of a third-party parser on a hostile file are unknown
        sentence = f"could not be read ({type(error).__name__})"
        trace = traceback.format_exc(limit=-8)
        return JobFailed(code=Unreadable.code, sentence=sentence, is_retryable=True, trace=trace), b""


def _holds_too_much(task: Task) -> bool:
    return _resident_bytes() > task.memory_bytes // 2


def _release_memory() -> None:
    """Return freed memory to the system. Up to `KEPT_BYTES` it is kept for the next job, because that is faster."""
    if sys.platform == "linux" and _resident_bytes() > KEPT_BYTES:
        import ctypes

        with contextlib.suppress(AttributeError, OSError):  # a C library other than glibc
            ctypes.CDLL(None).malloc_trim(0)


def _resident_bytes() -> int:
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()


def _send(link: socket.socket, answer: WorkerAnswer, blob: bytes) -> None:
    send(link, msgspec.msgpack.encode(answer), blob)
