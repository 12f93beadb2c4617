"""Files of a workspace that a user may mention."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from loom.agent.tracked_files import PUNCTUATION, looks_like_file, mentions, tracked_name
from loom.errors import Unreadable
from loom.tools.file_walk import Walk
from loom.tools.workspace import open_folder

MAX_FILES: Final = 50
_MAX_COMPARED: Final = 5_000
_ALIKE: Final = 0.75


def find_files(workspace: Path, query: str) -> tuple[str, ...]:
    """Return the paths that match `query`, best first; none if the folder is gone."""
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
    """Return the mentions (`@src/ap.py`) that look like a file but name none, each with the most similar file of the
    workspace, or an empty string."""
    missing = [
        name
        for name in mentions(text)
        if looks_like_file(workspace, name)
        # pages of a file count as the file, even if they are invalid: `report.pdf#3`
        and all(tracked_name(workspace, file) is None for file in (name, name.rpartition("#")[0]))
    ]
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


def missing_files_notice(missing: Mapping[str, str]) -> str:
    """Return the notice about mentions that name no file."""
    names = ", ".join(name + (f" (did you mean {meant}?)" if meant else "") for name, meant in missing.items())
    return f"File{'s' if len(missing) > 1 else ''} not found: {names}."


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
    """Return the rank of a path, 0 being best: by its name, then its path, then its letters in this order anywhere;
    None if it does not match."""
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
