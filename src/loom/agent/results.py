"""What a tool returned → the blocks of its result. Text, paths, bytes, pictures, blocks, JSON and lists of these all
mean what one would expect; data URLs inside JSON become blocks; long text is capped and the rest can be read on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from loom.content.blocks import (
    NO_OUTPUT,
    AudioBlock,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ToolResult,
    UnknownBlock,
    clean_text,
)
from loom.content.inputs import Attachment
from loom.content.legacy.media import lift_nested
from loom.content.legacy.reading import Reading
from loom.errors import LoomError

Attach = Callable[[bytes | Path | Attachment], Awaitable[Sequence[ContentBlock]]]

TEXT_CAP_BYTES: Final = 30_000


async def blocks_of(value: Any, attach: Attach) -> list[ContentBlock]:
    """Never raises for what a tool may return; what cannot be shown is described."""
    match value:
        case None:
            return []
        case str():
            return [TextBlock(clean_text(value))] if value.strip() else []
        case TextBlock() | ImageBlock() | DocumentBlock() | AudioBlock() | UnknownBlock():
            return [value]
        case ToolResult():
            return list(value.blocks)
        case bytes() | Path() | Attachment():
            return await _attached(value, attach)
        case list() | tuple():
            items = cast("Sequence[Any]", value)
            if any(_is_content(item) for item in items):
                return [block for item in items for block in await blocks_of(item, attach)]
            return await _json(list(items), attach)
        case _:
            png = _picture(value)
            return await _attached(png, attach) if png is not None else await _json(value, attach)


def _is_content(item: Any) -> bool:
    content = bytes | Path | Attachment | TextBlock | ImageBlock | DocumentBlock | AudioBlock | ToolResult
    return isinstance(item, content) or hasattr(item, "save")


async def _attached(value: bytes | Path | Attachment, attach: Attach) -> list[ContentBlock]:
    try:
        return list(await attach(value))
    except LoomError as error:
        return [TextBlock(f"[not shown: {error}]")]


def _picture(value: Any) -> bytes | None:
    """A Pillow image or a figure: whatever can save itself as PNG."""
    save = getattr(value, "save", None) or getattr(value, "savefig", None)
    if save is None:
        return None
    import io

    buffer = io.BytesIO()
    save(buffer, format="PNG")
    return buffer.getvalue()


async def _json(value: Any, attach: Attach) -> list[ContentBlock]:
    try:
        plain = msgspec.to_builtins(value, str_keys=True)
        text = msgspec.json.encode(plain).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return [TextBlock(clean_text(str(value)) or NO_OUTPUT)]
    if "base64," not in text:
        return [TextBlock(text)] if text not in ("{}", "[]", '""') else []
    return await _lifted(plain, attach)


async def _lifted(plain: Any, attach: Attach) -> list[ContentBlock]:
    """Data URLs become blocks; the JSON keeps a label in their place."""
    found: list[tuple[bytes, str]] = []

    def lift(data: bytes, name: str, _declared: str) -> ContentBlock:
        found.append((data, name))
        return TextBlock(f"[shown below: {len(found)}]")

    rest, _ = lift_nested(plain, Reading(lift=lift, fetch=lambda _: None))
    blocks: list[ContentBlock] = [TextBlock(msgspec.json.encode(rest).decode())]
    for data, name in found:
        blocks += await _attached(Attachment(source=data, name=name), attach)
    return blocks


def capped(
    blocks: Sequence[ContentBlock], *, most_bytes: int = TEXT_CAP_BYTES, more: str = ""
) -> tuple[ContentBlock, ...]:
    """Text beyond the cap is cut, and the cut says so. Never empty."""
    kept: list[ContentBlock] = []
    left = most_bytes
    for block in blocks:
        if not isinstance(block, TextBlock):
            kept.append(block)
            continue
        size = len(block.text.encode())
        if size <= left:
            kept.append(block)
            left -= size
            continue
        head = block.text.encode()[: max(left, 200)].decode("utf-8", "ignore")
        said = f"[cut here: {size - len(head.encode())} of {size} bytes are left out{more}]"
        kept.append(TextBlock(f"{head}\n{said}"))
        left = 0
    return tuple(kept) or (TextBlock(NO_OUTPUT),)


def data_of(value: Any) -> Any:
    """What a tool meant for faces only: the `data` of a ToolResult that it built itself."""
    return value.data if isinstance(value, ToolResult) else None


def error_of(value: Any) -> bool:
    return isinstance(value, ToolResult) and value.is_error
