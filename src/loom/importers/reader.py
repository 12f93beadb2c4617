"""One reading of an older or foreign conversation: what the caller lends for it, and what is noticed on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from loom.content.blocks import ContentBlock, Opaque, ThinkingBlock, ToolCall
from loom.content.json_values import sanitize_json
from loom.content.media import Media, digest_of
from loom.content.nested_media import StoreLegacyMedia

FetchLegacyMedia: TypeAlias = Callable[[str], bytes | None]
"""Bytes of the file that an old block points at, if the caller permits it and it is still there."""


class FoundResult(msgspec.Struct, frozen=True):
    """A tool result as it was found. `call_id` is empty where the old shape named none."""

    call_id: str
    blocks: tuple[ContentBlock, ...]
    name: str = ""
    is_error: bool = False
    data: Any = None


FoundBlock: TypeAlias = ContentBlock | ThinkingBlock | ToolCall | FoundResult


class LegacyReader:
    """`where` names the message being read and `serial` numbers it: notices and minted ids are made of them."""

    def __init__(
        self,
        *,
        lift: StoreLegacyMedia,
        fetch: FetchLegacyMedia,
        model: str = "",
        identify: Callable[[bytes], str] = digest_of,
    ) -> None:
        """`identify` returns the digest of bytes, or of those that they stand for."""
        self.lift = lift
        self.fetch = fetch
        self.identify = identify
        self.model = model
        self.where = ""
        self.serial = 0
        self.depth = 0
        self.encoded: dict[str, Media] = {}
        """Media by the text that held them, where the stored bytes are exactly those."""
        self._minted = 0
        self._notices: dict[str, None] = {}

    def continue_from(self, other: LegacyReader) -> None:
        """Take over what another reading has noticed."""
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
        """An id for what came without one: made of its position, so that reading twice gives the same."""
        self._minted += 1
        return f"{prefix}_{self.serial}_{self._minted}"

    def opaque(self, provider: str, data: Any) -> Opaque:
        return Opaque(provider=provider, model=self.model or "unknown", data=sanitize_json(data))
