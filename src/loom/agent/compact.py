"""Compaction: replace a conversation with its summary and continue from there. The model writes the summary from the
text alone; the original path stays as a branch, and its media can still be shown again."""

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
from loom.session import NewNode, SessionChange
from loom.tools.todos import todo_lines
from loom.work_types import Todo

if TYPE_CHECKING:
    from loom.agent.step import ModelAnswer

INSTRUCTIONS: Final = (
    "Summarize this conversation so that it can continue from the summary alone. Say what the user wants; what was"
    " found, decided and done; what is left to do; and every name, number, path and quotation that still matters."
    " Say what images and documents showed where it matters. Write nothing but the summary."
)
SUMMARIZED_END: Final = "summarises"
"""The metadata of a summary with the last node of the path that it replaced."""
_ROLE_NAMES: Final = {"user": "from the user", "assistant": "from the model", "tool": "from tools"}
_COMPLETE: Final = ("end", "stop_sequence")
_MAX_MEDIA: Final = 50
"""How many media, newest first, a summary refers to; older ones stay reachable through the original branch."""


def check(path: Sequence[Placed]) -> None:
    if not path:
        raise ContentError("Nothing to summarize: the session has no messages yet.")


def summary_request(request: RequestInput) -> RequestInput:
    """Return a request that asks the model to summarize the path instead of answering it."""
    policy = msgspec.structs.replace(request.policy, max_images=0, max_pages=0)
    return msgspec.structs.replace(request, draft=(user(INSTRUCTIONS),), policy=policy)


def pinned_blocks(path: Sequence[Placed], overrides: Mapping[str, Override]) -> tuple[ContentBlock, ...]:
    """Return the blocks that the user pinned with the override `full`; compaction keeps them unchanged."""
    found: list[ContentBlock] = []
    for placed in path:
        for at, block in enumerate(placed.message.blocks):
            is_content = isinstance(block, TextBlock | MediaBlock)
            if is_content and overrides.get(override_key(placed.id, at)) == "full":
                found.append(block)
    return tuple(found)


async def summary_change(
    record: SessionRecord,
    path: Sequence[Placed],
    answer: ModelAnswer,
    pinned: Sequence[ContentBlock] = (),
    todos: Sequence[Todo] = (),
) -> SessionChange:
    """Return the change that stores the summary with the todo list below the root, followed by the pinned blocks. Raise
    `ContentError` if the model did not finish its summary or wrote none."""
    folded = answer.result
    summary = folded.message.text.strip() if folded is not None and folded.message is not None else ""
    if folded is not None and folded.stop not in _COMPLETE:
        raise ContentError(
            f"The model did not finish its summary ({folded.stop}); nothing was changed.",
            hint="Try again, or choose another model.",
        )
    if not summary:
        raise ContentError("The model wrote no summary.", hint="Try again, or choose another model.")
    kept = {block.media.digest for block in pinned if not isinstance(block, TextBlock | UnknownBlock)}
    shown = {block.media.digest: block for placed in path for block in media_blocks(placed.message.blocks)}
    media = [block for block in list(shown.values())[-_MAX_MEDIA:] if block.media.digest not in kept]
    labels = [
        f"{block.media.name or block.media.media_type} ({block.media.digest.removeprefix('sha256:')[:12]})"
        for block in media
    ]
    names = ", ".join(labels)
    text = f"[Summary of the previous {len(path)} messages, by {answer.meta.get('model', '')}]\n\n{summary}"
    text += f"\n\n[Media shown: {names}]" if names else ""
    text += f"\n\n[The todo list, unchanged]\n{todo_lines(todos)}" if todos else ""
    text += "\n\n[The whole conversation is kept; search it with the tool `recall`.]"
    message = user(TextBlock(text), *media, *pinned)
    meta = {**answer.meta, SUMMARIZED_END: path[-1].id}
    return SessionChange(
        move_to=await record.parent(path[0].id),
        nodes=(NewNode(message=message, source="system", meta=meta),),
        watermark={},
    )


def receipt_text(path: Sequence[Placed], answer: ModelAnswer, summary: Message, pinned: Sequence[ContentBlock]) -> str:
    """Return the receipt of a summary: what was condensed, what was kept unchanged, and where the rest is."""
    roles = Counter(placed.message.role for placed in path)
    counted = ", ".join(f"{roles[role]} {name}" for role, name in _ROLE_NAMES.items() if roles[role])
    tokens = answer.prepared.receipt.totals.tokens if answer.prepared is not None else 0
    media = sum(not isinstance(block, TextBlock) for block in summary.blocks) - sum(
        not isinstance(block, TextBlock) for block in pinned
    )
    words = sum(len(block.text.split()) for block in summary.blocks[:1] if isinstance(block, TextBlock))
    parts = [f"Condensed {len(path)} messages ({counted}; about {tokens:,} tokens) into a summary of {words} words"]
    parts += [f"{len(pinned)} pinned blocks were kept unchanged"] if pinned else []
    parts += [f"{media} media can be shown again"] if media else []
    return "; ".join([*parts, "all messages stay as a branch, and `recall` searches them."])


def media_overrides(node: str, message: Message, pinned: Sequence[ContentBlock]) -> dict[str, Override]:
    """Return the overrides that leave the media of a summary out of requests until they are requested again, and keep
    pinned blocks in."""
    count = len(message.blocks)
    shown: dict[str, Override] = {override_key(node, at): "full" for at in range(count - len(pinned), count)}
    return {**shown, all_media_key(node): "omitted"} if count > 1 + len(pinned) else shown
