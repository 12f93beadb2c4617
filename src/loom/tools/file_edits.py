"""write_file, edit_file and multi_edit: change files of the workspace, and show the changes.

Just before a file is replaced, it is compared with the version that was read. If the session keeps records, a change of
a file that the model never read, or that changed since, is refused once; and each change is recorded, with the bytes
before it, so that `undo.restore_files` can restore them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from loom.content.blocks import ToolResult, clean_text
from loom.content.media import digest_of
from loom.errors import LoomError, ToolError
from loom.struct_types import convert
from loom.tools.base import FileContext, text_result, tool
from loom.tools.diff import Diff, unified_diff
from loom.tools.file_records import RecordsFiles
from loom.tools.file_write import (
    OriginalFile,
    TextEncoding,
    create,
    is_inside,
    needs_approval,
    original,
    real_path,
    write_bytes,
)
from loom.tools.number_text import count_text
from loom.tools.passage_match import passages, replace_passages
from loom.work_types import FileChange, KeptBytes

MAX_EDITS: Final = 200
_MAX_DATA_CHARS: Final = 200_000


class Edit(msgspec.Struct, frozen=True):
    """One replacement of multi_edit."""

    old: str
    new: str
    all: bool = False


class NewText(msgspec.Struct, frozen=True):
    """The new content of a file, and the number of intended changes."""

    text: str
    places: int = 0


class NewFile(msgspec.Struct, frozen=True):
    """A file as it is about to be written: its real path, its bytes, and their text."""

    path: Path
    data: bytes
    text: str


def _check_place(context: FileContext, arguments: dict[str, Any]) -> None:
    """Raise ToolError for a call that cannot succeed: a path that is never written (outside the workspace, or not a
    file), or a file that differs from the version that the model read. No approval is requested for such a call."""
    path = str(arguments["path"])
    why = needs_approval(context.workspace, path)
    found = original(context.workspace, path)
    if found is None and not is_inside(context.workspace, path):
        raise ToolError(f"{path} is outside the workspace, and only files inside are written")
    # The error shows the file, so without an approval it is raised only if the model may read the file anyway.
    if found is not None and not why and isinstance(context, RecordsFiles) and context.may_show(found.path):
        _check_known(context, found, path)


def _write_preview(workspace: Path, arguments: dict[str, Any]) -> str:
    path = str(arguments["path"])
    found = original(workspace, path)
    content = clean_text(arguments["content"])
    before, text = ("", content) if found is None else (found.text, _keep_line_ends(found, content))
    return _preview(path, unified_diff(before, text, path), is_new=found is None)


def _edit_preview(workspace: Path, arguments: dict[str, Any]) -> str:
    path = str(arguments["path"])
    given: Any = arguments.get("edits")
    edits = (
        convert(given, list[Edit])
        if given is not None
        else [Edit(str(arguments["old"]), str(arguments["new"]), bool(arguments.get("all")))]
    )
    found = _read_original(workspace, path)
    return _preview(path, unified_diff(found.text, _apply(found, edits, path).text, path), is_new=False)


def _preview(path: str, diff: Diff, *, is_new: bool) -> str:
    """Return the diff, complete if it is short enough to read."""
    text = clean_text(diff.text)
    if not text:
        return f"{path}: {'a new, empty file' if is_new else 'nothing would change'}"
    if len(text) <= _MAX_DATA_CHARS:
        return text
    return f"{text[:_MAX_DATA_CHARS]}\n[{len(text) - _MAX_DATA_CHARS} more characters are not shown]"


@tool(danger="ask", preview=_write_preview, precheck=_check_place)
async def write_file(context: FileContext, path: str, content: str) -> ToolResult:
    """Write a whole file: create it or replace its content. Missing folders are created.

    path: the file, relative to the workspace
    content: all of its text
    """
    await _ask(context, path)
    content = clean_text(content)
    found = await asyncio.to_thread(original, context.workspace, path)
    if found is None:
        data = TextEncoding().encode(content, path)
        place = await asyncio.to_thread(real_path, context.workspace, path)
        new = NewFile(place, data, content)
        await _make_change(context, path, None, new, lambda: create(context.workspace, path, data))
        return _diff_result(path, unified_diff("", content, path), f"{path} is new")
    _check_known(context, found, path)
    text = _keep_line_ends(found, content)
    if text == found.text:
        return text_result(f"{path} already has exactly this content: nothing was changed")
    return await _replace(context, path, found, NewText(text), "was replaced")


@tool(danger="ask", preview=_edit_preview, precheck=_check_place)
async def edit_file(context: FileContext, path: str, old: str, new: str, all: bool = False) -> ToolResult:  # noqa: A002  the names that models use
    """Replace a passage of a text file. The passage must occur exactly once, unless all is true.

    path: the file, relative to the workspace
    old: the passage exactly as in the file, with enough lines around it to be unique
    new: the replacement; empty deletes the passage
    all: replace every occurrence
    """
    return await _edit(context, path, [Edit(old, new, all)])


@tool(danger="ask", preview=_edit_preview, precheck=_check_place)
async def multi_edit(context: FileContext, path: str, edits: list[Edit]) -> ToolResult:
    """Make several replacements in one text file: all of them, in their order, or none.

    path: the file, relative to the workspace
    edits: each with old, new and all, as edit_file takes them; each sees what the ones before it made
    """
    if not 1 <= len(edits) <= MAX_EDITS:
        raise ToolError(f"edits has {len(edits)} entries; 1 to {MAX_EDITS} can be made at once")
    return await _edit(context, path, edits)


async def _edit(context: FileContext, path: str, edits: Sequence[Edit]) -> ToolResult:
    for number, edit in enumerate(edits, 1):
        where = f" in edit {number}" if len(edits) > 1 else ""
        if not edit.old.strip("\r\n"):
            raise ToolError(f"old is empty{where}: write_file writes whole files")
        if edit.old == edit.new:
            raise ToolError(f"old and new are the same{where}: nothing would change")
    await _ask(context, path)
    found = await asyncio.to_thread(_read_original, context.workspace, path)
    _check_known(context, found, path)
    made = await asyncio.to_thread(_apply, found, edits, path)
    if made.text == found.text:
        raise ToolError("nothing would change: the file reads like new already")
    times = f" in {count_text(made.places, 'place')}" if made.places > 1 else ""
    return await _replace(context, path, found, made, f"was changed{times}")


def _read_original(workspace: Path, path: str) -> OriginalFile:
    found = original(workspace, path)
    if found is None:
        raise ToolError(f"File not found: {path}", hint="Check the path, or write it with write_file.")
    return found


def _apply(found: OriginalFile, edits: Sequence[Edit], path: str) -> NewText:
    """Return the text after all edits, each applied to the result of the previous ones. Raise a ToolError that names
    the edit that fails."""
    text, places = found.text, 0
    for number, edit in enumerate(edits, 1):
        old, new = clean_text(edit.old), clean_text(edit.new)
        try:
            there = passages(text, old, new, every=edit.all, newline=found.form.newline, name=path)
        except ToolError as error:
            if len(edits) == 1:
                raise
            raise ToolError(f"edit {number} of {len(edits)}: {error.message}", hint=error.hint) from None
        text = replace_passages(text, there)
        places += len(there)
    return NewText(text, places)


async def _ask(context: FileContext, path: str) -> None:
    """Ask for another approval if the path is special; the call itself was approved."""
    if why := needs_approval(context.workspace, path):
        await context.approve(f"write {path}", why=why)


def _check_known(context: FileContext, found: OriginalFile, path: str) -> None:
    if isinstance(context, RecordsFiles):
        may_show = context.may_show(found.path)
        context.file_records.check(found.path, found.data, found.text, path, may_show=may_show)


async def _replace(context: FileContext, path: str, found: OriginalFile, made: NewText, what: str) -> ToolResult:
    data = found.form.encode(made.text, path)

    def write() -> None:
        write_bytes(context.workspace, found, data)

    await _make_change(context, path, found, NewFile(found.path, data, made.text), write)
    return _diff_result(path, unified_diff(found.text, made.text, path), f"{path} {what}")


async def _make_change(
    context: FileContext, path: str, found: OriginalFile | None, new: NewFile, write: Callable[[], None]
) -> None:
    """Call `write`, which writes the file. The old bytes and the change are stored before: `undo` finds the change even
    if the call does not end."""
    if not isinstance(context, RecordsFiles):
        await asyncio.to_thread(write)
        return
    root = context.workspace.resolve()
    name = new.path.relative_to(root).as_posix() if new.path.is_relative_to(root) else path
    before = None if found is None else await context.keep_bytes(found.data)
    kept = None if before is None else KeptBytes(digest=before)
    change = FileChange(path=clean_text(name), before=before, after=digest_of(new.data), kept=kept)
    await context.record_change(change)
    try:
        await asyncio.to_thread(write)
    except LoomError:
        await context.drop_change(change)
        raise
    context.file_records.note(new.path, new.data, new.text)


async def files_as_written(context: FileContext, changes: Sequence[FileChange]) -> list[FileChange]:
    """Return the last change of each file that still has the content of that change."""
    newest = {change.path: change for change in changes}.values()
    found = [await _read_text(context, change.path) for change in newest]
    return [it for it, file in zip(newest, found, strict=True) if file is not None and file.digest == it.after]


async def record_rewrites(context: FileContext, changes: Sequence[FileChange]) -> list[str]:
    """Record what another program, such as a formatter that a hook runs, has made of files since these changes: `undo`
    reverts it with them, and the next edit may build on it. Return the difference of each file for the model."""
    differences: list[str] = []
    if not isinstance(context, RecordsFiles):
        return differences
    for change in changes:
        found = await _read_text(context, change.path)
        if found is None or found.digest == change.after:
            continue
        before = context.file_records.text_of(found.path)
        await context.record_change(FileChange(path=change.path, before=change.after, after=found.digest))
        context.file_records.note(found.path, found.data, found.text)
        difference = clean_text(unified_diff(before, found.text, change.path).text) if before is not None else ""
        differences.append(f"{change.path}:\n{difference[:_MAX_DATA_CHARS]}".rstrip(":\n"))
    return differences


async def _read_text(context: FileContext, path: str) -> OriginalFile | None:
    """Return the file, or None if it is no longer a text file that may be written: the next edit says why."""
    try:
        return await asyncio.to_thread(original, context.workspace, path)
    except LoomError:
        return None


def _keep_line_ends(found: OriginalFile, content: str) -> str:
    """Return the text with the line ends of the file that it replaces."""
    return content if found.form.newline in content else content.replace("\n", found.form.newline)


def _diff_result(path: str, diff: Diff, what: str) -> ToolResult:
    """Return the result. The diff lets the model check its change, and interfaces show it."""
    text = clean_text(diff.text)
    is_cut = len(text) > _MAX_DATA_CHARS
    data = {
        "kind": "diff",
        "path": clean_text(path),
        "added": diff.added,
        "removed": diff.removed,
        "diff": text[:_MAX_DATA_CHARS],
        "is_cut": is_cut,
    }
    head = f"{what} (+{diff.added} −{diff.removed})"
    return text_result(f"{head}\n{text}" if text else f"{head}; it is empty", data=data)
