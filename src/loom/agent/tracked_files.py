"""Tracked files: text files that the user mentions (`@src/app.py`) or that `auto_context` globs match. The agent
gets the whole text once, and from then on what has changed since it last saw it, through whatever tool; nothing else.

The view (path → the text last seen, by digest, and the message that showed it) is kept with the session. It counts only
while that message is on the path: a fork from before it has not seen the file.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from loom.compile.policy import Placed, Watermark
from loom.compile.ports import MediaAccess
from loom.content.blocks import ToolCall, ToolResult, clean_text, page_range
from loom.content.media import size_label
from loom.errors import ContentError, Corrupt, MediaError, NotFound
from loom.formats.text import decode_text, encoding_of, line_count
from loom.tools.diff import unified_diff
from loom.tools.file_records import FileRecords
from loom.tools.file_walk import Walk
from loom.tools.files import LINES_PER_READ
from loom.tools.ignore import glob
from loom.tools.workspace import is_folder, open_file, open_folder, visible_name

MAX_FILE_BYTES: Final = 200_000
MAX_MATCHED: Final = 200
"""The most files that globs bring in."""
MAX_TOLD_BYTES: Final = 400_000
"""The most text shown at the beginning of one turn; the rest waits for the next."""
TRACKED: Final = "tracked"
KNOWN_FILES: Final = "known_files"
"""The settings of a session that hold tracked files, and the files that the model has read."""
IN_ROOT: Final = ""
"""The place of what the system prompt already holds."""

_MENTION: Final = re.compile(r'(?:^|(?<=[\s(\[{,;]))@(?:"([^"\n]+)"|([^\s"]+))')
PUNCTUATION: Final = ".,;:!?)]}'"
_READS: Final = frozenset({"read_file"})
_WRITES: Final = frozenset({"write_file", "edit_file", "multi_edit"})
_NUMBER_CHARS: Final = 8
_EMPTY: Final = "empty"
"""Instead of a digest."""


class SeenFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the agent saw last: the digest of the text (empty: that it is gone), and in which message."""

    digest: str
    node: str = IN_ROOT
    is_own: bool = False
    """Whether the user's set-up names it, so that it is read outside the workspace, too."""


class FileNews(msgspec.Struct, frozen=True):
    """What to tell the agent, and what to tell the user."""

    texts: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


# What to say: pure ---------------------------------------------------------------------------------------------------


def change_text(name: str, before: str | None, now: str | None, why: str = "is gone") -> str:
    """Return what to say of a file whose text was `before` (None: never seen, or gone then) and is
    `now` (None: `why`)."""
    if now is None:
        return f"[file: {name} {why}]" if before is not None else ""
    if before == now:
        return ""
    if before is None:
        return f"[file: {name}]\n{now}" if now.strip() else f"[file: {name} is empty]"
    return f"[file: {name} has changed since you last saw it]\n{unified_diff(before, now, name).text}"


def mentions(text: str) -> list[str]:
    """Return every `@path` and `@"path with spaces"`, in order; who looks whether there is such a file decides what it
    was."""
    found = (quoted or plain for quoted, plain in _MENTION.findall(text))
    return list(dict.fromkeys(found))


def looks_like_file(name: str) -> bool:
    """Return whether a mention is meant as a file: it has a folder or an ending. `@someone` is not."""
    plain = name.rstrip(PUNCTUATION)
    return "://" not in plain and ":" not in plain and ("/" in plain or "." in plain.strip("."))


# The files -----------------------------------------------------------------------------------------------------------


class TrackedText(msgspec.Struct, frozen=True):
    """A text, or why there is none: `why` for the agent, `notice` for the user."""

    text: str | None = None
    data: bytes = b""
    path: Path = Path()
    """Where the file really is."""
    why: str = "is gone"
    notice: str = ""


def place_of(workspace: Path, asked: str) -> str | None:
    """Return the name under which a file is tracked: relative to the workspace, whole where it is outside. None where
    there is no such file, with or without the punctuation behind it."""
    for name in (asked, asked.rstrip(PUNCTUATION)):
        try:
            path = Path(os.path.normpath(workspace / Path(name).expanduser()))
            if name and path.exists():
                return str(path.relative_to(workspace)) if path.is_relative_to(workspace) else str(path)
        except (ValueError, OSError, RuntimeError):  # not a path
            continue
    return None


def split_pages(asked: str) -> tuple[str, str]:
    """Split `report.pdf#3-7` into the file and its pages; any other name has none. Raise `ContentError` if what stands
    behind the # is not a range of pages."""
    file, mark, pages = asked.rstrip(PUNCTUATION).rpartition("#")
    if not (mark and file):
        return asked, ""
    page_range(pages)
    return file, pages


def missing_file(workspace: Path, asked: str) -> str:
    """Return why a mention that looks like a file is only text, or empty."""
    if not looks_like_file(asked) or place_of(workspace, asked) is not None:
        return ""
    name = asked.rstrip(PUNCTUATION)
    if place_of(workspace, name.rpartition("#")[0]) is None:
        return f"file not found: {visible_name(name)}"
    try:
        split_pages(asked)
    except ContentError as error:
        return error.message
    return f"{visible_name(name)} is not attached: only documents of the workspace have pages"


def read_tracked(workspace: Path, name: str, *, is_own: bool = False) -> TrackedText:
    """Return the text of a file that is inside the workspace, or the user's own and still exactly there; never a
    secret."""
    shown = visible_name(name)
    if is_folder(workspace, name):
        return TrackedText(why="is a folder now", notice=f"{shown} is a folder; only files are tracked")
    try:
        with open_file(workspace, name) as opened:
            if opened.sensitive or not (opened.inside or (is_own and str(opened.path) == name)):
                what = "may hold secrets" if opened.inside else "is outside the workspace"
                return TrackedText(
                    why="is not shown", notice=f"{shown} {what} and is not tracked; attach it to send it"
                )
            data = opened.file.read(MAX_FILE_BYTES + 1)
            size = opened.size_bytes
    except MediaError as error:
        return (
            TrackedText()
            if not os.path.lexists(workspace / name)
            else TrackedText(why="cannot be read", notice=error.message)
        )
    if len(data) > MAX_FILE_BYTES:
        return TrackedText(why="is too large to be shown", notice=f"{shown} has {size_label(size)} and is not tracked")
    if data and encoding_of(data) is None:
        return TrackedText(
            why="is not a text file", notice=f"{shown} is not a text file and is not tracked; attach it to send it"
        )
    return TrackedText(text=clean_text(decode_text(data, shown)[0]) if data else "", data=data, path=opened.path)


def match_globs(workspace: Path, globs: Sequence[str]) -> tuple[list[str], str]:
    """Return the files that globs match, without what `.gitignore` leaves out; and a notice where there
    are too many."""
    patterns = [glob(text) for text in globs]
    found: list[str] = []
    try:
        with open_folder(workspace, ".") as folder:
            walk = Walk(folder)
            for entry in walk:
                if entry.kind != "file" or not any(it.matches(entry.parts, is_folder=False) for it in patterns):
                    continue
                if len(found) == MAX_MATCHED:
                    return found, f"auto_context matches more than {MAX_MATCHED} files; the first ones are tracked"
                found.append(entry.path)
    except MediaError as error:
        return [], f"auto_context matches nothing: {error.message}"
    return found, "the workspace is too large to look through whole: auto_context may miss files" if walk.is_cut else ""


def visible_messages(path: Sequence[Placed], mark: Watermark) -> set[str]:
    """Return the messages of a path that a model is still shown."""
    return {
        placed.id
        for at, placed in enumerate(path)
        if at >= mark.dropped_before and (placed.message.role != "tool" or at >= mark.tool_text_before)
    }


class TrackedFiles:
    """The view of one session."""

    def __init__(self, shelf: MediaAccess) -> None:
        self._shelf = shelf
        self.view: dict[str, SeenFile] = {}
        self._fresh: dict[str, str] = {}
        """Seen, but the message that shows it has no place yet."""
        self._told: set[str] = set()
        """Notices that were given: of a binary file that a glob matches every turn, the user hears once."""
        self.records = FileRecords()
        """Which bytes of which files the model has seen, for edits."""

    def load(self, settings: Mapping[str, Any]) -> None:
        """Take the view from the settings of a session."""
        self.view = msgspec.convert(settings.get(TRACKED, {}), dict[str, SeenFile])
        self.records.load(settings.get(KNOWN_FILES, {}))

    def settings(self) -> dict[str, Any]:
        """Return the settings in which the view is stored."""
        known = {KNOWN_FILES: self.records.setting()} if self.records.is_changed else {}
        return {TRACKED: msgspec.to_builtins(self.view), **known}

    async def read_news(
        self, workspace: Path, *, asked: Iterable[str], globs: Sequence[str], standing: Collection[str]
    ) -> FileNews:
        """Return what has changed for the agent. `asked` are mentions, `standing` the messages that it still has before
        it."""
        self._fresh.clear()  # of a turn that was ended before it could say so
        asked = list(asked)
        named, matched, notice = await asyncio.to_thread(_find_files, workspace, asked, globs)
        names = list(dict.fromkeys([*named, *self.view, *matched]))
        own = {name for name, seen in self.view.items() if seen.is_own}
        reads = await asyncio.to_thread(
            lambda: {name: read_tracked(workspace, name, is_own=name in own) for name in names}
        )
        missing = await asyncio.to_thread(lambda: [missing_file(workspace, name) for name in asked])
        notices, texts, room = [notice] if notice else [], list[str](), MAX_TOLD_BYTES
        notices += [f"{why}; sent as text" for why in missing if why]
        for name, read in reads.items():
            known = self.view.get(name)
            text = change_text(visible_name(name), await self._before(known, standing), read.text, read.why)
            if len(text.encode()) > room:
                notices.append(f"{visible_name(name)} is reported in the next turn: too much at once")
                continue
            room -= len(text.encode())
            if text:
                texts.append(text)
                await self._saw(name, read.text)
                if read.text is not None:
                    self.records.note(read.path, read.data, read.text)
            if read.notice and (name in named or read.notice not in self._told):
                notices.append(read.notice)
            self._told.add(read.notice)
        return FileNews(tuple(texts), tuple(dict.fromkeys(notices)))

    async def _before(self, known: SeenFile | None, standing: Collection[str]) -> str | None:
        """Return the text that the agent has before it; None where it has none."""
        if known is None or not known.digest or (known.node != IN_ROOT and known.node not in standing):
            return None
        try:
            return "" if known.digest == _EMPTY else (await self._shelf.load(known.digest)).decode()
        except (NotFound, Corrupt):  # swept: then the whole text is shown again
            return None

    async def note_call(self, workspace: Path, call: ToolCall, result: ToolResult, cap_bytes: int) -> None:
        """A tool has shown the agent a whole file, or the agent has changed it: what it is now is what it last saw."""
        path = call.arguments.get("path")
        if not self.view or result.is_error or call.name not in _READS | _WRITES or not isinstance(path, str):
            return
        name = await asyncio.to_thread(place_of, workspace, path)
        if name is None or name not in self.view:
            return
        read = await asyncio.to_thread(read_tracked, workspace, name, is_own=self.view[name].is_own)
        if read.text is not None and (call.name in _WRITES or _is_whole(call, read.text, cap_bytes)):
            await self._saw(name, read.text)

    async def _saw(self, name: str, text: str | None) -> None:
        """A store keeps no empty medium."""
        self._fresh[name] = "" if text is None else await self._shelf.put(text.encode()) if text else _EMPTY

    def mark_stored(self, node: str) -> None:
        """The message that shows what is fresh is on disk."""
        for name, digest in self._fresh.items():
            is_own = name in self.view and self.view[name].is_own
            self.view[name] = SeenFile(digest, node, is_own)
        self._fresh.clear()


def _find_files(workspace: Path, asked: Sequence[str], globs: Sequence[str]) -> tuple[list[str], list[str], str]:
    places = [place for name in asked if (place := place_of(workspace, name)) is not None]
    matched, notice = match_globs(workspace, globs) if globs else ([], "")
    return places, matched, notice


def _is_whole(call: ToolCall, text: str, cap_bytes: int) -> bool:
    """Return whether one read has shown all of a text, with the numbers of its lines."""
    lines = line_count(text)
    short = lines <= LINES_PER_READ and len(text.encode()) + _NUMBER_CHARS * lines <= cap_bytes
    return short and not {"offset", "limit"} & call.arguments.keys()
