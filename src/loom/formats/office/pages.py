"""Office files in other forms, converted by LibreOffice once for several pages."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import cache
from typing import Final

from loom.content.media import Media, digest_of
from loom.formats import libreoffice
from loom.formats.facts import IntakeLimits

_KEPT_BYTES: Final = 64_000_000


class Conversions:
    """The last results by source and target. Threads that need the same result wait for it together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: dict[tuple[str, str], threading.Lock] = {}
        self._kept: OrderedDict[tuple[str, str], bytes] = OrderedDict()

    def convert(self, data: bytes, media: Media, source: str, target: str, limits: IntakeLimits) -> tuple[bytes, Media]:
        """Convert `data` of type `source` to `target`; return the bytes and the media reference that they would
        have."""
        key = media.digest, target
        with self._lock:
            busy = self._busy.setdefault(key, threading.Lock())
        with busy:
            try:
                result = self._kept.get(key) or _convert(data, source, target, limits)
                self._keep(key, result)
            finally:
                self._busy.pop(key, None)
        digest = digest_of(result)
        return result, Media(digest=digest, media_type=target, size_bytes=len(result), name=media.name)

    def _keep(self, key: tuple[str, str], result: bytes) -> None:
        with self._lock:
            self._kept[key] = result
            self._kept.move_to_end(key)
            while len(self._kept) > 1 and sum(map(len, self._kept.values())) > _KEPT_BYTES:
                self._kept.popitem(last=False)


def _convert(data: bytes, source: str, target: str, limits: IntakeLimits) -> bytes:
    if target == libreoffice.PDF:
        return libreoffice.to_pdf(data, source, limits)
    return libreoffice.to_office(data, source, target, limits)


@cache
def conversions() -> Conversions:
    return Conversions()
