"""Read a prompt: the text of the last message, the media shown with it, the results of tools."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from loom.compile.assemble import BEGINNING, CONTINUE
from loom.content.blocks import TextBlock
from loom.content.recipes import Slice
from loom.prompt import Prompt, ShownBlock, ShownMedia, ShownResult
from loom.providers.spark.directives import Directive, read_directives

_HOISTED: Final = re.compile(r"\[(?:the assistant's image|from the result of [^\]\n]*)\]")
_NOTE: Final = re.compile(rf"{_HOISTED.pattern}|\[\d+ earlier turns are not shown\]")
_TEXT_OF: Final = re.compile(r"\[(?:file: ([^\]\n]+)|document: (?![^\n]*follow as images\])([^\n]*))\]\n")
_LABEL: Final = re.compile(r"\[(?:image|document|audio): ([^\n]*)\]")
_NAME: Final = re.compile(r"^(.*?)(?:, \d.*?)?(?:, pages ([\d-]+))?$")
_LOOK: Final = re.compile(r'; (\w+)\((\w+)="([0-9a-f]+)"\) shows it\]$')
PASTED_CHARS: Final = 1_200
"""A longer message is treated as a document rather than a question."""


class ShownThing(msgspec.Struct, frozen=True):
    """An image, a document, or a label: a line of text in place of a medium.

    A document has bytes behind `media`, or `text` if only its text is shown; `pages` names the part that is shown, if
    not all. `look` is the call that would show the medium of a label: tool, parameter, value.
    """

    kind: Literal["image", "document", "label"]
    name: str
    media: ShownMedia | None = None
    text: str = ""
    pages: str = ""
    look: tuple[str, ...] = ()


class SparkTurn(msgspec.Struct, frozen=True, kw_only=True):
    """`words` is the user's text without directives; `steps` counts the rounds of tool results since that message."""

    words: str
    directives: tuple[Directive, ...]
    things: tuple[ShownThing, ...]
    earlier: tuple[ShownThing, ...]
    results: tuple[ShownResult, ...]
    steps: int


def read_turn(prompt: Prompt) -> SparkTurn:
    """Read the last message that the user wrote, ignoring messages that only contain hoisted media."""
    messages = prompt.messages
    asked = [at for at, message in enumerate(messages) if message.role == "user" and _words_in(message.blocks)]
    shown = [at for at, message in enumerate(messages) if message.role == "user" and not _is_moved(message.blocks[0])]
    start = max(asked[-1:] + shown[-1:], default=0)
    earlier = [
        thing
        for message in messages[:start]
        if message.role != "assistant"
        for block in message.blocks
        for part in (block.blocks if isinstance(block, ShownResult) else (block,))
        if (thing := thing_in(part)) is not None
    ]
    blocks = messages[start].blocks if messages[start].role == "user" else ()
    things: list[ShownThing] = []
    for before, block in zip((None, *blocks), blocks, strict=False):
        if (thing := thing_in(block)) is not None:
            (earlier if before is not None and _is_moved(before) else things).append(thing)
    directives, words = read_directives("\n\n".join(_words_in(blocks)))
    if len(words) > PASTED_CHARS:
        things.append(ShownThing("document", "your text", text=words))
        last = words.splitlines()[-1]
        words = last if last.endswith("?") else ""
    rounds = [message for message in messages[start:] if message.role == "tool"]
    return SparkTurn(
        words=words,
        directives=directives,
        things=tuple(things),
        earlier=tuple(earlier),
        results=tuple(block for block in rounds[-1].blocks if isinstance(block, ShownResult)) if rounds else (),
        steps=len(rounds),
    )


def _words_in(blocks: Sequence[ShownBlock]) -> list[str]:
    """Return the texts, without those that replace media and those that `compile` adds."""
    texts = [block.text for block in blocks if isinstance(block, TextBlock) and thing_in(block) is None]
    return [text for text in texts if text not in (BEGINNING, CONTINUE) and not _NOTE.fullmatch(text)]


def _is_moved(block: ShownBlock) -> bool:
    """Return whether a block is the note that the next block belongs to an earlier message."""
    return isinstance(block, TextBlock) and _HOISTED.fullmatch(block.text) is not None


def thing_in(block: ShownBlock) -> ShownThing | None:
    """Return the image, document or label of a block, including texts that replace media; None for ordinary text."""
    if isinstance(block, ShownMedia):
        pages = block.ref.recipe.pages if isinstance(block.ref.recipe, Slice) else ""
        kind = "image" if block.kind == "image" else "document"
        return ShownThing(kind, block.name or f"the {kind}", block, pages=pages)
    if not isinstance(block, TextBlock):
        return None
    if head := _TEXT_OF.match(block.text):
        name, pages = (head[1], "") if head[1] else _NAME.findall(head[2])[0]
        return ShownThing("document", name, text=block.text[head.end() :], pages=pages)
    if label := _LABEL.fullmatch(block.text):
        look = _LOOK.search(block.text)
        name = _NAME.findall(label[1])[0][0]
        return ShownThing("label", name, text=block.text, look=look.groups() if look else ())
    return None
