"""Survey: every block of a path with its turn and place, and what it would cost under each wish. Measured once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loom.content.blocks import AudioBlock, Block, DocumentBlock, ImageBlock, TextBlock, ThinkingBlock, ToolResult
from loom.content.messages import Message
from loom.context.adapt import Measure, Place, Target, adapt
from loom.context.policy import Override, Placed, Watermark, override_key
from loom.prompt import Reason, Rendition

MEDIA = (ImageBlock, DocumentBlock, AudioBlock)


class Item:
    """One block of the path (a result's blocks each on their own)."""

    __slots__ = ("_measures", "block", "extra_image", "inner", "message", "override", "place", "position")

    def __init__(
        self,
        *,
        message: int,
        position: int,
        inner: int | None,
        block: Block,
        place: Place,
        override: Override | None,
    ) -> None:
        self.message = message
        self.position = position
        self.inner = inner
        self.block = block
        self.place: Place = place
        self.override: Rendition | None = override
        self.extra_image = False
        self._measures: dict[Rendition, Measure] = {}

    def measure(self, wish: Rendition, target: Target) -> Measure:
        found = self._measures.get(wish)
        if found is None:
            found = self._measures[wish] = adapt(self.block, wish, self.place, target)
        return found


class Survey:
    def __init__(self, path: Sequence[Placed], target: Target, overrides: Mapping[str, Override]) -> None:
        self.target = target
        self.messages: list[Message] = [placed.message for placed in path]
        self.turns = turn_starts(self.messages)
        self.items: list[Item] = []
        for at, placed in enumerate(path):
            self._add(at, placed, overrides)
        self.by_message: list[list[Item]] = [[] for _ in self.messages]
        for item in self.items:
            self.by_message[item.message].append(item)
        self._mark_extra_images()

    def _add(self, at: int, placed: Placed, overrides: Mapping[str, Override]) -> None:
        place: Place = "assistant" if placed.message.role == "assistant" else "user"
        for position, block in enumerate(placed.message.blocks):
            if not isinstance(block, ToolResult):
                chosen = overrides.get(override_key(placed.id, position))
                item = Item(message=at, position=position, inner=None, block=block, place=place, override=chosen)
                self.items.append(item)
                continue
            for inner, content in enumerate(block.blocks):
                chosen = overrides.get(override_key(placed.id, position, inner))
                item = Item(message=at, position=position, inner=inner, block=content, place="result", override=chosen)
                self.items.append(item)

    def _mark_extra_images(self) -> None:
        """Pictures over the limit of one message are kept in the path and shown as text."""
        for items in self.by_message:
            pictures = [item for item in items if isinstance(item.block, ImageBlock) and item.override != "full"]
            for extra in pictures[self.target.policy.max_images_per_message :]:
                extra.extra_image = True

    def wish(self, item: Item, mark: Watermark) -> tuple[Rendition, Reason, str]:
        """Which rendition a block should have, and why, before the model is asked what it can take."""
        at = item.message
        if at < mark.dropped_before:
            return "omitted", "budget", "an old turn, left out"
        if item.override is not None and isinstance(item.block, (*MEDIA, TextBlock)):
            return item.override, "override", "chosen by the user"
        if isinstance(item.block, MEDIA):
            return self._media_wish(item, mark)
        if isinstance(item.block, TextBlock) and item.place == "result" and at < mark.tool_text_before:
            return "text", "budget", "shortened"
        bound = self.target.model.thinking.replay == "bound"
        if isinstance(item.block, ThinkingBlock) and bound and at < mark.thinking_from:
            return "omitted", "prefix", "what stands before it was rewritten"
        return "full", "", ""

    def _media_wish(self, item: Item, mark: Watermark) -> tuple[Rendition, Reason, str]:
        at = item.message
        if item.extra_image:
            return "text", "limit", f"over {self.target.policy.max_images_per_message} pictures in one message"
        if item.place == "result" and at < mark.result_media_before:
            return "text", "budget", "an old result"
        if at < mark.text_before:
            return "text", "age", f"{self.age(at)} turns old"
        if at < mark.low_before:
            return "low", "age", f"{self.age(at)} turns old"
        return "full", "", ""

    def measured(self, item: Item, mark: Watermark) -> Measure:
        return item.measure(self.wish(item, mark)[0], self.target)

    def age(self, message: int) -> int:
        """How many turns ago."""
        return sum(1 for start in self.turns if start > message)


def turn_starts(messages: Sequence[Message]) -> list[int]:
    """Positions where a turn begins: a user's message that does not follow another one."""
    starts = [
        at
        for at, message in enumerate(messages)
        if message.role == "user" and (at == 0 or messages[at - 1].role != "user")
    ]
    return starts if starts and starts[0] == 0 else [0, *starts]
