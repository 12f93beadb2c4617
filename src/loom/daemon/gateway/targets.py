"""Which models a request goes to: aliases, routes by content, and fallbacks."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from loom.config.schema import GatewaySettings
from loom.content.blocks import DocumentBlock, ImageBlock, ToolResult
from loom.content.messages import Message


def target_models(name: str, settings: GatewaySettings, *, has_images: bool, default: str) -> tuple[str, ...]:
    """Return the models to try, in order. `name` is what the client asked for.

    An alias (the first pattern that matches) replaces the name; a route replaces it by what the request holds;
    fallbacks follow. An empty name means `default`.
    """
    wanted = name or default
    for pattern, model in settings.aliases.items():
        if fnmatchcase(wanted, pattern):
            wanted = model
            break
    if has_images and settings.routes.images:
        wanted = settings.routes.images
    chain = [wanted]
    for pattern, models in settings.fallback.items():
        if fnmatchcase(wanted, pattern) or fnmatchcase(name, pattern):
            chain += models
            break
    return tuple(dict.fromkeys(chain))


def has_images(messages: Sequence[Message]) -> bool:
    """Return whether a conversation holds images or documents, in tool results too."""
    for message in messages:
        for block in message.blocks:
            inner = block.blocks if isinstance(block, ToolResult) else (block,)
            if any(isinstance(found, ImageBlock | DocumentBlock) for found in inner):
                return True
    return False
