"""LegacyReader: the state of reading one older or foreign conversation: the caller's functions, ids and notices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from loom.content.blocks import ContentBlock, Opaque, ThinkingBlock, ToolCall
from loom.content.json_values import sanitize_json
from loom.content.media import Media, digest_of
from loom.content.nested_media import StoreLegacyMedia

FetchLegacyMedia: TypeAlias = Callable[[str], bytes | None]
"""Returns the bytes of the file that an old block refers to; None if the caller does not permit it or it is missing."""


class FoundResult(msgspec.Struct, frozen=True):
    """A tool result from the source. `call_id` is empty if the source has none."""

    call_id: str
    blocks: tuple[ContentBlock, ...]
    name: str = ""
    is_error: bool = False
    data: Any = None


FoundBlock: TypeAlias = ContentBlock | ThinkingBlock | ToolCall | FoundResult


class LegacyReader:
    """`where` is the name of the current message, for notices; `serial` is its number, for generated ids."""

    def __init__(
        self,
        *,
        lift: StoreLegacyMedia,
        fetch: FetchLegacyMedia,
        model: str = "",
        identify: Callable[[bytes], str] = digest_of,
    ) -> None:
        """`identify` returns the digest of bytes, or of the stored bytes that they are a copy of."""
        self.lift = lift
        self.fetch = fetch
        self.identify = identify
        self.model = model
        self.where = ""
        self.serial = 0
        self.depth = 0
        self.encoded: dict[str, Media] = {}
        """Media by their encoded text, if the stored bytes are exactly those of the text."""
        self._minted = 0
        self._notices: dict[str, None] = {}

    def continue_from(self, other: LegacyReader) -> None:
        """Copy the notices and encoded media of another reader."""
        self.encoded |= other.encoded
        self._notices |= other._notices

    def begin(self, where: str, serial: int) -> None:
        self.where = where
        self.serial = serial
        self._minted = 0

    def note(self, sentence: str, *, where: str = "") -> None:
        place = where or self.where
        self._notices[f"{place}: {sentence}" if place else sentence] = None

    @property
    def notices(self) -> tuple[str, ...]:
        return tuple(self._notices)

    def mint(self, prefix: str) -> str:
        """Return an id for a call or result without one. It is made from its position, so that reading the same
        conversation twice gives the same ids."""
        self._minted += 1
        return f"{prefix}_{self.serial}_{self._minted}"

    def opaque(self, provider: str, data: Any) -> Opaque:
        return Opaque(provider=provider, model=self.model or "unknown", data=sanitize_json(data))
