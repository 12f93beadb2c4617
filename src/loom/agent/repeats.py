"""Repeated failures: tell the model that the same call has failed before. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from loom.content.blocks import TextBlock, ToolCall, ToolResult
from loom.content.messages import Message, text_of

ALLOWED_REPEATS: Final = 2
"""How often a call may fail with the same arguments before its result mentions it."""
_LOOK_BACK: Final = 40
"""How many of the last messages are searched for earlier calls."""


def mark_repeats(
    calls: Sequence[ToolCall], results: Sequence[ToolResult], path: Sequence[Message]
) -> tuple[ToolResult, ...]:
    """Return the results; the result of a call that keeps failing ends with a sentence that says how often it
    failed."""
    recent = path[-_LOOK_BACK:]
    failed = {result.call_id for message in recent for result in message.results if result.is_error}
    earlier = [_identity(call) for message in recent for call in message.calls if call.id in failed]
    marked: list[ToolResult] = []
    for call, result in zip(calls, results, strict=True):
        count = earlier.count(_identity(call)) if result.is_error else 0
        if count < ALLOWED_REPEATS:
            marked.append(result)
            continue
        warning = TextBlock(
            f"[This call has failed {count + 1} times with the same arguments. Do not repeat it: change the"
            " arguments, try another way, or tell the user what is in the way.]"
        )
        marked.append(msgspec.structs.replace(result, blocks=(*result.blocks, warning)))
    return tuple(marked)


def _identity(call: ToolCall) -> tuple[str, str]:
    return call.name, text_of(call)
