"""Repeated failing calls: the model learns that the same call has failed in the same way before. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from loom.content.blocks import TextBlock, ToolCall, ToolResult
from loom.content.messages import Message, text_of

ALLOWED_REPEATS: Final = 2
"""A call may fail this often with the same arguments before the model learns of it."""
_LOOK_BACK: Final = 40
"""Messages in which earlier calls are looked for."""


def mark_repeats(
    calls: Sequence[ToolCall], results: Sequence[ToolResult], path: Sequence[Message]
) -> tuple[ToolResult, ...]:
    """Return the results; those of calls that keep failing end with a sentence that says how often."""
    earlier = _failures(path[-_LOOK_BACK:])
    marked: list[ToolResult] = []
    for call, result in zip(calls, results, strict=True):
        count = earlier.count(_identity(call)) if result.is_error else 0
        if count < ALLOWED_REPEATS:
            marked.append(result)
            continue
        said = TextBlock(
            f"[This call has failed {count + 1} times with the same arguments. Do not repeat it: change the"
            " arguments, try another way, or tell the user what is in the way.]"
        )
        marked.append(msgspec.structs.replace(result, blocks=(*result.blocks, said)))
    return tuple(marked)


def _failures(path: Sequence[Message]) -> list[tuple[str, str]]:
    failed = {result.call_id for message in path for result in message.results if result.is_error}
    return [_identity(call) for message in path for call in message.calls if call.id in failed]


def _identity(call: ToolCall) -> tuple[str, str]:
    return call.name, text_of(call)
