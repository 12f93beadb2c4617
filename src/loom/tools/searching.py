"""search_files: a regular expression over the text files of the workspace."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from loom.content.media import size_label
from loom.errors import TooLarge, ToolError, Unreadable
from loom.formats.facts import Limits
from loom.formats.worker import Crew
from loom.tools.base import ToolContext
from loom.tools.files import ask_to_read
from loom.tools.ignore import glob as parse_glob
from loom.tools.text_job import Found, SearchJob
from loom.tools.tree import Walk
from loom.tools.words import counted
from loom.tools.workspace import OpenFolder, is_folder, is_sensitive, open_file, open_folder, read_whole, visible_name

MATCHES_PER_SEARCH: Final = 100
MAX_MATCHES: Final = 1_000
SEARCH_SECONDS: Final = 15.0
_MAX_FILE_BYTES: Final = 5_000_000
_BATCH_BYTES: Final = 4_000_000
_BATCH_FILES: Final = 500


class Batch(msgspec.Struct):
    names: list[str]
    data: bytearray
    sizes: list[int]


class Search(msgspec.Struct, kw_only=True):
    """What a search has come to so far."""

    pattern: str
    limit: int
    limits: Limits
    until: float
    lines: list[str] = msgspec.field(default_factory=list[str])
    files: set[str] = msgspec.field(default_factory=set[str])
    matches: int = 0
    searched: int = 0
    binary: int = 0
    large: int = 0
    secret: int = 0
    kept_back: int = 0
    """By the user's rules."""
    is_cut: bool = False

    @property
    def is_over(self) -> bool:
        return self.matches > self.limit


async def search_files(
    context: ToolContext, pattern: str, path: str = ".", glob: str = "", limit: int = MATCHES_PER_SEARCH
) -> str:
    """Search text files for a regular expression, line by line. What .gitignore names is left out.

    pattern: a regular expression (Python's; (?i) in front ignores case)
    path: the folder or file to search, relative to the workspace
    glob: only files like this, such as "*.py" or "src/**/*.ts"
    limit: how many matches at most
    """
    if not 1 <= limit <= MAX_MATCHES:
        raise ToolError(f"limit is between 1 and {MAX_MATCHES}")
    if not pattern:
        raise ToolError("pattern is empty: list_files lists files without searching them")
    search = Search(pattern=pattern, limit=limit, limits=context.limits, until=time.monotonic() + SEARCH_SECONDS)
    if not is_folder(context.workspace, path):
        with open_file(context.workspace, path) as opened:
            await ask_to_read(context, opened, path)
            data = await asyncio.to_thread(read_whole, opened, context.limits)
        await asyncio.to_thread(_search, search, iter([Batch([path], bytearray(data), [len(data)])]))
        return _said(search, path)
    with open_folder(context.workspace, path) as folder:
        if not folder.inside or folder.sensitive:
            why = "it may hold secrets" if folder.inside else f"{folder.path} is outside the workspace"
            await context.approve(f"search {path}", why=why)
        await asyncio.to_thread(_search, search, _batches(search, folder, path, glob, context.may_read))
    return _said(search, path)


def _batches(
    search: Search, folder: OpenFolder, asked: str, glob: str, may_read: Callable[[Path, Path], bool]
) -> Iterator[Batch]:
    """The files in portions that are worth a message to the worker."""
    wanted = parse_glob(glob) if glob else None
    prefix = "" if asked.strip("./") == "" and not asked.startswith("/") else asked.rstrip("/") + "/"
    batch = Batch([], bytearray(), [])
    written = Path(asked).expanduser()
    walk = Walk(folder)
    for entry in walk:
        if entry.kind != "file" or not entry.size_bytes:
            continue
        if wanted is not None and not wanted.matches(entry.parts, is_folder=False):
            continue
        if is_sensitive(folder.path.joinpath(*entry.parts)) and not folder.sensitive:
            search.secret += 1
            continue
        if not may_read(folder.path.joinpath(*entry.parts), written.joinpath(*entry.parts)):
            search.kept_back += 1
            continue
        data = entry.read(_MAX_FILE_BYTES + 1) if entry.size_bytes <= _MAX_FILE_BYTES else None
        if data is None or len(data) > _MAX_FILE_BYTES:
            search.large += 1
            continue
        batch.names.append(prefix + entry.path)
        batch.data += data
        batch.sizes.append(len(data))
        if len(batch.data) >= _BATCH_BYTES or len(batch.sizes) >= _BATCH_FILES:
            yield batch
            batch = Batch([], bytearray(), [])
    search.is_cut = search.is_cut or walk.is_cut
    if batch.names:
        yield batch


@cache
def text_crew() -> Crew:
    return Crew("loom.tools.text_job", size=2)


def _search(search: Search, batches: Iterator[Batch]) -> None:
    for batch in batches:
        left = search.until - time.monotonic()
        if left <= 0:
            search.is_cut = True
            return
        job = SearchJob(search.pattern, tuple(batch.sizes), search.limit + 1 - search.matches)
        try:
            found = _asked(job, bytes(batch.data), search.limits, left)
        except TooLarge:
            search.is_cut = True
            return
        _take(search, batch, found)
        if search.is_over:
            return


def _asked(job: SearchJob, data: bytes, limits: Limits, seconds: float) -> Found:
    """The worker is told nothing about earlier batches, so every one has an identity of its own."""
    try:
        result, _ = text_crew().call(
            msgspec.msgpack.encode(job),
            data,
            digest=secrets.token_hex(8),
            name="The pattern",
            limits=limits,
            seconds=seconds,
        )
    except Unreadable as error:
        raise ToolError(error.message, hint=error.hint) from None
    return msgspec.msgpack.decode(result, type=Found)


def _take(search: Search, batch: Batch, found: Found) -> None:
    search.searched += len(batch.names) - len(found.binary)
    search.binary += len(found.binary)
    for match in found.matches:
        search.matches += 1
        if search.is_over:
            return
        name = visible_name(batch.names[match.file])
        search.files.add(name)
        search.lines.append(f"{name}:{match.line}: {_CONTROL.sub('', match.text).rstrip()}")


_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def _said(search: Search, asked: str) -> str:
    said: list[str] = []
    if not search.lines:
        said.append(f"no match in {asked}: {counted(search.searched, 'file')} searched")
    elif search.is_over:
        said.append(f"the first {search.limit} matches; narrow it with path, glob or pattern, or raise limit")
    else:
        matches, files = counted(search.matches, "match", "matches"), counted(search.searched, "file")
        said.append(f"{matches} in {len(search.files):,} of {files}")
    if search.binary:
        said.append(f"{counted(search.binary, 'binary file')} skipped")
    if search.large:
        said.append(
            f"skipped, larger than {size_label(_MAX_FILE_BYTES)} or not readable: {counted(search.large, 'file')}"
        )
    if search.secret:
        said.append(f"{counted(search.secret, 'file')} skipped that may hold secrets: name one as path to search it")
    if search.kept_back:
        said.append(f"{counted(search.kept_back, 'file')} left out by the user's rules: name one as path to search it")
    if search.is_cut:
        said.append(f"stopped after {SEARCH_SECONDS:.0f} s or too many files: use a simpler pattern or a smaller path")
    return "\n".join([*search.lines, *(f"({sentence})" for sentence in said)])
