"""Assemble: put the blocks into the order and the places that a platform allows. Every call has its result, ids are
valid, media that a result cannot hold follow in one user message after the group of results, and no message is
empty."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

import msgspec

from loom.compile.assemble_ids import legal_ids
from loom.compile.forms import unchanged_messages
from loom.compile.layout import Layout, PlacedBlock
from loom.compile.measure import Measure
from loom.compile.policy import Watermark
from loom.content.blocks import (
    NO_OUTPUT,
    SYSTEM_LABEL,
    Citation,
    DocumentBlock,
    TextBlock,
    ToolCall,
    ToolResult,
    UnknownBlock,
)
from loom.content.json_values import arguments_problem
from loom.content.messages import Role
from loom.content.provider_blocks import find_unpaired, provider_text
from loom.prompt import ShownBlock, ShownMedia, ShownMessage, ShownRaw, ShownResult

INTERRUPTED: Final = "[interrupted: this call was cut off before it gave a result]"
BEGINNING: Final = "[the conversation begins with the assistant]"
CONTINUE: Final = "[continue]"
ADDED_CONTINUE: Final = f'Added "{CONTINUE}" so that the request ends with a user message.'
HIDDEN: Final = "[a message that is not shown]"
SYSTEM_AS_TEXT: Final = "A system message that does not end a turn is sent as user text."
SEEN_AGAIN: Final = "[the images above are visible here; some answers above were given without seeing them]"
RESULTS: Final = "[tool results received]"
_RAW_CHARS: Final = 2_000


def assemble(layout: Layout, mark: Watermark) -> tuple[list[ShownMessage], list[str]]:
    """Return the messages for the wire, and notices about repairs."""
    return _Assembly(layout, mark).run()


class _Assembly:
    def __init__(self, layout: Layout, mark: Watermark) -> None:
        self.layout = layout
        self.mark = mark
        self.measures = dict(zip(layout.items, layout.render_costs(mark), strict=True))
        self.out: list[ShownMessage] = []
        self.repairs: list[str] = []
        self.ids = legal_ids(layout.messages, layout.target.model.ids)
        self.forms = unchanged_messages(layout, mark)
        self.documents = 0
        self.documents_stand = True

    def run(self) -> tuple[list[ShownMessage], list[str]]:
        messages = self.layout.messages
        self._note_dropped()
        position = self.mark.dropped_before
        while position < len(messages):
            if messages[position].role == "assistant":
                position = self._exchange(position)
                continue
            if messages[position].role == "user":
                again = [TextBlock(SEEN_AGAIN)] if self.layout.is_seen_again(position, self.mark) else []
                blocks = [*again, *(self._message_blocks(position) or [TextBlock(HIDDEN)])]
                self._add("user", blocks, self.forms.get(position))
            else:
                self._orphans(position, frozenset())
            position += 1
        self._pair_server_calls()
        return self._add_borders(), self.repairs

    def _note_dropped(self) -> None:
        """Add a note that counts the turns and steps that are not shown. A turn that lost its first steps keeps its
        question."""
        border, torn = self.mark.dropped_before, self.layout.partially_dropped_turn(self.mark)
        if not border:
            return
        for item in self.layout.items:
            if item.message < border and not self.layout.survives(item.message, self.mark):
                self._measure(item)
        turns = sum(1 for start in self.layout.turns if start < min(border, torn))
        held = self.layout.describe_dropped(self.mark)
        if turns:
            what = "turn is" if turns == 1 else "turns are"
            self._add("user", [TextBlock(f"[{turns} earlier {what} not shown{held if torn >= border else ''}]")])
        for at in range(torn, border):
            if self.layout.messages[at].role == "user":
                self._add("user", self._message_blocks(at))
        if torn < border:
            steps = sum(1 for message in self.layout.messages[torn:border] if message.role == "assistant")
            what = "step is" if steps == 1 else "steps are"
            self._add("user", [TextBlock(f"[{steps} earlier {what} not shown{held}]")])

    def _exchange(self, position: int) -> int:
        """Add an assistant message, followed by the results of its calls; return the position of the next message."""
        messages = self.layout.messages
        calls = messages[position].calls
        blocks, hoisted = self._split(self.layout.by_message[position])
        self._add("assistant", blocks, self.forms.get(position))
        end = position + 1
        while end < len(messages) and messages[end].role == "tool":
            end += 1
        answers = range(position + 1, end)
        answered: frozenset[tuple[int, int]] = frozenset()
        if calls and self.layout.has_calls(position):
            found = self._find_results(calls, answers)
            answered = frozenset(found.values())
            form = self.forms.get(position + 1) if answers else None
            hoisted = [*self._results(position, calls, found, form), *hoisted]
        self._add("user", hoisted)
        for at in answers:
            self._orphans(at, answered)
        return end

    def _find_results(self, calls: Sequence[ToolCall], answers: range) -> dict[str, tuple[int, int]]:
        """Return the position of the first result of each call."""
        asked = {call.id for call in calls}
        found: dict[str, tuple[int, int]] = {}
        for at in answers:
            for position, block in enumerate(self.layout.messages[at].blocks):
                if isinstance(block, ToolResult) and block.call_id in asked:
                    found.setdefault(block.call_id, (at, position))
        return found

    def _results(
        self,
        position: int,
        calls: Sequence[ToolCall],
        found: dict[str, tuple[int, int]],
        form: tuple[Any, ...] | None,
    ) -> list[ShownBlock]:
        """Add one result for every call, in the order of the calls; return the blocks that must follow the group."""
        results: list[ShownBlock] = []
        hoisted: list[ShownBlock] = []
        for call in calls:
            blocks: list[TextBlock | ShownMedia] = []
            is_error = call.raw_arguments is not None
            if call.raw_arguments is not None:
                raw = call.raw_arguments[:_RAW_CHARS]
                blocks.append(TextBlock(f"{arguments_problem(call.raw_arguments)}: {raw}"))
            if call.id in found:
                at, place = found[call.id]
                result = self.layout.messages[at].blocks[place]
                is_error = is_error or (isinstance(result, ToolResult) and result.is_error)
                inside, moved = self._result_blocks(at, place, call)
                blocks += inside
                hoisted += moved
            else:
                self.repairs.append(
                    f"The call {self.layout.target.tool_name(call.name)} had no result: it is shown as interrupted."
                )
                blocks.append(TextBlock(INTERRUPTED))
                is_error = True
            results.append(
                ShownResult(
                    call_id=self.ids[position, call.id],
                    name=self.layout.target.tool_name(call.name),
                    blocks=tuple(blocks) or (TextBlock(NO_OUTPUT),),
                    is_error=is_error,
                )
            )
        self.out.append(ShownMessage("tool", tuple(results), form))
        return hoisted

    def _result_blocks(
        self, message: int, position: int, call: ToolCall
    ) -> tuple[list[TextBlock | ShownMedia], list[ShownBlock]]:
        blocks: list[TextBlock | ShownMedia] = []
        moved: list[ShownBlock] = []
        for item in self._items_at(message, position):
            measure = self._measure(item)
            kept = [shown for shown in measure.shown if isinstance(shown, TextBlock | ShownMedia)]
            if measure.hoisted:
                blocks.append(TextBlock(f"[{_media_noun(kept)} of this result follows after the results]"))
                moved += [TextBlock(f"[from the result of {self.layout.target.tool_name(call.name)}]"), *kept]
            else:
                blocks += kept
        return blocks, moved

    def _orphans(self, position: int, answered: frozenset[tuple[int, int]]) -> None:
        """Add results without a call as text and media of a user message."""
        called = self.layout.has_calls(position)
        shown: list[ShownBlock] = []
        for at, block in enumerate(self.layout.messages[position].blocks):
            if (position, at) in answered:
                continue
            parts = [part for item in self._items_at(position, at) for part in self._measure(item).shown]
            if isinstance(block, ToolResult) and parts:
                name = self.layout.target.tool_name(block.name or "a tool")
                if called:
                    self.repairs.append(f"A result without its call ({name}) is shown as text.")
                where = ", without its call" if called else ", an error" if block.is_error else ""
                shown.append(TextBlock(f"[a result of {name}{where}]"))
            shown += parts
        self._add("user", shown)

    def _items_at(self, message: int, position: int) -> list[PlacedBlock]:
        return [item for item in self.layout.by_message[message] if item.position == position]

    def _measure(self, item: PlacedBlock) -> Measure:
        """Return the measure of an item. Count the documents shown, and note whether one that the model supports is
        shown differently."""
        measure = self.measures[item]
        if isinstance(item.block, DocumentBlock):
            shown = any(isinstance(part, ShownMedia) and part.kind == "document" for part in measure.shown)
            self.documents += shown
            lost = not shown and item.block.media.media_type in self.layout.target.model.capabilities.accepts
            self.documents_stand = self.documents_stand and not lost
        return measure

    def _message_blocks(self, message: int) -> list[ShownBlock]:
        return [shown for item in self.layout.by_message[message] for shown in self._measure(item).shown]

    def _split(self, items: Sequence[PlacedBlock]) -> tuple[list[ShownBlock], list[ShownBlock]]:
        """Return the blocks of an assistant message, and its media separately: no platform accepts media from the
        assistant."""
        blocks: list[ShownBlock] = []
        moved: list[ShownBlock] = []
        for item in items:
            measure = self._measure(item)
            if measure.hoisted:
                blocks.append(TextBlock(f"[{_media_noun(measure.shown)}, shown after this message]"))
                moved += [TextBlock("[made by the assistant]"), *measure.shown]
                continue
            blocks += [self._fit_block(shown, item) for shown in measure.shown]
        return blocks, moved

    def _pair_server_calls(self) -> None:
        """Send a server-side tool call without its result, or a result without its call, as text if omitted or moved
        blocks have separated them."""
        taken: set[str] = set()
        for at, message in enumerate(self.out):
            own = [position for position, block in enumerate(message.blocks) if isinstance(block, ShownRaw)]
            if not own:
                continue
            is_open = self.layout.target.request.ends_with_assistant and at == len(self.out) - 1
            blocks = list(message.blocks)
            data = [block.data for block in blocks if isinstance(block, ShownRaw)]
            unpaired = find_unpaired(data, taken, may_end_open=is_open)
            for lost in unpaired:
                self.repairs.append("A server-side tool call without its result is shown as text.")
                blocks[own[lost]] = TextBlock(provider_text(UnknownBlock(data[lost])) or HIDDEN)
            if unpaired:
                self.out[at] = ShownMessage(message.role, tuple(blocks))

    def _fit_block(self, shown: ShownBlock, item: PlacedBlock) -> ShownBlock:
        match shown:
            case ToolCall():
                target = self.layout.target
                return msgspec.structs.replace(
                    shown,
                    id=self.ids[item.message, shown.id],
                    name=target.tool_name(shown.name),
                    arguments=target.call_arguments(shown.name, shown.arguments),
                )
            case TextBlock() if shown.citations:
                return TextBlock(shown.text, tuple(filter(self._is_valid_citation, shown.citations)), shown.opaque)
            case _:
                return shown

    def _is_valid_citation(self, citation: Citation) -> bool:
        """Return whether a citation is still valid. It counts the documents before it, so all of them must still be
        shown; a citation from an imported file may have any index."""
        data: Any = citation.opaque.data if citation.opaque else {}
        index = data.get("document_index")
        is_there = "document_index" not in data or (type(index) is int and 0 <= index < self.documents)
        return self.documents_stand and is_there

    def _add(self, role: Role, blocks: Sequence[ShownBlock], form: tuple[Any, ...] | None = None) -> None:
        """Add a message. Neighbouring messages of one role are joined, except calls, results, and messages that are
        sent unchanged."""
        if not blocks and form is None:
            return
        if form is not None:
            self.out.append(ShownMessage(role, tuple(blocks), form))
            return
        last = self.out[-1] if self.out else None
        if last is not None and last.role == "tool" and role == "user" and not self.layout.target.model.user_after_tool:
            self.out.append(ShownMessage("assistant", (TextBlock(RESULTS),)))
            last = self.out[-1]
        if last is not None and last.role == role and last.form is None:
            self.out[-1] = ShownMessage(role, (*last.blocks, *blocks))
        else:
            self.out.append(ShownMessage(role, tuple(blocks)))

    def _add_borders(self) -> list[ShownMessage]:
        """Ensure that the request begins with a user message and does not end with an assistant message."""
        if not self.out or self.out[0].role != "user":
            self.out.insert(0, ShownMessage("user", (TextBlock(BEGINNING),)))
            self.repairs.append("Added a user message so that the request begins with one.")
        if self.out[-1].role == "assistant" and not self.layout.target.request.ends_with_assistant:
            self.out.append(ShownMessage("user", (TextBlock(CONTINUE),)))
            self.repairs.append(ADDED_CONTINUE)
        return self._part_system_messages()

    def _part_system_messages(self) -> list[ShownMessage]:
        """Words of system messages among the user's become messages of their own where the model takes them."""
        places = self.layout.target.model.system_messages
        if places == "none":
            return self.out
        parted: list[ShownMessage] = []
        for at, message in enumerate(self.out):
            if message.role != "user" or message.form is not None or not any(map(_is_system, message.blocks)):
                parted.append(message)
                continue
            is_turn_end = at + 1 == len(self.out) or self.out[at + 1].role == "assistant"
            runs = [(is_own, tuple(run)) for is_own, run in groupby(message.blocks, _is_system)]
            for number, (is_own, run) in enumerate(runs):
                follows_user = number > 0 or (at > 0 and self.out[at - 1].role == "tool")
                is_last = is_turn_end and number == len(runs) - 1
                is_legal = bool(parted) if places == "anywhere" else follows_user and is_last
                if is_own and is_legal:
                    parted.append(ShownMessage("system", tuple(map(_without_label, run))))
                    continue
                if is_own:
                    self.repairs.append(SYSTEM_AS_TEXT)
                if parted and parted[-1].role == "user" and number > 0:
                    parted[-1] = ShownMessage("user", (*parted[-1].blocks, *run))
                else:
                    parted.append(ShownMessage("user", run))
        return parted


def _is_system(block: ShownBlock) -> bool:
    return isinstance(block, TextBlock) and block.is_system


def _without_label(block: ShownBlock) -> ShownBlock:
    if not isinstance(block, TextBlock):
        return block
    return TextBlock(block.text.removeprefix(f"[{SYSTEM_LABEL}] ") or block.text)


def _media_noun(blocks: Sequence[ShownBlock]) -> str:
    media = [block for block in blocks if isinstance(block, ShownMedia)]
    return f"the {media[0].kind} {media[0].name}".rstrip() if media else "a part"
