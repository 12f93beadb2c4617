"""Responses of a server as blocks. Bytes are decoded within a budget and pass intake like any file: their content
determines their type, not the server. Links are listed, never followed, and no path in them is ever read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from loom.content.blocks import NO_OUTPUT, ContentBlock, TextBlock, ToolResult, clean_text
from loom.content.encoded import from_base64, may_hold_bytes
from loom.content.json_values import json_text, sanitize_json
from loom.content.media import digest_of, size_label
from loom.content.messages import text_of
from loom.content.nested_media import store_data_url, store_nested_media
from loom.errors import LoomError

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ResourceLink

MAX_ITEMS: Final = 100
MAX_BYTES: Final = 32 * 1024 * 1024
MAX_TEXT: Final = 1_000_000
MAX_DATA_BYTES: Final = 262_144
MAX_LINE: Final = 500
_MAX_URI: Final = 300
_MAX_KIND: Final = 40
_DATA_URL = re.compile(r"data:[\w.+/-]*(?:;[\w.+=-]+)*;base64,[A-Za-z0-9+/_=-]{16,}")


class AttachBytes(Protocol):
    """Stores bytes and returns the blocks that show them."""

    async def __call__(self, data: bytes, *, name: str, source: str) -> Sequence[ContentBlock]: ...


async def tool_result(answer: CallToolResult, attach: AttachBytes, server: str) -> ToolResult:
    """Return the result of a call. Content that cannot be shown is described; nothing that a server sends raises an
    error."""
    builder = _BlockBuilder(attach, server)
    await builder.add_items(answer.content)
    data = await builder.add_structured(answer.structured_content)
    if not builder.blocks:
        builder.add_text("it failed without a message" if answer.is_error else NO_OUTPUT)
    return ToolResult("-", tuple(builder.blocks), is_error=answer.is_error, data=data)


async def content_blocks(items: Sequence[Any], attach: AttachBytes, server: str) -> list[ContentBlock]:
    """Return the blocks for contents, or for the contents of resources; at least one."""
    builder = _BlockBuilder(attach, server)
    await builder.add_items(items)
    if not builder.blocks:
        builder.add_text(NO_OUTPUT)
    return builder.blocks


def shorten(text: str) -> str:
    """Return a server's text as one line of limited length."""
    line = " ".join(clean_text(text).split())
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…"


class _BlockBuilder:
    """Converts one response, item by item, within one budget of bytes."""

    def __init__(self, attach: AttachBytes, server: str) -> None:
        self.blocks: list[ContentBlock] = []
        self._attach_bytes = attach
        self._server = server
        self._bytes_left = MAX_BYTES
        self._pending: list[tuple[bytes, str]] = []
        """Bytes and names that were taken out of the current text; their blocks follow it."""
        self._is_structured = False
        self._attached: set[str] = set()
        """The digests of attached bytes: content and structured content are often the same."""

    def add_text(self, text: str) -> None:
        text = clean_text(text)
        if text.strip():
            cut = f"\n[cut here: {len(text) - MAX_TEXT} of {len(text)} characters are left out]"
            self.blocks.append(TextBlock(text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + cut))

    async def add_items(self, items: Sequence[Any]) -> None:
        for item in items[:MAX_ITEMS]:
            await self._add_item(item)
        if len(items) > MAX_ITEMS:
            self.add_text(f"[{len(items) - MAX_ITEMS} more items are left out: at most {MAX_ITEMS} are shown]")

    async def add_structured(self, value: Any) -> Any:
        """Return the data for interfaces. If there is no text, the model gets the data as JSON."""
        if value is None:
            return None
        self._is_structured = True
        plain = self._take_bytes(value)
        written = json_text(plain)
        if not any(isinstance(block, TextBlock) for block in self.blocks):
            self.add_text(written)
            await self._attach_pending()
        return plain if len(written.encode()) <= MAX_DATA_BYTES else None

    async def _add_item(self, item: Any) -> None:
        match getattr(item, "type", "contents"):
            case "text":
                await self._add_rich_text(item.text)
            case "image" | "audio":
                await self._add_base64(item.data, item.type)
            case "resource":
                await self._add_item(item.resource)
            case "resource_link":
                self.add_text(_link(item))
            case "contents" if isinstance(blob := getattr(item, "blob", None), str):
                await self._add_base64(blob, "resource", _last_part(item.uri))
            case "contents":
                self.add_text(f"[resource: {item.uri[:_MAX_URI]}]")
                await self._add_rich_text(getattr(item, "text", ""))
            case other:
                self.add_text(f"[{str(other)[:_MAX_KIND]}: not shown]")

    async def _add_rich_text(self, text: str) -> None:
        """Add a text, with the images that it may contain as `data:` URLs or as base64 in JSON."""
        if may_hold_bytes(text):
            try:
                text = json_text(self._take_bytes(msgspec.json.decode(text, type=dict[str, Any] | list[Any])))
            except (msgspec.DecodeError, RecursionError):
                text = _DATA_URL.sub(self._replace_url, text)
        self.add_text(text)
        await self._attach_pending()

    async def _add_base64(self, text: str, kind: str, name: str = "") -> None:
        size = len(text) * 3 // 4
        data = from_base64(text) if size <= self._bytes_left else None
        if data is not None:
            self._bytes_left -= len(data)
            await self._attach(data, name)
        elif size > self._bytes_left:
            limit = size_label(MAX_BYTES)
            self.add_text(f"[{name or kind}, {size_label(size)}, not shown: a response may contain {limit} in all]")
        else:
            self.add_text(f"[{name or kind}: its base64 data could not be decoded]")

    def _take_bytes(self, value: Any) -> Any:
        return store_nested_media(sanitize_json(value), self._take)[0]

    def _replace_url(self, url: re.Match[str]) -> str:
        block = store_data_url(url[0], self._take)
        return "[data that could not be decoded]" if block is None else text_of(block)

    def _take(self, data: bytes, name: str, _declared: str) -> ContentBlock:
        """Keep bytes to attach them after the text, and return a label for their place."""
        if self._is_structured and digest_of(data) in self._attached:
            return TextBlock("[shown above]")
        if len(data) > self._bytes_left or len(self._pending) >= MAX_ITEMS:
            return TextBlock(f"[{size_label(len(data))} that are not shown: the response contains too much]")
        self._bytes_left -= len(data)
        self._pending.append((data, name))
        return TextBlock(f"[shown below: {len(self._pending)}]")

    async def _attach_pending(self) -> None:
        for data, name in self._pending:
            await self._attach(data, name)
        self._pending.clear()

    async def _attach(self, data: bytes, name: str) -> None:
        self._attached.add(digest_of(data))
        try:
            self.blocks.extend(await self._attach_bytes(data, name=name, source=f"mcp:{self._server}"))
        except LoomError as error:
            self.add_text(f"[not shown: {error}]")


def _link(item: ResourceLink) -> str:
    facts = [item.title or item.name, item.mime_type or "", size_label(item.size) if item.size else ""]
    about = ", ".join(fact for fact in facts if fact)
    described = f": {item.description[:MAX_LINE]}" if item.description else ""
    return f"[link to {about} at {item.uri[:_MAX_URI]}, not fetched{described}]"


def _last_part(uri: str) -> str:
    """Return a display name; it is never opened."""
    try:
        return clean_text(unquote(urlsplit(uri).path).rstrip("/").rpartition("/")[2])[:200]
    except ValueError:
        return ""
