"""list_files: the files of the workspace, limited to a readable length."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from loom.content.media import size_label
from loom.errors import ToolError
from loom.formats.sniff import sniff
from loom.formats.sniff.kinds import KINDS, UNKNOWN, label_of, type_of_name
from loom.tools.base import ToolContext
from loom.tools.file_walk import MAX_DEPTH, MAX_ENTRIES, FileEntry, Walk
from loom.tools.ignore import Pattern, glob_pattern
from loom.tools.number_text import count_text
from loom.tools.workspace import OpenFolder, open_folder, visible_name

MAX_LINES: Final = 400
_HEAD_BYTES: Final = 8_192
_CONTAINERS: Final = ("application/zip", "application/x-ole-storage")


class ListingLine(msgspec.Struct, frozen=True):
    parts: tuple[str, ...]
    is_folder: bool
    size_bytes: int
    kind: str


async def list_files(context: ToolContext, path: str = ".", pattern: str = "", depth: int | None = None) -> str:
    """List the files of a folder with their size and kind. Leaves out what .gitignore excludes.

    path: the folder, relative to the workspace
    pattern: only files that match, such as "*.py" or "src/**/*.ts"
    depth: how many levels of folders to show; 1 is the folder alone
    """
    if depth is not None and depth < 1:
        raise ToolError("depth counts levels from 1")
    with open_folder(context.workspace, path) as folder:
        if not folder.inside:
            await context.approve(f"list {path}", why=f"{folder.path} is outside the workspace")
        elif folder.sensitive:
            await context.approve(f"list {path}", why="it may contain secrets")
        return await asyncio.to_thread(_list_folder, folder, path, pattern, depth or MAX_DEPTH, context.may_read)


def _list_folder(
    folder: OpenFolder, asked: str, pattern: str, depth: int, may_read: Callable[[Path, Path], bool]
) -> str:
    walk = Walk(folder, max_depth=depth)
    wanted = glob_pattern(pattern) if pattern else None
    written = Path(asked).expanduser()
    lines: list[ListingLine] = []
    kept_back = 0
    for entry in walk:
        if not _is_wanted(entry, wanted):
            continue
        if may_read(folder.path.joinpath(*entry.parts), written.joinpath(*entry.parts)):
            lines.append(_line(entry, by_name=len(lines) > MAX_LINES))
        else:
            kept_back += 1
    shown, said = _lines_that_fit(lines, asked)
    if kept_back:
        said.append(f"{kept_back:,} left out by the user's rules")
    elif not lines:
        said.append(f"nothing in {asked} matches {pattern}" if pattern else f"{asked} is empty")
    if walk.ignored:
        said.append(f"{walk.ignored} ignored by .gitignore")
    if walk.unreadable:
        said.append(f"{count_text(walk.unreadable, 'folder')} not readable")
    if walk.is_cut:
        said.append(f"incomplete: only the first {MAX_ENTRIES:,} entries were read; list a subfolder")
    return "\n".join([*shown, *(f"({sentence})" for sentence in said)])


def _is_wanted(entry: FileEntry, wanted: Pattern | None) -> bool:
    if wanted is None:
        return True
    return entry.kind != "folder" and wanted.matches(entry.parts, is_folder=False)


def _line(entry: FileEntry, *, by_name: bool) -> ListingLine:
    """Return the line of an entry. `by_name` means that there are too many files to open each of them."""
    match entry.kind:
        case "folder":
            kind = "folder"
        case "link":
            kind = f"link to {visible_name(entry.target)}"
        case "other":
            kind = "pipe or device"
        case "file":
            kind = _label(type_of_name(entry.parts[-1]) or UNKNOWN) if by_name else _kind(entry)
    return ListingLine(entry.parts, entry.kind == "folder", entry.size_bytes, kind)


def _kind(entry: FileEntry) -> str:
    """Return the kind by the first bytes; if only the end of an archive would show it, by the name."""
    if not entry.size_bytes:
        return "empty"
    name = entry.parts[-1]
    head = entry.read(_HEAD_BYTES)
    if head is None:
        return "not readable"
    found = sniff(head, name).media_type
    claimed = type_of_name(name)
    if found in _CONTAINERS and claimed in KINDS and KINDS[claimed].category == "office":
        found = claimed
    return _label(found)


def _label(media_type: str) -> str:
    return "file" if media_type == UNKNOWN else label_of(media_type).removeprefix("a ").removeprefix("an ")


def _lines_that_fit(lines: list[ListingLine], asked: str) -> tuple[list[str], list[str]]:
    """Return all lines if they fit; otherwise as many levels as fit, with a count of the files below; otherwise the
    first lines."""
    if len(lines) <= MAX_LINES:
        return [_format_line(line, {}) for line in lines], []
    below = Counter(line.parts[:level] for line in lines if not line.is_folder for level in range(1, len(line.parts)))
    deepest = max(len(line.parts) for line in lines)
    level = next((n for n in range(deepest, 0, -1) if sum(len(line.parts) <= n for line in lines) <= MAX_LINES), 0)
    files = sum(not line.is_folder for line in lines)
    if level == 0 or not any(line.is_folder for line in lines):
        said = f"{MAX_LINES} of {len(lines):,} are shown; narrow it with pattern, or list a subfolder of {asked}"
        return [_format_line(line, {}) for line in lines[:MAX_LINES]], [said]
    shown = [
        _format_line(line, below if len(line.parts) == level else {}) for line in lines if len(line.parts) <= level
    ]
    said = f"{count_text(files, 'file')} in all, shown down to level {level}; list a folder by its path to see the rest"
    return shown, [said]


def _format_line(line: ListingLine, below: Counter[tuple[str, ...]] | dict[tuple[str, ...], int]) -> str:
    name = visible_name("/".join(line.parts))
    if line.is_folder:
        count = below.get(line.parts, 0)
        return f"{name}/  ({count_text(count, 'file')})" if count else f"{name}/"
    if line.kind.startswith("link") or line.kind == "empty":
        return f"{name}  {line.kind}"
    return f"{name}  {size_label(line.size_bytes)}, {line.kind}"
