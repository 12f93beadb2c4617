"""Media inside a request body: taken out of the JSON before it is read, so that each is decoded once per session
instead of once per request, and can be written back at the socket.

A mark replaces the base64. It is base64 itself and decodes to a token that only this process can create. Equal bytes
have the same mark in every request, so that a history can be compared with the previous one. Importers pass the token
on like any bytes; it is looked up instead of decoded. Only fields for media are changed: a text that contains base64
stays a text.
"""

from __future__ import annotations

import binascii
import hmac
import secrets
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, Protocol, TypeAlias, cast

import msgspec

from loom.content.json_values import get_list, get_object, get_text
from loom.content.media import digest_of

_MEDIA_TYPES: Final = frozenset(("image_url", "input_image", "file", "input_file", "input_audio"))
_HEAD: Final = b"loom-part:"
_SECRET: Final = secrets.token_bytes(32)
_MAX_NESTING: Final = 12


class InlinePart(Protocol):
    """Bytes of a body, on disk, in memory or in the store."""

    @property
    def digest(self) -> str: ...

    @property
    def name(self) -> str: ...

    async def read_all(self) -> bytes: ...


class MemoryPart:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.digest = digest_of(data)
        self.name = ""

    async def read_all(self) -> bytes:
        return self._data


class StoredPart(msgspec.Struct, frozen=True, kw_only=True):
    """An uploaded file; its bytes are in the media store."""

    digest: str
    name: str
    media_type: str
    load: Callable[[str], Awaitable[bytes]]

    async def read_all(self) -> bytes:
        return await self.load(self.digest)


FindFile: TypeAlias = Callable[[str], Awaitable[StoredPart | None]]
"""Returns the file that a client uploaded under this id; None if the client has no such file."""


class InlineMedia:
    """The media of one request body."""

    def __init__(self) -> None:
        self._waiting: dict[str, InlinePart] = {}
        self.parts: dict[str, InlinePart] = {}
        """The media in media fields, by mark."""
        self.is_sound = True
        """Whether all media fields contain valid base64."""

    def add(self, part: InlinePart) -> str:
        """Return the mark for `part`, which a scanner has taken out of the JSON text."""
        code = hmac.digest(_SECRET, f"{part.digest} {part.name}".encode("utf-8", "surrogatepass"), "sha256")
        mark = binascii.b2a_base64(_HEAD + code, newline=False).decode()
        self._waiting[mark] = part
        return mark

    async def take(self, body: dict[str, Any], find_file: FindFile) -> None:
        """Replace media, and files that the client has uploaded, with marks. Changes `body`."""
        for block in _blocks([body.get("messages"), body.get("input")], 0):
            if block.get("type") not in _MEDIA_TYPES and "source" not in block:
                continue
            await self._take_file(block, find_file)
            for holder, key in _media_fields(block):
                self._take(holder, key)
        if self._waiting:
            await self._put_back(body)

    def _take(self, holder: dict[str, Any], key: str) -> None:
        text: str = holder[key]
        head, comma, encoded = text.rpartition(",") if text[:5] == "data:" else ("", "", text)
        if encoded in self._waiting:
            self.parts[encoded] = self._waiting.pop(encoded)
        if encoded in self.parts:
            return
        try:
            data = binascii.a2b_base64(encoded, strict_mode=True)
        except (binascii.Error, ValueError):
            data = b""
        if not data:
            self.is_sound = False  # the importer accepts more, and reports it
            return
        mark = self.add(MemoryPart(data))
        self.parts[mark] = self._waiting.pop(mark)
        holder[key] = f"{head}{comma}{mark}"

    async def _take_file(self, block: dict[str, Any], find_file: FindFile) -> None:
        holder = next((found for found in _file_holders(block) if get_text(found.get("file_id"))), None)
        part = await find_file(get_text(holder["file_id"])) if holder is not None else None
        if holder is None or part is None:
            return
        mark = self.add(part)
        self.parts[mark] = self._waiting.pop(mark)
        del holder["file_id"]
        if holder is block.get("source"):
            holder |= {"type": "base64", "media_type": part.media_type, "data": mark}
        elif block.get("type") == "input_image":
            holder["image_url"] = f"data:{part.media_type};base64,{mark}"
        else:
            holder |= {"filename": part.name, "file_data": f"data:{part.media_type};base64,{mark}"}

    async def _put_back(self, body: dict[str, Any]) -> None:
        """Restore base64 that is not in a media field."""
        texts = {
            mark: binascii.b2a_base64(await part.read_all(), newline=False) for mark, part in self._waiting.items()
        }

        def restore(value: Any) -> Any:
            match value:
                case str() if any(mark in value for mark in texts):
                    for mark, text in texts.items():
                        value = value.replace(mark, text.decode())
                    return value
                case dict():
                    return {restore(key): restore(item) for key, item in cast("dict[str, Any]", value).items()}
                case list():
                    return [restore(item) for item in cast("list[Any]", value)]
                case _:
                    return value

        restored = restore(body)
        body.clear()
        body.update(restored)
        self._waiting.clear()


def token_of(mark: str) -> bytes:
    """Return the bytes to which an importer decodes a mark."""
    return binascii.a2b_base64(mark)


def _blocks(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    """Yield every object that may be a block: in messages, their contents, and tool results."""
    if depth > _MAX_NESTING:
        return
    for item in get_list(value):
        if isinstance(item, list):
            yield from _blocks(item, depth + 1)
        block = get_object(item)
        if block:
            yield block
            for key in ("content", "output"):
                if isinstance(block.get(key), list | dict):
                    yield from _blocks(block[key], depth + 1)
            source = get_object(block.get("source"))
            if source.get("type") == "content":
                yield from _blocks(source.get("content"), depth + 1)


def _media_fields(block: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each base64 field of a block: the object and the name of the field."""
    source = get_object(block.get("source"))
    if source.get("type") == "base64":
        yield from _text_field(source, "data")
    match block.get("type"):
        case "image_url" | "input_image":
            yield from _text_field(block, "image_url", "data:")
            yield from _text_field(get_object(block.get("image_url")), "url", "data:")
        case "file" | "input_file":
            yield from _text_field(block, "file_data")
            yield from _text_field(get_object(block.get("file")), "file_data")
        case "input_audio":
            yield from _text_field(get_object(block.get("input_audio")), "data")
        case _:
            pass


def _text_field(holder: dict[str, Any], key: str, start: str = "") -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(holder.get(key), str) and holder[key].startswith(start):
        yield holder, key


def _file_holders(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    source = get_object(block.get("source"))
    if source.get("type") == "file":
        yield source
    match block.get("type"):
        case "file":
            yield get_object(block.get("file"))
        case "input_file" | "input_image":
            yield block
        case _:
            pass
