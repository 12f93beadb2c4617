"""The identity of a process that holds a lease, and whether it surely ended, so that its lease need not expire.

A name says the machine's boot, the process namespace, the process and when it began. It is only a hint: that a lease is
taken over too early costs the old holder its turn, never the session; the fence sees to that.
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
"""Fields of /proc/PID/stat behind the name of the program."""

_living: set[str] = set()
"""Holders of this very process."""


class ProcessIdentity:
    """One owner of leases; `close` says that it is no more."""

    def __init__(self) -> None:
        pid = os.getpid()
        self.name = _SEPARATOR.join((_place(), str(pid), _began(pid) or "", secrets.token_hex(8)))
        _living.add(self.name)

    def close(self) -> None:
        _living.discard(self.name)


def is_gone(name: str) -> bool:
    """Return whether the process of that name has ended; False if that is unknown here."""
    if name in _living:
        return False
    place, _, rest = name.rpartition(_SEPARATOR)[0].partition(_SEPARATOR)
    number, _, began = rest.partition(_SEPARATOR)
    if place != _place() or not number.isdecimal():
        return False
    if int(number) == os.getpid() and began == (_began(os.getpid()) or ""):
        return True
    found = _began(int(number))
    return not _exists(int(number)) if found is None else found != began


@cache
def _place() -> str:
    """Return where a process number means something: this boot of this machine, and the container in it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}.{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname().replace(_SEPARATOR, "-")


def _began(pid: int) -> str | None:
    """When a process began, in ticks; "dead" where it waits to be buried, None where the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return "dead" if fields[_STATE].decode() in _DEAD_STATES else fields[_BEGAN].decode()


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
