"""The parts of an answer before they become events."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from loom.content.blocks import Citation


class ThinkingPart(msgspec.Struct, frozen=True):
    text: str


class TextPart(msgspec.Struct, frozen=True):
    """A piece of text; the positions of its citations count from its start."""

    text: str
    citations: tuple[Citation, ...] = ()


class ImagePart(msgspec.Struct, frozen=True):
    png: bytes


class CallPart(msgspec.Struct, frozen=True):
    """A tool call; `arguments` is JSON, or the unchanged text of a directive."""

    name: str
    arguments: str


AnswerPart: TypeAlias = ThinkingPart | TextPart | ImagePart | CallPart


class CutOffError(Exception):
    """The stream ends here, as if the connection was lost."""
