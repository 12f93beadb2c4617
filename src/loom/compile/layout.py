"""The layout of a path: every block with its turn and position, and its cost as each rendition. Costs are computed
once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from loom.compile.adapt import adapt, plain_name, short_id
from loom.compile.measure import BlockPosition, Measure, RenderTarget, omit
from loom.compile.policy import LOOK, Override, Placed, Watermark, all_media_key, override_key
from loom.content.blocks import (
    AudioBlock,
    Block,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    UnknownBlock,
    VideoBlock,
    is_media_block,
)
from loom.content.messages import Message
from loom.content.provider_blocks import find_unpaired
from loom.prompt import Reason, Rendition, ShownMedia, ShownRaw

_NAMED: Final = 8
_NAME_CHARS: Final = 40
Counts: TypeAlias = tuple[int, int, int, int]
"""Tokens, bytes on the wire, images and pages."""
MEDIA = (ImageBlock, DocumentBlock, AudioBlock, VideoBlock)


class PlacedBlock:
    """One block of the path. The blocks of a tool result are separate items."""

    __slots__ = (
        "_measures",
        "block",
        "extra_image",
        "inner",
        "is_media",
        "is_plain",
        "is_thinking",
        "is_unpaired",
        "message",
        "override",
        "place",
        "position",
        "refused",
    )

    def __init__(
        self,
        message: int,
        position: int,
        inner: int | None,
        block: Block,
        place: BlockPosition,
        *,
        override: Override | None,
    ) -> None:
        self.message = message
        self.position = position
        self.inner = inner
        self.block = block
        self.place: BlockPosition = place
        self.is_media = isinstance(block, MEDIA)
        self.is_thinking = isinstance(block, ThinkingBlock)
        self.override: Rendition | None = override if self.is_media or isinstance(block, TextBlock) else None
        self.is_plain = not (self.is_media or self.is_thinking or self.override or place == "result")
        """Whether the block is text that stays unchanged unless it is dropped."""
        self.is_unpaired = False
        """Whether the block is sent as text: the call of a server-side tool without its result, a result without its
        call, or a call that the server refused."""
        self.extra_image = False
        self.refused: Measure | None = None
        """Set on thinking that cannot be sent back from its position."""
        self._measures: dict[tuple[Rendition, int, int], Measure] = {}

    def render_cost(self, rendition: Rendition, cap: int, target: RenderTarget, *, page_cap: int = 0) -> Measure:
        found = self._measures.get((rendition, cap, page_cap))
        if found is None:
            found = adapt(
                self.block, rendition, self.place, target, cap, page_cap=page_cap, is_unpaired=self.is_unpaired
            )
            self._measures[rendition, cap, page_cap] = found
        return found

    def mark_unpaired(self) -> None:
        self.is_unpaired = True
        self._measures.clear()


class Layout:
    def __init__(self, path: Sequence[Placed], target: RenderTarget, overrides: Mapping[str, Override]) -> None:
        self.target = target
        self.messages: list[Message] = [placed.message for placed in path]
        self.blind = frozenset(at for at, placed in enumerate(path) if placed.is_blind)
        self.forms = {at: placed.form for at, placed in enumerate(path) if placed.form is not None}
        self.turns = turn_starts(self.messages)
        self.by_message: list[list[PlacedBlock]] = [_items(at, placed, overrides) for at, placed in enumerate(path)]
        self.items: list[PlacedBlock] = [item for items in self.by_message for item in items]
        self.media_items = [item for item in self.items if item.is_media]
        self._changing = [item for item in self.items if not item.is_plain]
        self._plain_sums: list[Counts] | None = None
        self._measures: dict[Watermark, list[Measure]] = {}
        self.unchanged: dict[Watermark, dict[int, tuple[Any, ...]]] = {}
        """The items of messages that are sent unchanged, by watermark and position."""
        self._mark_extra_images()
        self._mark_refused_calls()
        self._mark_unpaired_calls()
        self._mark_misplaced_thinking()

    def _mark_extra_images(self) -> None:
        """Mark images over the limit of one message; they stay in the path and are sent as text."""
        allowed = (self.target.policy.max_images_per_message, self.target.model.limits.max_images)
        self.images_per_message = min(count for count in allowed if count is not None)
        for items in self.by_message:
            if len(items) <= self.images_per_message:
                continue
            pictures = [item for item in items if isinstance(item.block, ImageBlock) and item.override != "full"]
            for extra in pictures[self.images_per_message :]:
                extra.extra_image = True

    def has_calls(self, at: int) -> bool:
        """Return whether the calls of a message, and their results, are sent as calls."""
        return self.target.model.capabilities.tools and at >= self.target.request.calls_as_text_before

    def _mark_refused_calls(self) -> None:
        if self.target.request.calls_as_text_before:
            for item in self.items:
                if isinstance(item.block, ToolCall) and not self.has_calls(item.message):
                    item.mark_unpaired()

    def _mark_unpaired_calls(self) -> None:
        """Mark calls of server-side tools without their result, and results without their call. Both belong in one
        assistant message, or in neighbouring ones, which are sent as one; a provider refuses one without the other.
        Only the last message may end with a call that the provider is still running."""
        runs: list[list[tuple[PlacedBlock, dict[str, Any]]]] = []
        last = -2
        for item in self.items:
            if not isinstance(item.block, UnknownBlock):
                continue
            shown = item.render_cost("full", 0, self.target).shown[0]
            if not isinstance(shown, ShownRaw):
                continue
            between = self.messages[last : item.message] if runs else ()
            if not runs or any(message.role != "assistant" or message.calls for message in between):
                runs.append([])
            runs[-1].append((item, shown.data))
            last = item.message
        taken: set[str] = set()
        for run in runs:
            is_open = self.target.request.ends_with_assistant and run is runs[-1] and last == len(self.messages) - 1
            for position in find_unpaired([data for _, data in run], taken, may_end_open=is_open):
                run[position][0].mark_unpaired()

    def _mark_misplaced_thinking(self) -> None:
        for at in dict.fromkeys(item.message for item in self.items if item.is_thinking):
            items = self.by_message[at]
            kept = [item for item in items if item.is_thinking and item.render_cost("full", 0, self.target).shown]
            for item in kept:
                item.refused = self._check_thinking_place(at, item, items, kept)

    def _check_thinking_place(
        self, at: int, item: PlacedBlock, items: Sequence[PlacedBlock], kept: Sequence[PlacedBlock]
    ) -> Measure | None:
        """Return the measure that omits thinking which cannot be sent back from its position, whatever else is sent;
        None if it can."""
        rule = self.target.model.thinking
        if rule.replay == "tool_turns" and not self.messages[at].calls:
            return omit("capability", "only messages with tool calls may contain it")
        if rule.place == "any":
            return None
        others = [other for other in items if not other.is_thinking]
        if not any(other.position > item.position for other in others):
            return omit("repair", "nothing follows it")
        if rule.place == "before" and not all(isinstance(other.block, TextBlock | ToolCall) for other in others):
            return omit("repair", "other content of its message is moved")
        late = kept[0].position > others[0].position or self._may_join(at)
        if rule.place == "first" and late:
            return omit("repair", "its message does not begin with it")
        return None

    def _may_join(self, at: int) -> bool:
        """Return whether an assistant message may be joined with an earlier one: no user message and no answered call
        is between them."""
        before = at - 1
        while before > 0 and self.messages[before].role == "tool":
            before -= 1
        return before >= 0 and self.messages[before].role == "assistant" and not self.messages[before].calls

    # With a watermark ------------------------------------------------------------------------------------------------

    def target_rendition(self, item: PlacedBlock, mark: Watermark) -> tuple[Rendition, Reason]:
        """Return the rendition that a block should have and the reason, before the model's capabilities are
        considered."""
        at = item.message
        if at < mark.dropped_before and not self.survives(at, mark):
            return "omitted", "budget"
        if item.override is not None and not (at < mark.unpinned_before and item.override in ("full", "low")):
            return item.override, "override"
        if item.is_media:
            return self._media_rendition(item, mark)
        if at < mark.tool_text_before and item.place == "result":
            return "text", "budget"
        if item.is_thinking:
            return self._thinking_rendition(item, mark)
        return "full", ""

    def survives(self, at: int, mark: Watermark) -> bool:
        """Return whether a message stays even though it is before the border: if only the first steps of a turn are
        dropped, its question stays."""
        return self.messages[at].role == "user" and self.partially_dropped_turn(mark) <= at

    def describe_dropped(self, mark: Watermark) -> str:
        """Return a text that names the media of the dropped messages, so that they can be shown again. Return an empty
        string if even texts are truncated."""
        if mark.text_cap or not mark.dropped_before:
            return ""
        found: dict[str, str] = {}
        for item in reversed(self.media_items):
            block = item.block
            if (
                item.message < mark.dropped_before
                and isinstance(block, MEDIA)
                and not self.survives(item.message, mark)
            ):
                name = plain_name(block.media.name) or block.media.media_type
                found.setdefault(block.media.digest, f"{name[:_NAME_CHARS]} ({short_id(block.media)})")
        if not found:
            return ""
        named = ", ".join(list(found.values())[:_NAMED])
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        how = f"; {LOOK}(media=…) shows one" if self.target.has_look else ""
        return f"; they contained {named}{more}{how}"

    def partially_dropped_turn(self, mark: Watermark) -> int:
        """Return the position at which the turn starts whose first steps are dropped; the border itself if only whole
        turns are dropped."""
        start = self.turns[bisect_right(self.turns, mark.dropped_before) - 1]
        return start if self.messages[start].role == "user" else mark.dropped_before

    def _media_rendition(self, item: PlacedBlock, mark: Watermark) -> tuple[Rendition, Reason]:
        at = item.message
        if item.extra_image:
            return "text", "limit"
        if at < mark.media_before or (at < mark.result_media_before and item.place == "result"):
            return "text", "budget"
        if at < mark.text_before:
            return "text", "age"
        if at < mark.low_before:
            return "low", "age"
        return ("low", "budget") if at < mark.media_low_before else ("full", "")

    def _thinking_rendition(self, item: PlacedBlock, mark: Watermark) -> tuple[Rendition, Reason]:
        """Return the rendition of thinking. Bound thinking is omitted if the messages before it have changed, placed
        thinking if its own message has."""
        rule = self.target.model.thinking
        if rule.replay == "bound" and item.message < mark.thinking_from:
            return "omitted", "prefix"
        if rule.place != "any" and any(
            not other.is_thinking and self._measure_item(other, mark).rendition != "full"
            for other in self.by_message[item.message]
        ):
            return "omitted", "prefix"
        return "full", ""

    def render_costs(self, mark: Watermark) -> Sequence[Measure]:
        """Return the measure of every item with this watermark, in the order of `items`. Computed once for each
        watermark."""
        found = self._measures.get(mark)
        if found is None:
            found = self._measures[mark] = [self._measure_item(item, mark) for item in self.items]
        return found

    def sum_costs(self, mark: Watermark) -> Counts:
        """Return the sums of `render_costs`. Trimming asks for many watermarks: words that none of them changes are
        added up once."""
        if mark.text_cap or mark in self._measures:
            return _add_up(self.render_costs(mark))
        first = min(mark.dropped_before, len(self.messages))
        kept = [self._measure_item(item, mark) for item in self._changing]
        for at in range(min(self.partially_dropped_turn(mark), first), first):  # the question of a turn cut in two
            if self.survives(at, mark):
                kept += (self._measure_item(item, mark) for item in self.by_message[at] if item.is_plain)
        tokens, wire_bytes, images, pages = _add_up(kept)
        plain = self._sum_plain()[first]
        return tokens + plain[0], wire_bytes + plain[1], images + plain[2], pages + plain[3]

    def _sum_plain(self) -> list[Counts]:
        """Return what the words of each message and all that follow it take, as they are."""
        if self._plain_sums is None:
            tokens = wire_bytes = images = pages = 0
            sums = [(tokens, wire_bytes, images, pages)]
            for items in reversed(self.by_message):
                for item in items:
                    if item.is_plain:
                        measure = item.render_cost("full", 0, self.target)
                        tokens += measure.tokens
                        wire_bytes += measure.wire_bytes
                        images += measure.images
                        pages += measure.pages
                sums.append((tokens, wire_bytes, images, pages))
            self._plain_sums = sums[::-1]
        return self._plain_sums

    def _measure_item(self, item: PlacedBlock, mark: Watermark) -> Measure:
        cap = mark.text_cap if item.message < mark.capped_before else 0
        if item.is_plain and item.message >= mark.dropped_before:
            return item.render_cost("full", cap, self.target)
        rendition = self.target_rendition(item, mark)[0]
        if item.refused is not None and rendition == "full":
            return item.refused
        page_cap = mark.page_cap if item.message < mark.paged_before and isinstance(item.block, DocumentBlock) else 0
        return item.render_cost(rendition, cap, self.target, page_cap=page_cap)

    def is_seen_again(self, position: int, mark: Watermark) -> bool:
        """Return whether the answer before a user message came from a text-only model and this one supports images.
        What that answer says about the images may be wrong, so a note follows."""
        before = position - 1
        while before > 0 and self.messages[before].role == "tool":
            before -= 1
        is_blind = self.messages[position].role == "user" and before in self.blind
        return is_blind and self._first_media(mark) < before

    def _first_media(self, mark: Watermark) -> int:
        """Return the position of the first message that shows a medium."""
        for item, measure in zip(self.items, self.render_costs(mark), strict=True):
            if any(isinstance(part, ShownMedia) for part in measure.shown):
                return item.message
        return len(self.messages)

    def age(self, message: int) -> int:
        """Return how many turns old a message is."""
        return len(self.turns) - bisect_right(self.turns, message)


def _add_up(measures: Iterable[Measure]) -> Counts:
    tokens = wire_bytes = images = pages = 0
    for measure in measures:
        tokens += measure.tokens
        wire_bytes += measure.wire_bytes
        images += measure.images
        pages += measure.pages
    return tokens, wire_bytes, images, pages


def _items(at: int, placed: Placed, overrides: Mapping[str, Override]) -> list[PlacedBlock]:
    place: BlockPosition = "assistant" if placed.message.role == "assistant" else "user"
    items: list[PlacedBlock] = []
    for position, block in enumerate(placed.message.blocks):
        if isinstance(block, ToolResult):
            for number, content in enumerate(block.blocks):
                chosen = overrides.get(override_key(placed.id, position, number)) if overrides else None
                items.append(PlacedBlock(at, position, number, content, "result", override=chosen))
        else:
            chosen = overrides.get(override_key(placed.id, position)) if overrides else None
            if chosen is None and overrides and is_media_block(block):
                chosen = overrides.get(all_media_key(placed.id))
            items.append(PlacedBlock(at, position, None, block, place, override=chosen))
    return items


def turn_starts(messages: Sequence[Message]) -> list[int]:
    """Return the positions at which a turn starts: a user message that does not follow another one."""
    starts = [
        at
        for at, message in enumerate(messages)
        if message.role == "user" and (at == 0 or messages[at - 1].role != "user")
    ]
    return starts if starts and starts[0] == 0 else [0, *starts]
