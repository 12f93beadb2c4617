"""The return value of a tool → the blocks of its result. Text, paths, bytes, images, blocks, JSON and lists of these
become blocks; data URLs inside JSON become media; long text is truncated, and the rest can be read with `look`."""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from loom.agent.custom_blocks import expand_custom_blocks, is_custom
from loom.content.blocks import (
    NO_OUTPUT,
    AudioBlock,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ToolResult,
    UnknownBlock,
    VideoBlock,
    clean_text,
)
from loom.content.inputs import Attachment
from loom.content.media import DIGEST_TAG, Media, is_digest
from loom.content.messages import Message
from loom.content.nested_media import store_nested_media
from loom.errors import LoomError

Attach = Callable[[bytes | Path | Attachment], Awaitable[Sequence[ContentBlock]]]

Keep = Callable[[str], Awaitable[Media]]
"""Stores a text that is too long to show."""

TEXT_CAP_BYTES: Final = 30_000
_LEAST_BYTES: Final = 600
_ID_CHARS: Final = 12
_KEPT: Final = "kept"


async def blocks_of(value: Any, attach: Attach) -> list[ContentBlock]:
    """Return the blocks of a tool's return value. A value that cannot be shown is described in text instead of
    raising."""
    match value:
        case None:
            return []
        case str():
            return [TextBlock(clean_text(value))] if value.strip() else []
        case TextBlock() | ImageBlock() | DocumentBlock() | AudioBlock() | VideoBlock() | UnknownBlock():
            return [value]
        case ToolResult():
            return list(value.blocks)
        case bytes() | Path() | Attachment():
            return await _attach_value(value, attach)
        case _ if is_custom(value):
            return await blocks_of(expand_custom_blocks(value), attach)
        case list() | tuple():
            items = cast("Sequence[Any]", value)
            content = bytes | Path | Attachment | ContentBlock | ToolResult
            if any(
                isinstance(it, content) or is_custom(it) or hasattr(it, "save") or hasattr(it, "savefig")
                for it in items
            ):
                return [block for item in items for block in await blocks_of(item, attach)]
            return await _json(list(items), attach)
        case _:
            png = _picture(value)
            return await _attach_value(png, attach) if png is not None else await _json(value, attach)


async def _attach_value(value: bytes | Path | Attachment, attach: Attach) -> list[ContentBlock]:
    try:
        return list(await attach(value))
    except LoomError as error:
        return [TextBlock(f"[not shown: {error}]")]


def _picture(value: Any) -> bytes | None:
    """Return the PNG of a Pillow image or of a figure: any value that can save itself as PNG. Convert color modes that
    PNG lacks to RGB."""
    save = getattr(value, "save", None) or getattr(value, "savefig", None)
    if not callable(save):
        return None
    buffer = io.BytesIO()
    try:
        save(buffer, format="PNG")
    except (TypeError, ValueError):  # its save method saves another format, or only to a path
        return None
    except OSError:
        value.convert("RGB").save(buffer, format="PNG")
    return buffer.getvalue() or None


async def _json(value: Any, attach: Attach) -> list[ContentBlock]:
    try:
        plain = msgspec.to_builtins(value, str_keys=True)
        text = msgspec.json.encode(plain).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return [TextBlock(clean_text(str(value)) or NO_OUTPUT)]
    if "base64," not in text:
        return [TextBlock(text)] if text not in ("{}", "[]", '""') else []
    return await _store_data_urls(plain, attach)


async def _store_data_urls(plain: Any, attach: Attach) -> list[ContentBlock]:
    """Turn data URLs into blocks; a label replaces them in the JSON."""
    found: list[tuple[bytes, str]] = []

    def lift(data: bytes, name: str, _declared: str) -> ContentBlock:
        found.append((data, name))
        return TextBlock(f"[shown below: {len(found)}]")

    rest, _ = store_nested_media(plain, lift)
    blocks: list[ContentBlock] = [TextBlock(msgspec.json.encode(rest).decode())]
    for data, name in found:
        blocks += await _attach_value(Attachment(source=data, name=name), attach)
    return blocks


async def fit_text(
    blocks: Sequence[ContentBlock], *, most_bytes: int = TEXT_CAP_BYTES, keep: Keep | None = None
) -> tuple[tuple[ContentBlock, ...], Media | None]:
    """Truncate text beyond `most_bytes`: keep its beginning and its end, with a note on how to read the rest. The
    result is never empty.

    `keep` stores the whole text. No block refers to it, so it is deleted after `cleanup_after_days`; `look` then
    reports that it is gone.
    """
    texts = [block.text for block in blocks if isinstance(block, TextBlock)]
    if sum(len(text.encode()) for text in texts) <= most_bytes:
        return tuple(blocks) or (TextBlock(NO_OUTPUT),), None
    whole = "\n".join(texts)
    kept = await keep(whole) if keep is not None else None
    shown: list[ContentBlock] = []
    left, lines, is_cut = most_bytes, 0, False
    for block in blocks:
        if not isinstance(block, TextBlock):
            shown.append(block)
        elif not is_cut and len(block.text.encode()) <= left:
            shown.append(block)
            left -= len(block.text.encode())
            lines += block.text.count("\n") + 1
        elif not is_cut:
            is_cut = True
            shown.append(TextBlock(_cut(block.text, max(left, _LEAST_BYTES), whole, lines, kept)))
    return tuple(shown), kept


def _cut(text: str, most_bytes: int, whole: str, lines_before: int, kept: Media | None) -> str:
    data = text.encode()
    head = data[: most_bytes * 2 // 3].decode("utf-8", "ignore")
    tail = data[len(data) - most_bytes // 3 :].decode("utf-8", "ignore")
    if "\n" in head[len(head) // 2 :]:
        head = head[: head.rindex("\n")]
    if "\n" in tail[: len(tail) // 2]:
        tail = tail[tail.index("\n") + 1 :]
    size = len(whole.encode())
    note = f"{size - len(head.encode()) - len(tail.encode())} of {size} bytes are left out here"
    if kept is not None:
        line = lines_before + head.count("\n") + 2
        note += f'; look(media="{kept.digest.removeprefix(DIGEST_TAG)[:_ID_CHARS]}", offset={line}) continues'
    return f"{head}\n[{note}]\n{tail}"


def with_kept(data: Any, kept: Media | None) -> Any:
    """Return the data for interfaces, with a reference to the whole of a truncated text, where `look` finds it. The key
    is reserved: a value that the tool set itself is removed."""
    if isinstance(data, dict):
        data = {key: value for key, value in cast("dict[str, Any]", data).items() if key != _KEPT}
    if kept is None:
        return data
    fields = cast("dict[str, Any]", data) if isinstance(data, dict) else {} if data is None else {"value": data}
    return {**fields, _KEPT: {"digest": kept.digest, "size_bytes": kept.size_bytes}}


def kept_texts(message: Message) -> Iterator[Media]:
    """Yield the whole texts of truncated results."""
    for result in message.results:
        match result.data:
            case {"kept": {"digest": str(digest), "size_bytes": int(size)}} if is_digest(digest):
                yield kept_text(digest, size, result.name)
            case _:
                continue


def kept_text(digest: str, size_bytes: int, tool: str) -> Media:
    return Media(digest=digest, media_type="text/plain", size_bytes=size_bytes, name=f"output of {tool}")
