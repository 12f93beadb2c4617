"""Overflow: the notice for the user if a request did not fit: how much was too much, what was reduced, and what that
saved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from loom.compile.layout import Layout
from loom.compile.policy import Watermark
from loom.compile.trim import RequestCost
from loom.content.labels import tokens_label
from loom.content.media import size_label
from loom.prompt import Totals

_GIVEN_UP: Final = {
    "result_media_before": "tool media reduced",
    "media_low_before": "images reduced",
    "media_before": "media reduced",
    "tool_text_before": "old tool output left out",
    "dropped_before": "",
    "text_cap": "long texts cut",
    "capped_before": "long texts cut",
    "page_cap": "pages of documents left out",
    "paged_before": "pages of documents left out",
    "unpinned_before": "pinned content reduced",
}
_UNITS: Final = {"tokens": "tokens", "wire_bytes": "on the wire", "images": "images", "pages": "pages"}


def overflow(costs: RequestCost, before: Watermark, mark: Watermark, allowed: Totals) -> Iterator[str]:
    """Yield a notice if this request had to be reduced; nothing if it fitted, or if an earlier request was reduced the
    same way."""
    if all(getattr(mark, border) == getattr(before, border) for border in _GIVEN_UP):
        return
    wanted = used = costs.cost_of(before)
    field = next(name for name in _UNITS if getattr(used, name) > getattr(allowed, name))
    if not getattr(allowed, field):  # the budget is zero on purpose, as in a summary
        return
    saved: dict[str, int] = {}
    for border, words in _GIVEN_UP.items():
        raised = msgspec.structs.replace(before, **{border: getattr(mark, border)})
        after = costs.cost_of(raised)
        cut = words or _turns(costs.layout, before, mark)
        saved[cut] = saved.get(cut, 0) + getattr(used, field) - getattr(after, field)
        before, used = raised, after
    cuts = [f"{cut} (-{_label(field, count)})" for cut, count in saved.items() if count > 0]
    reference = costs.layout.target.model.reference
    why = (
        f"the window of {reference} is full"
        if field == "tokens"
        else f"{reference} does not accept more in one request"
    )
    yield f"{_compare_totals(field, wanted, allowed)} {_UNITS[field]}: {why}. Reduced to fit: {' · '.join(cuts)}."


def _compare_totals(field: str, wanted: Totals, allowed: Totals) -> str:
    """Return `41k > 32k`, or the exact numbers if their short forms are equal."""
    numbers: list[int] = [getattr(wanted, field), getattr(allowed, field)]
    labels = [_label(field, number) for number in numbers]
    return " > ".join(labels if labels[0] != labels[1] else [f"{number:,}" for number in numbers])


def _turns(layout: Layout, before: Watermark, mark: Watermark) -> str:
    """Return `turns 1-2 left out`, for turns that are dropped now and were not before."""
    first, last = (sum(start < found.dropped_before for start in layout.turns) for found in (before, mark))
    if last <= first:
        return "the first steps of a turn left out"
    return f"turn {last} left out" if last == first + 1 else f"turns {first + 1}-{last} left out"


def _label(field: str, count: int) -> str:
    match field:
        case "tokens":
            return tokens_label(count)
        case "wire_bytes":
            return size_label(count)
        case _:
            return str(count)
