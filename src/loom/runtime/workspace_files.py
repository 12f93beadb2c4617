"""Files of a workspace that a user may mention."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from loom.agent.tracked_files import PUNCTUATION, looks_like_file, mentions, place_of
from loom.errors import Unreadable
from loom.tools.file_walk import Walk
from loom.tools.workspace import open_folder

MAX_FILES: Final = 50
_MAX_COMPARED: Final = 5_000
_ALIKE: Final = 0.75


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


def missing_mentions(workspace: Path, text: str) -> dict[str, str]:
    """Return the mentions (`@src/ap.py`) that look like a file and name none, each with the file of the workspace that
    is spelled most like it, or empty."""
    missing = [name for name in mentions(text) if looks_like_file(name) and not _has_file(workspace, name)]
    if not missing:
        return {}
    known = _known_paths(workspace)
    by_name = {path.rpartition("/")[2]: path for path in reversed(known)}
    found: dict[str, str] = {}
    for name in missing:
        plain = name.rstrip(PUNCTUATION)
        close = get_close_matches(plain, known, n=1, cutoff=_ALIKE)
        names = get_close_matches(plain.rpartition("/")[2], by_name, n=1, cutoff=_ALIKE)
        found[plain] = close[0] if close else by_name[names[0]] if names else ""
    return found


def _has_file(workspace: Path, name: str) -> bool:
    """Return whether a mention names a file, or pages of a file (`report.pdf#3`), however they are written."""
    return any(place_of(workspace, file) is not None for file in (name, name.rpartition("#")[0]))


def missing_text(missing: Mapping[str, str]) -> str:
    """Return the sentence about mentions that name no file."""
    return "; ".join(
        f"file not found: {name}{f' (did you mean {meant}?)' if meant else ''}" for name, meant in missing.items()
    )


def _known_paths(workspace: Path) -> list[str]:
    found: list[str] = []
    try:
        with open_folder(workspace, ".") as folder:
            for entry in Walk(folder):
                if entry.kind == "file" and _is_text(entry.path):
                    found.append(entry.path)
                if len(found) >= _MAX_COMPARED:
                    break
    except Unreadable:
        return []
    return found


def _rank(path: str, wanted: str) -> int | None:
    """Return the name first, then the path, then its letters in this order anywhere."""
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
