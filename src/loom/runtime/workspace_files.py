"""Files of a workspace that a user may mention."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from loom.errors import Unreadable
from loom.tools.file_walk import Walk
from loom.tools.workspace import open_folder

MAX_FILES: Final = 50


def find_files(workspace: Path, query: str) -> tuple[str, ...]:
    """Return the paths that match, best first; none if the folder is gone."""
    wanted = query.casefold()
    found: list[tuple[tuple[int, int, str], str]] = []
    try:
        with open_folder(workspace, ".") as folder:
            for entry in Walk(folder):
                rank = _rank(entry.path, wanted) if entry.kind == "file" else None
                if rank is not None and _is_text(entry.path):
                    found.append(((rank, len(entry.parts), entry.path), entry.path))
    except Unreadable:
        return ()
    return tuple(path for _, path in sorted(found)[:MAX_FILES])


def _rank(path: str, wanted: str) -> int | None:
    """The name first, then the path, then its letters in this order anywhere."""
    folded = path.casefold()
    name = folded.rpartition("/")[2]
    if name.startswith(wanted):
        return 0
    if wanted in name:
        return 1
    if wanted in folded:
        return 2
    letters = iter(folded)
    return 3 if all(letter in letters for letter in wanted) else None


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
