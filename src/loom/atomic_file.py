"""Replace a file as a whole: a reader, and a machine that loses power, sees the old content or the new one."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path


def write_file_whole(file: Path, data: str | bytes, *, mode: int = 0o600, private: bool = False) -> None:
    """Write `data` to a temporary file beside `file`, sync it, rename it and sync the folder.

    `mode` (less the umask) is for a new file; an existing one keeps its own, and a symbolic link is followed. With
    `private` the file gets `mode` in any case, and a link is replaced. Missing folders are created for their owner
    alone. Devices and pipes are written to directly. Raises OSError.
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
    fresh = target.with_name(f".{target.name[:100]}-{secrets.token_hex(6)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            if facts is not None and not private:
                os.fchmod(opened.fileno(), stat.S_IMODE(facts.st_mode))
            opened.write(raw)
            opened.flush()
            os.fsync(opened.fileno())
        fresh.replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            fresh.unlink()
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
