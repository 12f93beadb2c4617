"""Assembly: split and join drafts into valid messages, and give ids to calls without one. No content is lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, cast

import msgspec

from loom.content.blocks import Block, ContentBlock, TextBlock, ThinkingBlock, ToolCall, ToolResult, UnknownBlock
from loom.content.json_values import sanitize_json
from loom.content.messages import Message, Role
from loom.importers.messages import MessageDraft
from loom.importers.reader import FoundBlock, FoundResult, LegacyReader

MessageRun: TypeAlias = tuple[Role, list[FoundBlock]]


class OpenCall(msgspec.Struct, frozen=True):
    """A call without a result yet. `original_id` is the id in the source, `id` the one in the new message."""

    original_id: str
    id: str
    name: str


class Assembly:
    """Collects drafts, one after another. `open_calls` are the calls of the last assistant message without a result."""

    def __init__(self, reading: LegacyReader, open_calls: Sequence[OpenCall] = ()) -> None:
        self.open_calls: list[OpenCall] = list(open_calls)
        self._reading = reading
        self._messages: list[Message] = []
        self._role: Role | None = None
        self._blocks: list[FoundBlock] = []
        self._last: MessageDraft | None = None
        self._where = ""

    @property
    def is_empty(self) -> bool:
        """Whether no draft was added yet."""
        return self._last is None

    def copy(self, reading: LegacyReader) -> Assembly:
        """Return a copy that can be continued independently."""
        made = Assembly(reading, self.open_calls)
        made._messages, made._blocks = [*self._messages], [*self._blocks]
        made._role, made._last, made._where = self._role, self._last, self._where
        return made

    def add(self, draft: MessageDraft, parts: Iterable[MessageRun] = ()) -> range:
        """Add a draft; return the positions of the messages that it becomes part of. Pass `parts` if the runs of the
        draft are already known."""
        first: int | None = None
        for role, blocks in parts or runs(draft):
            is_continued = self._last is not None and (
                draft.is_piece or self._last.is_piece or (draft.group != "" and draft.group == self._last.group)
            )
            is_joined = role == self._role and (role == "tool" or (role == "assistant" and is_continued))
            if not is_joined:
                self._close()
                self._where = self._reading.where
            self._role = role
            self._blocks.extend(blocks)
            first = len(self._messages) if first is None else first
        self._last = draft
        end = len(self._messages) + 1
        return range(end if first is None else first, end)

    def finish(self) -> tuple[Message, ...]:
        self._close()
        return tuple(self._messages)

    def _note(self, sentence: str) -> None:
        self._reading.note(sentence, where=self._where)

    def _close(self) -> None:
        """Build a message from the collected blocks, if there are any."""
        role, found = self._role, self._blocks
        self._role, self._blocks = None, []
        if role is None:
            return
        if role == "tool":
            blocks: list[Block] = [*self._results(found)]
        elif role == "assistant":
            blocks = self._with_own_ids(found)
        else:
            blocks = [cast("ContentBlock", block) for block in found]
        self._messages.append(Message(role, tuple(blocks)))

    def _with_own_ids(self, found: list[FoundBlock]) -> list[Block]:
        """Return the blocks with unique call ids. A call that was stored twice becomes one call."""
        calls: dict[str, ToolCall] = {}
        numbers: dict[str, int] = {}
        blocks: list[Block] = []
        self.open_calls = []
        for block in found:
            if not isinstance(block, ToolCall):
                blocks.append(cast("Block", block))
                continue
            known = calls.get(block.id)
            if known is not None and (known.name, known.arguments, known.raw_arguments) == (
                block.name,
                block.arguments,
                block.raw_arguments,
            ):
                continue
            call = block
            if known is not None:
                call = msgspec.structs.replace(block, id=_free_id(block.id, calls, numbers))
                self._note(f"two calls shared the id {block.id[:80]!r}; the second is now {call.id[:90]!r}")
            calls[call.id] = call
            blocks.append(call)
            self.open_calls.append(OpenCall(block.id, call.id, call.name))
        return blocks

    def _results(self, found: list[FoundBlock]) -> list[ToolResult | UnknownBlock]:
        """Return one result for each call; further results of the same call are appended to it."""
        ids = self._call_ids(found)
        groups: dict[str | int, list[FoundBlock]] = {}
        for at, block in enumerate(found):
            groups.setdefault(ids.get(at, at), []).append(block)
        return [
            self._join_results(key, cast("list[FoundResult]", group))
            if isinstance(key, str)
            else cast("UnknownBlock", group[0])
            for key, group in groups.items()
        ]

    def _call_ids(self, found: list[FoundBlock]) -> dict[int, str]:
        """Return the call id of each result by its position: matched by id first, then by name and order."""
        results = {at: block for at, block in enumerate(found) if isinstance(block, FoundResult)}
        ids = {at: self._answer(result, by_id=True) or result.call_id for at, result in results.items()}
        for at, result in results.items():
            if not ids[at]:
                ids[at] = self._answer(result, by_id=False) or self._reading.mint("result")
        return ids

    def _answer(self, result: FoundResult, *, by_id: bool) -> str:
        """Return the id of the open call that a result answers, and remove it from `open_calls`; empty if there is
        none."""
        for at, call in enumerate(self.open_calls):
            if call.original_id == result.call_id if by_id else result.name in ("", call.name):
                del self.open_calls[at]
                return call.id
        return ""

    def _join_results(self, call_id: str, group: list[FoundResult]) -> ToolResult:
        first = group[0]
        blocks = list(first.blocks)
        for other in group[1:]:
            self._note(f"the call {call_id[:80]!r} had more than one result; they were joined")
            if (other.blocks, other.is_error) != (first.blocks, first.is_error):
                kind = "error" if other.is_error else "result"
                blocks.extend((TextBlock(f"[another {kind} for this call]"), *other.blocks))
        data = [result.data for result in group if result.data is not None]
        shown = sanitize_json(data) if len(data) > 1 else data[0] if data else None
        return ToolResult(call_id, tuple(blocks), first.name, first.is_error, shown)


def runs(draft: MessageDraft) -> Iterator[MessageRun]:
    """Yield the blocks of a draft by the role that may contain them. Results come first, except in an assistant's
    draft, which keeps its order."""
    if draft.role == "assistant":
        yield from _in_order(draft.blocks)
        return
    results = [block for block in draft.blocks if isinstance(block, FoundResult)]
    models = [block for block in draft.blocks if isinstance(block, ThinkingBlock | ToolCall)]
    rest = [block for block in draft.blocks if not isinstance(block, FoundResult | ThinkingBlock | ToolCall)]
    if draft.role == "tool":
        results += [block for block in rest if isinstance(block, UnknownBlock)]
        rest = [block for block in rest if not isinstance(block, UnknownBlock)]
    if results:
        yield "tool", [*results]
    if models:
        yield "assistant", [*models]
    if rest:
        yield "user", [*rest]


def _in_order(blocks: tuple[FoundBlock, ...]) -> Iterator[MessageRun]:
    run: list[FoundBlock] = []
    role: Role = "assistant"
    for block in blocks:
        fits: Role = "tool" if isinstance(block, FoundResult) else "assistant"
        if fits != role and run:
            yield role, run
            run = []
        role = fits
        run.append(block)
    if run:
        yield role, run


def _free_id(call_id: str, taken: dict[str, ToolCall], numbers: dict[str, int]) -> str:
    """Return the id, with a number appended if it is taken. `numbers` holds the last number of each id."""
    free = call_id
    while free in taken:
        numbers[call_id] = numbers.get(call_id, 1) + 1
        free = f"{call_id}~{numbers[call_id]}"
    return free
