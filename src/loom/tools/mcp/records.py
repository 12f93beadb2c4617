"""What is stored between runs: the versions of tools that the user approved, and logins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loom.atomic_file import JsonTable


class Pins:
    """The version of each tool that the user approved: an approval applies to the texts at that time, so a tool that
    its server changes afterwards needs another approval. With a file, the versions outlive the process."""

    def __init__(self, file: Path | None = None) -> None:
        self._table = JsonTable(file, dict[str, dict[str, str]]) if file is not None else None
        self._known = self._table.read() if self._table is not None else {}

    def get(self, server: str, tool: str) -> str | None:
        return self._known.get(server, {}).get(tool)

    def put(self, server: str, tool: str, fingerprint: str) -> None:
        """Record a version. It applies in this process in any case; ConfigError means that it was not written to the
        file."""
        self._known.setdefault(server, {})[tool] = fingerprint
        if self._table is not None:
            self._table.change(server, lambda stored: {**(stored or {}), tool: fingerprint})


class TokenFile(JsonTable[dict[str, Any]]):
    """All logins (`oauth.StoredLogin` as JSON), by the names of the servers."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, dict[str, dict[str, Any]])
