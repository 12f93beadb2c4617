"""Aging of media: `full` for the newest turns, `low` for some older ones, then text that says how to show them again.

Stepped aging rewrites old messages only when that pays: shrinking an old image saves `read` × Δ tokens on every later
request, and costs (`write` − `read`) × N once, for the N tokens after it that the provider must read again.
"""

from __future__ import annotations

import msgspec

from loom.compile.layout import Layout
from loom.compile.policy import Policy, Watermark
from loom.models import CacheRule


def advance_watermark(layout: Layout, mark: Watermark, policy: Policy) -> Watermark:
    """Return the watermark for this request. It moves only at the start of a turn, never during a tool loop."""
    if policy.aging == "off" or layout.messages[-1].role != "user":
        return mark
    wanted = every_turn(layout, mark, policy)
    if wanted == mark or policy.aging == "every-turn":
        return wanted
    return wanted if _is_worth_moving(layout, mark, wanted, layout.target.model.cache) else mark


def every_turn(layout: Layout, mark: Watermark, policy: Policy) -> Watermark:
    """Return the watermark that results if the borders move on every turn. Without a tool that shows media again, age
    alone never turns them into text."""
    has_look = layout.target.has_look
    text = max(mark.text_before, _older_than(layout, policy.full_turns + policy.low_turns) if has_look else 0)
    return msgspec.structs.replace(
        mark, low_before=max(mark.low_before, _older_than(layout, policy.full_turns), text), text_before=text
    )


def _older_than(layout: Layout, turns: int) -> int:
    """Return the position before which every message is more than `turns` turns old. The turn that now starts has age
    0."""
    return layout.turns[-turns - 1] if turns < len(layout.turns) else 0


def _is_worth_moving(layout: Layout, before: Watermark, after: Watermark, cache: CacheRule) -> bool:
    saved, behind, rewritten = 0, 0, False
    for old, new in zip(layout.render_costs(before), layout.render_costs(after), strict=True):
        saved += old.tokens - new.tokens
        rewritten = rewritten or (old is not new and old.shown != new.shown)
        if rewritten:
            behind += new.tokens
    # Rent or buy: move when the cost of waiting since the last move reaches the cost of the move. The cost per request
    # grew from zero, so its average is half of what it is now.
    requests = sum(1 for message in layout.messages[before.thinking_from :] if message.role == "assistant")
    return saved > 0 and cache.read * saved * requests / 2 >= (cache.write - cache.read) * behind
