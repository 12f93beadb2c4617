"""The parts of an answer before they become events."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from loom.content.blocks import Citation
from loom.errors import ProviderError


class ThinkingPart(msgspec.Struct, frozen=True):
    text: str


class TextPart(msgspec.Struct, frozen=True):
    """Citations count from the beginning of this text."""

    text: str
    citations: tuple[Citation, ...] = ()


class ImagePart(msgspec.Struct, frozen=True):
    """A PNG."""

    data: bytes


class CallPart(msgspec.Struct, frozen=True):
    """`arguments` is JSON text, or the text of a directive as it is."""

    name: str
    arguments: str


class PausePart(msgspec.Struct, frozen=True):
    seconds: float


class ErrorPart(msgspec.Struct, frozen=True):
    error: ProviderError


class CutOffPart(msgspec.Struct, frozen=True):
    """The stream ends here, as if the connection was lost."""


AnswerPart: TypeAlias = ThinkingPart | TextPart | ImagePart | CallPart | PausePart | ErrorPart | CutOffPart
