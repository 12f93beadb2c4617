"""Trim: to fit four budgets at once. The oldest media in results go first, then other old media, then the text of old
results, then whole old turns. The last turns follow only when that is not enough, what the model has not seen yet only
when nothing else is left, and a call always stays with its result.

Where a platform caches, a budget that is broken is cut back to a part of itself, so that the next requests extend this
one instead of cutting again.
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
"""A cut makes room for this number of requests that grow as those of the last turns did: between a fifth and a half of
the budget. Rewriting is paid once for all of them."""
UNLIMITED: Final = 2**53
_OUTPUT_SHARE: Final = 4
"""At most a quarter of the window is kept free for the answer."""
_REQUEST_BYTES: Final = 4_096
_FIELDS: Final = ("tokens", "wire_bytes", "images", "pages")
_LONG_CAPS: Final = tuple(round(10_000 * 1.05**step) for step in range(155, -1, -1))
"""From 19 million characters to 10,000 in steps of 5 %, so that a text that is just too long loses just too much.
Fixed, so that the same cut is found again on the next request."""
_SHORT_CAPS: Final = (5_000, 2_000, 1_000, 400, 100)
_PAGE_CAPS: Final = tuple(takewhile(bool, accumulate(repeat(0, 40), lambda pages, _: fewer_pages(pages), initial=600)))
"""From the most pages that a platform takes to one. A fifth less each time: a document that was cut is not cut again
by the next question."""

TrimSteps: TypeAlias = Callable[[Watermark], Sequence[Watermark]]
"""From a watermark, higher and higher ones of one kind."""


def budgets(model: Model, policy: Policy) -> Totals:
    """Return what one request may take: the user's budgets within the platform's limits."""
    limits = model.limits
    window = limits.context_tokens - min(limits.max_output_tokens, limits.context_tokens // _OUTPUT_SHARE)
    return Totals(
        tokens=_least(policy.max_tokens, window),
        wire_bytes=_least(policy.max_bytes, limits.max_request_bytes),
        images=_least(policy.max_images, limits.max_images, policy.max_images_per_session),
        pages=_least(policy.max_pages, limits.max_pages),
    )


def _least(*values: int | None) -> int:
    return min((value for value in values if value is not None), default=UNLIMITED)


class RequestCost(msgspec.Struct, frozen=True):
    """What the request takes under a watermark. `fixed` is what is there whatever the path: system and tools."""

    survey: Layout
    fixed: Totals
    ratio: float

    def cost_of(self, mark: Watermark) -> Totals:
        tokens, wire_bytes, images, pages = self.survey.sum_costs(mark)
        held = self.survey.describe_dropped(mark)
        tokens += cost.text_tokens(held, self.survey.target.model.tokens)
        tokens += self.fixed.tokens + cost.message_tokens() * (len(self.survey.messages) - mark.dropped_before + 1)
        return Totals(
            tokens=round(tokens * self.ratio),
            wire_bytes=wire_bytes + json_bytes(held) + self.fixed.wire_bytes + _REQUEST_BYTES,
            images=images,
            pages=pages,
        )


def fits(used: Totals, allowed: Totals) -> bool:
    return all(getattr(used, field) <= getattr(allowed, field) for field in _FIELDS)


def trim(scales: RequestCost, mark: Watermark, allowed: Totals) -> Watermark:
    """Return the lowest watermark that fits, found by raising one border after the other as far as each one helps.

    Where a platform caches, old turns give way until the next requests have room; the turns that should be kept give
    way for a little room only, and what the model has not seen yet for none.
    """
    used = scales.cost_of(mark)
    if fits(used, allowed):
        return mark
    zones = [*_trim_order(scales.survey)]
    if scales.survey.target.model.cache.mode != "none":
        some = _with_room(used, allowed, dict.fromkeys(_FIELDS, LEAST_ROOM))
        deep = _with_room(used, allowed, _rooms(scales, mark, allowed))
        for reach, goal in ((1, deep), (1, some), (2, some), (3, some)):
            found, is_enough = _raise(scales, mark, zones[:reach], goal)
            if is_enough:
                return found
    return _raise(scales, mark, zones, allowed)[0]


def _raise(
    scales: RequestCost, start: Watermark, zones: Sequence[Sequence[TrimSteps]], goal: Totals
) -> tuple[Watermark, bool]:
    """Return the lowest watermark within `zones` that reaches the goal, and True; else the one that helps most."""
    mark, used = start, scales.cost_of(start)
    for ladder in (ladder for zone in zones for ladder in zone):
        marks = ladder(mark)
        if not marks:
            continue
        after = scales.cost_of(marks[-1])
        if fits(after, goal):
            return _restore_texts(scales, start, _lowest(scales, marks, goal), goal), True
        if _helps(used, after, goal):
            mark, used = marks[-1], after
    return mark, False


def _restore_texts(scales: RequestCost, start: Watermark, mark: Watermark, goal: Totals) -> Watermark:
    """Texts that were cut before pages of documents were are whole again where the pages alone would do."""
    whole = msgspec.structs.replace(mark, text_cap=start.text_cap, capped_before=start.capped_before)
    return whole if whole != mark and fits(scales.cost_of(whole), goal) else mark


def _with_room(used: Totals, allowed: Totals, rooms: Mapping[str, float]) -> Totals:
    """A broken budget gets room; one that holds stays as it is."""
    return Totals(
        **{
            field: int(limit * (1 - rooms[field])) if getattr(used, field) > limit else limit
            for field, limit in msgspec.structs.asdict(allowed).items()
        }
    )


def _rooms(scales: RequestCost, mark: Watermark, allowed: Totals) -> dict[str, float]:
    """Return which share of each budget the next requests take, if they grow as those of the last turns did."""
    survey = scales.survey
    start = survey.turns[-_RECENT_TURNS] if len(survey.turns) >= _RECENT_TURNS else 0
    requests = sum(message.role == "assistant" for message in survey.messages[start:]) or 1
    recent = [
        measure for item, measure in zip(survey.items, survey.render_costs(mark), strict=True) if item.message >= start
    ]
    rooms: dict[str, float] = {}
    for field in _FIELDS:
        ratio = scales.ratio if field == "tokens" else 1.0
        grown = sum(getattr(measure, field) for measure in recent) * ratio / requests
        ahead = _REQUESTS_AHEAD * grown / max(getattr(allowed, field), 1)
        rooms[field] = min(max(ahead, LEAST_ROOM), _MOST_ROOM)
    return rooms


def _helps(before: Totals, after: Totals, goal: Totals) -> bool:
    return any(getattr(before, f) > getattr(goal, f) and getattr(after, f) < getattr(before, f) for f in _FIELDS)


def _lowest(scales: RequestCost, marks: Sequence[Watermark], goal: Totals) -> Watermark:
    """The last one is known to fit."""
    low, high = 0, len(marks) - 1
    while low < high:
        middle = (low + high) // 2
        if fits(scales.cost_of(marks[middle]), goal):
            high = middle
        else:
            low = middle + 1
    return marks[high]


# What may be given up, in order ------------------------------------------------------------------------------------


def _trim_order(survey: Layout) -> Iterator[Sequence[TrimSteps]]:
    """Old turns; the turns that should be kept, first their media, then their steps; what the model has not seen."""
    turns, keep = survey.turns, survey.target.policy.keep_turns
    old = len(survey.messages) if keep < 1 else turns[-keep] if keep <= len(turns) else 0
    new = newest_turn_start(survey)
    starts = {*turns, *(at for at, message in enumerate(survey.messages) if message.role == "assistant")}
    steps = [at for at in range(old + 1, new + 1) if at in starts]
    yield (
        _to("result_media_before", old),
        _to("media_before", old),
        _to("tool_text_before", old),
        _at("dropped_before", [start for start in turns if start <= min(old, new)]),
    )
    yield (
        _to("result_media_before", new),
        _caps("page_cap", "paged_before", _PAGE_CAPS, new),
        _to("media_low_before", new),
        _to("media_before", new),
        _to("tool_text_before", new),
    )
    end = len(survey.messages)
    yield (
        _caps("text_cap", "capped_before", _LONG_CAPS, end),
        _caps("page_cap", "paged_before", _PAGE_CAPS, end),
        _at("dropped_before", steps),
    )
    yield (
        _to("media_low_before", end),
        _to("media_before", end),
        _unpin(_to("media_before", end), end),
        _to("tool_text_before", end),
        _caps("text_cap", "capped_before", _SHORT_CAPS, end),
    )


def _to(border: str, stop: int) -> TrimSteps:
    """A border rises message by message; in long paths in about fifty steps."""

    def ladder(mark: Watermark) -> Sequence[Watermark]:
        after: int = getattr(mark, border)
        step = max((stop - after) // 50, 1)
        ends = [*range(after + step, stop, step), stop] if stop > after else []
        return [msgspec.structs.replace(mark, **{border: end}) for end in ends]

    return ladder


def _unpin(ladder: TrimSteps, end: int) -> TrimSteps:
    def unpinned(mark: Watermark) -> Sequence[Watermark]:
        mark = msgspec.structs.replace(mark, unpinned_before=end)
        return [mark, *ladder(mark)]

    return unpinned


def _at(border: str, ends: Sequence[int]) -> TrimSteps:
    def ladder(mark: Watermark) -> Sequence[Watermark]:
        return [msgspec.structs.replace(mark, **{border: end}) for end in ends if end > getattr(mark, border)]

    return ladder


def _caps(field: str, border: str, caps: Sequence[int], end: int) -> TrimSteps:
    """What was cut before stays cut, so a cap for what came later is no longer than theirs."""

    def ladder(mark: Watermark) -> Sequence[Watermark]:
        before: int = getattr(mark, field)
        if end <= 0:
            return []
        shorter = [cap for cap in caps if not before or cap < before]
        again = [before] if before in caps and getattr(mark, border) < end else []
        reach = max(getattr(mark, border), end)
        return [msgspec.structs.replace(mark, **{field: cap, border: reach}) for cap in (*again, *shorter)]

    return ladder


def newest_turn_start(survey: Layout) -> int:
    """Return where what the model has not seen yet begins: the user's last words, or the last calls
    with their results."""
    messages = survey.messages
    at = len(messages)
    while at and messages[at - 1].role != "assistant":
        at -= 1
    if at and (at == len(messages) or messages[at].role == "tool"):
        return at - 1
    return min(at, len(messages) - 1)
