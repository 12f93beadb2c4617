"""Compaction: a conversation continues from its summary. The model writes it and is sent no media; the path that it
stands for stays as a branch, and its media can still be called back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from loom.agent.ports import SessionRecord
from loom.compile.policy import Override, Placed, all_media_key, override_key
from loom.compile.request import RequestInput
from loom.content.blocks import ContentBlock, MediaBlock, TextBlock, UnknownBlock
from loom.content.messages import Message, media_blocks, user
from loom.errors import ContentError
from loom.prompt import Receipt
from loom.session import NewNode, SessionChange

if TYPE_CHECKING:
    from loom.agent.step import ModelAnswer

INSTRUCTIONS: Final = (
    "Summarise this conversation so that it can go on from the summary alone. Say what the user wants; what was found,"
    " decided and done; what is left to do; and every name, number, path and quotation that still matters. Say what"
    " images and documents showed where it matters. Write nothing but the summary."
)
_ROLE_NAMES: Final = {"user": "of the user", "assistant": "of the model", "tool": "of tools"}
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
            is_content = isinstance(block, TextBlock | MediaBlock)
            if is_content and overrides.get(override_key(placed.id, at)) == "full":
                found.append(block)
    return tuple(found)


def is_due(receipt: Receipt, threshold: float) -> bool:
    """Return whether the conversation is to be summarised before the next message: its request fills too much of what a
    request may hold, or turns had to be left out of it. The window less the room for the answer is what counts: a
    request is trimmed to that, and so never fills the whole window."""
    is_cut = any(row.kind == "text" and row.reason == "budget" and row.rendition == "omitted" for row in receipt.rows)
    return is_cut or receipt.totals.tokens >= threshold * receipt.budgets.tokens


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


def receipt_text(path: Sequence[Placed], answer: ModelAnswer, summary: Message, pinned: Sequence[ContentBlock]) -> str:
    """Return the receipt of a summary: what was condensed, what was kept as it is, and where the rest is."""
    roles = Counter(placed.message.role for placed in path)
    counted = ", ".join(f"{roles[role]} {name}" for role, name in _ROLE_NAMES.items() if roles[role])
    tokens = answer.prepared.receipt.totals.tokens if answer.prepared is not None else 0
    media = sum(not isinstance(block, TextBlock) for block in summary.blocks) - sum(
        not isinstance(block, TextBlock) for block in pinned
    )
    words = sum(len(block.text.split()) for block in summary.blocks[:1] if isinstance(block, TextBlock))
    parts = [f"Condensed {len(path)} messages ({counted}; about {tokens:,} tokens) into a summary of {words} words"]
    parts += [f"{len(pinned)} pinned blocks were kept as they are"] if pinned else []
    parts += [f"{media} media can be looked at again"] if media else []
    return "; ".join([*parts, "all messages stay as a branch, and `recall` searches them."])


def media_overrides(node: str, message: Message, pinned: Sequence[ContentBlock]) -> dict[str, Override]:
    """Return the overrides that keep the media of a summary out of requests until they are called back, and pinned
    blocks in them."""
    count = len(message.blocks)
    shown: dict[str, Override] = {override_key(node, at): "full" for at in range(count - len(pinned), count)}
    return {**shown, all_media_key(node): "omitted"} if count > 1 + len(pinned) else shown


def _newest_media(path: Sequence[Placed]) -> list[MediaBlock]:
    """Each once, in the order in which they were shown last."""
    found = {block.media.digest: block for placed in path for block in media_blocks(placed.message.blocks)}
    return list(found.values())[-_MAX_MEDIA:]


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]
