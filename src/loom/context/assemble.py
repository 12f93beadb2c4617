"""Assemble: blocks in the order and the places that a platform allows. Pairs are whole, ids are legal, media that a
result may not hold stand in one user message behind the whole group of results, nothing is empty."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from loom.content.blocks import NO_OUTPUT, Block, TextBlock, ToolCall, ToolResult
from loom.content.messages import Message, Role
from loom.context.adapt import Measure
from loom.context.policy import Watermark
from loom.context.survey import Item, Survey
from loom.models import IdRule
from loom.prompt import ShownBlock, ShownMedia, ShownMessage, ShownResult

INTERRUPTED: Final = "[interrupted: this call was cut off before it gave a result]"
BEGINNING: Final = "[the conversation begins with the assistant]"
CONTINUE: Final = "[go on]"
_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")


def assemble(survey: Survey, mark: Watermark) -> tuple[list[ShownMessage], list[str]]:
    """The messages for the wire, and what had to be repaired on the way."""
    return _Assembly(survey, mark).run()


class _Assembly:
    def __init__(self, survey: Survey, mark: Watermark) -> None:
        self.survey = survey
        self.mark = mark
        self.out: list[ShownMessage] = []
        self.repairs: list[str] = []
        self.ids = _legal_ids(survey.messages, survey.target.model.ids)

    def run(self) -> tuple[list[ShownMessage], list[str]]:
        messages = self.survey.messages
        position = self.mark.dropped_before
        if position:
            dropped = sum(1 for start in self.survey.turns if start < position)
            self._add("user", [TextBlock(f"[{dropped} earlier turns are not shown]")])
        while position < len(messages):
            message = messages[position]
            if message.role == "assistant":
                position = self._exchange(position)
                continue
            if message.role == "user":
                self._add("user", self._shown(position))
            else:
                self._orphans(position, message.blocks, frozenset())
            position += 1
        return self._bordered(), self.repairs

    def _exchange(self, position: int) -> int:
        """An assistant's message, and the results of its calls directly behind it; returns where to go on."""
        calls = self.survey.messages[position].calls
        blocks, hoisted = self._split(self.survey.by_message[position])
        self._add("assistant", blocks)
        following = position + 1
        messages = self.survey.messages
        answers = messages[following] if following < len(messages) and messages[following].role == "tool" else None
        if calls:
            hoisted = [*self._results(position, calls, following if answers else None), *hoisted]
        if hoisted:
            self._media_message(hoisted)
        if answers is not None:
            self._orphans(following, answers.blocks, frozenset(call.id for call in calls))
            following += 1
        return following

    def _results(self, position: int, calls: Sequence[ToolCall], answers: int | None) -> list[ShownBlock]:
        """One result for every call, in the order of the calls; gives back what must stand behind the group."""
        message = self.survey.messages[answers] if answers is not None else None
        found = {
            block.call_id: (at, block)
            for at, block in enumerate(message.blocks if message else ())
            if isinstance(block, ToolResult)
        }
        results: list[ShownBlock] = []
        hoisted: list[ShownBlock] = []
        for call in calls:
            call_id = self.ids[position, call.id]
            if call.id not in found or answers is None:
                self.repairs.append(f"the call {call.name} had no result: it is shown as interrupted")
                note: tuple[TextBlock | ShownMedia, ...] = (TextBlock(INTERRUPTED),)
                results.append(ShownResult(call_id=call_id, name=_name(call.name), blocks=note, is_error=True))
                continue
            at, result = found[call.id]
            blocks, moved = self._result_blocks(answers, at, call)
            broken = call.raw_arguments is not None
            if broken:
                blocks = [TextBlock(f"the arguments were not a JSON object: {call.raw_arguments}"[:2_000]), *blocks]
            hoisted += moved
            results.append(
                ShownResult(
                    call_id=call_id,
                    name=_name(call.name),
                    blocks=tuple(blocks) or (TextBlock(NO_OUTPUT),),
                    is_error=result.is_error or broken,
                )
            )
        self.out.append(ShownMessage("tool", tuple(results)))
        return hoisted

    def _result_blocks(
        self, message: int, position: int, call: ToolCall
    ) -> tuple[list[TextBlock | ShownMedia], list[ShownBlock]]:
        blocks: list[TextBlock | ShownMedia] = []
        moved: list[ShownBlock] = []
        for item in self.survey.by_message[message]:
            if item.position != position:
                continue
            measure = self._measure(item)
            kept = [shown for shown in measure.shown if isinstance(shown, TextBlock | ShownMedia)]
            if measure.hoisted:
                blocks.append(TextBlock(f"[{_what(kept)} of this result follows behind the results]"))
                moved.append(TextBlock(f"[from the result of {call.name}]"))
                moved += kept
            else:
                blocks += kept
        return blocks, moved

    def _orphans(self, position: int, blocks: Sequence[Block], answered: frozenset[str]) -> None:
        """Results that nobody asked for are still said, as text and media of a user's message."""
        shown: list[ShownBlock] = []
        for at, block in enumerate(blocks):
            if isinstance(block, ToolResult) and block.call_id in answered:
                continue
            parts = [part for item in self._at(position, at) for part in self._measure(item).shown]
            if isinstance(block, ToolResult) and parts:
                self.repairs.append(f"a result without its call ({block.name or block.call_id}) is shown as text")
                shown.append(TextBlock(f"[a result of {block.name or 'a tool'}, whose call is not here]"))
            shown += parts
        self._add("user", shown)

    def _at(self, message: int, position: int) -> list[Item]:
        return [item for item in self.survey.by_message[message] if item.position == position]

    def _measure(self, item: Item) -> Measure:
        return self.survey.measured(item, self.mark)

    def _shown(self, message: int) -> list[ShownBlock]:
        return [shown for item in self.survey.by_message[message] for shown in self._measure(item).shown]

    def _split(self, items: Sequence[Item]) -> tuple[list[ShownBlock], list[ShownBlock]]:
        """An assistant's blocks, and its pictures: no platform takes those on the assistant's side."""
        blocks: list[ShownBlock] = []
        moved: list[ShownBlock] = []
        for item in items:
            measure = self._measure(item)
            if measure.hoisted:
                blocks.append(TextBlock("[a picture, shown behind this message]"))
                moved.append(TextBlock("[the assistant's picture]"))
                moved += measure.shown
                continue
            for shown in measure.shown:
                if isinstance(shown, ToolCall):
                    call_id = self.ids[item.message, shown.id]
                    blocks.append(msgspec.structs.replace(shown, id=call_id, name=_name(shown.name)))
                else:
                    blocks.append(shown)
        return blocks, moved

    def _media_message(self, blocks: list[ShownBlock]) -> None:
        """Behind a group of results, where a platform allows a user there at all."""
        self._add("user", blocks)

    def _add(self, role: Role, blocks: Sequence[ShownBlock]) -> None:
        """Neighbours of one role become one message; calls and results never move."""
        if not blocks:
            return
        last = self.out[-1] if self.out else None
        if last is not None and last.role == "tool" and role == "user" and not self.survey.target.model.user_after_tool:
            self.out.append(ShownMessage("assistant", (TextBlock("[the results are in]"),)))
            last = self.out[-1]
        if last is not None and last.role == role and not _has_calls(last):
            self.out[-1] = ShownMessage(role, (*last.blocks, *blocks))
        else:
            self.out.append(ShownMessage(role, tuple(blocks)))

    def _bordered(self) -> list[ShownMessage]:
        """A conversation begins and ends with somebody other than the assistant."""
        if not self.out or self.out[0].role != "user":
            self.out.insert(0, ShownMessage("user", (TextBlock(BEGINNING),)))
            self.repairs.append("a user's message was put at the beginning")
        if self.out[-1].role == "assistant":
            self.out.append(ShownMessage("user", (TextBlock(CONTINUE),)))
            self.repairs.append("a user's message was put at the end")
        return self.out


def _has_calls(message: ShownMessage) -> bool:
    return any(isinstance(block, ToolCall) for block in message.blocks)


def _what(blocks: Sequence[TextBlock | ShownMedia]) -> str:
    media = [block for block in blocks if isinstance(block, ShownMedia)]
    return f"the {media[0].kind} {media[0].name}".rstrip() if media else "a part"


def _name(name: str) -> str:
    """Tool names as every platform takes them."""
    return _NAME.sub("_", name)[:64] or "tool"


def _legal_ids(messages: Sequence[Message], rule: IdRule) -> dict[tuple[int, str], str]:
    """(message, id) → an id that the platform takes, unique in the conversation and the same on every request."""
    legal = re.compile(rule.pattern) if rule.pattern else None
    used: set[str] = set()
    mapped: dict[tuple[int, str], str] = {}
    for position, message in enumerate(messages):
        for call in message.calls:
            new = call.id
            if (legal is not None and not legal.fullmatch(new)) or len(new) > rule.length or new in used:
                new = _minted(f"{position}:{call.id}", rule)
            used.add(new)
            mapped[position, call.id] = new
    return mapped


_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _minted(seed: str, rule: IdRule) -> str:
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest(), "big")
    digits: list[str] = []
    while number and len(digits) < 24:
        number, digit = divmod(number, 62)
        digits.append(_ALPHABET[digit])
    return (rule.prefix + "".join(digits))[: rule.length]
