"""Documents that a worker keeps open between jobs, so that a file is parsed once and not once per job."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from loom.formats.facts import IntakeLimits
from loom.formats.worker.loop import Task

D = TypeVar("D")
MAX_DOCUMENTS: Final = 4
"""The parent remembers as many digests of each child (`group`)."""
MAX_BYTES: Final = 64_000_000


class HeldDocuments(Generic[D]):
    """The last documents by digest; the least recently used one is dropped first.

    `open_document` parses the bytes of a task. `close` is called with a document that is dropped. Together they were
    parsed from at most `max_bytes`; a larger one is kept alone.
    """

    def __init__(
        self,
        open_document: Callable[[Task, bytes], D],
        *,
        close: Callable[[D], None] | None = None,
        max_documents: int = MAX_DOCUMENTS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._open = open_document
        self._close = close
        self._max_documents = max_documents
        self._max_bytes = max_bytes
        self._held: OrderedDict[str, tuple[D, int, IntakeLimits]] = OrderedDict()

    def get(self, task: Task, data: bytes | None) -> D | None:
        """Return the document of `task`, or None if it must be sent first.

        A document that was opened under other limits is opened again: those of this task may refuse it.
        """
        held = self._held.get(task.digest) if task.digest else None
        if held is not None and held[2] == task.limits:
            self._held.move_to_end(task.digest)
            return held[0]
        if data is None:
            return None
        self._drop(task.digest)
        while self._held and not self._has_room(len(data)):
            self._drop(next(iter(self._held)))
        document = self._open(task, data)
        if task.digest:
            self._held[task.digest] = (document, len(data), task.limits)
        return document

    def _has_room(self, size_bytes: int) -> bool:
        held_bytes = sum(size for _, size, _ in self._held.values())
        return len(self._held) < self._max_documents and held_bytes + size_bytes <= self._max_bytes

    def _drop(self, digest: str) -> None:
        dropped = self._held.pop(digest, None)
        if dropped is not None and self._close is not None:
            self._close(dropped[0])
