"""CompletionList: files for `@` and commands for `/`, above the composer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from loom.content.media import size_label
from loom.errors import LoomError
from loom.tui.glyphs import Glyphs
from loom.tui.text_content import plain_text

_MAX_SHOWN: Final = 8
_MAX_FILES: Final = 20_000
_IMAGES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".heic", ".svg", ".tif", ".tiff", ".avif")
_DOCUMENTS: Final = (".pdf", ".docx", ".pptx", ".xlsx", ".odt", ".epub")
_AUDIO: Final = (".mp3", ".wav", ".m4a", ".ogg", ".flac")


class CompletionEntry(msgspec.Struct, frozen=True):
    """`value` replaces the word; `hint` is shown next to it."""

    value: str
    label: str
    hint: str = ""


class CompletionList(OptionList, can_focus=False):
    DEFAULT_CSS = """
    CompletionList {
        height: auto; max-height: 8; border: none; background: $panel; display: none; padding: 0 1; margin: 0 1;
        scrollbar-size-vertical: 1;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._found: list[CompletionEntry] = []

    def show(self, found: Sequence[CompletionEntry]) -> None:
        self._found = list(found)[:_MAX_SHOWN]
        self.clear_options()
        self.add_options([Option(plain_text(f"{it.label:<28} ") + plain_text(it.hint, "dim")) for it in self._found])
        self.display = bool(self._found)
        if self._found:
            self.highlighted = 0

    def hide(self) -> None:
        self._found = []
        self.display = False

    @property
    def choice(self) -> CompletionEntry | None:
        return self._found[self.highlighted] if self._found and self.highlighted is not None else None

    def move(self, step: int) -> None:
        if self._found:
            self.highlighted = ((self.highlighted or 0) + step) % len(self._found)


def rank(query: str, names: Iterable[str]) -> list[str]:
    """Return the names that contain the letters of the query in order, the best match first."""
    wanted = query.casefold()
    scored = [(score, name) for name in names if (score := _score(wanted, name)) is not None]
    return [name for _, name in sorted(scored, key=lambda item: (item[0], len(item[1]), item[1]))]


def _score(wanted: str, name: str) -> tuple[int, int] | None:
    folded = name.casefold()
    base = folded.rpartition("/")[2]
    if base.startswith(wanted):
        return 0, 0
    if (at := folded.find(wanted)) >= 0:
        return 1, at
    at, gaps = -1, 0
    for letter in wanted:
        found = folded.find(letter, at + 1)
        if found < 0:
            return None
        gaps += found - at - 1
        at = found
    return 2, gaps


class FileIndex:
    """The files of a folder for `@`, without ignored ones; read again with `anew`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: list[str] | None = None

    async def find(self, query: str, glyphs: Glyphs, *, anew: bool = False) -> list[CompletionEntry]:
        if query.startswith(("/", "~", "../")):
            return await asyncio.to_thread(_children, query, glyphs)
        if self._names is None or anew:
            self._names = await asyncio.to_thread(_file_names, self._folder)
        names = rank(query, self._names)[:_MAX_SHOWN]
        return await asyncio.to_thread(lambda: [_file_entry(self._folder, name, glyphs) for name in names])


def _file_names(folder: Path) -> list[str]:
    """Return up to `_MAX_FILES` paths below the folder, without those that `.gitignore` excludes; empty if it cannot be
    read."""
    from loom.tools.file_walk import Walk
    from loom.tools.workspace import open_folder

    try:
        with open_folder(folder, ".") as opened:
            return list(islice((entry.path for entry in Walk(opened) if entry.kind == "file"), _MAX_FILES))
    except (LoomError, OSError):
        return []


def _children(query: str, glyphs: Glyphs) -> list[CompletionEntry]:
    """Return entries for a path outside the folder: the contents of the query's last folder."""
    parent, _, start = query.rpartition("/")
    place = Path(f"{parent}/").expanduser()
    try:
        with os.scandir(place) as entries:
            names = [f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries]
    except OSError:
        return []
    found = [name for name in rank(start, names) if not name.startswith(".") or start.startswith(".")]
    return [
        CompletionEntry(f"@{_quote_name(f'{parent}/{name}')}", f"{file_sign(name, glyphs)} {name}")
        for name in found[:_MAX_SHOWN]
    ]


def _file_entry(folder: Path, name: str, glyphs: Glyphs) -> CompletionEntry:
    try:
        size = size_label((folder / name).stat().st_size)
    except OSError:
        size = ""
    return CompletionEntry(f"@{_quote_name(name)}", f"{file_sign(name, glyphs)} {name}", size)


def _quote_name(name: str) -> str:
    return f'"{name}"' if " " in name else name


def file_sign(name: str, glyphs: Glyphs) -> str:
    lower = name.lower()
    if lower.endswith(_IMAGES):
        return glyphs.image
    if lower.endswith(_DOCUMENTS):
        return glyphs.document
    return glyphs.audio if lower.endswith(_AUDIO) else " "
