"""Which form of each tool the user let run. A server that afterwards changes what a tool says or takes is asked about
again: the approval was given to what could be read then."""

from __future__ import annotations

from pathlib import Path

import msgspec

from loom.atomic_file import write_file_whole


class Pins:
    """Fingerprints by (server, tool); with a file, they outlive the process. An unreadable file counts as empty."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._known: dict[str, dict[str, str]] = {}
        if file is not None and file.is_file():
            try:
                self._known = msgspec.json.decode(file.read_bytes(), type=dict[str, dict[str, str]])
            except (msgspec.DecodeError, OSError, UnicodeDecodeError):
                self._known = {}

    def get(self, server: str, tool: str) -> str | None:
        return self._known.get(server, {}).get(tool)

    def put(self, server: str, tool: str, fingerprint: str) -> None:
        """Holds in this process in any case; an OSError says that it was not written down."""
        self._known.setdefault(server, {})[tool] = fingerprint
        if self._file is None:
            return
        write_file_whole(self._file, msgspec.json.format(msgspec.json.encode(self._known, order="sorted")))
