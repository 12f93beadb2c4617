"""Responses of a server as blocks. Bytes are decoded within a budget and pass intake like any file: their content
determines their type, not the server. Links are listed, never followed, and no path in them is ever read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from loom.content.blocks import NO_OUTPUT, ContentBlock, TextBlock, ToolResult, clean_text
from loom.content.encoded import data_url, from_base64, may_hold_bytes
from loom.content.json_values import sanitize_json
from loom.content.media import digest_of, size_label
from loom.content.nested_media import store_nested_media
from loom.errors import LoomError

if TYPE_CHECKING:
    from mcp_types import BlobResourceContents, CallToolResult, ResourceLink, TextResourceContents

MAX_ITEMS: Final = 100
MAX_BYTES: Final = 32 * 1024 * 1024
MAX_TEXT: Final = 1_000_000
MAX_DATA_BYTES: Final = 262_144
MAX_DESCRIPTION: Final = 500
_MAX_URI: Final = 300
_MAX_KIND: Final = 40
_DATA_URL = re.compile(r"data:[\w.+/-]*(?:;[\w.+=-]+)*;base64,[A-Za-z0-9+/_=-]{16,}")


class AttachBytes(Protocol):
    """Stores bytes and returns the blocks that show them."""

    async def __call__(self, data: bytes, *, name: str, source: str) -> Sequence[ContentBlock]: ...


async def result_of(answer: CallToolResult, attach: AttachBytes, server: str) -> ToolResult:
    """Return the result of a call. Content that cannot be shown is described; nothing that a server sends raises an
    error."""
    unpacking = _Unpacking(attach, server)
    await unpacking.add_all(answer.content)
    data = await unpacking.add_structured(answer.structured_content)
    if not unpacking.blocks:
        unpacking.say("it failed without a message" if answer.is_error else NO_OUTPUT)
    return ToolResult("-", tuple(unpacking.blocks), is_error=answer.is_error, data=data)


async def blocks_of_items(items: Sequence[Any], attach: AttachBytes, server: str) -> list[ContentBlock]:
    """Return the blocks for contents, or for the contents of resources; at least one."""
    unpacking = _Unpacking(attach, server)
    await unpacking.add_all(items)
    if not unpacking.blocks:
        unpacking.say(NO_OUTPUT)
    return unpacking.blocks


class _Unpacking:
    """Converts one response, item by item, within one budget of bytes."""

    def __init__(self, attach: AttachBytes, server: str) -> None:
        self.blocks: list[ContentBlock] = []
        self._attach_bytes = attach
        self._server = server
        self._bytes_left = MAX_BYTES
        self._is_structured = False
        self._shown: set[str] = set()
        """The digests of attached bytes: content and structured content are often the same."""

    def say(self, text: str) -> None:
        text = clean_text(text)
        if text.strip():
            cut = f"\n[cut here: {len(text) - MAX_TEXT} of {len(text)} characters are left out]"
            self.blocks.append(TextBlock(text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + cut))

    async def add_all(self, items: Sequence[Any]) -> None:
        for item in items[:MAX_ITEMS]:
            await self._add(item)
        if len(items) > MAX_ITEMS:
            self.say(f"[{len(items) - MAX_ITEMS} more items are left out: at most {MAX_ITEMS} are shown]")

    async def _add(self, item: Any) -> None:
        match getattr(item, "type", "contents"):
            case "text":
                await self._text(item.text)
            case "image" | "audio":
                await self._add_base64(item.data, item.type)
            case "resource":
                await self._resource(item.resource)
            case "resource_link":
                self.say(_link(item))
            case "contents":
                await self._resource(item)
            case other:
                self.say(f"[{str(other)[:_MAX_KIND]}: not shown]")

    async def add_structured(self, value: Any) -> Any:
        """Return the data for interfaces. If there is no text, the model gets the data as JSON."""
        if value is None:
            return None
        self._is_structured = True
        plain, found = self._extract_bytes(value)
        written = msgspec.json.encode(plain)
        if not any(isinstance(block, TextBlock) for block in self.blocks):
            self.say(written.decode())
            await self._attach_all(found)
        return plain if len(written) <= MAX_DATA_BYTES else None

    async def _text(self, text: str) -> None:
        """Add a text, with the images that it may contain as `data:` URLs or as base64 in JSON."""
        if not may_hold_bytes(text):
            return self.say(text)
        try:
            plain, found = self._extract_bytes(msgspec.json.decode(text, type=dict[str, Any] | list[Any]))
        except (msgspec.DecodeError, RecursionError):
            found: list[tuple[bytes, str]] = []
            self.say(_DATA_URL.sub(lambda url: self._label(url[0], found), text))
        else:
            self.say(msgspec.json.encode(plain).decode())
        return await self._attach_all(found)

    def _label(self, url: str, found: list[tuple[bytes, str]]) -> str:
        read = data_url(url)
        if read is None or not read.data:
            return "[data that could not be decoded]"
        return self._collect_bytes(read.data, read.name, found)

    def _extract_bytes(self, value: Any) -> tuple[Any, list[tuple[bytes, str]]]:
        found: list[tuple[bytes, str]] = []

        def lift(data: bytes, name: str, _declared: str) -> ContentBlock:
            return TextBlock(self._collect_bytes(data, name, found))

        plain, _ = store_nested_media(sanitize_json(value), lift)
        return plain, found

    def _collect_bytes(self, data: bytes, name: str, found: list[tuple[bytes, str]]) -> str:
        if self._is_structured and digest_of(data) in self._shown:
            return "[shown above]"
        if len(data) > self._bytes_left or len(found) >= MAX_ITEMS:
            return f"[{size_label(len(data))} that are not shown: the answer contains too much]"
        self._bytes_left -= len(data)
        found.append((data, name))
        return f"[shown below: {len(found)}]"

    async def _attach_all(self, found: list[tuple[bytes, str]]) -> None:
        for data, name in found:
            await self._attach(data, name)

    async def _add_base64(self, text: str, kind: str, name: str = "") -> None:
        if len(text) * 3 // 4 > self._bytes_left:
            size = size_label(len(text) * 3 // 4)
            self.say(f"[{name or kind}, {size}, not shown: an answer may contain {size_label(MAX_BYTES)} in all]")
            return
        data = from_base64(text)
        if data is None:
            self.say(f"[{name or kind}: its base64 data could not be decoded]")
            return
        self._bytes_left -= len(data)
        await self._attach(data, name)

    async def _attach(self, data: bytes, name: str) -> None:
        self._shown.add(digest_of(data))
        try:
            self.blocks.extend(await self._attach_bytes(data, name=name, source=f"mcp:{self._server}"))
        except LoomError as error:
            self.say(f"[not shown: {error}]")

    async def _resource(self, resource: TextResourceContents | BlobResourceContents) -> None:
        blob = getattr(resource, "blob", None)
        if isinstance(blob, str):
            await self._add_base64(blob, "resource", _last_part(resource.uri))
        else:
            self.say(f"[resource: {resource.uri[:_MAX_URI]}]")
            await self._text(getattr(resource, "text", ""))


def _link(item: ResourceLink) -> str:
    facts = [item.title or item.name, item.mime_type or "", size_label(item.size) if item.size else ""]
    about = ", ".join(fact for fact in facts if fact)
    described = f": {item.description[:MAX_DESCRIPTION]}" if item.description else ""
    return f"[link to {about} at {item.uri[:_MAX_URI]}, not fetched{described}]"


def _last_part(uri: str) -> str:
    """Return a display name; it is never opened."""
    try:
        return clean_text(unquote(urlsplit(uri).path).rstrip("/").rpartition("/")[2])[:200]
    except ValueError:
        return ""
