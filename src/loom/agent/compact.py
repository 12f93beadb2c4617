"""Compact: a conversation goes on from its summary. The model writes it, without being sent any media; what was said
stays where it is, as a branch, and what was shown can still be called back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from loom.agent.ask import Answer
from loom.agent.loop import Turn
from loom.agent.mend import Asking
from loom.agent.ports import Record
from loom.content.blocks import AudioBlock, DocumentBlock, ImageBlock, TextBlock
from loom.content.messages import Message, media_blocks, user
from loom.context.policy import Override, Placed, Said, override_key
from loom.errors import ContentError

INSTRUCTIONS: Final = (
    "Summarise this conversation so that it can go on from the summary alone. Say what the user wants; what was found,"
    " decided and done; what is left to do; and every name, number, path and quotation that still matters. Say what"
    " pictures and documents showed where it matters. Write nothing but the summary."
)
_WHOLE: Final = ("end", "stop_sequence")
_MOST_MEDIA: Final = 50
"""So many of the newest media can be called back; the others are reached through the branch that was summarised."""


def compacting(turn: Turn, record: Record) -> Turn:
    """Make of a turn that would answer the path one that summarises it."""
    path = turn.asking.path
    if not path:
        raise ContentError("nothing has been said yet, so there is nothing to summarise.")

    async def store(messages: Sequence[Message], answer: Answer | None) -> Sequence[Placed]:
        folded = answer.folded if answer is not None else None
        if answer is None or answer.error is not None or folded is None or not folded.complete:
            return ()  # half a summary is none
        if folded.stop not in _WHOLE:
            raise ContentError(
                f"the model did not finish its summary ({folded.stop}); nothing was changed.",
                hint="Try again, or choose another model.",
            )
        return (await _kept(record, path, messages[0].text, answer),)

    async def remember(_: Asking, __: Answer) -> None:
        """What this request was like says nothing about the next ones."""

    turn.asking.path = (*path, Said("", user(INSTRUCTIONS)))
    turn.asking.policy = msgspec.structs.replace(turn.asking.policy, max_images=0, max_pages=0)
    turn.store, turn.remember = store, remember
    return turn


async def _kept(record: Record, path: Sequence[Placed], summary: str, answer: Answer) -> Placed:
    if not summary.strip():
        raise ContentError("the model wrote no summary.", hint="Try again, or choose another model.")
    media = _media(path)
    names = ", ".join(f"{block.media.name or block.media.media_type} ({_short(block.media.digest)})" for block in media)
    by = answer.meta.get("model", "")
    text = f"[A summary of the {len(path)} messages before, by {by}]\n\n{summary.strip()}"
    message = user(TextBlock(f"{text}\n\n[Media that were shown: {names}]" if names else text), *media)
    root = await record.parent(path[0].id)
    node = await record.branch(root, message, meta={**answer.meta, "summarises": path[-1].id}, source="system")
    hidden: dict[str, Override] = {override_key(node, at): "omitted" for at in range(1, len(message.blocks))}
    await record.override(hidden)
    await record.save(watermark={})
    return Said(node, message)


def _media(path: Sequence[Placed]) -> list[ImageBlock | DocumentBlock | AudioBlock]:
    """Each once, in the order in which they were shown last."""
    found = {block.media.digest: block for placed in path for block in media_blocks(placed.message.blocks)}
    return list(found.values())[-_MOST_MEDIA:]


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]
