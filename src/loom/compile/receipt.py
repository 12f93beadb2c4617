"""The receipt: what happened to every block of the path and why, and the notices for the user."""

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
    layout: Layout, mark: Watermark, ratio: float, as_came: Collection[int] = frozenset()
) -> tuple[ReceiptRow, ...]:
    """Return a row for every block; `as_came` are the positions of messages that are sent unchanged."""
    measures = layout.render_costs(mark)
    found = zip(layout.items, measures, strict=True)
    if not as_came:
        return tuple([_row(item, measure, layout, mark, ratio) for item, measure in found])
    return tuple(
        [
            msgspec.structs.replace(row, rendition="full", reason="", detail="unchanged")
            if item.message in as_came
            else row
            for item, measure in found
            for row in (_row(item, measure, layout, mark, ratio),)
        ]
    )


def _row(item: PlacedBlock, measure: Measure, layout: Layout, mark: Watermark, ratio: float) -> ReceiptRow:
    block = item.block
    media = block.media if isinstance(block, MEDIA) else None
    reason, detail = _find_reason(item, measure, layout, mark)
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
        return head  # most texts are on one line already
    return " ".join(text[:_LOOKED_AT_CHARS].lstrip()[: 2 * _LABEL_CHARS].split())[:_LABEL_CHARS]


def _find_reason(item: PlacedBlock, measure: Measure, layout: Layout, mark: Watermark) -> tuple[Reason, str]:
    """Return the model's reason if there is one, otherwise that of the override, the age or the budget."""
    if measure.reason or (item.is_plain and measure.rendition == "full"):
        return measure.reason, measure.detail
    reason = layout.target_rendition(item, mark)[1]
    wished = _override_note(reason, item, layout, mark)
    return reason, "; ".join(part for part in (wished, measure.detail) if part)


def _override_note(reason: Reason, item: PlacedBlock, layout: Layout, mark: Watermark) -> str:
    match reason:
        case "age":
            age = layout.age(item.message)
            return "1 turn old" if age == 1 else f"{age} turns old"
        case "limit":
            return f"over {layout.images_per_message} images in one message"
        case "override":
            return "chosen by the user"
        case "prefix":
            return "the messages before it were rewritten"
        case "budget":
            return "old turn, left out" if item.message < mark.dropped_before else "to fit"
        case _:
            return ""


def cached_rows(
    layout: Layout, before: Watermark, mark: Watermark, sent: Sequence[Placed], changed: Collection[str]
) -> int:
    """Return how many leading rows are the same as in the last request, which was made of the messages `sent`.
    `changed` are the keys of overrides that the user has changed since."""
    count = 0
    for item, old, new in zip(layout.items, layout.render_costs(before), layout.render_costs(mark), strict=True):
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


# Notices -----------------------------------------------------------------------------------------------------------


def losses(layout: Layout, mark: Watermark) -> Iterator[str]:
    """Yield a notice if the model cannot see or hear media that are new in this turn."""
    unseen: list[str] = []
    for item, measure in zip(layout.items, layout.render_costs(mark), strict=True):
        block = item.block
        if item.message < layout.turns[-1] or not isinstance(block, MEDIA):
            continue
        if _find_reason(item, measure, layout, mark)[0] in ("capability", "missing", "quarantine", "limit", "budget"):
            name = block.media.name or block.media.media_type
            is_part = measure.rendition == "full" and bool(measure.detail)
            unseen.append(f"{name}, {measure.detail}" if is_part else f"{name} as {measure.rendition}")
    if unseen:
        yield f"{layout.target.model.reference} gets {', '.join(unseen)}."


def lasting_notices(layout: Layout, mark: Watermark) -> Iterator[str]:
    """Yield notices that are shown once per session and model: the model does not support media of earlier turns, or
    old media are reduced by age."""
    reference = layout.target.model.reference
    lacking: dict[str, None] = {}
    aged: dict[str, None] = {}
    for item, measure in zip(layout.items, layout.render_costs(mark), strict=True):
        if not item.is_media or item.message >= layout.turns[-1]:
            continue
        reason = _find_reason(item, measure, layout, mark)[0]
        if reason == "capability" and measure.rendition == "text":
            lacking[_KIND_NAMES[_KINDS[type(item.block)]]] = None
        elif reason == "age":
            aged[measure.rendition] = None
    for kind in lacking:
        yield f"{reference} does not support {kind}: those of earlier turns are sent as text."
    for rendition in aged:
        how = "smaller" if rendition == "low" else "as text; the model can request them again"
        yield f"To save tokens, media of older turns are sent {how}."


_KIND_NAMES: Final = {"image": "images", "document": "documents", "audio": "audio", "video": "video"}


def tightness(layout: Layout, mark: Watermark, used: Totals, allowed: Totals) -> Iterator[str]:
    reference = layout.target.model.reference
    pins: Sequence[PlacedBlock] = [item for item in layout.items if item.override in ("full", "low")]
    if mark.text_cap:
        yield f"Texts of more than {mark.text_cap} characters were cut in the middle."
    if any(layout.target_rendition(item, mark)[1] != "override" for item in pins):
        yield f"Pinned content is reduced, too: {reference} does not accept more."
    if not fits(used, allowed):
        yield f"{reference} cannot fit this, even after trimming."
