"""The identity of a process that holds a lease, and whether that process has ended: its lease is then free at once.

A name contains the boot id of the machine, the process namespace, the process id and its start time. It is only a hint:
a lease that is taken over too early costs the old holder its turn, but cannot damage the session, because of the fence.
"""

from __future__ import annotations

import os
import secrets
import socket
from functools import cache
from pathlib import Path
from typing import Final

_SEPARATOR: Final = "/"
_DEAD_STATES: Final = ("Z", "X")
_STATE, _BEGAN = 0, 19
"""Indexes of fields in /proc/PID/stat, counted after the program name."""

_living: set[str] = set()
"""The names of the open holders in this process."""


class ProcessIdentity:
    """A holder of leases in this process. After `close`, other processes may take over its leases."""

    def __init__(self) -> None:
        pid = os.getpid()
        self.name = _SEPARATOR.join((_place(), str(pid), _start_time(pid) or "", secrets.token_hex(8)))
        _living.add(self.name)

    def close(self) -> None:
        _living.discard(self.name)


def is_gone(name: str) -> bool:
    """Return whether the holder with this name has ended; False if this machine cannot know."""
    if name in _living:
        return False
    place, _, rest = name.rpartition(_SEPARATOR)[0].partition(_SEPARATOR)
    number, _, began = rest.partition(_SEPARATOR)
    if place != _place() or not number.isdecimal():
        return False
    if int(number) == os.getpid() and began == (_start_time(os.getpid()) or ""):
        return True
    found = _start_time(int(number))
    return not _exists(int(number)) if found is None else found != began


def pid_of(name: str) -> str:
    """Return the process id of the holder with this name."""
    return name.rpartition(_SEPARATOR)[0].partition(_SEPARATOR)[2].partition(_SEPARATOR)[0] or "?"


@cache
def _place() -> str:
    """Return the scope in which process ids are unique: this boot of this machine, and the container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}.{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname().replace(_SEPARATOR, "-")


def _start_time(pid: int) -> str | None:
    """Return the start time of a process in clock ticks, "dead" for a zombie, or None if /proc does not have it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return "dead" if fields[_STATE].decode() in _DEAD_STATES else fields[_BEGAN].decode()


def has_ended(pid: int) -> bool:
    """Return whether a process has ended; zombies, which their parent has not reaped yet, count."""
    return _start_time(pid) == "dead" or not _exists(pid)


def _exists(pid: int) -> bool:
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
