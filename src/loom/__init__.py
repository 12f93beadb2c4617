"""Loom: a conversation is written once, as blocks that refer to bytes by digest, and compiled for any model.

The public names. Each is imported when it is first used, so that `import loom` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom import errors, events
    from loom.agent.custom_blocks import register_block
    from loom.agent.gate import Allow, ApprovalRequest, Ask, Deny
    from loom.async_loom import AsyncLoom
    from loom.content.blocks import (
        AudioBlock,
        Block,
        Citation,
        ContentBlock,
        DocumentBlock,
        ImageBlock,
        Opaque,
        TextBlock,
        ThinkingBlock,
        ToolCall,
        ToolResult,
        UnknownBlock,
        VideoBlock,
    )
    from loom.content.inputs import Attachment, Content, audio, document, image, video
    from loom.content.media import Media
    from loom.content.messages import Message, text_of
    from loom.daemon.embedded import asgi
    from loom.errors import LoomError
    from loom.events import Event
    from loom.models import Capabilities, Model, Usage
    from loom.prompt import Prompt, Receipt
    from loom.runtime import Runtime
    from loom.runtime.custom_provider import register_provider
    from loom.session import Reply, Session
    from loom.sync import Loom, ask, diff
    from loom.tools.base import SyncToolContext, ToolContext, tool

_HOMES = {
    "loom.agent.custom_blocks": ("register_block",),
    "loom.agent.gate": ("Allow", "ApprovalRequest", "Ask", "Deny"),
    "loom.async_loom": ("AsyncLoom",),
    "loom.content.blocks": (
        "AudioBlock",
        "Block",
        "Citation",
        "ContentBlock",
        "DocumentBlock",
        "ImageBlock",
        "Opaque",
        "TextBlock",
        "ThinkingBlock",
        "ToolCall",
        "ToolResult",
        "UnknownBlock",
        "VideoBlock",
    ),
    "loom.content.inputs": ("Attachment", "Content", "audio", "document", "image", "video"),
    "loom.content.media": ("Media",),
    "loom.content.messages": ("Message", "text_of"),
    "loom.daemon.embedded": ("asgi",),
    "loom.sync": ("Loom", "ask", "diff"),
    "loom.errors": ("LoomError",),
    "loom.events": ("Event",),
    "loom.models": ("Capabilities", "Model", "Usage"),
    "loom.prompt": ("Prompt", "Receipt"),
    "loom.runtime": ("Runtime",),
    "loom.runtime.custom_provider": ("register_provider",),
    "loom.session": ("Reply", "Session"),
    "loom.tools.base": ("SyncToolContext", "ToolContext", "tool"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Allow",
    "ApprovalRequest",
    "Ask",
    "AsyncLoom",
    "Attachment",
    "AudioBlock",
    "Block",
    "Capabilities",
    "Citation",
    "Content",
    "ContentBlock",
    "Deny",
    "DocumentBlock",
    "Event",
    "ImageBlock",
    "Loom",
    "LoomError",
    "Media",
    "Message",
    "Model",
    "Opaque",
    "Prompt",
    "Receipt",
    "Reply",
    "Runtime",
    "Session",
    "SyncToolContext",
    "TextBlock",
    "ThinkingBlock",
    "ToolCall",
    "ToolContext",
    "ToolResult",
    "UnknownBlock",
    "Usage",
    "VideoBlock",
    "asgi",
    "ask",
    "audio",
    "diff",
    "document",
    "errors",
    "events",
    "image",
    "register_block",
    "register_provider",
    "text_of",
    "tool",
    "video",
]


def __getattr__(name: str) -> Any:
    if name in ("errors", "events"):
        return importlib.import_module(f"loom.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'loom' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
