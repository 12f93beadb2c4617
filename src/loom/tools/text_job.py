"""The program of the text worker (`python -m loom.tools.text_job`). It runs untrusted patterns and HTML.

A regular expression or a page can be written so that matching or parsing takes for ever, and Python holds its lock
meanwhile: in a thread it would stop everything. Here it is ended at its deadline.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from loom.errors import Unreadable
from loom.formats.page_text import page_text
from loom.formats.text import decode_text, encoding_of, lines_of
from loom.formats.worker.loop import Task, serve
from loom.struct_types import decode_msgpack
from loom.tools.search_patterns import is_line_independent

PART_CHARS: Final = 10_000
"""Longer lines are searched in parts of this length: a slow pattern then takes time in proportion to the line."""
OVERLAP_CHARS: Final = 1_000
"""A match in a longer line that is longer than this may be missed."""
SHOWN_CHARS: Final = 300
MAX_MATCH_LINES: Final = 20


class SearchJob(msgspec.Struct, frozen=True, tag="search"):
    """The document is the content of files, one after another; `sizes` are their lengths."""

    pattern: str
    sizes: tuple[int, ...]
    most_matches: int
    context_lines: int = 0
    multiline: bool = False
    first_only: bool = False
    """Whether one match per file is enough."""


class PageJob(msgspec.Struct, frozen=True, tag="page"):
    """The document is decoded HTML."""

    url: str


class Match(msgspec.Struct, frozen=True):
    """`file` is the position in `sizes`, `line` counts from one."""

    file: int
    line: int
    text: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


TextJob: TypeAlias = SearchJob | PageJob


def run(task: Task, data: bytes | None) -> tuple[bytes, bytes] | None:
    if data is None:
        return None
    job: TextJob = decode_msgpack(task.job, SearchJob | PageJob)
    match job:
        case SearchJob():
            return msgspec.msgpack.encode(_search(job, data)), b""
        case PageJob():
            return msgspec.msgpack.encode(page_text(data.decode(errors="replace"), job.url)), b""


def _search(job: SearchJob, data: bytes) -> tuple[Match, ...]:
    try:
        pattern = re.compile(job.pattern, re.MULTILINE if job.multiline else re.NOFLAG)
        whole = re.compile(job.pattern, re.MULTILINE) if is_line_independent(job.pattern) else None
    except (re.error, OverflowError, RecursionError) as error:
        hint = "Escape special characters with a backslash."
        raise Unreadable(f"is not a regular expression: {error}", hint=hint) from None
    matches: list[Match] = []
    start = 0
    for file, size in enumerate(job.sizes):
        content = data[start : start + size]
        start += size
        if encoding_of(content) is None:
            continue  # not text
        text = decode_text(content)[0]
        if whole is not None and whole.search(text) is None:  # most files: one search instead of one per line
            continue
        most = min(1 if job.first_only else job.most_matches, job.most_matches - len(matches))
        found = _across_lines(pattern, text, file, job) if job.multiline else _by_line(pattern, text, file, job)
        matches += islice(found, most)
        if len(matches) >= job.most_matches:
            break
    return tuple(matches)


def _by_line(pattern: re.Pattern[str], text: str, file: int, job: SearchJob) -> Iterator[Match]:
    lines = list(lines_of(text))
    around = job.context_lines
    for number, line in enumerate(lines):
        found = search_line(pattern, line)
        if found is not None:
            before = tuple(_clip_line(near, 0) for near in lines[max(number - around, 0) : number])
            after = tuple(_clip_line(near, 0) for near in lines[number + 1 : number + 1 + around])
            yield Match(file, number + 1, _clip_line(line, found.start()), before, after)


def search_line(pattern: re.Pattern[str], line: str) -> re.Match[str] | None:
    """Return a match in a line, the first one if the line has one part."""
    for start in range(0, len(line) or 1, PART_CHARS - OVERLAP_CHARS):
        end = start + PART_CHARS
        found = pattern.search(line, start, end)
        if found is not None and found.end() == end < len(line):  # `$` means the end of the line, not of a part
            found = pattern.match(line, found.start())
        if found is not None or end >= len(line):
            return found
    return None


def _across_lines(pattern: re.Pattern[str], text: str, file: int, job: SearchJob) -> Iterator[Match]:
    """Yield matches that may span lines, with all lines that they touch, up to a limit."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    around = job.context_lines
    number, at = 0, 0
    for found in pattern.finditer(text):
        number += text.count("\n", at, found.start())
        at = found.start()
        last = number + min(found[0].rstrip("\n").count("\n"), MAX_MATCH_LINES - 1)
        shown = "\n".join(_clip_line(line, 0) for line in lines[number : last + 1])
        before = tuple(_clip_line(near, 0) for near in lines[max(number - around, 0) : number])
        after = tuple(_clip_line(near, 0) for near in lines[last + 1 : last + 1 + around])
        yield Match(file, number + 1, shown, before, after)


def _clip_line(line: str, at: int) -> str:
    """Return a line, or the part of a long one around the match."""
    if len(line) <= SHOWN_CHARS:
        return line
    start = max(0, at - SHOWN_CHARS // 3)
    cut = line[start : start + SHOWN_CHARS]
    return f"{'…' if start else ''}{cut}{'…' if start + SHOWN_CHARS < len(line) else ''}"


if __name__ == "__main__":
    serve(run)
