"""write_file and edit_file: change files of the workspace, and show what changed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from loom.content.blocks import ToolResult, clean_text
from loom.errors import ToolError
from loom.tools.base import FileContext, answered, tool
from loom.tools.diff import Diff, unified
from loom.tools.matching import Passage, passages, replaced
from loom.tools.words import counted
from loom.tools.writing import Form, Original, create, needs_word, original, replace

_MAX_DATA_CHARS: Final = 200_000


def _write_preview(workspace: Path, arguments: dict[str, Any]) -> str:
    path = str(arguments["path"])
    found = original(workspace, path)
    content = clean_text(arguments["content"])
    before, text = ("", content) if found is None else (found.text, _fitted(found, content))
    return _previewed(path, unified(before, text, path), is_new=found is None)


def _edit_preview(workspace: Path, arguments: dict[str, Any]) -> str:
    path = str(arguments["path"])
    old, new = clean_text(arguments["old"]), clean_text(arguments["new"])
    found, places = _places(workspace, path, old, new, every=bool(arguments.get("all")))
    return _previewed(path, unified(found.text, replaced(found.text, places), path), is_new=False)


def _previewed(path: str, diff: Diff, *, is_new: bool) -> str:
    """The diff, whole where that can be read at all."""
    text = clean_text(diff.text)
    if not text:
        return f"{path}: {'a new, empty file' if is_new else 'nothing would change'}"
    if len(text) <= _MAX_DATA_CHARS:
        return text
    return f"{text[:_MAX_DATA_CHARS]}\n[{len(text) - _MAX_DATA_CHARS} more characters are not shown]"


@tool(danger="ask", preview=_write_preview)
async def write_file(context: FileContext, path: str, content: str) -> ToolResult:
    """Write a whole file, new or in place of what was there. Folders that are missing are made.

    path: the file, relative to the workspace
    content: all of its text
    """
    await _ask(context, path)
    return await asyncio.to_thread(_written, context.workspace, path, clean_text(content))


@tool(danger="ask", preview=_edit_preview)
async def edit_file(context: FileContext, path: str, old: str, new: str, all: bool = False) -> ToolResult:  # noqa: A002  the names that models know
    """Replace a passage of a text file. The passage must stand there once, or set all to true.

    path: the file, relative to the workspace
    old: the passage as it is, with enough lines around it to be found once
    new: what comes in its place; empty deletes it
    all: replace it wherever it stands
    """
    if not old.strip("\r\n"):
        raise ToolError("old is empty: write_file writes whole files")
    if old == new:
        raise ToolError("old and new are the same: nothing would change")
    await _ask(context, path)
    return await asyncio.to_thread(_edited, context.workspace, path, clean_text(old), clean_text(new), all)


async def _ask(context: FileContext, path: str) -> None:
    """The call itself was approved; some places deserve a second thought."""
    if why := needs_word(context.workspace, path):
        await context.approve(f"write {path}", why=why)


def _written(workspace: Path, path: str, content: str) -> ToolResult:
    found = original(workspace, path)
    if found is None:
        create(workspace, path, Form().encode(content, path))
        return _said(path, unified("", content, path), f"{path} is new")
    text = _fitted(found, content)
    if text == found.text:
        return answered(f"{path} holds exactly this already: nothing was changed")
    replace(workspace, found, found.form.encode(text, path))
    return _said(path, unified(found.text, text, path), f"{path} was replaced")


def _fitted(found: Original, content: str) -> str:
    """The text with the line ends of the file that it replaces."""
    if found.form.newline == "\r\n" and "\r\n" not in content:
        return content.replace("\n", "\r\n")
    return content


def _places(workspace: Path, path: str, old: str, new: str, *, every: bool) -> tuple[Original, tuple[Passage, ...]]:
    found = original(workspace, path)
    if found is None:
        raise ToolError(f"there is no file {path}", hint="Check the path, or write it with write_file.")
    return found, passages(found.text, old, new, every=every, newline=found.form.newline, name=path)


def _edited(workspace: Path, path: str, old: str, new: str, every: bool) -> ToolResult:
    found, places = _places(workspace, path, old, new, every=every)
    text = replaced(found.text, places)
    if text == found.text:
        raise ToolError("nothing would change: the file reads like new already")
    replace(workspace, found, found.form.encode(text, path))
    times = f" in {counted(len(places), 'place')}" if len(places) > 1 else ""
    return _said(path, unified(found.text, text, path), f"{path} was changed{times}")


def _said(path: str, diff: Diff, what: str) -> ToolResult:
    """The diff is for the model to check itself, and for faces to draw."""
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
    return answered(f"{head}\n{text}" if text else f"{head}; it is empty", data=data)
