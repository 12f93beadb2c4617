"""A cache of partly read conversations, so that of a client that sends its whole history with each request only the new
items have to be read."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from loom.content.json_values import MAX_DATA_DEPTH, sanitize_json
from loom.importers.conversation import ConversationReading
from loom.importers.reader import LegacyReader

_MAX_READINGS: Final = 128
_MAX_BYTES: Final = 64_000_000
"""The most bytes of JSON behind the cached readings. Readings of one conversation share most of their memory, which
this does not consider."""
_MAX_SHALLOW: Final = MAX_DATA_DEPTH // 2


class ReadItems(msgspec.Struct, frozen=True):
    """The items of a request, as a JSON decoder returned them, and a hash of each prefix of them. `names` is empty if
    the items cannot be encoded as JSON; they are not cached then."""

    items: Sequence[Any]
    names: Sequence[bytes] = ()
    encoded: Sequence[bytes] = ()

    def clean(self, at: int) -> Any:
        """Return an item without values that a block cannot hold: lone surrogates, integers beyond 64 bits, data
        nested too deeply."""
        # An item cannot be nested deeper than it has brackets.
        if self.encoded and self.encoded[at].count(b"{") + self.encoded[at].count(b"[") <= _MAX_SHALLOW:
            return self.items[at]
        return sanitize_json(self.items[at])

    def count_bytes(self, start: int = 0) -> int:
        return sum(map(len, self.encoded[start:]))


class PrefixReadings:
    def __init__(self) -> None:
        self._readings: OrderedDict[bytes, tuple[ConversationReading, int]] = OrderedDict()
        self._bytes = 0

    def find(self, items: ReadItems) -> tuple[int, ConversationReading | None]:
        """Return the number of leading items that were read before, and the reading to copy; 0 and None if there is
        none."""
        for count in range(len(items.names), 0, -1):
            name = items.names[count - 1]
            if (found := self._readings.get(name)) is not None:
                self._readings.move_to_end(name)
                return count, found[0]
        return 0, None

    def keep(self, items: ReadItems, reading: ConversationReading) -> None:
        """Store a copy of an unfinished reading of all the items."""
        if not items.names or items.names[-1] in self._readings:
            return
        size = items.count_bytes()
        self._readings[items.names[-1]] = (reading.copy(LegacyReader(lift=_refuse, fetch=lambda _: None)), size)
        self._bytes += size
        while self._readings and (len(self._readings) > _MAX_READINGS or self._bytes > _MAX_BYTES):
            _, (_, dropped) = self._readings.popitem(last=False)
            self._bytes -= dropped


def hash_prefixes(items: Sequence[Any], *context: str) -> ReadItems:
    """Return the items with a hash of each prefix. `context` lists everything else that affects how they are read."""
    try:
        encoded = [msgspec.json.encode(item) for item in items]
    except (TypeError, ValueError, OverflowError, RecursionError):  # lone surrogates, integers beyond 64 bits
        return ReadItems(items)
    hasher = hashlib.blake2b("\0".join(context).encode("utf-8", "surrogatepass"), digest_size=16)
    names: list[bytes] = []
    for data in encoded:
        hasher.update(b"\n")
        hasher.update(data)
        names.append(hasher.digest())
    return ReadItems(items, names, encoded)


def _refuse(_: bytes, __: str, ___: str) -> None:
    """Store nothing: a cached reading is only copied."""
