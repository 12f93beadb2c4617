"""fetch_url: a page as readable text; images, PDFs, office files and audio as content that the model sees."""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

import msgspec

from loom.content.blocks import ContentBlock, TextBlock, clean_text
from loom.content.media import size_label
from loom.errors import Unreadable
from loom.formats.facts import IntakeLimits
from loom.formats.file_names import clean_name
from loom.formats.page_text import PageText
from loom.formats.sniff import sniff
from loom.formats.sniff.kinds import label_of
from loom.formats.text import decode_text
from loom.struct_types import decode_msgpack
from loom.tools.base import Tool, ToolContext
from loom.tools.download import Download, download
from loom.tools.egress import Destination, Egress, destination_of
from loom.tools.file_read import page_stretch
from loom.tools.file_search import text_worker_pool
from loom.tools.text_job import PageJob

_MARKUP: Final = ("text/html", "application/xhtml+xml")
_TOLD: Final = "the address is sent to that host"


def fetch_tool(egress: Egress) -> Tool:
    """Return the tool with its own gate."""

    async def fetch_url(context: ToolContext, url: str) -> list[ContentBlock]:
        """Get a web page as readable text, or an image, PDF, office file or audio as content you can look at.

        url: a public http or https address
        """
        return await fetch_content(context, url, egress)

    return Tool(fetch_url, reads_only=True)


async def fetch_content(context: ToolContext, url: str, egress: Egress) -> list[ContentBlock]:
    """Fetch a URL and return its content as blocks. A URL can leak data that was read elsewhere, so the user must
    approve every host, also the host of a redirect. A host name alone can leak data too: no name is resolved before the
    approval."""
    place = destination_of(url)
    egress.check_known(place.host, place.port)
    await context.approve(f"fetch from {place.origin}", why=_TOLD)

    async def on_redirect(to: Destination) -> None:
        egress.check_known(to.host, to.port)
        await context.approve(f"fetch from {to.origin}", why=_TOLD, url=to.url)

    limits = context.limits
    most = max(limits.max_image_bytes, limits.max_pdf_bytes, limits.max_office_bytes, limits.max_audio_bytes)
    found = await download(url, egress, max_bytes=most, moved=on_redirect)
    name = clean_name(found.name)
    sniffed = sniff(found.data, name)
    if sniffed.category == "text":
        return [await asyncio.to_thread(_text, found, name, sniffed.media_type, limits)]
    if sniffed.category == "unsupported":
        said = f"{label_of(sniffed.media_type)}, {size_label(len(found.data))}; nothing to show"
        return [TextBlock(f"[{found.url[:500]}: {said}]")]
    blocks = await context.attach(found.data, name=name, source=found.url)
    shown = [part for block in blocks for part in page_stretch(block, "")]
    return [TextBlock(f"({found.url[:500]})"), *shown]


def _text(found: Download, name: str, media_type: str, limits: IntakeLimits) -> TextBlock:
    if not found.data.strip():
        raise Unreadable(f"{found.url[:200]} is empty", name=name)
    text, _, notices = decode_text(found.data, name)
    title = ""
    if media_type in _MARKUP or found.declared in _MARKUP:
        page = _page(text, found.url, limits)
        title, text = page.title, page.text or "(the page has no text; screenshot may show it)"
    data = text.encode("utf-8", "replace")
    if len(data) > limits.max_text_bytes:
        text = data[: limits.max_text_bytes].decode("utf-8", "ignore")
        notices = (*notices, f"the first {size_label(limits.max_text_bytes)} of {size_label(len(data))}")
    head = [f"[{found.url[:500]}]", *([f"[title: {title}]"] if title else [])]
    return TextBlock(clean_text("\n".join([*head, "", text, *(f"({notice})" for notice in notices)])))


def _page(text: str, url: str, limits: IntakeLimits) -> PageText:
    """Parse the page in a worker: a page can be written so that parsing never ends."""
    result, _ = text_worker_pool().call(
        msgspec.msgpack.encode(PageJob(url)),
        text.encode("utf-8", "replace"),
        digest=secrets.token_hex(8),
        name="The page",
        limits=limits,
        seconds=limits.deadline_seconds,
    )
    return decode_msgpack(result, PageText)
