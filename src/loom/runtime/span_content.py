"""Messages as OpenTelemetry's conventions write them. Media stay references: the digest is their URI."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, assert_never

import msgspec

from loom.content.blocks import (
    AudioBlock,
    Block,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    UnknownBlock,
    VideoBlock,
)
from loom.content.media_kinds import media_kind
from loom.content.messages import Message
from loom.tools.secret_mask import mask_value


def messages_json(messages: Iterable[Message], secrets: Collection[str], *, finish: str = "") -> str:
    """Return messages as JSON with `secrets` masked; `finish` is why an answer ended."""
    ended = {"finish_reason": finish} if finish else {}
    found = [
        {"role": message.role, "parts": [_part(block) for block in message.blocks], **ended} for message in messages
    ]
    return content_json(found, secrets)


def content_json(value: Any, secrets: Collection[str]) -> str:
    return msgspec.json.encode(mask_value(value, secrets)).decode()


def result_json(result: ToolResult, secrets: Collection[str]) -> str:
    return content_json([_part(block) for block in result.blocks], secrets)


def _part(block: Block) -> dict[str, Any]:
    match block:
        case TextBlock():
            return {"type": "text", "content": block.text}
        case ThinkingBlock():
            return {"type": "reasoning", "content": block.text}
        case ToolCall():
            return {"type": "tool_call", "id": block.id, "name": block.name, "arguments": block.arguments}
        case ToolResult():
            return {
                "type": "tool_call_response",
                "id": block.call_id,
                "response": [_part(inner) for inner in block.blocks],
            }
        case ImageBlock() | DocumentBlock() | AudioBlock() | VideoBlock():
            media = block.media
            modality = media_kind(media.media_type).name
            return {"type": "uri", "modality": modality, "mime_type": media.media_type, "uri": media.digest}
        case UnknownBlock():
            return {"type": str(block.data.get("type", "unknown"))}
        case _:
            assert_never(block)
