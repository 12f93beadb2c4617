"""Rewrites a PDF that pdfium refuses to one that it reads, if pages can be found in it."""

from __future__ import annotations

from typing import Final

import msgspec

from loom.errors import MediaError
from loom.formats.facts import IntakeLimits
from loom.formats.worker import WorkerKind, current_pool

REPAIR_WORKER: Final = WorkerKind("loom.formats.pdf.repair_job")
_SHARE: Final = 1 / 3
"""The share of a document's deadline: this is a second attempt, and the caller waits."""


def repair_pdf(data: bytes, *, name: str = "", limits: IntakeLimits = IntakeLimits()) -> bytes | None:
    """Return the recovered pages as a new PDF, or None if there are none."""
    try:
        _, rebuilt = current_pool().call(
            REPAIR_WORKER,
            msgspec.msgpack.encode(None),
            data,
            name=name or "The PDF",
            limits=limits,
            seconds=limits.deadline_seconds * _SHARE,
        )
    except MediaError:
        return None
    return rebuilt
