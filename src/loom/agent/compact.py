"""Compaction: a conversation continues from its summary. The model writes it and is sent no media; the path that it
stands for stays as a branch, and its media can still be called back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from loom.agent.ports import SessionRecord
from loom.compile.policy import Override, Placed, override_key
from loom.compile.request import RequestInput
from loom.content.blocks import AudioBlock, ContentBlock, DocumentBlock, ImageBlock, TextBlock, UnknownBlock
from loom.content.messages import Message, media_blocks, user
from loom.errors import ContentError
from loom.session import NewNode, SessionChange

if TYPE_CHECKING:
    from loom.agent.step import ModelAnswer

INSTRUCTIONS: Final = (
    "Summarise this conversation so that it can go on from the summary alone. Say what the user wants; what was found,"
    " decided and done; what is left to do; and every name, number, path and quotation that still matters. Say what"
    " images and documents showed where it matters. Write nothing but the summary."
)
_COMPLETE: Final = ("end", "stop_sequence")
_MAX_MEDIA: Final = 50
"""The newest media, which can be called back; the others are reached through the branch that was summarised."""


def check(path: Sequence[Placed]) -> None:
    if not path:
        raise ContentError("the session holds no message yet, so there is nothing to summarise.")


def summary_request(request: RequestInput) -> RequestInput:
    """Return the request that asks for a summary of the path instead of answering it."""
    policy = msgspec.structs.replace(request.policy, max_images=0, max_pages=0)
    return msgspec.structs.replace(request, draft=(user(INSTRUCTIONS),), policy=policy)


def pinned_blocks(path: Sequence[Placed], overrides: Mapping[str, Override]) -> tuple[ContentBlock, ...]:
    """Return the blocks that the user pinned (`full`): they are carried over as they are, never condensed."""
    found: list[ContentBlock] = []
    for placed in path:
        for at, block in enumerate(placed.message.blocks):
            is_content = isinstance(block, TextBlock | ImageBlock | DocumentBlock | AudioBlock)
            if is_content and overrides.get(override_key(placed.id, at)) == "full":
                found.append(block)
    return tuple(found)


def is_due(tokens: int, window: int, threshold: float | None) -> bool:
    """Return whether a request of this many tokens is to be summarised before the next message."""
    return threshold is not None and tokens >= threshold * window


async def summary_change(
    record: SessionRecord, path: Sequence[Placed], answer: ModelAnswer, pinned: Sequence[ContentBlock] = ()
) -> SessionChange:
    """Return the change that puts a summary below the root, with the pinned blocks behind it; raise `ContentError` if
    there is no whole summary."""
    folded = answer.result
    summary = folded.message.text.strip() if folded is not None and folded.message is not None else ""
    if folded is not None and folded.stop not in _COMPLETE:
        raise ContentError(
            f"the model did not finish its summary ({folded.stop}); nothing was changed.",
            hint="Try again, or choose another model.",
        )
    if not summary:
        raise ContentError("the model wrote no summary.", hint="Try again, or choose another model.")
    kept = {block.media.digest for block in pinned if not isinstance(block, TextBlock | UnknownBlock)}
    media = [block for block in _newest_media(path) if block.media.digest not in kept]
    names = ", ".join(f"{block.media.name or block.media.media_type} ({_short(block.media.digest)})" for block in media)
    text = f"[A summary of the {len(path)} messages before, by {answer.meta.get('model', '')}]\n\n{summary}"
    text += f"\n\n[Media that were shown: {names}]" if names else ""
    text += "\n\n[The whole conversation is kept: the tool recall finds what was said.]"
    message = user(TextBlock(text), *media, *pinned)
    meta = {**answer.meta, "summarises": path[-1].id}
    return SessionChange(
        move_to=await record.parent(path[0].id),
        nodes=(NewNode(message=message, source="system", meta=meta),),
        watermark={},
    )


def media_overrides(node: str, message: Message, pinned: Sequence[ContentBlock]) -> dict[str, Override]:
    """Return the overrides that keep the media of a summary out of requests until they are called back, and pinned
    blocks in them."""
    first_pinned = len(message.blocks) - len(pinned)
    return {override_key(node, at): "full" if at >= first_pinned else "omitted" for at in range(1, len(message.blocks))}


def _newest_media(path: Sequence[Placed]) -> list[ImageBlock | DocumentBlock | AudioBlock]:
    """Each once, in the order in which they were shown last."""
    found = {block.media.digest: block for placed in path for block in media_blocks(placed.message.blocks)}
    return list(found.values())[-_MAX_MEDIA:]


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]
