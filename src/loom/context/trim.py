"""Trim: to fit four budgets at once. The oldest media in results go first, then other old media, then the text of old
results, then whole old turns; the last turns only when nothing else is left, and a call always stays with its result.

A budget that is broken is cut back to a part of itself, so that the next requests extend this one instead of cutting
again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from loom.context.policy import Policy, Watermark
from loom.context.survey import Survey
from loom.models import Model
from loom.prompt import Totals

HEADROOM: Final = 0.8
_OUTPUT_SHARE: Final = 4
"""At most a quarter of the window is kept free for the answer."""
_REQUEST_BYTES: Final = 4_096


def budgets(model: Model, policy: Policy) -> Totals:
    """What one request may take: the user's budgets within the platform's limits."""
    limits = model.limits
    window = limits.context_tokens - min(limits.max_output_tokens, limits.context_tokens // _OUTPUT_SHARE)
    return Totals(
        tokens=_least(policy.max_tokens, window),
        wire_bytes=_least(policy.max_bytes, limits.max_request_bytes),
        images=_least(policy.max_images, limits.max_images, policy.max_images_per_session),
        pages=_least(policy.max_pages, limits.max_pages),
    )


UNLIMITED: Final = 2**53


def _least(*values: int | None) -> int:
    return min((value for value in values if value is not None), default=UNLIMITED)


def totals(survey: Survey, mark: Watermark, fixed: Totals, ratio: float) -> Totals:
    """What the request takes under a watermark. `fixed` is what is there whatever the path: system and tools."""
    tokens = wire_bytes = images = pages = 0
    for item in survey.items:
        measure = survey.measured(item, mark)
        tokens += measure.tokens
        wire_bytes += measure.wire_bytes
        images += measure.images
        pages += measure.pages
    return Totals(
        tokens=round((tokens + fixed.tokens) * ratio),
        wire_bytes=wire_bytes + fixed.wire_bytes + _REQUEST_BYTES,
        images=images,
        pages=pages,
    )


def fits(used: Totals, allowed: Totals, share: float = 1.0) -> bool:
    return all(
        getattr(used, field) <= getattr(allowed, field) * share for field in ("tokens", "wire_bytes", "images", "pages")
    )


def trimmed(survey: Survey, mark: Watermark, allowed: Totals, fixed: Totals, ratio: float) -> Watermark:
    """The lowest watermark that fits, found by raising one border after the other, oldest first."""
    used = totals(survey, mark, fixed, ratio)
    if fits(used, allowed):
        return mark
    goal = _goal(used, allowed)
    for candidate in _candidates(survey, mark):
        mark = candidate
        if fits(totals(survey, mark, fixed, ratio), goal):
            break
    return mark


def _goal(used: Totals, allowed: Totals) -> Totals:
    """A broken budget gets headroom; one that holds stays as it is."""
    return Totals(
        **{
            field: int(limit * HEADROOM) if getattr(used, field) > limit else limit
            for field, limit in msgspec.structs.asdict(allowed).items()
        }
    )


def _candidates(survey: Survey, mark: Watermark) -> Iterator[Watermark]:
    turns = survey.turns
    keep = survey.target.policy.keep_turns
    old_end = turns[-keep] if 0 < keep <= len(turns) else 0 if keep else len(survey.messages)
    last = _last_group(survey)
    replace = msgspec.structs.replace
    for end in _ends(mark.result_media_before, old_end):
        mark = replace(mark, result_media_before=end)
        yield mark
    for end in _ends(mark.text_before, old_end):
        mark = replace(mark, text_before=end, low_before=max(mark.low_before, end))
        yield mark
    for end in _ends(mark.tool_text_before, old_end):
        mark = replace(mark, tool_text_before=end)
        yield mark
    for start in turns[1:]:
        if mark.dropped_before < start <= old_end:
            mark = replace(mark, dropped_before=start)
            yield mark
    for stop in (last, len(survey.messages)):
        for end in _ends(mark.result_media_before, stop):
            mark = replace(mark, result_media_before=end)
            yield mark
        for end in _ends(mark.text_before, stop):
            mark = replace(mark, text_before=end, low_before=max(mark.low_before, end))
            yield mark
        for end in _ends(mark.tool_text_before, stop):
            mark = replace(mark, tool_text_before=end)
            yield mark


def _ends(after: int, stop: int) -> Iterator[int]:
    """Positions to which a border can rise, one message at a time; in long paths in about fifty steps."""
    step = max((stop - after) // 50, 1)
    yield from range(after + step, stop, step)
    if stop > after:
        yield stop


def _last_group(survey: Survey) -> int:
    """Where what the model has not seen yet begins: behind its last message."""
    for at in range(len(survey.messages) - 1, -1, -1):
        if survey.messages[at].role == "assistant":
            return at + 1
    return 0
