"""Messages: a role and at least one block."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, assert_never

import msgspec

from loom.content.blocks import (
    BLOCK_TYPES,
    CONTENT_TYPES,
    AudioBlock,
    Block,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    MediaBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    UnknownBlock,
    VideoBlock,
    is_media_block,
)
from loom.content.json_values import get_object
from loom.content.media import Media
from loom.content.provider_blocks import provider_text
from loom.errors import ContentError

Role = Literal["user", "assistant", "tool"]
TITLE_CHARACTERS: Final = 60

_ALLOWED: Final[dict[Role, frozenset[type]]] = {
    "user": frozenset(CONTENT_TYPES),
    "assistant": frozenset(BLOCK_TYPES) - {ToolResult},
    "tool": frozenset({ToolResult, UnknownBlock}),
}


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message of a conversation. A tool message holds all results of the calls before it. The system prompt belongs
    to the root, not to a message."""

    role: Role
    blocks: tuple[Block, ...]

    def __post_init__(self) -> None:
        blocks = self.blocks
        allowed = _ALLOWED.get(self.role)
        if allowed is None:
            raise ContentError(f"A role is user, assistant or tool, not {self.role!r}")
        if not blocks:
            raise ContentError(f"{self.role.capitalize()} messages must not be empty")
        if type(blocks[0]) in allowed and len(blocks) == 1:
            return
        if self.role == "user" and allowed.issuperset(map(type, blocks)):
            return  # no calls or results that could share an id
        pairs: list[str] = []
        for block in blocks:
            if type(block) not in allowed:
                raise ContentError(f"{self.role.capitalize()} messages cannot contain a {type(block).__name__}")
            if isinstance(block, ToolCall):
                pairs.append(block.id)
            elif isinstance(block, ToolResult):
                pairs.append(block.call_id)
        if len(pairs) > 1 and len(set(pairs)) < len(pairs):
            twice = next(pair_id for pair_id in pairs if pairs.count(pair_id) > 1)
            kind = "ToolResult" if self.role == "tool" else "ToolCall"
            raise ContentError(f"Two {kind}s of one message share the id {twice[:80]!r}")

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        if self.role != "assistant":
            return ()
        return tuple([block for block in self.blocks if isinstance(block, ToolCall)])

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple(block for block in self.blocks if isinstance(block, ToolResult))

    @property
    def text(self) -> str:
        """The text of the message, without other blocks. Neighbouring texts of a model are parts of one text (split at
        citations); otherwise each block is a paragraph."""
        pieces: list[str] = []
        follows = False
        for block in self.blocks:
            if isinstance(block, TextBlock):
                joined = not pieces or (follows and self.role == "assistant")
                pieces += [block.text] if joined else ["\n\n", block.text]
            follows = isinstance(block, TextBlock)
        return "".join(pieces)


def user(*blocks: str | ContentBlock) -> Message:
    return Message("user", tuple(TextBlock(block) if isinstance(block, str) else block for block in blocks))


def assistant(*blocks: str | Block) -> Message:
    return Message("assistant", tuple(TextBlock(block) if isinstance(block, str) else block for block in blocks))


def tool(*results: ToolResult) -> Message:
    return Message("tool", results)


def join_texts(blocks: Iterable[Block]) -> list[Block]:
    """Return the blocks of an answer with neighboring texts joined: providers split texts at citations, and an answer
    that was interrupted and continued may be split in mid-word."""
    joined: list[Block] = []
    for block in blocks:
        last = joined[-1] if joined else None
        if isinstance(block, TextBlock) and isinstance(last, TextBlock):
            joined[-1] = TextBlock(last.text + block.text, (*last.citations, *block.citations))
        else:
            joined.append(block)
    return joined


def media_blocks(blocks: Iterable[Block]) -> Iterator[MediaBlock]:
    """Yield every block that refers to bytes, in order, including those inside tool results."""
    for block in blocks:
        if is_media_block(block):
            yield block
        elif isinstance(block, ToolResult):
            yield from media_blocks(block.blocks)


def media_of(message: Message) -> tuple[Media, ...]:
    return tuple(block.media for block in media_blocks(message.blocks))


_TEXT_FILE: Final = re.compile(r"\[file: ([^\]\n]+)\]\n")
"""The beginning of the text of a file that is attached as text."""


def text_file_in(text: str) -> tuple[str, str] | None:
    """Return the name and the content of a file that is attached as text; None for other text."""
    found = _TEXT_FILE.match(text)
    return (found[1], text[found.end() :]) if found else None


def title_of(message: Message) -> str:
    """Return a title for a conversation that begins with this message: its first words, or the names of its files."""
    texts = [block.text.strip() for block in message.blocks if isinstance(block, TextBlock)]
    files = [match[1] for text in texts if (match := _TEXT_FILE.match(text))]
    said = " ".join(text for text in texts if text and not _TEXT_FILE.match(text))
    names = ", ".join([*(media.name or media.label for media in media_of(message)), *files])
    words = " ".join((said or names)[: 8 * TITLE_CHARACTERS].split())
    return words if len(words) <= TITLE_CHARACTERS else words[: TITLE_CHARACTERS - 1].rstrip() + "…"


def sources_of(message: Message) -> tuple[str, ...]:
    """Return the sources that a message cites, each once, in the order of the text."""
    cited = (
        citation.source for block in message.blocks if isinstance(block, TextBlock) for citation in block.citations
    )
    return tuple(dict.fromkeys(source for source in cited if source))


def failure_of_command(result: ToolResult) -> str:
    """Return how a command failed, such as `exit code 4`; an empty string if it did not, or if it is no command."""
    facts = get_object(result.data)
    if facts.get("timed_out") is True:
        return "timed out"
    code = facts.get("exit_code")
    return f"exit code {code}" if isinstance(code, int) and code else ""


def text_of(block: Block) -> str:
    """Return the text form of any block: its text alternative if there is one, otherwise its label."""
    match block:
        case TextBlock():
            return block.text
        case ImageBlock():
            words = block.alt or block.description
            return f"[image: {block.media.label}: {words}]" if words else f"[image: {block.media.label}]"
        case DocumentBlock():
            pages = f", pages {block.pages}" if block.pages else ""
            return f"[document: {block.media.label}{pages}]"
        case AudioBlock():
            words = f": {block.transcript}" if block.transcript else ""
            return f"[audio: {block.media.label}{words}]"
        case VideoBlock():
            words = f": {block.transcript}" if block.transcript else ""
            return f"[video: {block.media.label}{words}]"
        case ThinkingBlock():
            return block.text if block.text.strip() else "[thinking, kept by the provider]"
        case ToolCall():
            arguments = (
                block.raw_arguments
                if block.raw_arguments is not None
                else msgspec.json.encode(block.arguments).decode()
            )
            return f"[tool call: {block.name}({arguments})]"
        case ToolResult():
            return "\n".join(text_of(inner) for inner in block.blocks)
        case UnknownBlock():
            said = (block.data.get(key) for key in ("text", "content"))
            words = next((words for words in said if isinstance(words, str) and words.strip()), "")
            return words or provider_text(block) or f"[{block.kind}: not known to this version]"
        case _:
            assert_never(block)


class BrokenPair(msgspec.Struct, frozen=True):
    """A call without a result, or a result without a call, at a position in the path."""

    message: int
    call_id: str
    problem: Literal["unanswered", "orphan"]


def broken_pairs(path: Sequence[Message]) -> tuple[BrokenPair, ...]:
    """Return calls without a result, and results without a call, in the neighbouring message."""
    found: list[BrokenPair] = []
    open_calls: dict[str, int] = {}
    for position, message in enumerate(path):
        answered: set[str] = set()
        for result in message.results:
            answered.add(result.call_id)
            if result.call_id not in open_calls:
                found.append(BrokenPair(position, result.call_id, "orphan"))
        found.extend(
            BrokenPair(at, call_id, "unanswered") for call_id, at in open_calls.items() if call_id not in answered
        )
        open_calls = {call.id: position for call in message.calls}
    found.extend(BrokenPair(at, call_id, "unanswered") for call_id, at in open_calls.items())
    return tuple(found)
