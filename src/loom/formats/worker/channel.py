"""Messages between a worker process and its parent: a header, a msgpack part, and a blob.

A small blob follows in the stream. A large one is written into a memory file whose descriptor is sent instead, so that
megabytes need not pass through the buffer of a socket. On systems without memory files (a feature of Linux), every blob
follows in the stream.
"""

from __future__ import annotations

import os
import socket
import stat
import time
from struct import Struct
from typing import Final, NamedTuple

HEADER: Final = Struct("!IIB")
INLINE_BYTES: Final = 65_536
"""A blob up to this size follows in the stream: a memory file costs more than copying it twice."""
_BY_DESCRIPTOR: Final = 1


class WorkerMessage(NamedTuple):
    part: bytes
    blob: bytes


class OversizeMessage(Exception):
    """The other side announces more than `receive` accepts."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self.size_bytes = size_bytes


def send(link: socket.socket, part: bytes, blob: bytes) -> None:
    file = _memory_file(blob) if len(blob) > INLINE_BYTES else None
    if file is None:
        link.sendall(HEADER.pack(len(part), len(blob), 0) + part)
        link.sendall(blob)
        return
    try:
        header = HEADER.pack(len(part), len(blob), _BY_DESCRIPTOR)
        sent = socket.send_fds(link, [header], [file])
        link.sendall(header[sent:] + part)
    finally:
        os.close(file)


def _memory_file(blob: bytes) -> int | None:
    """Return the descriptor of a memory file with `blob`, or None if it cannot be created (a limit on file sizes
    applies to it, too)."""
    if not hasattr(os, "memfd_create"):
        return None
    file = os.memfd_create("loom")
    try:
        view = memoryview(blob)
        while view:
            view = view[os.write(file, view) :]
    except OSError:
        os.close(file)
        return None
    return file


def receive(
    link: socket.socket, *, max_bytes: int | None = None, deadline: float | None = None
) -> WorkerMessage | None:
    """Return the next message, or None if the other side closed the connection before one began.

    Raise `EOFError` if the message is incomplete, `OversizeMessage` if it has more than `max_bytes`, and `TimeoutError`
    at the `deadline` (of the monotonic clock).
    """
    header, file = _receive_header(link, deadline)
    if header is None:
        return None
    try:
        part_bytes, blob_bytes, way = HEADER.unpack(header)
        if max_bytes is not None and part_bytes + blob_bytes > max_bytes:
            raise OversizeMessage(blob_bytes)
        part = bytes(_read(link, part_bytes, deadline))
        if way != _BY_DESCRIPTOR:
            return WorkerMessage(part, bytes(_read(link, blob_bytes, deadline)))
        if file is None:
            raise EOFError
        return WorkerMessage(part, _read_file(file, blob_bytes))
    finally:
        if file is not None:
            os.close(file)


def _receive_header(link: socket.socket, deadline: float | None) -> tuple[bytes | None, int | None]:
    """Return the header and the descriptor, which arrives with the first byte of its message."""
    _set_timeout(link, deadline)
    first, files, _, _ = socket.recv_fds(link, HEADER.size, 1)
    file = files[0] if files else None
    if not first:
        return None, file
    try:
        return first + bytes(_read(link, HEADER.size - len(first), deadline)), file
    except BaseException:
        if file is not None:
            os.close(file)
        raise


def _read(link: socket.socket, size: int, deadline: float | None) -> bytearray:
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        _set_timeout(link, deadline)
        count = link.recv_into(view)
        if not count:
            raise EOFError
        view = view[count:]
    return buffer


def _set_timeout(link: socket.socket, deadline: float | None) -> None:
    if deadline is not None:
        link.settimeout(max(0.001, deadline - time.monotonic()))


def _read_file(file: int, size: int) -> bytes:
    """Return a copy, because a compromised child could change or shorten a shared mapping. Read regular files only,
    because reading anything else could block."""
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise EOFError
    data = os.pread(file, size, 0)
    if len(data) != size:
        raise EOFError
    return data
