"""What a session has read and written: an edit of a file that changed since, or that was never read, is held back once.

A context that offers `file_records` and `keep_bytes` (`RecordsFiles`) takes part; without them edits are not held back
and cannot be undone.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import msgspec

from loom.content.media import digest_of
from loom.errors import ToolError
from loom.tools.diff import unified_diff

MAX_KEPT_CHARS: Final = 4_000_000
"""Of the texts that differences are shown against, all files of a session together."""
MAX_FILES: Final = 10_000
_MAX_SHOWN_CHARS: Final = 4_000


class _Seen(msgspec.Struct):
    digest: str
    text: str | None


class FileRecords:
    """Which bytes of which files the model has seen. One for each session."""

    def __init__(self) -> None:
        self._seen: OrderedDict[Path, _Seen] = OrderedDict()
        self._chars = 0

    def note(self, path: Path, data: bytes, text: str | None = None) -> None:
        """Remember that the model knows the file as `data`; `text` is kept to show differences later."""
        old = self._seen.pop(path, None)
        self._chars -= len(old.text) if old is not None and old.text is not None else 0
        self._seen[path] = _Seen(digest_of(data), text)
        self._chars += len(text) if text is not None else 0
        while self._chars > MAX_KEPT_CHARS or len(self._seen) > MAX_FILES:
            oldest = next((seen for seen in self._seen.values() if seen.text is not None), None)
            if oldest is None or len(self._seen) > MAX_FILES:
                _, oldest = self._seen.popitem(last=False)
            self._chars -= len(oldest.text) if oldest.text is not None else 0
            oldest.text = None

    def forget(self, path: Path) -> None:
        """Drop what is known of a file that is gone."""
        old = self._seen.pop(path, None)
        self._chars -= len(old.text) if old is not None and old.text is not None else 0

    def check(self, path: Path, data: bytes, text: str, name: str) -> None:
        """Raise ToolError if the file is not as the model knows it. It counts as known then: the next try passes."""
        seen = self._seen.get(path)
        if seen is not None and seen.digest == digest_of(data):
            return
        self.note(path, data, text)
        again = "If the change is still right, make the same call again."
        if seen is None:
            lines = text.split("\n")
            shown = _cut("\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines[:40], 1)))
            raise ToolError(
                f"{name} was not read in this session, and nothing was changed. It has {len(lines)} lines:\n{shown}\n",
                hint=again,
            )
        difference = _cut(unified_diff(seen.text, text, name).text) if seen.text is not None else ""
        raise ToolError(
            f"{name} was changed by something else since it was read, and nothing was changed"
            + (f". What changed:\n{difference}\n" if difference else ""),
            hint=again if difference else "Read it again.",
        )


def _cut(text: str) -> str:
    return (
        text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}\n[{len(text) - _MAX_SHOWN_CHARS} more]"
    )


@runtime_checkable
class RecordsFiles(Protocol):
    """A context that remembers what was read, and keeps the bytes that a write replaces."""

    @property
    def file_records(self) -> FileRecords: ...

    async def keep_bytes(self, data: bytes) -> str:
        """Store bytes as they are and return their digest."""
        ...
