"""read_file: any file of the workspace, as blocks that the model then sees."""

from __future__ import annotations

import asyncio
from itertools import islice
from pathlib import Path
from typing import Final

from loom.content.blocks import ContentBlock, DocumentBlock, TextBlock, clean_text, page_label, page_range
from loom.content.media import Media, digest_of, size_label
from loom.errors import ToolError, Unsupported
from loom.formats import extension_notice, inspect
from loom.formats.documents.members import read_member
from loom.formats.facts import IntakeLimits
from loom.formats.sniff import sniff
from loom.formats.sniff.kinds import DELIMITED
from loom.formats.text import decode_text, line_count, lines_of
from loom.tools.base import FileContext, FileJudge
from loom.tools.file_records import RecordsFiles
from loom.tools.number_text import count_text
from loom.tools.workspace import OpenFile, open_file, read_whole

LINES_PER_READ: Final = 2_000
PAGES_PER_READ: Final = 20
MANY_PAGES: Final = 100
LARGE_BYTES: Final = 10_485_760
_DELIMITERS: Final = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_LONGEST_HEAD: Final = 2_000


async def read_file(
    context: FileContext, path: str, *, offset: int = 1, limit: int | None = None, pages: str = "", member: str = ""
) -> list[ContentBlock]:
    """Read a file. Text comes with line numbers, .csv as rows; images, PDFs, office files and audio as content.

    path: the file, relative to the workspace
    offset: the first line of a text, or row of a table, counted from 1
    limit: how many lines or rows at most
    pages: pages, slides or sheets of a document, such as "3" or "21-40"
    member: a file inside an archive or a mail, by its path there
    """
    if offset < 1 or (limit is not None and limit < 1):
        raise ToolError("offset and limit count lines from 1")
    if pages:
        page_range(pages)
    with open_file(context.workspace, path) as opened:
        await ask_to_read(context, opened, path)
        data = await asyncio.to_thread(read_whole, opened, context.limits)
    name = clean_text(opened.path.name)
    inside = opened.path
    if member:
        data, name = await asyncio.to_thread(_member, data, name, member, context.limits)
        inside = opened.path / member.lstrip("/")
    sniffed = sniff(data, name)
    if isinstance(context, RecordsFiles):
        text = data.decode("utf-8", "replace") if sniffed.category == "text" else None
        context.file_records.note(opened.path, data, text)
    if sniffed.category == "text":
        lines = await asyncio.to_thread(
            numbered_lines,
            data,
            name,
            context.limits,
            offset=offset,
            limit=limit,
            media_type=sniffed.media_type,
        )
        said = [extension_notice(name, sniffed) if data else "", f"{name} has no pages" if pages else ""]
        return [*(TextBlock(f"({sentence})") for sentence in said if sentence), lines]
    if sniffed.category == "office" and (offset > 1 or limit is not None):
        rows = await asyncio.to_thread(_sheet_rows, data, name, context.limits, pages=pages, offset=offset, limit=limit)
        if rows is not None:
            return [rows]
    return await _attach_file(context, data, inside, pages)


def _member(data: bytes, name: str, member: str, limits: IntakeLimits) -> tuple[bytes, str]:
    found = read_member(data, inspect(data, name, limits).media, member, limits)
    return found.data, clean_text(found.name)


async def ask_to_read(context: FileContext, opened: OpenFile, asked: str) -> None:
    """Ask for approval of a file that is outside the workspace, may contain secrets or is large."""
    action, why = f"read {asked}", ""
    if not opened.inside:
        why = f"{opened.path} is outside the workspace"
    elif opened.sensitive:
        why = f"{opened.path.name} may contain secrets"
    elif opened.size_bytes > LARGE_BYTES:
        why = f"it is large ({size_label(opened.size_bytes)})"
    if isinstance(context, FileJudge):
        await context.approve_file(opened, action, why=why)
    elif why:
        await context.approve(action, why=why)


async def _attach_file(context: FileContext, data: bytes, path: Path, pages: str) -> list[ContentBlock]:
    try:
        blocks = list(await context.attach(data, name=path.name, source=str(path), pages=pages))
    except Unsupported as error:
        return [TextBlock(f"[{error.message}]")]
    shown = [part for block in blocks for part in page_stretch(block, pages)]
    for block in blocks:
        # Intake rebuilt a damaged document: its images are not those of `data`.
        if isinstance(block, DocumentBlock) and block.media.digest == digest_of(data):
            shown += await picture_sentence(data, block.media, context.limits)
    return shown


async def picture_sentence(data: bytes, media: Media, limits: IntakeLimits) -> list[ContentBlock]:
    """Return a sentence that offers the images inside a document, if there are any."""
    pictures = (await asyncio.to_thread(inspect, data, media.name, limits)).pictures
    if not pictures:
        return []
    count = count_text(len(pictures), "image")
    return [TextBlock(f'({media.name} contains {count}: look(media="{media.name}", image=1) shows the first)')]


def page_stretch(block: ContentBlock, asked: str) -> list[ContentBlock]:
    """Return a range of pages of a long document, with a sentence about how to read more."""
    if not isinstance(block, DocumentBlock) or not block.media.pages:
        return [block]
    count = block.media.pages
    first, last = page_range(asked) if asked else (1, PAGES_PER_READ)
    if first > count:
        raise ToolError(f'{block.media.name} has {count} pages; pages="{asked}" is past its end')
    last = min(last, count, first + MANY_PAGES - 1) if asked else min(last, count)
    if count <= PAGES_PER_READ and not asked:
        return [block]
    shown = DocumentBlock(block.media, pages=page_label(first, last), title=block.title)
    return [shown, TextBlock(page_sentence(block.media.name, first, last, count))]


def page_sentence(name: str, first: int, last: int, count: int) -> str:
    """Return `pages 1–20 of 47; next: pages="21-40"`, in the syntax of the next call."""
    said = f"{name}: pages {first}–{last} of {count}" if last > first else f"{name}: page {first} of {count}"
    if last < count:
        said += f'; next: pages="{page_label(last + 1, min(last + PAGES_PER_READ, count))}"'
    if count > MANY_PAGES and first == 1:
        said += f" (a long document: ask for the pages that matter, at most {MANY_PAGES} at a time)"
    return said


def numbered_lines(
    data: bytes, name: str, limits: IntakeLimits, *, offset: int, limit: int | None, media_type: str
) -> TextBlock:
    """Return lines (of a table: rows) from `offset`, at most `limit` and as many as fit into one read."""
    text, _, notices = decode_text(data)
    said = [f"({notice})" for notice in notices]
    most = limit or LINES_PER_READ
    if media_type in DELIMITED:
        from loom.formats.office.delimited import read_rows

        table = read_rows(text, offset, most)
        lines, total, noun = table.lines, table.total, "rows"
        said.append(f"({name} is a table: its cells are separated by {_DELIMITERS[table.delimiter]})")
        if offset > 1:
            said.append(f"(row 1: {table.head[:_LONGEST_HEAD]})")
    else:
        lines = list(islice(lines_of(text), offset - 1, offset - 1 + most))
        total, noun = line_count(text), "lines"
    if offset > max(total, 1):
        raise ToolError(f"{name} has {total} {noun}; {noun[:-1]} {offset} is past its end")
    chosen, end = _lines_that_fit(lines, offset, limits.max_text_bytes)
    if offset > 1 or end < total:
        which = f"{noun} {offset}–{end}" if end > offset else f"{noun[:-1]} {offset}"
        said.append(f"({name}: {which} of {total}")
        said[-1] += f"; next: offset={end + 1})" if end < total else ")"
    if not total:
        said = [f"({name} is empty)"]
    return TextBlock("\n".join([*chosen, *said]))


def _lines_that_fit(lines: list[str], offset: int, most_bytes: int) -> tuple[list[str], int]:
    chosen: list[str] = []
    size = 0
    for number, line in enumerate(lines, offset):
        numbered = f"{number:>6}\t{line}"
        size += len(numbered.encode("utf-8", "replace")) + 1
        if size > most_bytes:
            if not chosen:
                chosen.append(numbered[:most_bytes] + " … (the line is longer than one read)")
            break
        chosen.append(numbered)
    return chosen, offset + len(chosen) - 1


def _sheet_rows(
    data: bytes, name: str, limits: IntakeLimits, *, pages: str, offset: int, limit: int | None
) -> TextBlock | None:
    """Return rows of one sheet, beyond those that are shown of the document; None if it is not a spreadsheet."""
    from loom.formats.office import is_spreadsheet, sheet_rows

    media = inspect(data, name, limits).media
    if not is_spreadsheet(media.media_type):
        return None
    found = sheet_rows(data, media, limits, pages=pages, first_row=offset, max_rows=limit or LINES_PER_READ)
    if not found.rows:
        raise ToolError(f"there is nothing in row {offset} of the sheet or below it ({found.area or 'it is empty'})")
    said = f"{media.name}: {count_text(found.rows, 'row')} from row {offset} on; the cells are in {found.area}"
    if found.next_row is not None:
        said += f"; next: offset={found.next_row}"
    return TextBlock(f"{found.text}\n({said})")
