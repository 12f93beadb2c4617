"""The files of a folder for the `@` picker, without those that `.gitignore` excludes."""

from __future__ import annotations

from pathlib import Path

from loom.errors import LoomError


def listed_files(folder: Path, most: int) -> list[str]:
    """Return paths below the folder, up to the limit; empty if it cannot be read."""
    from loom.tools.file_walk import Walk
    from loom.tools.workspace import open_folder

    found: list[str] = []
    try:
        with open_folder(folder, ".") as opened:
            for entry in Walk(opened):
                if entry.kind == "file":
                    found.append(entry.path)
                if len(found) >= most:
                    break
    except (LoomError, OSError):
        return []
    return found
