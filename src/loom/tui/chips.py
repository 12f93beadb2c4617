"""Chips: short tokens in the composer, such as `[Image #1]`, for an attachment or a long pasted text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from loom.content.blocks import AudioBlock, ContentBlock, DocumentBlock, ImageBlock, VideoBlock

ChipState: TypeAlias = Literal["reading", "ready"]

_UNSAFE: Final = re.compile(r"[\[\]\x00-\x1f\x7f-\x9f]")
_LONGEST_NAME: Final = 40


class Chip(msgspec.Struct, kw_only=True):
    """`blocks` are sent with the message; `text` replaces the token in the text of the message."""

    token: str
    blocks: tuple[ContentBlock, ...] = ()
    text: str = ""
    state: ChipState = "ready"
    label: str = ""


def chip_name(name: str) -> str:
    """Return a file name that is safe in brackets on one line."""
    name = _UNSAFE.sub("", name).strip() or "file"
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 9]}…{name[-8:]}"


def token_for(blocks: Iterable[ContentBlock], number: int, fallback: str) -> str:
    """Return the token of ingested blocks: `[Image #2]`, `[report.pdf 1-20]`, `[notes.txt]`."""
    for block in blocks:
        match block:
            case ImageBlock():
                return f"[Image #{number}]"
            case DocumentBlock():
                pages = f" {block.pages}" if block.pages else ""
                return f"[{chip_name(block.media.name or fallback)}{pages}]"
            case AudioBlock() | VideoBlock():
                return f"[{chip_name(block.media.name or fallback)}]"
            case _:
                continue
    return f"[{chip_name(fallback)}]"


def unique_token(token: str, taken: Iterable[str]) -> str:
    """Return `token`, numbered if another chip has it already."""
    known = set(taken)
    count, candidate = 2, token
    while candidate in known:
        candidate = f"{token[:-1]} ({count})]"
        count += 1
    return candidate


def chips_in(text: str, chips: Mapping[str, Chip]) -> list[Chip]:
    """Return the chips whose token is in the text, in the order of the text."""
    placed = [(at, chip) for token, chip in chips.items() if (at := text.find(token)) >= 0]
    return [chip for _, chip in sorted(placed, key=lambda item: item[0])]


def expand(text: str, chips: Mapping[str, Chip]) -> str:
    """Return the text to send, with pasted texts in place of their tokens. Tokens of attachments stay, so that the text
    can refer to them; without any other text, return an empty one."""
    rest = text
    for chip in chips.values():
        if chip.text:
            text = text.replace(chip.token, chip.text, 1)
            rest = rest.replace(chip.token, chip.text, 1)
        else:
            rest = rest.replace(chip.token, "")
    return text.strip() if rest.strip() else ""


def span_at(line: str, column: int, tokens: Iterable[str]) -> tuple[int, int] | None:
    """Return the start and the end of the token that contains the column, borders excluded; None if there is none."""
    return next(((start, end) for start, end in _spans(line, tokens) if start < column < end), None)


def span_ending_at(line: str, column: int, tokens: Iterable[str]) -> tuple[int, int] | None:
    """Return the start and the end of the token that Backspace at this column removes; None if there is none."""
    return next(((start, end) for start, end in _spans(line, tokens) if start < column <= end), None)


def span_starting_at(line: str, column: int, tokens: Iterable[str]) -> tuple[int, int] | None:
    """Return the start and the end of the token that Delete at this column removes; None if there is none."""
    return next(((start, end) for start, end in _spans(line, tokens) if start <= column < end), None)


def _spans(line: str, tokens: Iterable[str]) -> Iterable[tuple[int, int]]:
    for token in tokens:
        at = line.find(token)
        while at >= 0:
            yield at, at + len(token)
            at = line.find(token, at + 1)
