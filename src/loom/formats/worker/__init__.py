"""Worker processes: children that run decoders and parsers which may crash, hang or use gigabytes.

`pool` is the parent's side that callers use, `group` the children of one kind, `channel` the messages between parent
and child, `loop` the child's side, and `program` runs external programs within the same limits.
"""

from __future__ import annotations

from loom.formats.worker.group import WorkerGroup, WorkerKind, environment
from loom.formats.worker.pool import WorkerPool, current_pool, shared_pool

__all__ = ["WorkerGroup", "WorkerKind", "WorkerPool", "current_pool", "environment", "shared_pool"]
