"""Messages ↔ JSON. Exact both ways, with a version number; blocks of a newer version are preserved.

A stored message is `{"v":1,"role":…,"blocks":[…]}`. A node's id is the hash of these bytes, so there is only one way to
write them: fields in their declared order, defaults left out, arguments in the order in which the model gave them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, assert_never, cast

import msgspec

from loom.content.blocks import (
    KNOWN_TYPES,
    Block,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    UnknownBlock,
    is_media_block,
)
from loom.content.messages import Message, Role
from loom.errors import ContentError, Newer
from loom.struct_types import convert, decode_json, json_decoder

VERSION: Final = 1


class _LooseMessage(msgspec.Struct):
    v: int
    role: Role
    blocks: list[dict[str, Any]]


class _Stamp(msgspec.Struct):
    v: int


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A single path: what `loom export` writes, and `loom wire` and `loom import` read."""

    messages: tuple[Message, ...]
    system: str = ""


_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeError)

_STAMPED: Final = f'{{"v":{VERSION},'
_decode = json_decoder(Message).decode
_loose = json_decoder(_LooseMessage)
_stamp = json_decoder(_Stamp)


_UNWRITABLE: Final = (TypeError, ValueError, OverflowError, RecursionError, msgspec.EncodeError)


def encode_message(message: Message) -> bytes:
    blocks: Any = message.blocks
    try:
        if _has_unknown(message.blocks):
            blocks = [_unwrap(block) for block in msgspec.to_builtins(message.blocks)]
        return msgspec.json.encode({"v": VERSION, "role": message.role, "blocks": blocks})
    except _UNWRITABLE as error:
        raise ContentError(f"A {message.role} message cannot be written: {error}") from None


def encode_stored(message: Message) -> str:
    """Return the text that a store keeps. If the message contains free JSON, which may have been changed after it was
    checked, read the text back first: a row that cannot be read would make its session unusable."""
    text = encode_message(message).decode()
    if _has_json(message.blocks):
        decode_message(text)
    return text


def decode_message(data: bytes | str) -> Message:
    try:
        text = data if isinstance(data, str) else data.decode()
        message = _decode(text) if text.startswith(_STAMPED) else None
    except msgspec.ValidationError:
        return _decode_loose(data)
    except _UNREADABLE as error:
        raise ContentError(f"Not a message: {error}") from None
    if message is None or ('"unknown"' in text and _has_unknown(message.blocks)):
        return _decode_loose(text)
    return message


class _Export(msgspec.Struct):
    loom: str
    v: int
    messages: list[msgspec.Raw]
    system: str = ""


def decode_conversation(data: bytes | str) -> Conversation:
    try:
        found = decode_json(data, _Export)
    except _UNREADABLE as error:
        raise ContentError(f"Not a conversation: {error}") from None
    if found.loom != "conversation":
        raise ContentError(f"Not a conversation but {found.loom!r}")
    _check_version(found.v)
    return Conversation(messages=tuple(decode_message(bytes(raw)) for raw in found.messages), system=found.system)


def _decode_loose(data: bytes | str) -> Message:
    """Decode block by block. This is slower, but preserves blocks of newer versions, and its errors are specific."""
    try:
        _check_version(_stamp.decode(data).v)
        loose = _loose.decode(data)
        return convert({"role": loose.role, "blocks": [_wrap(block) for block in loose.blocks]}, Message)
    except _UNREADABLE as error:
        raise ContentError(f"Not a message: {error}") from None


def _check_version(version: int) -> None:
    if version > VERSION:
        raise Newer(
            f"This message has format {version}; this Loom reads up to {VERSION}.", hint="Upgrade Loom to read it."
        )
    if version < 1:
        raise ContentError(f"A format version counts from 1, not {version}")


def _has_unknown(blocks: Sequence[Block]) -> bool:
    return any(
        isinstance(block, UnknownBlock) or (isinstance(block, ToolResult) and _has_unknown(block.blocks))
        for block in blocks
    )


def _has_json(blocks: Sequence[Block]) -> bool:
    """Return whether a block holds free JSON: unknown data, arguments, opaque data, citations, a tool's own data."""
    return any(_holds_json(block) for block in blocks)


def _holds_json(block: Block) -> bool:
    if is_media_block(block):
        return False
    match block:
        case TextBlock():
            return block.opaque is not None or bool(block.citations)
        case ThinkingBlock():
            return block.opaque is not None
        case ToolResult():
            return block.data is not None or _has_json(block.blocks)
        case ToolCall() | UnknownBlock():
            return True
        case _:
            assert_never(block)


def _wrap(data: Any) -> Any:
    """Put a block of an unknown kind into an `UnknownBlock`, inside tool results too."""
    if not isinstance(data, dict):
        return data
    block = cast("dict[str, Any]", data)
    kind = block.get("type")
    if not isinstance(kind, str) or kind not in KNOWN_TYPES:
        return {"type": "unknown", "data": block}
    if kind == "tool_result" and isinstance(block.get("blocks"), list):
        return {**block, "blocks": [_wrap(inner) for inner in block["blocks"]]}
    return block


def _unwrap(data: dict[str, Any]) -> dict[str, Any]:
    """Reverse `_wrap`: on disk an unknown block is exactly what its author wrote."""
    if data["type"] == "unknown":
        return cast("dict[str, Any]", data["data"])
    if data["type"] == "tool_result":
        return {**data, "blocks": [_unwrap(inner) for inner in data["blocks"]]}
    return data
