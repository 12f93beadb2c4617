"""Walk a folder without the files that `.gitignore` excludes, never through a link, within limits.

Every folder is opened relative to its parent's descriptor, so a folder that is replaced by a link meanwhile is not
followed.
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
    """An entry of a folder. It can be opened while it is the current entry of the walk."""

    parts: tuple[str, ...]
    kind: EntryKind
    size_bytes: int
    target: str
    """The target of a link."""
    descriptor: int
    """The descriptor of its folder."""
    linked: tuple[int, int] | None = None
    """Device and inode, if the file has other names (hard links)."""

    @property
    def path(self) -> str:
        return "/".join(self.parts)

    def read(self, most_bytes: int) -> bytes | None:
        """Return the beginning of a regular file, or None if it was deleted, has become something else or cannot be
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
    """Yield the folder `parts` below an open one, opened step by step and never through a link; None if it does not
    exist."""
    opened: list[int] = []
    found: int | None = descriptor
    try:
        try:
            for part in parts:
                opened.append(os.open(part, _FOLDER, dir_fd=found))
                found = opened[-1]
        except OSError:  # deleted, forbidden, or no longer a folder
            found = None
        yield found
    finally:
        for each in opened:
            os.close(each)


def _read_all(descriptor: int, expected: int, most_bytes: int) -> bytes:
    """Read with plain system calls: a file object costs more than reading a small file."""
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
    """Iterates over the entries, folders before their content, sorted by name."""

    def __init__(self, folder: OpenFolder, *, max_depth: int = MAX_DEPTH) -> None:
        self._folder = folder
        self._max_depth = min(max_depth, MAX_DEPTH)
        self._until = time.monotonic() + WALK_SECONDS
        self._rules, self._way = _rules(folder.path)
        self.seen = 0
        self.ignored = 0
        self.unreadable = 0
        self.is_cut = False
        """Whether the walk ended at its limit."""

    def __iter__(self) -> Iterator[FileEntry]:
        yield from self._walk_folder(self._folder.descriptor, (), self._rules)

    def _walk_folder(self, descriptor: int, parts: tuple[str, ...], rules: Rules) -> Iterator[FileEntry]:
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
                yield from self._walk_subfolder(entry, rules)

    def _walk_subfolder(self, entry: FileEntry, rules: Rules) -> Iterator[FileEntry]:
        try:
            descriptor = os.open(entry.parts[-1], _FOLDER, dir_fd=entry.descriptor)
        except OSError:  # deleted, forbidden, or no longer a folder
            self.unreadable += 1
            return
        try:
            yield from self._walk_folder(descriptor, entry.parts, rules)
        finally:
            os.close(descriptor)


class IgnoredPaths:
    """Whether a walk of a folder would exclude a file, for single files."""

    def __init__(self, folder: OpenFolder) -> None:
        self._folder = folder
        self._rules, self._way = _rules(folder.path)
        self._known: dict[tuple[str, ...], Rules | None] = {}

    def ignores(self, parts: tuple[str, ...]) -> bool:
        """Return whether a file is excluded."""
        rules = self._rules_in(parts[:-1])
        return rules is None or is_ignored(rules, (*self._way, *parts), is_folder=False)

    def _rules_in(self, parts: tuple[str, ...]) -> Rules | None:
        """Return the rules in a folder, or None if the folder is excluded with all its content."""
        if parts not in self._known:
            rules = self._rules_in(parts[:-1]) if parts else self._rules
            if rules is not None and parts and is_ignored(rules, (*self._way, *parts), is_folder=True):
                rules = None
            with below(self._folder.descriptor, parts) as descriptor:
                if rules is not None and descriptor is not None:
                    rules = _with_own(descriptor, len(self._way) + len(parts), rules)
            self._known[parts] = rules
        return self._known[parts]


@contextmanager
def open_entry(folder: OpenFolder, parts: tuple[str, ...]) -> Generator[FileEntry | None]:
    """Yield a file below a folder as a walk would; None if it does not exist, or is behind a link."""
    with below(folder.descriptor, parts[:-1]) as descriptor:
        found = None
        if descriptor is not None:
            with suppress(OSError):  # deleted meanwhile
                facts = os.stat(parts[-1], dir_fd=descriptor, follow_symlinks=False)
                found = _entry_of(facts, parts, "", descriptor)
        yield found


def _with_own(descriptor: int, depth: int, rules: Rules) -> Rules:
    """Return the rules with those of the `.gitignore` in an open folder; `depth` is its depth in the repository."""
    own = FileEntry((".gitignore",), "file", 0, "", descriptor).read(MAX_FILE_BYTES)
    patterns = parse_ignore(own) if own else ()
    return (*rules, (depth, patterns)) if patterns else rules


def _rules(path: Path) -> tuple[Rules, tuple[str, ...]]:
    """Return the rules for a folder. If the folder itself is ignored, rules from outside do not apply: the caller
    selected it."""
    rules, way = rules_above(path)
    if any(is_ignored(rules, way[:depth], is_folder=True) for depth in range(1, len(way) + 1)):
        return (), ()
    return rules, way


def _entry(found: os.DirEntry[str], parts: tuple[str, ...], descriptor: int) -> FileEntry | None:
    try:
        facts = found.stat(follow_symlinks=False)
        target = os.readlink(found.name, dir_fd=descriptor) if stat.S_ISLNK(facts.st_mode) else ""
    except OSError:  # deleted after the listing
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
