"""Removes the password of a PDF: every user with access to the store can then read the stored file, and the password
itself is not stored."""

from __future__ import annotations

from typing import Final

import msgspec

from loom.formats.facts import IntakeLimits
from loom.formats.worker import WorkerKind, current_pool

UNLOCK_WORKER: Final = WorkerKind("loom.formats.pdf.unlock_job")


def unlock_pdf(data: bytes, password: str, *, name: str = "", limits: IntakeLimits = IntakeLimits()) -> bytes:
    """Return the same pages without encryption. Raise `Encrypted` if the password is wrong."""
    _, unlocked = current_pool().call(
        UNLOCK_WORKER,
        msgspec.msgpack.encode(password),
        data,
        name=name or "The PDF",
        limits=limits,
        seconds=limits.deadline_seconds,
    )
    return unlocked
