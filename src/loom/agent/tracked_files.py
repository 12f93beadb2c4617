"""Tracked files: text files that the user mentions (`@src/app.py`) or that `auto_context` globs match. The agent gets
the whole text once, and after that only the changes since it last saw the file, through any tool.

The view (path → digest of the text last seen, and the message that showed it) is stored with the session. An entry
counts only while that message is on the path: a fork from before it has not seen the file.
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
from loom.formats.sniff.kinds import type_of_name
from loom.formats.text import decode_text, encoding_of, line_count
from loom.struct_types import convert
from loom.tools.diff import unified_diff
from loom.tools.file_read import LINES_PER_READ
from loom.tools.file_records import FileRecords
from loom.tools.file_search import FILE_TYPES
from loom.tools.file_walk import Walk
from loom.tools.ignore import glob_pattern
from loom.tools.workspace import is_folder, open_file, open_folder, visible_name

MAX_FILE_BYTES: Final = 200_000
MAX_MATCHED: Final = 200
"""The maximum number of files that globs add."""
MAX_TOLD_BYTES: Final = 400_000
"""The maximum text shown at the start of one turn; the rest is shown in the next."""
TRACKED: Final = "tracked"
KNOWN_FILES: Final = "known_files"
"""The session settings that hold the tracked files, and the files that the model has read."""
IN_ROOT: Final = ""
"""The node of a file whose text is part of the system prompt."""

_MENTION: Final = re.compile(r'(?:^|(?<=[\s(\[{,;]))@(?:"([^"\n]+)"|([^\s"]+))')
PUNCTUATION: Final = ".,;:!?)]}'"
_CODE_EXTENSIONS: Final = tuple(end for ends in FILE_TYPES.values() for end in ends if end.startswith("."))
_LINES: Final = re.compile(r"(?::\d+(?:[-:]\d+)?|#L\d+(?:-L?\d+)?)$")
"""The lines that a mention names: `app.py:12`, `app.py:12-20`, `app.py#L12-20`. The file is tracked as a whole."""
_PATH_STARTS: Final = ("/", "~/", "./", "../")
_READS: Final = frozenset({"read_file"})
_WRITES: Final = frozenset({"write_file", "edit_file", "multi_edit"})
_NUMBER_CHARS: Final = 8
_EMPTY: Final = "empty"
"""Stored in place of the digest of an empty file, because the store keeps no empty medium."""


class SeenFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the agent saw last: the digest of the text (empty if the file was gone), and the message that showed it."""

    digest: str
    node: str = IN_ROOT
    is_own: bool = False
    """Whether the user's settings name the file, so that it is read outside the workspace, too."""


class FileNews(msgspec.Struct, frozen=True):
    """Changes to report: `texts` for the agent, `notices` for the user."""

    texts: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()


# Texts: pure functions -----------------------------------------------------------------------------------------------


def change_text(name: str, before: str | None, now: str | None, why: str = "no longer exists") -> str:
    """Return the report on a file whose text was `before` (None if it was never seen, or gone) and is `now` (None if it
    cannot be shown, for the reason `why`)."""
    if now is None:
        return f"[file: {name} {why}]" if before is not None else ""
    if before == now:
        return ""
    if before is None:
        return f"[file: {name}]\n{now}" if now.strip() else f"[file: {name} is empty]"
    return f"[file: {name} has changed since you last saw it]\n{unified_diff(before, now, name).text}"


def mentions(text: str) -> list[str]:
    """Return every `@path` and `@"path with spaces"`, in order. The caller checks which of them are files."""
    found = (quoted or plain for quoted, plain in _MENTION.findall(text))
    return list(dict.fromkeys(found))


def looks_like_file(workspace: Path, name: str) -> bool:
    """Return whether a mention is probably a file: it begins like a path, or it has the extension of a file or a folder
    that exists. Handles and code do not: `@someone`, `@types/node`, `@pytest.fixture`, `@app.get("/")`."""
    plain = _LINES.sub("", name.rstrip(PUNCTUATION))
    if ":" in plain or "(" in plain:
        return False
    if plain.startswith(_PATH_STARTS):
        return True
    folder, slash, last = plain.partition("#")[0].rpartition("/")
    has_extension = type_of_name(last) is not None or last.casefold().endswith(_CODE_EXTENSIONS)
    return has_extension or (slash != "" and is_folder(workspace, folder))


# Files ---------------------------------------------------------------------------------------------------------------


class TrackedText(msgspec.Struct, frozen=True):
    """A text, or the reason why there is none: `why` for the agent, `notice` for the user."""

    text: str | None = None
    data: bytes = b""
    path: Path = Path()
    """The resolved path of the file."""
    why: str = "no longer exists"
    notice: str = ""


def tracked_name(workspace: Path, asked: str) -> str | None:
    """Return the name under which a file is tracked: relative to the workspace if it is inside, absolute otherwise.
    Return None if there is no such file, with or without trailing punctuation and line numbers."""
    plain = asked.rstrip(PUNCTUATION)
    for name in (asked, plain, _LINES.sub("", plain)):
        try:
            path = Path(os.path.normpath(workspace / Path(name).expanduser()))
            if name and path.exists():
                return str(path.relative_to(workspace)) if path.is_relative_to(workspace) else str(path)
        except (ValueError, OSError, RuntimeError):  # not a path
            continue
    return None


def split_pages(asked: str) -> tuple[str, str]:
    """Split `report.pdf#3-7` into the file and its pages; any other name has no pages. Raise `ContentError` if the text
    after the # is not a page range."""
    file, mark, pages = asked.rstrip(PUNCTUATION).rpartition("#")
    if not (mark and file):
        return asked, ""
    page_range(pages)
    return file, pages


def missing_file(workspace: Path, asked: str) -> str:
    """Return why a mention that looks like a file is sent as text only, or an empty string."""
    if not looks_like_file(workspace, asked) or tracked_name(workspace, asked) is not None:
        return ""
    name = asked.rstrip(PUNCTUATION)
    if tracked_name(workspace, name.rpartition("#")[0]) is None:
        return f"File not found: {visible_name(name)}"
    try:
        split_pages(asked)
    except ContentError as error:
        return error.message
    return f"{visible_name(name)} is not attached: only documents of the workspace have pages"


def read_tracked(workspace: Path, name: str, *, is_own: bool = False) -> TrackedText:
    """Return the text of a file inside the workspace, or of one of the user's own files if its path resolves to itself.
    Files that may hold secrets are never read."""
    shown = visible_name(name)
    if is_folder(workspace, name):
        return TrackedText(why="is a folder now", notice=f"{shown} is a folder; only files are tracked.")
    try:
        with open_file(workspace, name) as opened:
            if opened.sensitive or not (opened.inside or (is_own and str(opened.path) == name)):
                what = "may contain secrets" if opened.inside else "is outside the workspace"
                return TrackedText(
                    why="is not shown", notice=f"{shown} {what} and is not tracked; attach it to send it."
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
        return TrackedText(why="is too large to show", notice=f"{shown} is too large to track ({size_label(size)}).")
    if data and encoding_of(data) is None:
        return TrackedText(
            why="is not a text file", notice=f"{shown} is not a text file and is not tracked; attach it to send it."
        )
    return TrackedText(text=clean_text(decode_text(data, shown)[0]) if data else "", data=data, path=opened.path)


def match_globs(workspace: Path, globs: Sequence[str]) -> tuple[list[str], str]:
    """Return the files that the globs match and `.gitignore` does not exclude, and a notice if there are too many."""
    patterns = [glob_pattern(text) for text in globs]
    found: list[str] = []
    try:
        with open_folder(workspace, ".") as folder:
            walk = Walk(folder)
            for entry in walk:
                if entry.kind != "file" or not any(it.matches(entry.parts, is_folder=False) for it in patterns):
                    continue
                if len(found) == MAX_MATCHED:
                    return found, f"auto_context matches more than {MAX_MATCHED} files; the first ones are tracked."
                found.append(entry.path)
    except MediaError as error:
        return [], f"auto_context matches nothing: {error.message}"
    return found, "The workspace is too large to search completely: auto_context may miss files." if walk.is_cut else ""


def visible_messages(path: Sequence[Placed], mark: Watermark) -> set[str]:
    """Return the ids of the messages of a path that the model still sees."""
    return {
        placed.id
        for at, placed in enumerate(path)
        if at >= mark.dropped_before and (placed.message.role != "tool" or at >= mark.tool_text_before)
    }


class TrackedFiles:
    """The tracked files of one session."""

    def __init__(self, media: MediaAccess) -> None:
        self._media = media
        self.view: dict[str, SeenFile] = {}
        self._fresh: dict[str, str] = {}
        """Files that were shown to the agent in a message that is not stored yet."""
        self._told: set[str] = set()
        """Notices already given: a binary file that a glob matches on every turn is reported once."""
        self.records = FileRecords()
        """The bytes of files that the model has seen, for checks before edits."""

    def load(self, settings: Mapping[str, Any]) -> None:
        """Load the view from the settings of a session."""
        self.view = convert(settings.get(TRACKED, {}), dict[str, SeenFile])
        self.records.load(settings.get(KNOWN_FILES, {}))

    def settings(self) -> dict[str, Any]:
        """Return the settings that store the view."""
        known = {KNOWN_FILES: self.records.setting()} if self.records.is_changed else {}
        return {TRACKED: msgspec.to_builtins(self.view), **known}

    async def read_news(
        self, workspace: Path, *, asked: Iterable[str], globs: Sequence[str], standing: Collection[str]
    ) -> FileNews:
        """Return the changes to report. `asked` are the mentions, `standing` the ids of the messages that the model
        still sees."""
        self._fresh.clear()  # left by a turn that ended before it stored its message
        asked = list(asked)
        if not (asked or globs or self.view):
            return FileNews((), ())
        named, matched, notice = await asyncio.to_thread(_find_files, workspace, asked, globs)
        names = list(dict.fromkeys([*named, *self.view, *matched]))
        own = {name for name, seen in self.view.items() if seen.is_own}
        reads = await asyncio.to_thread(
            lambda: {name: read_tracked(workspace, name, is_own=name in own) for name in names}
        )
        missing = await asyncio.to_thread(lambda: [missing_file(workspace, name) for name in asked])
        notices, texts, room = [notice] if notice else [], list[str](), MAX_TOLD_BYTES
        notices += [f"{why.rstrip('.')}; sent as text." for why in missing if why]
        for name, read in reads.items():
            known = self.view.get(name)
            text = change_text(visible_name(name), await self._visible_text(known, standing), read.text, read.why)
            if len(text.encode()) > room:
                notices.append(f"{visible_name(name)} is shown in the next turn: too much text for one turn.")
                continue
            room -= len(text.encode())
            if text:
                texts.append(text)
                await self._record_seen(name, read.text)
                if read.text is not None:
                    self.records.note(read.path, read.data, read.text)
            if read.notice and (name in named or read.notice not in self._told):
                notices.append(read.notice)
            self._told.add(read.notice)
        return FileNews(tuple(texts), tuple(dict.fromkeys(notices)))

    async def _visible_text(self, known: SeenFile | None, standing: Collection[str]) -> str | None:
        """Return the text of the file that the model still sees; None if it sees none."""
        if known is None or not known.digest or (known.node != IN_ROOT and known.node not in standing):
            return None
        try:
            return "" if known.digest == _EMPTY else (await self._media.load(known.digest)).decode()
        except (NotFound, Corrupt):  # deleted by the cleanup: the whole text is shown again
            return None

    async def note_call(self, workspace: Path, call: ToolCall, result: ToolResult, cap_bytes: int) -> None:
        """After a tool has shown or changed a whole file, record its current text as the one last seen."""
        path = call.arguments.get("path")
        if not self.view or result.is_error or call.name not in _READS | _WRITES or not isinstance(path, str):
            return
        name = await asyncio.to_thread(tracked_name, workspace, path)
        if name is None or name not in self.view:
            return
        read = await asyncio.to_thread(read_tracked, workspace, name, is_own=self.view[name].is_own)
        if read.text is not None and (call.name in _WRITES or _is_whole(call, read.text, cap_bytes)):
            await self._record_seen(name, read.text)

    async def _record_seen(self, name: str, text: str | None) -> None:
        self._fresh[name] = "" if text is None else await self._media.put(text.encode()) if text else _EMPTY

    def mark_stored(self, node: str) -> None:
        """Record that the message `node`, which shows the fresh files, is on disk."""
        for name, digest in self._fresh.items():
            is_own = name in self.view and self.view[name].is_own
            self.view[name] = SeenFile(digest, node, is_own)
        self._fresh.clear()


def _find_files(workspace: Path, asked: Sequence[str], globs: Sequence[str]) -> tuple[list[str], list[str], str]:
    places = [place for name in asked if (place := tracked_name(workspace, name)) is not None]
    matched, notice = match_globs(workspace, globs) if globs else ([], "")
    return places, matched, notice


def _is_whole(call: ToolCall, text: str, cap_bytes: int) -> bool:
    """Return whether a single read has shown the whole text, including line numbers."""
    lines = line_count(text)
    short = lines <= LINES_PER_READ and len(text.encode()) + _NUMBER_CHARS * lines <= cap_bytes
    return short and not {"offset", "limit"} & call.arguments.keys()
