"""Facts about media that requests have shown: bounded, and dropped when a digest is deleted."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from loom.compile.policy import DerivedFacts, Description, Known
from loom.content.recipes import Recipe, recipe_key

MAX_DIGESTS: Final = 20_000
MAX_CHARS: Final = 32_000_000
"""Extracted text that stays in memory; other text is read from the rendition cache when it is needed."""


class MediaFacts:
    """The facts about one digest."""

    __slots__ = ("chars", "derived", "descriptions", "failed", "texts")

    def __init__(self) -> None:
        self.derived: dict[str, DerivedFacts] = {}
        self.texts: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self.descriptions: dict[str, Description] = {}
        """The descriptions by author."""
        self.chars = 0


class FactCache:
    """Facts by digest; the least recently used are evicted first."""

    def __init__(self, *, max_digests: int = MAX_DIGESTS, max_chars: int = MAX_CHARS) -> None:
        self._max_digests = max_digests
        self._max_chars = max_chars
        self._chars = 0
        self._facts: OrderedDict[str, MediaFacts] = OrderedDict()

    def __len__(self) -> int:
        return len(self._facts)

    @property
    def chars(self) -> int:
        """The number of characters of text in the cache."""
        return self._chars

    def get(self, digest: str) -> MediaFacts | None:
        found = self._facts.get(digest)
        if found is not None:
            self._facts.move_to_end(digest)
        return found

    def put(self, digest: str) -> MediaFacts:
        """Return the facts of `digest`, to add to; call `resize` after adding text."""
        found = self._facts.setdefault(digest, MediaFacts())
        self._facts.move_to_end(digest)
        return found

    def resize(self, digest: str) -> None:
        """Recount the text of `digest` and evict entries over the limits."""
        found = self._facts.get(digest)
        if found is not None:
            chars = sum(map(len, found.texts.values())) + sum(len(it.text) for it in found.descriptions.values())
            self._chars += chars - found.chars
            found.chars = chars
        while self._facts and (len(self._facts) > self._max_digests or self._chars > self._max_chars):
            _, evicted = self._facts.popitem(last=False)
            self._chars -= evicted.chars

    def drop(self, digests: Collection[str]) -> None:
        for digest in digests:
            found = self._facts.pop(digest, None)
            if found is not None:
                self._chars -= found.chars


class WorkingSet(msgspec.Struct):
    """The facts that one request needs. They stay available while it is settled, even if the cache evicts them."""

    facts: dict[str, MediaFacts]
    missing: set[str] = msgspec.field(default_factory=set[str])
    """Digests whose bytes are gone, or cannot be read now."""
    describes: bool = False
    author: str = ""
    undescribable: set[str] = msgspec.field(default_factory=set[str])

    @classmethod
    def of(cls, cache: FactCache, digests: Iterable[str]) -> WorkingSet:
        return cls({digest: found for digest in digests if (found := cache.get(digest)) is not None})

    def to_known(self) -> Known:
        """Return the facts in the form that `prepare` reads."""
        return Known(
            derived={(digest, key): value for digest, it in self.facts.items() for key, value in it.derived.items()},
            texts={(digest, key): value for digest, it in self.facts.items() for key, value in it.texts.items()},
            failed={(digest, key): value for digest, it in self.facts.items() for key, value in it.failed.items()},
            descriptions={
                digest: it.descriptions[self.author]
                for digest, it in self.facts.items()
                if self.author and self.author in it.descriptions
            },
            describes=self.describes,
            indescribable=frozenset(self.undescribable),
            missing=frozenset(self.missing),
        )

    def has(self, digest: str, recipe: Recipe) -> bool:
        """Return whether a need is settled: rendered, failed, or its bytes are missing."""
        found = self.facts.get(digest)
        if digest in self.missing:
            return True
        key = recipe_key(recipe)
        return found is not None and (key in found.derived or key in found.texts or key in found.failed)
