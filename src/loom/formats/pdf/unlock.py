"""A PDF with a password becomes the same PDF without one: the stored file can then be read with access to the store,
and the password itself is kept nowhere."""

from __future__ import annotations

from typing import Final

import msgspec

from loom.formats.facts import IntakeLimits
from loom.formats.worker import WorkerKind, current_pool

UNLOCK_WORKER: Final = WorkerKind("loom.formats.pdf.unlock_job")


def unlock_pdf(data: bytes, password: str, *, name: str = "", limits: IntakeLimits = IntakeLimits()) -> bytes:
    """The same pages without encryption. Raises `Encrypted` where the password is not the right one."""
    _, unlocked = current_pool().call(
        UNLOCK_WORKER,
        msgspec.msgpack.encode(password),
        data,
        name=name or "The PDF",
        limits=limits,
        seconds=limits.deadline_seconds,
    )
    return unlocked
