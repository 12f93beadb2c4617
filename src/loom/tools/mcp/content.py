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
from loom.content.nested_media import store_nested_media
from loom.errors import LoomError
from loom.struct_types import decode_json

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ResourceLink

MAX_ITEMS: Final = 100
MAX_BYTES: Final = 32 * 1024 * 1024
MAX_TEXT: Final = 1_000_000
MAX_DATA_BYTES: Final = 262_144
MAX_LINE: Final = 500
_MAX_URI: Final = 300
_DATA_URL = re.compile(r"data:[\w.+/-]*(?:;[\w.+=-]+)*;base64,[A-Za-z0-9+/_=-]{16,}")


class AttachBytes(Protocol):
    """Stores bytes and returns the blocks that show them."""

    async def __call__(self, data: bytes, *, name: str, source: str) -> Sequence[ContentBlock]: ...


async def tool_result(answer: CallToolResult, attach: AttachBytes, server: str) -> ToolResult:
    """Return the result of a call. Content that cannot be shown is described; nothing that a server sends raises an
    error."""
    response = _Response(answer.content)
    data = response.add_structured(answer.structured_content)
    empty = "it failed without a message" if answer.is_error else NO_OUTPUT
    return ToolResult("-", tuple(await response.blocks(attach, server, empty)), is_error=answer.is_error, data=data)


async def content_blocks(items: Sequence[Any], attach: AttachBytes, server: str) -> list[ContentBlock]:
    """Return the blocks for contents, or for the contents of resources; at least one."""
    return await _Response(items).blocks(attach, server, NO_OUTPUT)


def shorten(text: str) -> str:
    """Return a server's text as one line of limited length."""
    line = " ".join(clean_text(text).split())
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…"


class _Response:
    """One response as texts, and bytes with their names, within one budget of bytes."""

    def __init__(self, items: Sequence[Any]) -> None:
        self._parts: list[str | tuple[bytes, str]] = []
        self._bytes_left = MAX_BYTES
        self._pending: list[tuple[bytes, str]] = []
        """What was taken out of the current text; it follows it."""
        self._shown: set[str] = set()
        """The digests of the content while structured content is added: often both are the same."""
        for item in items[:MAX_ITEMS]:
            self._add_item(item)
        if len(items) > MAX_ITEMS:
            self._add(f"[{len(items) - MAX_ITEMS} more items are left out: at most {MAX_ITEMS} are shown]")

    def add_structured(self, value: Any) -> Any:
        """Return the data for interfaces. If there is no text, the model gets the data as JSON."""
        if value is None:
            return None
        self._shown = {digest_of(part[0]) for part in self._parts if not isinstance(part, str)}
        plain = self._take_nested(value)
        written = json_text(plain)
        if not any(isinstance(part, str) for part in self._parts):
            self._add(written)
        return plain if len(written.encode()) <= MAX_DATA_BYTES else None

    async def blocks(self, attach: AttachBytes, server: str, empty: str) -> list[ContentBlock]:
        """Return the blocks: `empty` if there are none."""
        blocks: list[ContentBlock] = []
        for part in self._parts:
            if isinstance(part, str):
                blocks.append(TextBlock(part))
                continue
            try:
                blocks += await attach(part[0], name=part[1], source=f"mcp:{server}")
            except LoomError as error:
                blocks.append(TextBlock(f"[not shown: {error}]"))
        return blocks or [TextBlock(empty)]

    def _add(self, text: str) -> None:
        """Add a text, and what was taken out of it."""
        text = clean_text(text)
        if len(text) > MAX_TEXT:
            left_out = len(text) - MAX_TEXT
            text = f"{text[:MAX_TEXT]}\n[cut here: {left_out} of {len(text)} characters are left out]"
        self._parts += [*([text] if text.strip() else []), *self._pending]
        self._pending.clear()

    def _add_item(self, item: Any) -> None:
        match getattr(item, "type", "contents"):
            case "text":
                self._add(self._take_from_text(item.text))
            case "image" | "audio":
                self._add(self._take_base64(item.data, "", item.type))
            case "resource":
                self._add_item(item.resource)
            case "resource_link":
                self._add(_link(item))
            case "contents" if isinstance(blob := getattr(item, "blob", None), str):
                self._add(self._take_base64(blob, _last_part(item.uri), "resource"))
            case "contents":
                self._add(f"[resource: {item.uri[:_MAX_URI]}]")
                self._add(self._take_from_text(item.text))
            case other:
                self._add(f"[{str(other)[:40]}: not shown]")

    def _take_from_text(self, text: str) -> str:
        """Take the images out of a text that it may contain as `data:` URLs or as base64 in JSON."""
        if not may_hold_bytes(text):
            return text
        try:
            return json_text(self._take_nested(decode_json(text, dict[str, Any] | list[Any])))
        except (msgspec.DecodeError, RecursionError):
            return _DATA_URL.sub(lambda url: self._take_nested(url[0]), text)

    def _take_nested(self, value: Any) -> Any:
        """Take the bytes out of plain JSON, or out of a string that is a `data:` URL."""
        return store_nested_media(sanitize_json(value), self._label)[0]

    def _take_base64(self, text: str, name: str, kind: str) -> str:
        data = from_base64(text)
        if data is None:
            return f"[{name or kind}: its base64 data could not be decoded]"
        return self._take(data, name, kind)

    def _label(self, data: bytes, name: str, _declared: str) -> ContentBlock:
        """Keep bytes, and return a label for their place in a text."""
        if digest_of(data) in self._shown:
            return TextBlock("[shown above]")
        return TextBlock(self._take(data, name, "data") or f"[shown below: {len(self._pending)}]")

    def _take(self, data: bytes, name: str, kind: str) -> str:
        """Keep bytes to attach them after the text. Return the reason if they are over the budget."""
        if len(data) > self._bytes_left or len(self._pending) >= MAX_ITEMS:
            limit = size_label(MAX_BYTES)
            return f"[{name or kind}, {size_label(len(data))}, not shown: a response may contain {limit} in all]"
        self._bytes_left -= len(data)
        self._pending.append((data, name))
        return ""


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
