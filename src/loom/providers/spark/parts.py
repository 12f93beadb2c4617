"""The parts of an answer before they are events: what is thought, said, quoted, drawn, called."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from loom.content.blocks import Citation
from loom.errors import ProviderError


class Thought(msgspec.Struct, frozen=True):
    text: str


class Said(msgspec.Struct, frozen=True):
    """`citations` count from the beginning of this text."""

    text: str
    citations: tuple[Citation, ...] = ()


class Drawn(msgspec.Struct, frozen=True):
    """A PNG."""

    data: bytes


class Called(msgspec.Struct, frozen=True):
    """`arguments` is JSON text, or whatever a directive asked for in its place."""

    name: str
    arguments: str


class Waited(msgspec.Struct, frozen=True):
    seconds: float


class Raised(msgspec.Struct, frozen=True):
    error: ProviderError


class Cut(msgspec.Struct, frozen=True):
    """The stream ends here, as if the connection was lost."""


Part: TypeAlias = Thought | Said | Drawn | Called | Waited | Raised | Cut


class Draft:
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

    def said(self) -> Said:
        return Said("".join(self._pieces), tuple(self._citations))
