"""The lock of a SQLite store, in a file next to it: processes that have the store open share it, and one that replaces
the file holds it alone. A process that went on writing to a file that was moved aside would lose what it
acknowledged."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from loom.errors import Conflict, Unreachable
from loom.store.process_identity import ProcessIdentity, is_gone, pid_of

SUFFIX: Final = "-lock"
_UNNAMED_SECONDS: Final = 5.0
"""How long a lock without a living holder is waited for: a child that an ended process was just starting has it until
it runs its program."""
_POLL_SECONDS: Final = 0.02
_MAX_BYTES: Final = 1 << 16
_WITHOUT_LOCKS: Final = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""The errors of file systems that have no locks for whole files, like some network drives."""


class StoreLock:
    """A lock on the store `file`. `share` or `exclude` acquires it; it ends with `close` or with the process."""

    def __init__(self, file: Path) -> None:
        self._label = file.name
        place = Path(os.path.realpath(file))
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(place.with_name(place.name + SUFFIX), flags, 0o600)
        self._identity = ProcessIdentity()

    def share(self, wait_seconds: float) -> None:
        """Raise `Conflict` if another process is still replacing the store after `wait_seconds`."""
        deadline = time.monotonic() + wait_seconds
        while True:
            if self._try(fcntl.LOCK_EX):  # no other process has the store open: forget the names of earlier holders
                os.ftruncate(self._descriptor, 0)
            if self._try(fcntl.LOCK_SH):
                break
            if time.monotonic() > deadline:
                raise Conflict(
                    f"{self._label} is being replaced{self._holder_text()}.", hint="Try again when that is done."
                )
            time.sleep(_POLL_SECONDS)
        self._write_name()

    def exclude(self) -> None:
        """Raise `Conflict`, with their pids, if processes have the store open."""
        deadline = time.monotonic() + _UNNAMED_SECONDS
        while not self._try(fcntl.LOCK_EX):
            if self._holders() or time.monotonic() > deadline:
                raise Conflict(
                    f"{self._label} is in use{self._holder_text()}.",
                    hint="End Loom there (an open chat, or a program that uses the library), then try again.",
                )
            time.sleep(_POLL_SECONDS)
        os.ftruncate(self._descriptor, 0)
        self._write_name()

    def close(self) -> None:
        self._identity.close()
        os.close(self._descriptor)

    def _try(self, kind: int) -> bool:
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _write_name(self) -> None:
        try:
            os.write(self._descriptor, f"{self._identity.name}\n".encode())
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):  # the lock holds without the name, which is for others
                raise

    def _holders(self) -> list[str]:
        names = os.pread(self._descriptor, _MAX_BYTES, 0).decode("ascii", "replace").split()
        return sorted({pid_of(name) for name in names if not is_gone(name)})

    def _holder_text(self) -> str:
        pids = self._holders()
        return f" by the process{'es' * (len(pids) > 1)} {', '.join(pids)}" if pids else " by another process"


def share_store(file: Path, wait_seconds: float) -> StoreLock | None:
    """Return the lock of a store that this process opens; None in a folder that is not writable, where no file can be
    replaced, and on a file system without such locks: the store must open there, too."""
    lock = None
    try:
        lock = StoreLock(file)
        lock.share(wait_seconds)
    except BaseException as error:
        if lock is not None:
            lock.close()
        if not isinstance(error, OSError):
            raise
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM, *_WITHOUT_LOCKS):
            return None
        raise _lock_error(file, error) from error
    return lock


@contextmanager
def exclude_store(file: Path) -> Generator[None]:
    """Let no other process open the store meanwhile. Raise `Conflict` if one has it open."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = StoreLock(file)
    except OSError as error:
        raise _lock_error(file, error) from error
    try:
        try:
            lock.exclude()
        except OSError as error:
            raise _lock_error(file, error) from error
        yield
    finally:
        lock.close()


def _lock_error(file: Path, error: OSError) -> Unreachable:
    return Unreachable(f"{file.name} cannot be locked: {error.strerror}.", hint="Check its folder and its disk.")
