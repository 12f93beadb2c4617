"""Repeated failures: tell the model that the same call has failed before. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from loom.content.blocks import TextBlock, ToolCall, ToolResult
from loom.content.messages import Message, failure_of_command, text_of

ALLOWED_REPEATS: Final = 2
"""How often a call may fail with the same arguments before its result mentions it."""
_LOOK_BACK: Final = 40
"""How many of the last messages are searched for earlier calls."""


def mark_repeats(
    calls: Sequence[ToolCall], results: Sequence[ToolResult], path: Sequence[Message], repeatable: Collection[str]
) -> tuple[ToolResult, ...]:
    """Return the results; the result of a call that keeps failing ends with a sentence that says how often it failed.
    A command that failed may succeed after another call has changed something, which tools in `repeatable` never do."""
    recent = path[-_LOOK_BACK:]
    found = {result.call_id: result for message in recent for result in message.results}
    earlier = [(call, found[call.id]) for message in recent for call in message.calls if call.id in found]
    marked: list[ToolResult] = []
    for call, result in zip(calls, results, strict=True):
        count = _count_failures(call, result, earlier, repeatable)
        earlier.append((call, result))
        if count <= ALLOWED_REPEATS:
            marked.append(result)
            continue
        warning = TextBlock(
            f"[This call has failed {count} times with the same arguments. Do not repeat it: change the"
            " arguments, try another way, or tell the user what is in the way.]"
        )
        marked.append(msgspec.structs.replace(result, blocks=(*result.blocks, warning)))
    return tuple(marked)


def _count_failures(
    call: ToolCall, result: ToolResult, earlier: Sequence[tuple[ToolCall, ToolResult]], repeatable: Collection[str]
) -> int:
    if not (result.is_error or failure_of_command(result)):
        return 0
    count = 1
    for other, its_result in reversed(earlier):
        if _identity(other) == _identity(call):
            count += its_result.is_error or failure_of_command(its_result) != ""
        elif not (result.is_error or its_result.is_error or other.name in repeatable):
            break
    return count


def _identity(call: ToolCall) -> tuple[str, str]:
    return call.name, text_of(call)
