"""The parts of an answer before they become events."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from loom.content.blocks import Citation


class ThinkingPart(msgspec.Struct, frozen=True):
    text: str


class TextPart(msgspec.Struct, frozen=True):
    """Citations count from the beginning of this text."""

    text: str
    citations: tuple[Citation, ...] = ()


class ImagePart(msgspec.Struct, frozen=True):
    png: bytes


class CallPart(msgspec.Struct, frozen=True):
    """`arguments` is JSON text, or the text of a directive as it is."""

    name: str
    arguments: str


AnswerPart: TypeAlias = ThinkingPart | TextPart | ImagePart | CallPart


class CutOffError(Exception):
    """The stream ends here, as if the connection was lost."""
