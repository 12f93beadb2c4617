"""Selection of the models for a request: aliases, routes by content, size and price, and fallbacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from loom.config.schema import GatewaySettings
from loom.content.blocks import AudioBlock, Block, DocumentBlock, ImageBlock, ToolResult, VideoBlock
from loom.content.messages import Message, text_of

_CHARS_PER_TOKEN: Final = 4
_MEDIUM_TOKENS: Final = 1_500
"""The tokens of an image, a page of a document or a recording; platforms differ too much for a better estimate."""


class RequestFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that routes are matched against. `tokens` is an estimate of the whole conversation, before trimming to
    a model's window."""

    has_images: bool = False
    tokens: int = 0


def target_models(
    name: str,
    settings: GatewaySettings,
    facts: RequestFacts,
    *,
    default: str,
    price: Callable[[str, int], float | None],
) -> tuple[str, ...]:
    """Return the models to try, in order. `name` is the model that the client requests; `price` returns the price of a
    number of input tokens with a model, None if it is not known.

    An alias (the first pattern that matches) replaces the name. The first route that applies, by content, size or
    price, replaces it again. Fallbacks follow. An empty name means `default`.
    """
    wanted = name or default
    for pattern, model in settings.aliases.items():
        if fnmatchcase(wanted, pattern):
            wanted = model
            break
    routes = settings.routes
    if routes.images and facts.has_images:
        wanted = routes.images
    elif routes.large and facts.tokens > routes.large_tokens:
        wanted = routes.large
    elif routes.costly and (price(wanted, facts.tokens) or 0.0) > routes.costly_usd:
        wanted = routes.costly
    chain = [wanted]
    for pattern, models in settings.fallback.items():
        if fnmatchcase(wanted, pattern) or fnmatchcase(name, pattern):
            chain += models
            break
    return tuple(dict.fromkeys(chain))


def request_facts(messages: Sequence[Message], *texts: str) -> RequestFacts:
    """Return the facts of a conversation, including media in tool results. `texts` are the system prompt and the
    tools."""
    has_images = False
    chars, media = sum(map(len, texts)), 0
    for message in messages:
        for block in message.blocks:
            inner: Sequence[Block] = block.blocks if isinstance(block, ToolResult) else (block,)
            for found in inner:
                has_images = has_images or isinstance(found, ImageBlock | DocumentBlock)
                if isinstance(found, ImageBlock | DocumentBlock | AudioBlock | VideoBlock):
                    media += found.media.pages or 1
                else:
                    chars += len(text_of(found))
    return RequestFacts(has_images=has_images, tokens=chars // _CHARS_PER_TOKEN + media * _MEDIUM_TOKENS)
