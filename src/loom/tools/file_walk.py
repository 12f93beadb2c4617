"""Walk a folder as a reader would: without what `.gitignore` leaves out, never through a link, within bounds.

Every folder is opened below its parent's descriptor, so a folder that is swapped for a link meanwhile leads nowhere.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from loom.tools.ignore import MAX_FILE_BYTES, Rules, is_ignored, parse_ignore, rules_above
from loom.tools.workspace import OpenFolder

EntryKind: TypeAlias = Literal["file", "folder", "link", "other"]

MAX_ENTRIES: Final = 100_000
MAX_DEPTH: Final = 64
WALK_SECONDS: Final = 20.0
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class FileEntry(msgspec.Struct, frozen=True):
    """Something in a folder. It can be opened while the walk stands at it."""

    parts: tuple[str, ...]
    kind: EntryKind
    size_bytes: int
    target: str
    """Where a link points."""
    descriptor: int
    """Of the folder that it is in."""
    linked: tuple[int, int] | None = None
    """Device and inode, if the file has other names (hard links)."""

    @property
    def path(self) -> str:
        return "/".join(self.parts)

    def read(self, most_bytes: int) -> bytes | None:
        """Return the beginning of a regular file, or None where it is gone, has become something else or may not be
        read."""
        try:
            descriptor = os.open(self.parts[-1], _FILE, dir_fd=self.descriptor)
        except OSError:
            return None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            return _read_all(descriptor, self.size_bytes, most_bytes)
        except OSError:
            return None
        finally:
            os.close(descriptor)


@contextmanager
def below(descriptor: int, parts: Sequence[str]) -> Generator[int | None]:
    """Yield the folder that `parts` name below an open one, opened step by step and never through a link; None where it
    is gone."""
    opened: list[int] = []
    found: int | None = descriptor
    try:
        try:
            for part in parts:
                opened.append(os.open(part, _FOLDER, dir_fd=found))
                found = opened[-1]
        except OSError:  # gone, forbidden, or no folder any more
            found = None
        yield found
    finally:
        for each in opened:
            os.close(each)


def _read_all(descriptor: int, expected: int, most_bytes: int) -> bytes:
    """Plain reads: a file object costs more than the reading of a small file."""
    data = os.read(descriptor, min(expected + 1, most_bytes))
    if len(data) <= expected:
        return data  # the end was reached
    parts = [data]
    size = len(data)
    while size < most_bytes and (data := os.read(descriptor, min(most_bytes - size, 1_048_576))):
        parts.append(data)
        size += len(data)
    return b"".join(parts)


class Walk:
    """Iterate over it for the entries, folders before what is in them, sorted by name."""

    def __init__(self, folder: OpenFolder, *, max_depth: int = MAX_DEPTH) -> None:
        self._folder = folder
        self._max_depth = min(max_depth, MAX_DEPTH)
        self._until = time.monotonic() + WALK_SECONDS
        self._rules, self._way = _rules(folder.path)
        self.seen = 0
        self.ignored = 0
        self.unreadable = 0
        self.is_cut = False
        """Whether there was too much to see all of it."""

    def __iter__(self) -> Iterator[FileEntry]:
        yield from self._inside(self._folder.descriptor, (), self._rules)

    def _inside(self, descriptor: int, parts: tuple[str, ...], rules: Rules) -> Iterator[FileEntry]:
        rules = _with_own(descriptor, len(self._way) + len(parts), rules)
        try:
            with os.scandir(descriptor) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            self.unreadable += 1
            return
        for found_entry in entries:
            entry = _entry(found_entry, (*parts, found_entry.name), descriptor)
            if entry is None or entry.parts[-1] == ".git":
                continue
            if is_ignored(rules, (*self._way, *entry.parts), is_folder=entry.kind == "folder"):
                self.ignored += 1
                continue
            if self.seen >= MAX_ENTRIES or time.monotonic() > self._until:
                self.is_cut = True
                return
            self.seen += 1
            yield entry
            if entry.kind == "folder" and len(entry.parts) < self._max_depth:
                yield from self._below(entry, rules)

    def _below(self, entry: FileEntry, rules: Rules) -> Iterator[FileEntry]:
        try:
            descriptor = os.open(entry.parts[-1], _FOLDER, dir_fd=entry.descriptor)
        except OSError:  # gone, forbidden, or no folder any more
            self.unreadable += 1
            return
        try:
            yield from self._inside(descriptor, entry.parts, rules)
        finally:
            os.close(descriptor)


class IgnoredPaths:
    """What a walk of a folder would leave out, for single files in it."""

    def __init__(self, folder: OpenFolder) -> None:
        self._folder = folder
        self._rules, self._way = _rules(folder.path)
        self._known: dict[tuple[str, ...], Rules | None] = {}

    def ignores(self, parts: tuple[str, ...]) -> bool:
        """Return whether a file is left out."""
        rules = self._inside(parts[:-1])
        return rules is None or is_ignored(rules, (*self._way, *parts), is_folder=False)

    def _inside(self, parts: tuple[str, ...]) -> Rules | None:
        """Return the rules in a folder; None if that is left out, with all that is in it."""
        if parts not in self._known:
            rules = self._inside(parts[:-1]) if parts else self._rules
            if rules is not None and parts and is_ignored(rules, (*self._way, *parts), is_folder=True):
                rules = None
            with below(self._folder.descriptor, parts) as descriptor:
                if rules is not None and descriptor is not None:
                    rules = _with_own(descriptor, len(self._way) + len(parts), rules)
            self._known[parts] = rules
        return self._known[parts]


@contextmanager
def open_entry(folder: OpenFolder, parts: tuple[str, ...]) -> Generator[FileEntry | None]:
    """Yield a file below a folder as a walk would; None where it is gone, or behind a link."""
    with below(folder.descriptor, parts[:-1]) as descriptor:
        found = None
        if descriptor is not None:
            with suppress(OSError):  # gone meanwhile
                facts = os.stat(parts[-1], dir_fd=descriptor, follow_symlinks=False)
                found = _entry_of(facts, parts, "", descriptor)
        yield found


def _with_own(descriptor: int, depth: int, rules: Rules) -> Rules:
    """Return the rules with those of the `.gitignore` in an open folder, which is so deep in its repository."""
    own = FileEntry((".gitignore",), "file", 0, "", descriptor).read(MAX_FILE_BYTES)
    patterns = parse_ignore(own) if own else ()
    return (*rules, (depth, patterns)) if patterns else rules


def _rules(path: Path) -> tuple[Rules, tuple[str, ...]]:
    """Who asks for a folder that is ignored wants to see it: then nothing outside it decides."""
    rules, way = rules_above(path)
    if any(is_ignored(rules, way[:depth], is_folder=True) for depth in range(1, len(way) + 1)):
        return (), ()
    return rules, way


def _entry(found: os.DirEntry[str], parts: tuple[str, ...], descriptor: int) -> FileEntry | None:
    try:
        facts = found.stat(follow_symlinks=False)
        target = os.readlink(found.name, dir_fd=descriptor) if stat.S_ISLNK(facts.st_mode) else ""
    except OSError:  # it went away between the listing and the look
        return None
    return _entry_of(facts, parts, target, descriptor)


def _entry_of(facts: os.stat_result, parts: tuple[str, ...], target: str, descriptor: int) -> FileEntry:
    kind: EntryKind = "other"
    if stat.S_ISDIR(facts.st_mode):
        kind = "folder"
    elif stat.S_ISLNK(facts.st_mode):
        kind = "link"
    elif stat.S_ISREG(facts.st_mode):
        kind = "file"
    linked = (facts.st_dev, facts.st_ino) if kind == "file" and facts.st_nlink > 1 else None
    return FileEntry(parts, kind, facts.st_size, target, descriptor, linked)
