"""What runs inside the text worker (`python -m loom.tools.text_job`): foreign patterns and foreign HTML.

A regular expression or a page can be written so that matching or parsing it takes for ever, and Python holds its lock
meanwhile: in a thread it would stop everything. Here it is ended at its deadline.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

import msgspec

from loom.errors import Unreadable
from loom.formats.text import decode_text, encoding_of, lines_of
from loom.formats.worker.loop import Task, serve
from loom.tools.page_text import page_text

MAX_LINE_CHARS: Final = 10_000
"""Longer lines are searched up to here."""
SHOWN_CHARS: Final = 300


class SearchJob(msgspec.Struct, frozen=True, tag="search"):
    """The document is the contents of files, one after another; `sizes` says where each ends."""

    pattern: str
    sizes: tuple[int, ...]
    most_matches: int


class PageJob(msgspec.Struct, frozen=True, tag="page"):
    """The document is HTML, decoded."""

    url: str


class Match(msgspec.Struct, frozen=True):
    """`file` is the position in `sizes`, `line` counts from one."""

    file: int
    line: int
    text: str


class Found(msgspec.Struct, frozen=True):
    matches: tuple[Match, ...]
    binary: tuple[int, ...]
    """Which files were not text."""


TextJob: TypeAlias = SearchJob | PageJob


def run(task: Task, data: bytes | None) -> tuple[bytes, bytes] | None:
    if data is None:
        return None
    job: TextJob = msgspec.msgpack.decode(task.job, type=SearchJob | PageJob)
    match job:
        case SearchJob():
            return msgspec.msgpack.encode(_search(job, data)), b""
        case PageJob():
            return msgspec.msgpack.encode(page_text(data.decode(errors="replace"), job.url)), b""


def _search(job: SearchJob, data: bytes) -> Found:
    try:
        pattern = re.compile(job.pattern)
    except (re.error, OverflowError, RecursionError) as error:
        hint = "Put a backslash before characters that are meant as they are."
        raise Unreadable(f"is not a regular expression: {error}", hint=hint) from None
    matches: list[Match] = []
    binary: list[int] = []
    start = 0
    for file, size in enumerate(job.sizes):
        content = data[start : start + size]
        start += size
        if encoding_of(content) is None:
            binary.append(file)
            continue
        for number, line in enumerate(lines_of(decode_text(content)[0]), 1):
            found = pattern.search(line, 0, MAX_LINE_CHARS)
            if found is None:
                continue
            matches.append(Match(file, number, _shown(line, found.start())))
            if len(matches) >= job.most_matches:
                return Found(tuple(matches), tuple(binary))
    return Found(tuple(matches), tuple(binary))


def _shown(line: str, at: int) -> str:
    """A line, or the part of a long one around the match."""
    if len(line) <= SHOWN_CHARS:
        return line
    start = max(0, at - SHOWN_CHARS // 3)
    cut = line[start : start + SHOWN_CHARS]
    return f"{'…' if start else ''}{cut}{'…' if start + SHOWN_CHARS < len(line) else ''}"


if __name__ == "__main__":
    serve(run)
