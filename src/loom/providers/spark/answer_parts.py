"""The parts of an answer before they are events: what is thought, said, quoted, drawn, called."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from loom.content.blocks import Citation
from loom.errors import ProviderError


class ThinkingPart(msgspec.Struct, frozen=True):
    text: str


class TextPart(msgspec.Struct, frozen=True):
    """`citations` count from the beginning of this text."""

    text: str
    citations: tuple[Citation, ...] = ()


class ImagePart(msgspec.Struct, frozen=True):
    """A PNG."""

    data: bytes


class CallPart(msgspec.Struct, frozen=True):
    """`arguments` is JSON text, or whatever a directive asked for in its place."""

    name: str
    arguments: str


class PausePart(msgspec.Struct, frozen=True):
    seconds: float


class ErrorPart(msgspec.Struct, frozen=True):
    error: ProviderError


class CutOffPart(msgspec.Struct, frozen=True):
    """The stream ends here, as if the connection was lost."""


AnswerPart: TypeAlias = ThinkingPart | TextPart | ImagePart | CallPart | PausePart | ErrorPart | CutOffPart


class TextBuilder:
    """Text in the making: quotes know where they stand."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._citations: list[Citation] = []
        self._length = 0

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self._length += len(text)

    def quote(self, citation: Citation) -> None:
        """The quoted words, between quotation marks that are not part of them."""
        self.add("“")
        start = self._length
        self.add(citation.quote)
        self._citations.append(msgspec.structs.replace(citation, start=start, end=self._length))
        self.add("”")

    def build(self) -> TextPart:
        return TextPart("".join(self._pieces), tuple(self._citations))
