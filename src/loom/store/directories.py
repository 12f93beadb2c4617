"""Directories: open, lock and sync directories inside one folder without following links.

Every directory is opened relative to its parent, so that a planted link cannot lead outside the folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

from loom.errors import BlobsUnavailable, Corrupt, Full, LoomError, ReadOnly
from loom.store.blobs import missing_blob

LOCK: Final = "lock"

_READ_ROOT: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_READ_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Directories:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._unsynced: set[str] = set()

    def sync(self, directory: int, key: str) -> None:
        """Sync a directory, and the parents of directories above it that were just created, so that `key` survives a
        crash."""
        os.fsync(directory)
        parts = key.split("/")[:-1]
        while parts:
            made = "/".join(parts)
            parts.pop()
            if made in self._unsynced:
                with self.directory(parts) as parent:
                    os.fsync(parent)
                self._unsynced.discard(made)

    @contextmanager
    def directory(self, parts: list[str], *, create: bool = False) -> Generator[int]:
        descriptor = self._open_root(create=create)
        try:
            for at, part in enumerate(parts):
                child, is_new = _child(descriptor, part, create=create)
                if is_new:
                    self._unsynced.add("/".join(parts[: at + 1]))
                os.close(descriptor)
                descriptor = child
            yield descriptor
        finally:
            os.close(descriptor)

    def _open_root(self, *, create: bool) -> int:
        try:
            return os.open(self._root, _READ_ROOT)
        except FileNotFoundError:
            if not create:
                raise
        make_folders(self._root)
        return os.open(self._root, _READ_ROOT)

    @contextmanager
    def directory_of(self, key: str, *, create: bool = False) -> Generator[tuple[int, str]]:
        *parts, leaf = key.split("/")
        with self.directory(parts, create=create) as directory:
            yield directory, leaf

    @contextmanager
    def lock(self, kind: int) -> Generator[None]:
        with self.directory([]) as root:
            descriptor = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=root)
        try:
            fcntl.flock(descriptor, kind)
            yield
        finally:
            os.close(descriptor)


def _child(parent: int, name: str, *, create: bool) -> tuple[int, bool]:
    """Open a directory; return its descriptor and whether this call created it."""
    try:
        return os.open(name, _READ_DIRECTORY, dir_fd=parent), False
    except FileNotFoundError:
        if not create:
            raise
    with suppress(FileExistsError):  # another process was faster
        os.mkdir(name, 0o700, dir_fd=parent)
    return os.open(name, _READ_DIRECTORY, dir_fd=parent), True


def make_folders(folder: Path) -> None:
    """Create a folder and its missing parents with mode 0700, and sync them."""
    for made in reversed([above for above in (folder, *folder.parents) if not above.exists()]):
        made.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(made.parent, _READ_ROOT)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def translate_os_errors(doing: Literal["read", "write"], key: str = "") -> Generator[None]:
    """Translate an `OSError` of the block into a `LoomError`."""
    try:
        yield
    except OSError as error:
        raise _fault(error, doing, key) from error


def _fault(error: OSError, doing: Literal["read", "write"], key: str) -> LoomError:
    reason = os.strerror(error.errno) if error.errno else "unknown error"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return Full(
                "No disk space left for the media folder; nothing was stored.", hint="Free some space, then try again."
            )
        case errno.EROFS | errno.EACCES | errno.EPERM if doing == "write":
            return ReadOnly(
                f"The media folder cannot be written ({reason}); nothing was stored.",
                hint="Give Loom's user write access to it, or choose another data folder.",
            )
        case errno.ENOENT if key:
            return missing_blob(key)
        case errno.ELOOP | errno.ENOTDIR | errno.EISDIR:
            return Corrupt(
                "The media folder contains something that Loom did not create.",
                hint="Remove links and foreign files from it.",
            )
        case errno.EMFILE | errno.ENFILE:
            return BlobsUnavailable(
                "Too many open files: the media folder cannot be used.", hint="Raise the limit: ulimit -n 4096."
            )
        case _:
            return BlobsUnavailable(f"The media folder could not be used: {reason}.", hint="Check its disk.")
