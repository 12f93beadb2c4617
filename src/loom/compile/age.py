"""Age: less for the old. `full` for some turns, `low` for some more, then text that says how to call it back.

Stepped ageing rewrites old messages only when that pays: shrinking an old picture saves `read` × Δ tokens on every
later request, and costs once (`write` − `read`) × N for the N tokens behind it that the provider must read anew.
"""

from __future__ import annotations

import msgspec

from loom.compile.layout import Layout
from loom.compile.policy import Policy, Watermark
from loom.models import CacheRule


def advance_watermark(survey: Layout, mark: Watermark, policy: Policy) -> Watermark:
    """Return the watermark for this request. It moves at a turn's beginning only, never while a tool loop is open."""
    if policy.aging == "off" or survey.messages[-1].role != "user":
        return mark
    wanted = every_turn(survey, mark, policy)
    if wanted == mark or policy.aging == "every-turn":
        return wanted
    return wanted if _pays(survey, mark, wanted, survey.target.model.cache) else mark


def every_turn(survey: Layout, mark: Watermark, policy: Policy) -> Watermark:
    """Where the borders would be if every turn moved them. Without a way to call media back, age alone never turns
    them into text."""
    has_look = survey.target.has_look
    text = max(mark.text_before, _older_than(survey, policy.full_turns + policy.low_turns) if has_look else 0)
    return msgspec.structs.replace(
        mark, low_before=max(mark.low_before, _older_than(survey, policy.full_turns), text), text_before=text
    )


def _older_than(survey: Layout, turns: int) -> int:
    """Return the position before which every message is more than `turns` turns old (the turn now
    beginning has age 0)."""
    return survey.turns[-turns - 1] if turns < len(survey.turns) else 0


def _pays(survey: Layout, before: Watermark, after: Watermark, cache: CacheRule) -> bool:
    saved, behind, rewritten = 0, 0, False
    for old, new in zip(survey.render_costs(before), survey.render_costs(after), strict=True):
        saved += old.tokens - new.tokens
        rewritten = rewritten or (old is not new and old.shown != new.shown)
        if rewritten:
            behind += new.tokens
    # Rent or buy: move when what the delay has cost since the last move (it grew from nothing, so half of what it costs
    # now, for every request) reaches what the move costs.
    requests = sum(1 for message in survey.messages[before.thinking_from :] if message.role == "assistant")
    return saved > 0 and cache.read * saved * requests / 2 >= (cache.write - cache.read) * behind
