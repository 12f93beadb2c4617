"""render_slides: the pages of a presentation or document as images, as printed."""

from __future__ import annotations

import asyncio
from typing import Final

from loom.content.blocks import ContentBlock, TextBlock, page_range
from loom.content.recipes import Page, Slice
from loom.errors import ToolError
from loom.formats import render
from loom.formats.sniff.kinds import category_of
from loom.tools.base import ToolContext, tool
from loom.tools.file_read import page_sentence
from loom.tools.media_lookup import LoadedMedia, derived_media, find_medium

PAGES_PER_CALL: Final = 20
_ALL: Final = "1-9999999"


@tool(reads_only=True)
async def render_slides(context: ToolContext, path: str, pages: str = "") -> list[ContentBlock]:
    """Show the slides of a presentation, or the pages of a PDF or office file, as images.

    path: the file, relative to the workspace, or the id or name of a document of this session
    pages: which ones, such as "3" or "21-40"; at most 20 at a time
    """
    if pages:
        page_range(pages)
    source = await find_medium(context, path)
    if category_of(source.media.media_type) not in ("pdf", "office"):
        raise ToolError(f"{source.media.label} has no slides or pages", hint="read_file or look show it.")
    return await page_pictures(context, source, pages)


async def page_pictures(context: ToolContext, source: LoadedMedia, pages: str) -> list[ContentBlock]:
    """Return at most twenty images, and a sentence about how to see more. LibreOffice lays out office files."""
    printed = await _convert_to_pdf(context, source)
    count = printed.media.pages or 1
    first, last = page_range(pages) if pages else (1, count)
    if first > count:
        raise ToolError(f'{source.media.name} has {count} pages; pages="{pages}" is past its end')
    last = min(last, count, first + PAGES_PER_CALL - 1)
    blocks: list[ContentBlock] = []
    for number in range(first, last + 1):
        await context.emit(f"page {number} of {count}", fraction=(number - first) / (last - first + 1))
        made = await asyncio.to_thread(render, printed.data, printed.media, Page(number), context.limits)
        name = f"{source.media.name} page {number}"
        blocks += await context.attach(made.data, name=name, source=source.media.source or source.media.digest)
    return [*blocks, TextBlock(page_sentence(source.media.name, first, last, count))]


async def _convert_to_pdf(context: ToolContext, source: LoadedMedia) -> LoadedMedia:
    """Return the document as a PDF. The number of pages of an office file is known only after the layout."""
    if category_of(source.media.media_type) == "pdf":
        return source
    await context.emit(f"laying out {source.media.name}")
    made = await asyncio.to_thread(render, source.data, source.media, Slice(_ALL), context.limits)
    return derived_media(made, source.media.name)
