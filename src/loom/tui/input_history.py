"""InputHistory: the messages that were sent on this machine, oldest first."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

from loom.struct_types import decode_json

_MAX_ENTRIES: Final = 1_000
_MAX_CHARACTERS: Final = 20_000


class InputHistory:
    """`file` stores the entries, one JSON string per line; None keeps them only for this run."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self.entries = _read(file) if file is not None else []
        self._at = len(self.entries)
        self._draft = ""

    def add(self, text: str) -> None:
        text = text.strip()
        if text and len(text) <= _MAX_CHARACTERS and self.entries[-1:] != [text]:
            self.entries.append(text)
            self._append(text)
        self._at = len(self.entries)

    def older(self, draft: str) -> str | None:
        """Return the entry before the current one; None if there is none. `draft` is the unsent text, which `newer`
        returns at the end."""
        if self._at == len(self.entries):
            self._draft = draft
        if self._at == 0:
            return None
        self._at -= 1
        return self.entries[self._at]

    def newer(self) -> str | None:
        """Return the next entry, or the draft after the last one; None if no entry is shown."""
        if self._at >= len(self.entries):
            return None
        self._at += 1
        return self._draft if self._at == len(self.entries) else self.entries[self._at]

    def _append(self, text: str) -> None:
        if self._file is None:
            return
        # History is a convenience: a full disk or a read-only home must not keep a message from being sent.
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                file.write(msgspec.json.encode(text) + b"\n")


def _read(file: Path) -> list[str]:
    try:
        lines = file.read_bytes().splitlines()[-_MAX_ENTRIES:]
    except OSError:
        return []
    entries: list[str] = []
    for line in lines:
        # Skip incomplete lines: another process may have been writing when the machine stopped.
        with contextlib.suppress(msgspec.DecodeError):
            entries.append(decode_json(line, str))
    return entries
