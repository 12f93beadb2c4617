"""Read a prompt: the words of the last message, the media shown with them, the results of tools."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from loom.compile.assemble import BEGINNING, CONTINUE
from loom.content.blocks import TextBlock
from loom.content.recipes import Slice
from loom.prompt import Prompt, ShownBlock, ShownMedia, ShownMessage, ShownResult
from loom.providers.spark.directives import Directive, read_directives

_HOISTED: Final = re.compile(r"\[(?:the assistant's image|from the result of [^\]\n]*)\]")
_DROPPED: Final = re.compile(r"\[\d+ earlier turns are not shown\]")
_FILE: Final = re.compile(r"\[file: ([^\]\n]+)\]\n")
_DOCUMENT: Final = re.compile(r"\[document: ([^\n]*)\]\n")
_LABEL: Final = re.compile(r"\[(image|document|audio): ([^\n]*)\]")
_NAME: Final = re.compile(r"(.+?), (?:\d|[\d.]+ s\b)")
_PART: Final = re.compile(r", pages ([\d-]+)$")
_LOOK: Final = re.compile(r'; (\w+)\(media="([0-9a-f]+)"\) shows it\]$')
PASTED_CHARS: Final = 1_200
"""A longer message is a text to be read rather than a question."""


class ShownImage(msgspec.Struct, frozen=True):
    name: str
    media: ShownMedia


class ShownDocument(msgspec.Struct, frozen=True):
    """A document: the bytes behind `media`, or `text` where only its words are shown. `pages` names the part that is
    shown, where it is not the whole."""

    name: str
    media: ShownMedia | None = None
    text: str = ""
    pages: str = ""


class ShownLabel(msgspec.Struct, frozen=True):
    """A medium of which only a line of text is shown; `look` is the call that would show it."""

    name: str
    kind: str
    text: str
    look: tuple[str, str] | None = None


ShownThing: TypeAlias = ShownImage | ShownDocument | ShownLabel


class SparkTurn(msgspec.Struct, frozen=True, kw_only=True):
    """`words` are the user's own without directives; `steps` counts the rounds of tool results since then."""

    words: str
    directives: tuple[Directive, ...]
    things: tuple[ShownThing, ...]
    earlier: tuple[ShownThing, ...]
    results: tuple[ShownResult, ...]
    steps: int


def read_turn(prompt: Prompt) -> SparkTurn:
    start = _last_said(prompt.messages)
    earlier = [thing for message in prompt.messages[:start] for thing in _shown_in(message)]
    words: list[str] = []
    things: list[ShownThing] = []
    answers = prompt.messages[start].blocks if prompt.messages[start].role == "user" else ()
    moved = False
    for block in answers:
        if isinstance(block, TextBlock) and _HOISTED.fullmatch(block.text):
            moved = True
            continue
        thing = thing_in(block)
        if thing is not None:
            (earlier if moved else things).append(thing)
        elif isinstance(block, TextBlock) and not _is_note(block.text):
            words.append(block.text)
        moved = False
    directives, rest = read_directives("\n\n".join(words))
    if len(rest) > PASTED_CHARS:
        things.append(ShownDocument("your text", text=rest))
        rest = _question_in(rest)
    rounds = [message for message in prompt.messages[start:] if message.role == "tool"]
    return SparkTurn(
        words=rest,
        directives=directives,
        things=tuple(things),
        earlier=tuple(earlier),
        results=tuple(block for block in rounds[-1].blocks if isinstance(block, ShownResult)) if rounds else (),
        steps=len(rounds),
    )


def _last_said(messages: Sequence[ShownMessage]) -> int:
    """Return the position of the last message in which a user speaks, rather than one that only holds hoisted media."""
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if message.role != "user":
            continue
        first = message.blocks[0]
        hoisted = isinstance(first, TextBlock) and _HOISTED.fullmatch(first.text)
        if not hoisted or any(
            isinstance(block, TextBlock) and not _is_note(block.text) and thing_in(block) is None
            for block in message.blocks
        ):
            return at
    return 0


def _shown_in(message: ShownMessage) -> list[ShownThing]:
    found: list[ShownThing] = []
    for block in message.blocks:
        inner: Sequence[ShownBlock] = block.blocks if isinstance(block, ShownResult) else (block,)
        if message.role != "assistant":
            found += [thing for part in inner if (thing := thing_in(part)) is not None]
    return found


def thing_in(block: ShownBlock) -> ShownThing | None:
    """Return a picture, a document or a label; None for mere words."""
    if isinstance(block, ShownMedia):
        if block.kind == "image":
            return ShownImage(block.name or "the image", block)
        sliced = block.ref.recipe
        return ShownDocument(
            block.name or "the document", block, pages=sliced.pages if isinstance(sliced, Slice) else ""
        )
    return _media_from_text(block.text) if isinstance(block, TextBlock) else None


def _media_from_text(text: str) -> ShownThing | None:
    """Return what stands in for a medium in a text: a file's words, a document's words, or a label."""
    if file := _FILE.match(text):
        return ShownDocument(file[1], text=text[file.end() :])
    document = _DOCUMENT.match(text)
    if document and not document[1].endswith("follow as images"):
        part = _PART.search(document[1])
        return ShownDocument(_name_in(document[1]), text=text[document.end() :], pages=part[1] if part else "")
    label = _LABEL.fullmatch(text)
    if label is None:
        return None
    look = _LOOK.search(text)
    return ShownLabel(_name_in(label[2]), label[1], text, (look[1], look[2]) if look else None)


def _name_in(label: str) -> str:
    found = _NAME.match(label)
    return found[1] if found else label


def _is_note(text: str) -> bool:
    """Return what the compiler of prompts says to keep a conversation whole."""
    return text in (BEGINNING, CONTINUE) or bool(_DROPPED.fullmatch(text) or _HOISTED.fullmatch(text))


def _question_in(text: str) -> str:
    """Return the question above or below a pasted text."""
    paragraphs = [paragraph.strip() for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip()]
    ends = [paragraphs[-1], paragraphs[0]] if len(paragraphs) > 1 else []
    return next((words for words in ends if len(words) < 300 and words.endswith("?")), "")
