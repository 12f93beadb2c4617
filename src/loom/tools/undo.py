"""Undo changes of write_file, edit_file and multi_edit: the bytes before each write are kept by digest, as long as
other media that no message refers to (`cleanup_after_days`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from loom.content.blocks import ToolResult
from loom.content.media import digest_of
from loom.errors import MediaError, NotFound, ToolError
from loom.struct_types import convert
from loom.tools.file_write import original_bytes, remove, write_bytes
from loom.work_types import FileChange

LoadBytes: TypeAlias = Callable[[str], Awaitable[bytes]]
"""Digest → the bytes that were kept."""


class RestoredFiles(msgspec.Struct, frozen=True):
    """The outcome of an undo: one sentence for each file."""

    sentences: tuple[str, ...]
    left: frozenset[str]
    """The paths of the files that are not as they were before the changes."""
    is_changed: bool
    """Whether any file was restored, at least in part."""


def file_changes(results: Iterable[ToolResult]) -> list[FileChange]:
    """Return the changes that the calls of these results made, in order. Results that an earlier version stored have
    the `change` of a file tool apart from the `changes` of sub-agents."""
    found: list[FileChange] = []
    for result in results:
        raw: Any = result.data
        data = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
        with suppress(msgspec.ValidationError):  # data of another tool, with a field of the same name
            found += convert([data["change"]] if "change" in data else [], list[FileChange])
            found += convert(data.get("changes", []), list[FileChange])
    return found


async def restore_files(workspace: Path, changes: Iterable[FileChange], load: LoadBytes) -> RestoredFiles:
    """Undo `changes`, which are in the order in which they were made.

    If something else has changed a file since, the file is left unchanged, and its sentence has the reason; if that
    happened between two changes, only the later ones are undone. Files outside the workspace are never changed.
    """
    by_path: dict[str, list[FileChange]] = {}
    for change in changes:
        by_path.setdefault(change.path, []).append(change)
    sentences: list[str] = []
    left: set[str] = set()
    is_changed = False
    for path, made in by_path.items():
        try:
            sentence, is_complete = await _restore_one(workspace, made, load)
            is_changed = True
        except (ToolError, MediaError) as error:  # MediaError: it is no longer a file
            sentence, is_complete = f"{path} was not changed: {error.message}", False
        sentences.append(sentence)
        left |= set() if is_complete else {path}
    return RestoredFiles(tuple(sentences), frozenset(left), is_changed)


async def _restore_one(workspace: Path, made: Sequence[FileChange], load: LoadBytes) -> tuple[str, bool]:
    """Restore one file; return a sentence, and whether it is as it was before the first of its changes. Raise ToolError
    if it must be left alone."""
    path = made[0].path
    found = await asyncio.to_thread(original_bytes, workspace, path)
    now = found.digest if found is not None else None
    first, rest = _trace_back(made, now)
    if first is None or found is None:
        if now == made[0].before:
            return f"{path} is already as it was before", True
        raise ToolError("another program has changed or removed it since")
    if first.before is None:
        await asyncio.to_thread(remove, workspace, found)
        outcome = "was removed: it was new"
    else:
        if first.kept is None:
            raise ToolError("its previous content was not kept")
        try:
            data = await load(first.before) if first.before != digest_of(b"") else b""
        except NotFound:
            raise ToolError("its previous content is no longer kept") from None
        await asyncio.to_thread(write_bytes, workspace, found, data)
        outcome = "was restored"
    if not rest or first.before == made[0].before:
        return f"{path} {outcome}", True
    return f"{path} {outcome}, but not its earlier changes: another program has changed it in between", False


def _trace_back(made: Sequence[FileChange], now: str | None) -> tuple[FileChange | None, list[FileChange]]:
    """Follow the changes backwards from the content that the file has now. Return the earliest that is reached, and the
    changes that are not. Sub-agents that ran together may have reported theirs in another order."""
    rest, reached, at = list(made), None, now
    while (change := next((it for it in reversed(rest) if it.after == at), None)) is not None:
        rest.remove(change)
        reached, at = change, change.before
    return reached, rest
