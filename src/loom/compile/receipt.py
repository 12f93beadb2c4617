"""Receipt: for every block of the path, what became of it and why; and the sentences that a person must read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, get_args

import msgspec

from loom.compile.layout import MEDIA, Layout, PlacedBlock
from loom.compile.measure import Measure
from loom.compile.policy import Placed, Watermark, alt_key, override_key
from loom.compile.trim import fits
from loom.content.blocks import Block, TextBlock
from loom.content.messages import text_of
from loom.prompt import Reason, ReceiptRow, Totals

_LABEL_CHARS: Final = 80
_LOOKED_AT_CHARS: Final = 400
_KINDS: Final = {kind: str(kind.__struct_config__.tag) for kind in get_args(Block)}


def rows(
    survey: Layout, mark: Watermark, ratio: float, as_came: Collection[int] = frozenset()
) -> tuple[ReceiptRow, ...]:
    """Return a row for every block; `as_came` are the messages that are written as they came."""
    measures = survey.render_costs(mark)
    found = zip(survey.items, measures, strict=True)
    if not as_came:
        return tuple([_row(item, measure, survey, mark, ratio) for item, measure in found])
    return tuple(
        [
            msgspec.structs.replace(row, rendition="full", reason="", detail="as it came")
            if item.message in as_came
            else row
            for item, measure in found
            for row in (_row(item, measure, survey, mark, ratio),)
        ]
    )


def _row(item: PlacedBlock, measure: Measure, survey: Layout, mark: Watermark, ratio: float) -> ReceiptRow:
    block = item.block
    media = block.media if isinstance(block, MEDIA) else None
    reason, detail = _why(item, measure, survey, mark)
    return ReceiptRow(
        message=item.message,
        block=item.position,
        inner=item.inner,
        kind=_KINDS[type(block)],
        label=media.label if media else _beginning(block.text if isinstance(block, TextBlock) else text_of(block)),
        rendition=measure.rendition,
        digest=media.digest if media else "",
        reason=reason,
        detail=detail,
        tokens=round(measure.tokens * ratio),
        wire_bytes=measure.wire_bytes,
    )


def _beginning(text: str) -> str:
    head = text[:_LABEL_CHARS]
    if head.isprintable() and head == head.strip() and "  " not in head:
        return head  # on one line already, as most texts are
    return " ".join(text[:_LOOKED_AT_CHARS].lstrip()[: 2 * _LABEL_CHARS].split())[:_LABEL_CHARS]


def _why(item: PlacedBlock, measure: Measure, survey: Layout, mark: Watermark) -> tuple[Reason, str]:
    """Return the model's reason where it has one, else the user's, the age's or the budget's."""
    if measure.reason or (item.is_plain and measure.rendition == "full"):
        return measure.reason, measure.detail
    reason = survey.target_rendition(item, mark)[1]
    wished = _override_note(reason, item, survey, mark)
    return reason, "; ".join(part for part in (wished, measure.detail) if part)


def _override_note(reason: Reason, item: PlacedBlock, survey: Layout, mark: Watermark) -> str:
    match reason:
        case "age":
            age = survey.age(item.message)
            return "1 turn old" if age == 1 else f"{age} turns old"
        case "limit":
            return f"over {survey.images_per_message} images in one message"
        case "override":
            return "chosen by the user"
        case "prefix":
            return "what it belongs to was rewritten"
        case "budget":
            return "an old turn, left out" if item.message < mark.dropped_before else "to fit"
        case _:
            return ""


def cached_rows(
    survey: Layout, before: Watermark, mark: Watermark, sent: Sequence[Placed], changed: Collection[str]
) -> int:
    """Return how many leading rows stand as the last request held them, which was made of the messages `sent`;
    `changed` is what the user has chosen anew since, by its name among the overrides."""
    count = 0
    for item, old, new in zip(survey.items, survey.render_costs(before), survey.render_costs(mark), strict=True):
        if item.message >= len(sent) or (old is not new and old.shown != new.shown):
            break
        if changed and _is_changed(item, new, sent, changed):
            break
        count += 1
    return count


def _is_changed(item: PlacedBlock, measure: Measure, sent: Sequence[Placed], changed: Collection[str]) -> bool:
    if override_key(sent[item.message].id, item.position, item.inner) in changed:
        return True
    block = item.block
    return isinstance(block, MEDIA) and measure.rendition == "text" and alt_key(block.media.digest) in changed


# What is said at once ----------------------------------------------------------------------------------------------


def losses(survey: Layout, mark: Watermark) -> Iterator[str]:
    """Yield one sentence for what a person must know at once: the model cannot see or hear what is new in this turn."""
    unseen: list[str] = []
    for item, measure in zip(survey.items, survey.render_costs(mark), strict=True):
        block = item.block
        if item.message < survey.turns[-1] or not isinstance(block, MEDIA):
            continue
        if _why(item, measure, survey, mark)[0] in ("capability", "missing", "quarantine", "limit", "budget"):
            name = block.media.name or block.media.media_type
            is_part = measure.rendition == "full" and bool(measure.detail)
            unseen.append(f"{name}, {measure.detail}" if is_part else f"{name} as {measure.rendition}")
    if unseen:
        yield f"{survey.target.model.reference} gets {', '.join(unseen)}"


def lasting_notices(survey: Layout, mark: Watermark) -> Iterator[str]:
    """Sentences that are said once in a session for a model: it does not take a kind of media that stands in earlier
    turns, or old media are reduced by age."""
    reference = survey.target.model.reference
    lacking: dict[str, None] = {}
    aged: dict[str, None] = {}
    for item, measure in zip(survey.items, survey.render_costs(mark), strict=True):
        if not item.is_media or item.message >= survey.turns[-1]:
            continue
        reason = _why(item, measure, survey, mark)[0]
        if reason == "capability" and measure.rendition == "text":
            lacking[_KIND_NAMES[_KINDS[type(item.block)]]] = None
        elif reason == "age":
            aged[measure.rendition] = None
    for kind in lacking:
        yield f"{reference} does not support {kind}: those of earlier turns are sent as text"
    for rendition in aged:
        how = "smaller" if rendition == "low" else "as text, and shown again on demand"
        yield f"media of older turns are sent {how} to save tokens"


_KIND_NAMES: Final = {"image": "images", "document": "documents", "audio": "audio", "video": "video"}


def tightness(survey: Layout, mark: Watermark, used: Totals, allowed: Totals) -> Iterator[str]:
    reference = survey.target.model.reference
    pins: Sequence[PlacedBlock] = [item for item in survey.items if item.override in ("full", "low")]
    if mark.text_cap:
        yield f"texts of more than {mark.text_cap} characters were cut in the middle"
    if any(survey.target_rendition(item, mark)[1] != "override" for item in pins):
        yield f"what was pinned is reduced as well: {reference} takes no more"
    if not fits(used, allowed):
        yield f"{reference} cannot fit this, even after trimming"
