"""Undo changes of write_file, edit_file and multi_edit: the bytes before each write are kept by digest, as long as
other media that no message refers to (`cleanup_after_days`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from loom.content.blocks import ToolResult
from loom.content.media import digest_of
from loom.errors import NotFound, ToolError
from loom.tools.file_write import original_bytes, remove, write_bytes
from loom.work_types import FileChange

LoadBytes: TypeAlias = Callable[[str], Awaitable[bytes]]
"""Digest → the bytes that were kept."""


def file_changes(results: Iterable[ToolResult]) -> list[FileChange]:
    """Return the changes that the tools of these results wrote, in order."""
    found: list[FileChange] = []
    for result in results:
        data: Any = result.data
        change: Any = cast("dict[str, Any]", data).get("change") if isinstance(data, dict) else None
        if isinstance(change, dict):
            found.append(msgspec.convert(change, FileChange))
    return found


async def restore_files(workspace: Path, changes: Iterable[FileChange], load: LoadBytes) -> list[str]:
    """Undo `changes`, the last one first, and return a sentence for each.

    If something else has changed a file since, the file is left unchanged: its sentence has the reason, and older
    changes of the same file are skipped without a sentence. Files outside the workspace are never changed.
    """
    said: list[str] = []
    blocked: set[str] = set()
    for change in reversed(list(changes)):
        if change.path in blocked:
            continue
        try:
            said.append(await _restore_one(workspace, change, load))
        except ToolError as error:
            blocked.add(change.path)
            said.append(f"{change.path} was not changed: {error.message}")
    return said


async def _restore_one(workspace: Path, change: FileChange, load: LoadBytes) -> str:
    if change.before is not None and change.kept is None:
        raise ToolError("its previous content was not kept")
    found = await asyncio.to_thread(original_bytes, workspace, change.path)
    if found is None or found.digest != change.after:
        raise ToolError("another program has changed or removed it since")
    if change.before is None:
        await asyncio.to_thread(remove, workspace, found)
        return f"{change.path} was removed: it was new"
    try:
        data = await load(change.before) if change.before != digest_of(b"") else b""
    except NotFound:
        raise ToolError("its previous content is no longer kept") from None
    await asyncio.to_thread(write_bytes, workspace, found, data)
    return f"{change.path} was restored"
