"""search_files: search the text files of the workspace for a regular expression."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from loom.content.media import size_label
from loom.errors import TooLarge, ToolError, Unreadable
from loom.formats.facts import IntakeLimits
from loom.formats.worker import WorkerGroup, WorkerKind, current_pool
from loom.struct_types import decode_msgpack
from loom.tools.base import ToolContext
from loom.tools.file_read import ask_to_read
from loom.tools.file_walk import FileEntry, IgnoredPaths, Walk, open_entry
from loom.tools.ignore import Pattern, glob_pattern
from loom.tools.number_text import count_text
from loom.tools.ripgrep import Candidates, FoundFiles
from loom.tools.search_patterns import required_literal
from loom.tools.text_job import Match, SearchJob
from loom.tools.workspace import (
    OpenFolder,
    has_sensitive_folder,
    is_folder,
    is_sensitive_name,
    open_file,
    open_folder,
    read_whole,
    secret_inodes,
    visible_name,
)

TEXT_WORKER: Final = WorkerKind("loom.tools.text_job", size=2)
MATCHES_PER_SEARCH: Final = 100
MAX_MATCHES: Final = 1_000
SEARCH_SECONDS: Final = 15.0
MAX_AROUND: Final = 20
MAX_COUNTED: Final = 1_000_000
FILE_TYPES: Final = {
    "c": (".c", ".h"),
    "cpp": (".cc", ".cpp", ".cxx", ".c++", ".h", ".hh", ".hpp", ".hxx"),
    "cs": (".cs",),
    "css": (".css", ".scss", ".sass", ".less"),
    "go": (".go",),
    "html": (".html", ".htm", ".xhtml"),
    "java": (".java",),
    "js": (".js", ".jsx", ".mjs", ".cjs", ".vue"),
    "json": (".json", ".jsonl", ".json5"),
    "kotlin": (".kt", ".kts"),
    "lua": (".lua",),
    "md": (".md", ".markdown", ".mdx"),
    "php": (".php",),
    "py": (".py", ".pyi"),
    "ruby": (".rb", "gemfile", "rakefile"),
    "rust": (".rs",),
    "sh": (".sh", ".bash", ".zsh", ".fish"),
    "sql": (".sql",),
    "swift": (".swift",),
    "toml": (".toml",),
    "ts": (".ts", ".tsx", ".mts", ".cts"),
    "txt": (".txt", ".text"),
    "xml": (".xml", ".xsd", ".xsl", ".svg"),
    "yaml": (".yaml", ".yml"),
}
_MAX_FILE_BYTES: Final = 5_000_000
_BATCH_BYTES: Final = 4_000_000
_BATCH_FILES: Final = 500


class FileBatch(msgspec.Struct):
    names: list[str]
    data: bytearray
    sizes: list[int]


class FileSearch(msgspec.Struct, kw_only=True):
    """The state of a search."""

    pattern: str
    limit: int
    limits: IntakeLimits
    until: float
    lines: list[str] = msgspec.field(default_factory=list[str])
    files: set[str] = msgspec.field(default_factory=set[str])
    matches: int = 0
    searched: int = 0
    large: int = 0
    secret: int = 0
    kept_back: int = 0
    """The number of files that the user's rules exclude."""
    is_cut: bool = False
    show: Literal["lines", "files", "count"] = "lines"
    around: int = 0
    multiline: bool = False
    suffixes: tuple[str, ...] = ()
    counts: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    last_shown: tuple[str, int] = ("", 0)

    @property
    def is_over(self) -> bool:
        return self.matches > self.limit and self.show != "count"


async def search_files(  # noqa: PLR0917  a tool's parameters are passed by name
    context: ToolContext,
    pattern: str,
    path: str = ".",
    glob: str = "",
    type: str = "",  # noqa: A002  the name that models use
    show: Literal["lines", "files", "count"] = "lines",
    around: int = 0,
    multiline: bool = False,
    limit: int = MATCHES_PER_SEARCH,
) -> str:
    """Search text files for a regular expression. Leaves out what .gitignore excludes.

    pattern: a regular expression (Python's; (?i) in front ignores case)
    path: the folder or file to search, relative to the workspace
    glob: only files that match, such as "*.py" or "src/**/*.ts"
    type: only files of a language, such as "py", "js", "rust" or "md"
    show: the matching lines, the names of the files only, or how many matches each file has
    around: how many lines to show before and after each match
    multiline: let a match span several lines
    limit: how many matches at most
    """
    if not 1 <= limit <= MAX_MATCHES:
        raise ToolError(f"limit is between 1 and {MAX_MATCHES}")
    if not 0 <= around <= MAX_AROUND:
        raise ToolError(f"around is between 0 and {MAX_AROUND} lines")
    if not pattern:
        raise ToolError("pattern is empty: list_files lists files without searching them")
    if type and type not in FILE_TYPES:
        raise ToolError(f"Unknown file type {type[:40]!r}; known: {', '.join(sorted(FILE_TYPES))}", hint="Use glob.")
    search = FileSearch(
        pattern=pattern,
        limit=limit,
        limits=context.limits,
        until=time.monotonic() + SEARCH_SECONDS,
        show=show,
        around=around,
        multiline=multiline,
        suffixes=FILE_TYPES.get(type, ()),
    )
    if not is_folder(context.workspace, path):
        with open_file(context.workspace, path) as opened:
            await ask_to_read(context, opened, path)
            data = await asyncio.to_thread(read_whole, opened, context.limits)
        await asyncio.to_thread(_search, search, iter([FileBatch([path], bytearray(data), [len(data)])]))
        return _search_summary(search, path)
    with open_folder(context.workspace, path) as folder:
        if not folder.inside or folder.sensitive:
            why = "it may contain secrets" if folder.inside else f"{folder.path} is outside the workspace"
            await context.approve(f"search {path}", why=why)
        await asyncio.to_thread(_search_folder, search, folder, path, glob, context)
    return _search_summary(search, path)


def _search_folder(search: FileSearch, folder: OpenFolder, asked: str, glob: str, context: ToolContext) -> None:
    root = Path(os.path.realpath(context.workspace))
    tree = _Tree(folder, asked, Path(asked).expanduser(), glob, context, root)
    _search(search, _batches(search, tree))


class _Tree(msgspec.Struct, frozen=True):
    folder: OpenFolder
    asked: str
    written: Path
    glob: str
    context: ToolContext
    workspace: Path

    def is_secret(self, entry: FileEntry) -> bool:
        """Return whether a file may contain secrets, by its name or as a hard link to one that may."""
        if _is_secret_name(entry.parts):
            return True
        if entry.linked is None:
            return False
        known = secret_inodes(self.workspace)
        return known is None or entry.linked in known

    def place_in(self, root: Path, entry: FileEntry) -> Path:
        return root / entry.path


def _batches(search: FileSearch, tree: _Tree) -> Iterator[FileBatch]:
    """Yield the files in batches that are worth a message to the worker. If ripgrep is installed, files without a match
    are not opened; if it is not, files without the text that every match must contain are skipped."""
    prefix = "" if tree.asked.strip("./") == "" and not tree.asked.startswith("/") else tree.asked.rstrip("/") + "/"
    literal = required_literal(search.pattern)
    batch = FileBatch([], bytearray(), [])
    for entry in _entries(search, tree, literal):
        if time.monotonic() > search.until:
            search.is_cut = True
            break
        data = entry.read(_MAX_FILE_BYTES + 1)
        if data is None or len(data) > _MAX_FILE_BYTES:
            search.large += 1
            continue
        if literal is not None and literal not in data and not _may_be_wide(data):
            search.searched += 1
            continue
        batch.names.append(prefix + entry.path)
        batch.data += data
        batch.sizes.append(len(data))
        if len(batch.data) >= _BATCH_BYTES or len(batch.sizes) >= _BATCH_FILES:
            yield batch
            batch = FileBatch([], bytearray(), [])
    if batch.names:
        yield batch


def _may_be_wide(data: bytes) -> bool:
    """Return whether `data` may be text with more than one byte per character, or not text at all."""
    return data[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in data[:8192]


def _entries(search: FileSearch, tree: _Tree, literal: bytes | None) -> Iterator[FileEntry]:
    """Yield every file to search; with ripgrep, those that can contain a match. If the user's rules exclude files, all
    files are walked, so that the number of excluded files reveals nothing about their content."""
    wanted = glob_pattern(tree.glob) if tree.glob else None
    found = _find_candidates(search, tree, literal) if tree.context.reads_all else None
    if found is None:
        walk = Walk(tree.folder)
        yield from (entry for entry in walk if _is_searched(search, tree, wanted, entry))
        search.is_cut = search.is_cut or walk.is_cut
        return
    ignored = IgnoredPaths(tree.folder)
    if not tree.folder.sensitive:
        search.secret = sum(_is_secret_name(parts) and not ignored.ignores(parts) for parts in found.secret)
    search.searched = max(0, found.searched - len(found.possible) - search.secret)
    for parts in found.possible:
        if (_is_secret_name(parts) and not tree.folder.sensitive) or ignored.ignores(parts):
            continue
        with open_entry(tree.folder, parts) as entry:
            if entry is not None and _is_searched(search, tree, wanted, entry):
                yield entry


def _find_candidates(search: FileSearch, tree: _Tree, literal: bytes | None) -> FoundFiles | None:
    candidates = Candidates(
        tree.folder.path,
        search.pattern,
        literal,
        multiline=search.multiline,
        suffixes=search.suffixes,
        glob=tree.glob,
    )
    return candidates.wait(search.until - time.monotonic())


def _is_secret_name(parts: tuple[str, ...]) -> bool:
    return is_sensitive_name(parts[-1]) or has_sensitive_folder(parts[:-1])


def _is_searched(search: FileSearch, tree: _Tree, wanted: Pattern | None, entry: FileEntry) -> bool:
    if entry.kind != "file" or not entry.size_bytes:
        return False
    if wanted is not None and not wanted.matches(entry.parts, is_folder=False):
        return False
    if search.suffixes and not entry.parts[-1].lower().endswith(search.suffixes):
        return False
    if not tree.folder.sensitive and tree.is_secret(entry):
        search.secret += 1
        return False
    if not tree.context.may_read(tree.place_in(tree.folder.path, entry), tree.place_in(tree.written, entry)):
        search.kept_back += 1
        return False
    if entry.size_bytes > _MAX_FILE_BYTES:
        search.large += 1
        return False
    return True


def text_worker_pool() -> WorkerGroup:
    return current_pool().group(TEXT_WORKER)


def _search(search: FileSearch, batches: Iterator[FileBatch]) -> None:
    for batch in batches:
        left = search.until - time.monotonic()
        if left <= 0:
            search.is_cut = True
            return
        job = SearchJob(
            search.pattern,
            tuple(batch.sizes),
            MAX_COUNTED if search.show == "count" else search.limit + 1 - search.matches,
            context_lines=search.around if search.show == "lines" else 0,
            multiline=search.multiline,
            first_only=search.show == "files",
        )
        try:
            found = _search_batch(job, bytes(batch.data), search.limits, left)
        except TooLarge:
            search.is_cut = True
            return
        _take(search, batch, found)
        if search.is_over:
            return


def _search_batch(job: SearchJob, data: bytes, limits: IntakeLimits, seconds: float) -> tuple[Match, ...]:
    """Search a batch in the worker. The worker keeps nothing of earlier batches, so every batch has its own digest."""
    try:
        result, _ = text_worker_pool().call(
            msgspec.msgpack.encode(job),
            data,
            digest=secrets.token_hex(8),
            name="The pattern",
            limits=limits,
            seconds=seconds,
        )
    except Unreadable as error:
        raise ToolError(error.message, hint=error.hint) from None
    return decode_msgpack(result, tuple[Match, ...])


def _take(search: FileSearch, batch: FileBatch, found: tuple[Match, ...]) -> None:
    search.searched += len(batch.names)
    for match in found:
        search.matches += 1
        name = visible_name(batch.names[match.file])
        if search.show == "count":
            search.counts[name] = search.counts.get(name, 0) + 1
            continue
        if search.is_over:
            return
        search.files.add(name)
        search.lines += [name] if search.show == "files" else _shown_match(search, name, match)


def _shown_match(search: FileSearch, name: str, match: Match) -> Iterator[str]:
    """Yield lines as grep writes them: `file:12: match`, `file-13- line beside it`, and `--` between places."""
    first, *further = match.text.split("\n")
    rows = [(match.line - len(match.before) + at, line, "-") for at, line in enumerate(match.before)]
    rows += [(match.line, first, ":"), *((match.line + at, line, ":") for at, line in enumerate(further, 1))]
    rows += [(match.line + len(further) + at, line, "-") for at, line in enumerate(match.after, 1)]
    if search.around and search.lines and search.last_shown != (name, rows[0][0] - 1):
        is_apart = search.last_shown[0] != name or rows[0][0] > search.last_shown[1] + 1
        if is_apart:
            yield "--"
    for number, line, mark in rows:
        if search.last_shown[0] == name and number <= search.last_shown[1]:
            if mark == ":":  # it was shown as context of the previous match
                _mark_as_match(search, name, number, line)
            continue
        search.last_shown = (name, number)
        yield _row(name, number, line, mark)


def _row(name: str, number: int, line: str, mark: str) -> str:
    return f"{name}{mark}{number}{mark} {_CONTROL.sub('', line).rstrip()}"


def _mark_as_match(search: FileSearch, name: str, number: int, line: str) -> None:
    plain = _row(name, number, line, "-")
    for at in range(len(search.lines) - 1, max(len(search.lines) - 2 * MAX_AROUND - 2, -1), -1):
        if search.lines[at] == plain:
            search.lines[at] = _row(name, number, line, ":")
            return


_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def _search_summary(search: FileSearch, asked: str) -> str:
    said: list[str] = []
    if search.show == "count":
        ranked = sorted(search.counts.items(), key=lambda item: (-item[1], item[0]))
        search.lines = [f"{name}: {count}" for name, count in ranked[: search.limit]]
        search.files = set(search.counts)
        if len(ranked) > search.limit:
            said.append(f"the {search.limit} files with the most matches")
    if not search.lines:
        said.append(f"no match in {asked}: {count_text(search.searched, 'file')} searched")
    elif search.is_over:
        what = "files" if search.show == "files" else "matches"
        said.append(f"the first {search.limit} {what}; narrow it with path, glob or pattern, or raise limit")
    else:
        matches, files = count_text(search.matches, "match", "matches"), count_text(search.searched, "file")
        found = f"{len(search.files):,} of {files}"
        said.append(f"a match in {found}" if search.show == "files" else f"{matches} in {found}")
    if search.large:
        said.append(
            f"skipped, larger than {size_label(_MAX_FILE_BYTES)} or not readable: {count_text(search.large, 'file')}"
        )
    if search.secret:
        said.append(
            f"{count_text(search.secret, 'file')} skipped that may contain secrets: name one as path to search it"
        )
    if search.kept_back:
        said.append(
            f"{count_text(search.kept_back, 'file')} left out by the user's rules: name one as path to search it"
        )
    if search.is_cut:
        said.append(f"stopped after {SEARCH_SECONDS:.0f} s or too many files: use a simpler pattern or a smaller path")
    return "\n".join([*search.lines, *(f"({sentence})" for sentence in said)])
