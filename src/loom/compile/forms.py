"""Forms: messages that are sent to their provider exactly as they were received, unless something in them must
change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from loom.compile.assemble_ids import legal_ids
from loom.compile.layout import MEDIA, Layout, PlacedBlock
from loom.compile.measure import Measure
from loom.compile.policy import Watermark
from loom.content.blocks import ImageBlock, TextBlock, ThinkingBlock, ToolCall, UnknownBlock
from loom.content.json_values import parse_json
from loom.content.media import Media
from loom.content.messages import Message, media_of
from loom.content.wire_forms import WireForm, fill_form, texts_of
from loom.models import Limits
from loom.prompt import Embedded, MediaRef, ShownMedia

_SHARE_OF_REQUEST: Final = 0.9
"""The share of a request's bytes that original images may take; above it, they are resized."""


def unchanged_messages(layout: Layout, mark: Watermark) -> dict[int, tuple[Any, ...]]:
    """Return the request items of each message that is sent unchanged, by its position. A message that shares its items
    with the one before has none of its own."""
    if (known := layout.unchanged.get(mark)) is not None:
        return known
    groups = _own_groups(layout)
    kept = _Check(layout, mark).find_unchanged(groups) if groups else set[int]()
    found: dict[int, tuple[Any, ...]] = {}
    is_whole = True
    for at in sorted(groups):
        form = groups[at]
        members = layout.messages[at : at + form.messages]
        is_whole = is_whole and at in kept
        if at not in kept or (not is_whole and _cites_documents(members)):
            continue
        found |= dict.fromkeys(range(at, at + form.messages), ())
        found[at] = _fill(form, members)
    layout.unchanged[mark] = found
    return found


def _own_groups(layout: Layout) -> dict[int, WireForm]:
    model, request = layout.target.model, layout.target.request
    own = (model.opaque_owner, model.wire)
    if not request.takes_forms:
        return {}
    has_tools = request.body is not None and (request.body.provider, request.body.wire) == own
    return {
        at: form
        for at, form in layout.forms.items()
        if (form.provider, form.wire) == own
        and at + form.messages <= len(layout.messages)
        # Tool calls in namespaces are valid only with the tool definitions that came with them.
        and (has_tools or not any("namespace" in item for item in form.items))
    }


class _Check:
    def __init__(self, layout: Layout, mark: Watermark) -> None:
        self._layout = layout
        self._mark = mark
        self._measures = dict(zip(layout.items, layout.render_costs(mark), strict=True))
        self._ids = legal_ids(layout.messages, layout.target.model.ids)
        self._takes_originals = self._fit_originals()

    def find_unchanged(self, groups: dict[int, WireForm]) -> set[int]:
        """Return the groups in which nothing has to change. A call and its results change together."""
        owner = {at: start for start, form in groups.items() for at in range(start, start + form.messages)}
        kept = {start for start, form in groups.items() if self._are_unchanged(start, form)}
        while True:
            torn = {
                owner[at]
                for start, end in self._exchanges()
                if not self._is_paired(start, end) or any(owner.get(at) not in kept for at in range(start, end))
                for at in range(start, end)
                if owner.get(at) in kept
            }
            if not torn:
                return kept
            kept -= torn

    def _exchanges(self) -> list[tuple[int, int]]:
        """Return the ranges of messages that change together: each message with calls and the results directly after
        it, and results without a call."""
        messages = self._layout.messages
        found: list[tuple[int, int]] = []
        at = 0
        while at < len(messages):
            end = at + 1
            while end < len(messages) and messages[end].role == "tool":
                end += 1
            if messages[at].role == "tool" or messages[at].calls or end > at + 1:
                found.append((at, end))
            at = end
        return found

    def _is_paired(self, start: int, end: int) -> bool:
        calls = sorted(call.id for call in self._layout.messages[start].calls)
        blocks = [block for message in self._layout.messages[start + 1 : end] for block in message.results]
        has_tools = self._layout.target.model.capabilities.tools
        return has_tools and end <= start + 2 and calls == sorted(block.call_id for block in blocks)

    def _are_unchanged(self, start: int, form: WireForm) -> bool:
        if start < self._mark.dropped_before:
            return False
        items = [item for at in range(start, start + form.messages) for item in self._layout.by_message[at]]
        return all(self._is_unchanged(item) for item in items) and not any(
            self._layout.is_seen_again(at, self._mark) for at in range(start, start + form.messages)
        )

    def _is_unchanged(self, item: PlacedBlock) -> bool:
        measure, block = self._measures[item], item.block
        if isinstance(block, UnknownBlock):
            return measure.rendition != "omitted" and not item.is_unpaired and measure.reason != "budget"
        if isinstance(block, ThinkingBlock) and block.opaque is None:
            # A summary of thinking without a signature is not bound to anything; only Gemini has a field for it.
            return self._layout.target.model.wire == "gemini" and measure.reason == "other-model"
        if isinstance(block, ToolCall) and not self._has_legal_names(item.message, block):
            return False
        if isinstance(block, ToolCall) and block.raw_arguments is not None:
            # Integers beyond 64 bits are JSON, too: only our own values cannot hold them.
            return measure.reason == "repair" and isinstance(parse_json(block.raw_arguments), dict)
        if isinstance(block, MEDIA) and measure.rendition == "full" and not measure.hoisted:
            return measure.reason in ("", "override") and (
                self._takes_originals if isinstance(block, ImageBlock) else _is_original(measure, block.media)
            )
        if isinstance(block, TextBlock) and block.is_system:
            return measure.rendition == "full"  # only the provider knows which of its models take it
        return measure.rendition == "full" and not measure.reason and not measure.hoisted

    def _has_legal_names(self, message: int, call: ToolCall) -> bool:
        target = self._layout.target
        return (
            self._ids[message, call.id] == call.id
            and target.tool_name(call.name) == call.name
            and target.call_arguments(call.name, call.arguments) is call.arguments
        )

    def _fit_originals(self) -> bool:
        """Return whether the platform accepts all images of these messages in their original form."""
        target = self._layout.target
        limits, accepts = target.model.limits, target.model.capabilities.accepts
        images = [item.block.media for item in self._layout.items if isinstance(item.block, ImageBlock)]
        is_many = limits.many_images is not None and len(images) > limits.many_images
        side = limits.many_images_side_px if is_many else limits.max_image_side_px
        encoded = sum(item.block.media.size_bytes for item in self._layout.items if isinstance(item.block, MEDIA))
        budgets = [size for size in (limits.max_request_bytes, target.policy.max_bytes) if size is not None]
        return all(_fits(media, limits, side) and media.media_type in accepts for media in images) and (
            encoded * 4 / 3 <= _SHARE_OF_REQUEST * min(budgets) if budgets else True
        )


def _fits(media: Media, limits: Limits, side: int | None) -> bool:
    longest = max(media.width or 0, media.height or 0)
    encoded = (media.size_bytes + 2) // 3 * 4
    return (side is None or longest <= side) and (
        limits.max_image_encoded_bytes is None or encoded <= limits.max_image_encoded_bytes
    )


def _is_original(measure: Measure, media: Media) -> bool:
    refs = [shown.ref for shown in measure.shown if isinstance(shown, ShownMedia)]
    return len(refs) == len(measure.shown) == 1 and refs[0].recipe is None and refs[0].size_bytes == media.size_bytes


def _cites_documents(messages: Sequence[Message]) -> bool:
    """Return whether a citation counts the documents before it. It is valid only while all of them are sent
    unchanged."""
    return any(
        citation.opaque is not None and "document_index" in citation.opaque.data
        for message in messages
        for block in message.blocks
        if isinstance(block, TextBlock)
        for citation in block.citations
    )


def _fill(form: WireForm, members: Sequence[Message]) -> tuple[Any, ...]:
    if form.is_plain:
        return tuple(form.items)
    media = {found.digest: found for message in members for found in media_of(message)}

    def embed(digest: str, prefix: str) -> Embedded:
        found = media[digest]
        ref = MediaRef(
            digest=digest,
            media_type=found.media_type,
            size_bytes=found.size_bytes,
            width=found.width,
            height=found.height,
            pages=found.pages,
        )
        return Embedded(ref, prefix)

    return tuple(fill_form(form.items, embed, texts_of(members)))
