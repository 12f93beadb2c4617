"""Atomic replacement of a file: a reader, or a machine that loses power, sees either the old content or the new one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from loom.errors import ConfigError
from loom.struct_types import decode_json

T = TypeVar("T")


def write_file_whole(file: Path, data: str | bytes, *, mode: int = 0o600, private: bool = False) -> None:
    """Write `data` to a temporary file beside `file`, sync it, rename it and sync the folder.

    `mode` (less the umask) is for a new file; an existing one keeps its own, and a symbolic link is followed. With
    `private` the file always gets `mode`, and a link is replaced. Missing folders are created for their owner only.
    Devices and pipes are written to directly. Raise `OSError` if that fails.
    """
    target = file if private else file.resolve()
    raw = data.encode() if isinstance(data, str) else data
    try:
        facts = target.lstat()
    except FileNotFoundError:
        facts = None
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if facts is not None and not private and not stat.S_ISREG(facts.st_mode):
        target.write_bytes(raw)
        return
    mode_kept = stat.S_IMODE(facts.st_mode) if facts is not None and not private else None
    with _fresh_file(target, raw, mode, mode_kept) as fresh:
        fresh.replace(target)
    sync_folder(target.parent)


def create_file_once(file: Path, data: str) -> bool:
    """Create `file`, private, with `data`. Return False, and change nothing, if it exists: of several processes, one
    succeeds."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _fresh_file(file, data.encode(), 0o600, None) as fresh:
        try:
            os.link(fresh, file)
        except FileExistsError:
            return False
    sync_folder(file.parent)
    return True


class JsonTable(Generic[T]):
    """A small private file: values by name, as one JSON object. An unreadable file counts as empty."""

    def __init__(self, file: Path, kind: type[dict[str, T]]) -> None:
        self._file = file
        self._kind = kind
        self._writing = threading.Lock()

    def read(self) -> dict[str, T]:
        try:
            return decode_json(self._file.read_bytes(), self._kind)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return {}

    def put(self, name: str, value: T | None) -> None:
        """Store a value; None removes it. Raise `ConfigError` if the file cannot be written."""
        self.change(name, lambda _: value)

    def change(self, name: str, change: Callable[[T | None], T | None]) -> None:
        """Store what `change` makes of the value that the file has now (None: there is none), whatever other threads
        and processes store meanwhile. Raise `ConfigError` if the file cannot be written."""
        try:
            with self._writing, _locked_folder(self._file.parent):
                known = self.read()
                value = change(known.pop(name, None))
                if value is not None:
                    known[name] = value
                write_file_whole(self._file, msgspec.json.format(msgspec.json.encode(known)), private=True)
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}.", file=str(self._file)) from None


@contextlib.contextmanager
def _locked_folder(folder: Path) -> Generator[None]:
    """Hold the lock of a folder, which is created if it is missing. On a drive without locks, only threads wait."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(parents=True, mode=0o700)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _fresh_file(target: Path, raw: bytes, mode: int, mode_kept: int | None) -> Generator[Path]:
    """Yield a synced file with these bytes beside `target`; it is removed at the end unless it was renamed."""
    fresh = target.with_name(f".{target.name[:100]}-{secrets.token_hex(6)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            if mode_kept is not None:
                os.fchmod(opened.fileno(), mode_kept)
            opened.write(raw)
            opened.flush()
            os.fsync(opened.fileno())
        yield fresh
    finally:
        fresh.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
