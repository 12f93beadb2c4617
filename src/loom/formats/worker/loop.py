"""The child's side of a worker process: read a job, run it within its bounds, answer, again.

Parsers written in C crash, hang and take gigabytes on hostile files, so they live in a child (see `worker`). Each
message is a header, a msgpack part and a blob (the document on the way in, derived bytes on the way out).
"""

from __future__ import annotations

import resource
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from loom.errors import MediaError, TooLarge, Unreadable
from loom.formats.facts import Limits

HEADER: Final = struct.Struct("!II")
SUICIDE_SECONDS: Final = 1.0
"""The child ends by itself this long after the deadline, in case nobody is left who would end it."""


class Task(msgspec.Struct, frozen=True):
    """One job for a child. The document comes as the blob unless the child should still hold it by its digest."""

    digest: str
    limits: Limits
    memory_bytes: int
    seconds: float
    has_document: bool
    job: msgspec.Raw


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The child has loaded its libraries: the clock of the first job may start."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """`spent`: the child holds on to so much memory that the next job deserves another one."""

    result: msgspec.Raw
    spent: bool


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """`code` is the code of a MediaError; `sentence` follows the name of the document.

    `doubtful`: what earlier jobs left behind in this child may be the cause.
    """

    code: str
    sentence: str
    hint: str = ""
    spent: bool = True
    doubtful: bool = False
    trace: str = ""


class Missing(msgspec.Struct, frozen=True, tag="missing"):
    """The child does not hold the document any more."""


Answer: TypeAlias = Ready | Done | Failed | Missing
Run: TypeAlias = Callable[[Task, bytes | None], tuple[bytes, bytes] | None]
"""Runs a job on a document and gives (msgpack result, blob), or None when it does not hold the document."""


def serve(run: Run) -> None:
    """Answer jobs on the socket whose number is the first argument, until the other side closes it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with socket.socket(fileno=int(sys.argv[1])) as link:
        _send(link, Ready(), b"")
        decode = msgspec.msgpack.Decoder(Task).decode
        while (message := _receive(link)) is not None:
            task = decode(message[0])
            _bound(task)
            answer, blob = _answer(run, task, message[1] if task.has_document else None)
            signal.setitimer(signal.ITIMER_REAL, 0)
            _send(link, answer, blob)


def _bound(task: Task) -> None:
    """SIGALRM keeps its default action, so that the kernel ends even a loop inside a C library."""
    if sys.platform == "linux":
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        soft = task.memory_bytes if hard == resource.RLIM_INFINITY else min(task.memory_bytes, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    signal.setitimer(signal.ITIMER_REAL, task.seconds + SUICIDE_SECONDS)


def _answer(run: Run, task: Task, document: bytes | None) -> tuple[Answer, bytes]:
    try:
        made = run(task, document)
        if made is None:
            return Missing(), b""
        result, blob = made
        return Done(result=msgspec.Raw(result), spent=_is_spent(task)), blob
    except MemoryError:
        sentence = f"needs more than {task.memory_bytes / 1e9:.1f} GB of memory"
        return Failed(code=TooLarge.code, sentence=sentence, doubtful=True), b""
    except MediaError as error:
        return Failed(code=error.code, sentence=error.message, hint=error.hint, spent=_is_spent(task)), b""
    except Exception as error:  # noqa: BLE001 - what a foreign parser raises on a hostile file is not known beforehand
        sentence = f"could not be read ({type(error).__name__})"
        trace = traceback.format_exc(limit=-8)
        return Failed(code=Unreadable.code, sentence=sentence, doubtful=True, trace=trace), b""


def _is_spent(task: Task) -> bool:
    if sys.platform != "linux":
        return False
    resident_pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    return resident_pages * resource.getpagesize() > task.memory_bytes // 2


def _send(link: socket.socket, answer: Answer, blob: bytes) -> None:
    part = msgspec.msgpack.encode(answer)
    link.sendall(HEADER.pack(len(part), len(blob)) + part)
    link.sendall(blob)


def _receive(link: socket.socket) -> tuple[bytes, bytes] | None:
    header = link.recv(HEADER.size, socket.MSG_WAITALL)
    if len(header) < HEADER.size:
        return None
    part_bytes, blob_bytes = HEADER.unpack(header)
    part = link.recv(part_bytes, socket.MSG_WAITALL)
    blob = link.recv(blob_bytes, socket.MSG_WAITALL) if blob_bytes else b""
    return (part, blob) if len(part) == part_bytes and len(blob) == blob_bytes else None
