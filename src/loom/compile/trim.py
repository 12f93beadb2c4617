"""Trim a request to four budgets at once. Reduce the oldest media in results first, then other old media, then the text
of old results, then whole old turns. The last turns follow only if that is not enough, and what the model has not seen
yet only if nothing else is left. A call always stays with its result.

On a platform with a cache, a budget that is exceeded is cut back further than necessary, so that the next requests
extend this one instead of being trimmed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, repeat, takewhile
from typing import Final, TypeAlias

import msgspec

from loom.compile import cost
from loom.compile.layout import Layout
from loom.compile.limits import fewer_pages
from loom.compile.measure import json_bytes
from loom.compile.policy import Policy, Watermark
from loom.models import Model
from loom.prompt import Totals

LEAST_ROOM: Final = 0.2
_MOST_ROOM: Final = 0.5
_REQUESTS_AHEAD: Final = 24
_RECENT_TURNS: Final = 3
"""A cut makes room for this many requests, if they grow like those of the last turns: between a fifth and a half of the
budget. The cost of rewriting is paid once for all of them."""
UNLIMITED: Final = 2**53
_OUTPUT_SHARE: Final = 4
"""At most a quarter of the window is kept free for the answer."""
_REQUEST_BYTES: Final = 4_096
_FIELDS: Final = ("tokens", "wire_bytes", "images", "pages")
_LONG_CAPS: Final = tuple(round(10_000 * 1.05**step) for step in range(155, -1, -1))
"""From 19 million characters to 10,000 in steps of 5 %, so that a text that is slightly too long loses only slightly
too much. The steps are fixed, so that the next request finds the same cut."""
_SHORT_CAPS: Final = (5_000, 2_000, 1_000, 400, 100)
_PAGE_CAPS: Final = tuple(takewhile(bool, accumulate(repeat(0, 40), lambda pages, _: fewer_pages(pages), initial=600)))
"""From the maximum number of pages of any platform down to one. Each step is a fifth less, so that a document that was
cut is not cut again for the next question."""

TrimSteps: TypeAlias = Callable[[Watermark], Sequence[Watermark]]
"""Returns a series of rising watermarks of one kind, starting above the one given."""


def budgets(model: Model, policy: Policy) -> Totals:
    """Return the budgets of one request: the user's budgets within the platform's limits."""
    limits = model.limits
    window = limits.context_tokens - min(limits.max_output_tokens, limits.context_tokens // _OUTPUT_SHARE)
    return Totals(
        tokens=_min_known(policy.max_tokens, window),
        wire_bytes=_min_known(policy.max_bytes, limits.max_request_bytes),
        images=_min_known(policy.max_images, limits.max_images, policy.max_images_per_session),
        pages=_min_known(policy.max_pages, limits.max_pages),
    )


def _min_known(*values: int | None) -> int:
    return min((value for value in values if value is not None), default=UNLIMITED)


class RequestCost(msgspec.Struct, frozen=True):
    """The cost of the request with a watermark. `fixed` is the part that does not depend on the path: system prompt and
    tools."""

    layout: Layout
    fixed: Totals
    ratio: float

    def cost_of(self, mark: Watermark) -> Totals:
        tokens, wire_bytes, images, pages = self.layout.sum_costs(mark)
        held = self.layout.describe_dropped(mark)
        tokens += cost.text_tokens(held, self.layout.target.model.tokens)
        tokens += self.fixed.tokens + cost.message_tokens() * (len(self.layout.messages) - mark.dropped_before + 1)
        return Totals(
            tokens=round(tokens * self.ratio),
            wire_bytes=wire_bytes + json_bytes(held) + self.fixed.wire_bytes + _REQUEST_BYTES,
            images=images,
            pages=pages,
        )


def fits(used: Totals, allowed: Totals) -> bool:
    return all(getattr(used, field) <= getattr(allowed, field) for field in _FIELDS)


def trim(costs: RequestCost, mark: Watermark, allowed: Totals) -> Watermark:
    """Return the lowest watermark that fits, by raising one border after the other as far as each one helps.

    On a platform with a cache, old turns are reduced until the next requests have room. Turns that should be kept are
    reduced only for a little room, and what the model has not seen yet for none.
    """
    used = costs.cost_of(mark)
    if fits(used, allowed):
        return mark
    zones = [*_trim_order(costs.layout)]
    if costs.layout.target.model.cache.mode != "none":
        some = _with_room(used, allowed, dict.fromkeys(_FIELDS, LEAST_ROOM))
        deep = _with_room(used, allowed, _rooms(costs, mark, allowed))
        # If old turns cannot make all the room that is wanted, they make what they can.
        found, is_enough = _raise(costs, mark, zones[:1], deep)
        if is_enough or fits(costs.cost_of(found), some):
            return found
        for reach in (2, 3):
            found, is_enough = _raise(costs, mark, zones[:reach], some)
            if is_enough:
                return found
    return _raise(costs, mark, zones, allowed)[0]


def _raise(
    costs: RequestCost, start: Watermark, zones: Sequence[Sequence[TrimSteps]], goal: Totals
) -> tuple[Watermark, bool]:
    """Return the lowest watermark within `zones` that reaches the goal, and True; otherwise the one that helps most,
    and False."""
    mark, used = start, costs.cost_of(start)
    for ladder in (ladder for zone in zones for ladder in zone):
        marks = ladder(mark)
        if not marks:
            continue
        after = costs.cost_of(marks[-1])
        if fits(after, goal):
            lowest = _lowest_that_fits(costs, marks, goal)
            # Pages of documents are left out after texts are truncated: if they alone suffice, restore the texts.
            whole = msgspec.structs.replace(lowest, text_cap=start.text_cap, capped_before=start.capped_before)
            return whole if whole != lowest and fits(costs.cost_of(whole), goal) else lowest, True
        over = [field for field in _FIELDS if getattr(used, field) > getattr(goal, field)]
        if any(getattr(after, field) < getattr(used, field) for field in over):
            mark, used = marks[-1], after
    return mark, False


def _with_room(used: Totals, allowed: Totals, rooms: Mapping[str, float]) -> Totals:
    """Lower each budget that is exceeded, to make room; leave the others unchanged."""
    return Totals(
        **{
            field: int(limit * (1 - rooms[field])) if getattr(used, field) > limit else limit
            for field, limit in msgspec.structs.asdict(allowed).items()
        }
    )


def _rooms(costs: RequestCost, mark: Watermark, allowed: Totals) -> dict[str, float]:
    """Return the share of each budget that the next requests will use, if they grow like those of the last turns."""
    layout = costs.layout
    start = layout.turns[-_RECENT_TURNS] if len(layout.turns) >= _RECENT_TURNS else 0
    requests = sum(message.role == "assistant" for message in layout.messages[start:]) or 1
    recent = [
        measure for item, measure in zip(layout.items, layout.render_costs(mark), strict=True) if item.message >= start
    ]
    rooms: dict[str, float] = {}
    for field in _FIELDS:
        ratio = costs.ratio if field == "tokens" else 1.0
        grown = sum(getattr(measure, field) for measure in recent) * ratio / requests
        ahead = _REQUESTS_AHEAD * grown / max(getattr(allowed, field), 1)
        rooms[field] = min(max(ahead, LEAST_ROOM), _MOST_ROOM)
    return rooms


def _lowest_that_fits(costs: RequestCost, marks: Sequence[Watermark], goal: Totals) -> Watermark:
    """Return the lowest of `marks` that fits; the last one is known to fit."""
    low, high = 0, len(marks) - 1
    while low < high:
        middle = (low + high) // 2
        if fits(costs.cost_of(marks[middle]), goal):
            high = middle
        else:
            low = middle + 1
    return marks[high]


# What may be reduced, in order -------------------------------------------------------------------------------------


def _trim_order(layout: Layout) -> Iterator[Sequence[TrimSteps]]:
    """Yield the zones in order: old turns; the media of the turns that should be kept; their texts and steps; what the
    model has not seen."""
    turns, keep = layout.turns, layout.target.policy.keep_turns
    old = len(layout.messages) if keep < 1 else turns[-keep] if keep <= len(turns) else 0
    new = newest_turn_start(layout)
    starts = {*turns, *(at for at, message in enumerate(layout.messages) if message.role == "assistant")}
    steps = [at for at in range(old + 1, new + 1) if at in starts]
    yield (
        _raise_border("result_media_before", old),
        _raise_border("media_before", old),
        _raise_border("tool_text_before", old),
        _drop_turns([start for start in turns if start <= min(old, new)]),
    )
    yield (
        _raise_border("result_media_before", new),
        _caps("page_cap", "paged_before", _PAGE_CAPS, new),
        _raise_border("media_low_before", new),
        _raise_border("media_before", new),
        _raise_border("tool_text_before", new),
    )
    end = len(layout.messages)
    yield (
        _caps("text_cap", "capped_before", _LONG_CAPS, end),
        _caps("page_cap", "paged_before", _PAGE_CAPS, end),
        _drop_turns(steps),
    )
    yield (
        _raise_border("media_low_before", end),
        _raise_border("media_before", end),
        _unpin(_raise_border("media_before", end), end),
        _raise_border("tool_text_before", end),
        _caps("text_cap", "capped_before", _SHORT_CAPS, end),
    )


def _raise_border(border: str, stop: int) -> TrimSteps:
    """Raise a border message by message; in long paths in about fifty steps."""

    def ladder(mark: Watermark) -> Sequence[Watermark]:
        after: int = getattr(mark, border)
        step = max((stop - after) // 50, 1)
        ends = [*range(after + step, stop, step), stop] if stop > after else []
        return [msgspec.structs.replace(mark, **{border: end}) for end in ends]

    return ladder


def _unpin(ladder: TrimSteps, end: int) -> TrimSteps:
    def unpin(mark: Watermark) -> Sequence[Watermark]:
        mark = msgspec.structs.replace(mark, unpinned_before=end)
        return [mark, *ladder(mark)]

    return unpin


def _drop_turns(ends: Sequence[int]) -> TrimSteps:
    def ladder(mark: Watermark) -> Sequence[Watermark]:
        return [msgspec.structs.replace(mark, dropped_before=end) for end in ends if end > mark.dropped_before]

    return ladder


def _caps(field: str, border: str, caps: Sequence[int], end: int) -> TrimSteps:
    """Lower a cap. Texts or pages that were cut stay cut, so a cap for later messages is never higher than the current
    one."""

    def ladder(mark: Watermark) -> Sequence[Watermark]:
        before: int = getattr(mark, field)
        if end <= 0:
            return []
        shorter = [cap for cap in caps if not before or cap < before]
        again = [before] if before in caps and getattr(mark, border) < end else []
        reach = max(getattr(mark, border), end)
        return [msgspec.structs.replace(mark, **{field: cap, border: reach}) for cap in (*again, *shorter)]

    return ladder


def newest_turn_start(layout: Layout) -> int:
    """Return the position of the first message that the model has not seen yet: the user's last message, or the last
    calls with their results."""
    messages = layout.messages
    at = len(messages)
    while at and messages[at - 1].role != "assistant":
        at -= 1
    if at and (at == len(messages) or messages[at].role == "tool"):
        return at - 1
    return min(at, len(messages) - 1)
