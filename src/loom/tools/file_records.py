"""The files that a session has read and written: an edit of a file that changed since, or that was never read, is
refused once.

This requires a context that records files (`RecordsFiles`); without one, edits are not refused and cannot be undone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from loom.content.media import DIGEST_TAG, digest_of
from loom.errors import ToolError
from loom.tools.diff import unified_diff
from loom.tools.number_text import count_text
from loom.work_types import FileChange

MAX_KEPT_CHARS: Final = 4_000_000
"""The limit for the texts that differences are shown against, for all files of a session together."""
MAX_FILES: Final = 10_000
MAX_STORED: Final = 1_000
"""The maximum number of files, the newest, that are stored with the session."""
_STORED_DIGITS: Final = 24
_MAX_SHOWN_CHARS: Final = 4_000


class _KnownFile(msgspec.Struct):
    mark: str
    """The first digits of its digest."""
    text: str | None


class FileRecords:
    """The versions of files that the model has seen. One object per session; `setting` returns the part that is
    stored."""

    def __init__(self) -> None:
        self._known: OrderedDict[Path, _KnownFile] = OrderedDict()
        self._chars = 0
        self._shown: set[Path] = set()
        """Files that a refusal of the current step shows: the model has not read it yet."""
        self.is_changed = False
        """Whether something was recorded since `setting` was called."""

    def note(self, path: Path, data: bytes, text: str | None = None) -> None:
        """Record that the model has seen the file as `data`; `text` is kept to show differences later."""
        self._note(path, _mark(data), text)
        self.is_changed = True

    def text_of(self, path: Path) -> str | None:
        """Return the text that the model has seen; None if it is not kept."""
        known = self._known.get(path)
        return known.text if known is not None else None

    def _note(self, path: Path, mark: str, text: str | None) -> None:
        self.forget(path)
        self._known[path] = _KnownFile(mark, text)
        self._chars += len(text) if text is not None else 0
        while self._chars > MAX_KEPT_CHARS or len(self._known) > MAX_FILES:
            oldest = next((known for known in self._known.values() if known.text is not None), None)
            if oldest is None or len(self._known) > MAX_FILES:
                _, oldest = self._known.popitem(last=False)
            self._chars -= len(oldest.text) if oldest.text is not None else 0
            oldest.text = None

    def forget(self, path: Path) -> None:
        """Drop the record of a deleted file."""
        old = self._known.pop(path, None)
        self._chars -= len(old.text) if old is not None and old.text is not None else 0

    def setting(self) -> dict[str, str]:
        """Return the data to store with the session: path → the first digits of the digest, of the newest files."""
        self.is_changed = False
        newest = list(self._known.items())[-MAX_STORED:]
        return {str(path): known.mark for path, known in newest}

    def load(self, setting: Mapping[str, Any]) -> None:
        """Replace the records by stored ones, of this process or another. Texts are kept if their digest still
        matches."""
        old = {path: known for path, known in self._known.items() if known.text is not None}
        self._known.clear()
        self._chars = 0
        for name, mark in setting.items():
            path = Path(name)
            before = old.get(path)
            self._note(path, str(mark), before.text if before is not None and before.mark == mark else None)
        self.is_changed = False

    def begin_step(self) -> None:
        """Note that the model has read the results of the previous step."""
        self._shown.clear()

    def check(self, path: Path, data: bytes, text: str, name: str, *, may_show: bool = True) -> None:
        """Raise ToolError if the file is not as the model has seen it. With `may_show`, the error shows it, and an
        attempt in the next step passes; else the model must read it first."""
        if path in self._shown:
            raise ToolError(
                f"{name} was not changed: an earlier call of this step was refused, and its result shows the file",
                hint="Read that first, and then make the call again if it is still right.",
            )
        known = self._known.get(path)
        if known is not None and known.mark == _mark(data):
            return
        if not may_show:
            state = "was not read in this session" if known is None else "has changed since it was read"
            raise ToolError(f"{name} {state}, and nothing was changed", hint="Read it first.")
        self.note(path, data, text)
        self._shown.add(path)
        again = "If the change is still right, make the same call again."
        if known is None:
            raise ToolError(
                f"{name} was not read in this session, and nothing was changed. {_beginning(text)}", hint=again
            )
        difference = _cut(unified_diff(known.text, text, name).text) if known.text is not None else ""
        shown = f"What changed:\n{difference}\n" if difference else _beginning(text)
        raise ToolError(
            f"{name} was changed by another program since it was read, and nothing was changed. {shown}", hint=again
        )


def _mark(data: bytes) -> str:
    return digest_of(data).removeprefix(DIGEST_TAG)[:_STORED_DIGITS]


def _beginning(text: str) -> str:
    lines = text.removesuffix("\n").split("\n")
    shown = _cut("\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines[:40], 1)))
    return f"It has {count_text(len(lines), 'line')}:\n{shown}\n"


def _cut(text: str) -> str:
    return (
        text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}\n[{len(text) - _MAX_SHOWN_CHARS} more]"
    )


class RecordsChanges(Protocol):
    """A context that records the changes of files."""

    async def record_change(self, change: FileChange) -> None:
        """Store a change before it is made, so that `undo` finds it even if the call does not end."""
        ...

    async def drop_change(self, change: FileChange) -> None:
        """Remove a recorded change that could not be made."""
        ...


@runtime_checkable
class RecordsFiles(RecordsChanges, Protocol):
    """A context that records the files that were read and changed, and keeps the bytes that a write replaces."""

    @property
    def file_records(self) -> FileRecords: ...

    def may_show(self, path: Path) -> bool:
        """Return whether the model may see the file without an approval, and without asking a hook."""
        ...

    async def keep_bytes(self, data: bytes) -> str:
        """Store bytes unchanged and return their digest."""
        ...
