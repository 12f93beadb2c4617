"""DerivedCache: bytes that a recipe made from a medium, stored beside the media with their facts (type, size, pages).

The cache is never a source of truth: an entry that is missing, damaged or of another version is dropped and made
again. An entry is one file: a magic number, the length and hash of the header, the header (the facts, as JSON), then
the bytes. If the recipe left the medium unchanged, the entry holds only the facts, and the bytes are read from the
medium. If the media folder is read-only, the cache uses a temporary folder for the lifetime of this object.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import shutil
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from loom.content.media import DIGEST_TAG, is_digest
from loom.content.recipes import Recipe, recipe_key
from loom.errors import Corrupt, NotFound, ReadOnly
from loom.formats.facts import Rendered
from loom.store.blobs import BLOCK_BYTES, BlobEntry, BlobStore, Checksum, FileStamp, damaged_blob, missing_blob
from loom.store.media import hex_of, open_media
from loom.struct_types import decode_json

TOP: Final = "derived"
MAX_BYTES: Final = 2_000_000_000
TRIMMED_TO: Final = 0.9
"""The share of `max_bytes` that trimming leaves, so that not every `put` has to trim."""

REMEMBERED: Final = 10_000
TOUCH_AFTER: Final = timedelta(days=1)
"""The last use of an entry is recorded with this precision."""

_MAGIC: Final = b"loom-d1\n"
_PREAMBLE_BYTES: Final = len(_MAGIC) + 4 + 32
_FIRST_READ_BYTES: Final = 4096
_MAX_HEAD_BYTES: Final = 1 << 20
_NOTHING: Final = hashlib.sha256().hexdigest()


class Derived(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of derived bytes; `DerivedCache.load` returns the bytes."""

    digest: str
    """The digest of the medium."""
    recipe: str
    sha256: str
    """The hash of the derived bytes (hex), also used as their ETag."""
    media_type: str
    size_bytes: int
    width: int | None = None
    height: int | None = None
    pages: int | None = None
    pages_without_text: tuple[int, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def is_original(self) -> bool:
        """Whether the bytes are those of the medium itself, and are read from the media store."""
        return self.digest == DIGEST_TAG + self.sha256

    @property
    def kept_bytes(self) -> int:
        return 0 if self.is_original else self.size_bytes


class _KnownDerived(msgspec.Struct):
    derived: Derived
    start: int
    stamp: FileStamp
    touched_at: datetime
    used_at: datetime


class DerivedCache:
    def __init__(self, place: BlobStore, *, max_bytes: int = MAX_BYTES) -> None:
        self._place = place
        self._max_bytes = max_bytes
        self._known: OrderedDict[str, _KnownDerived] = OrderedDict()
        self._total_bytes: int | None = None
        self._trimming = asyncio.Lock()

    def facts(self, digest: str, recipe: Recipe) -> Derived | None:
        """Return the facts that this process has in memory; call `learn` to load them."""
        known = self._known.get(_entry_key(digest, recipe_key(recipe)))
        return known.derived if known else None

    async def learn(self, wanted: Iterable[tuple[str, Recipe]]) -> dict[tuple[str, str], Derived]:
        """Load the facts of these (digest, recipe) pairs in one batch; return them by digest and key of the recipe."""
        keys = {_entry_key(digest, recipe_key(recipe)) for digest, recipe in wanted}
        learned: list[Derived] = []
        for key in sorted(keys & self._known.keys()):
            if self._known[key].stamp == self._place.file_stamp(key):
                learned.append(self._known[key].derived)
                keys.discard(key)
        found = await self._place.peek(
            sorted(keys), _FIRST_READ_BYTES, lambda key, data, entry: _checksum(*_parse_head(key, data, entry))
        )
        for key, (data, entry) in found.items():
            learned.append(self._remember(key, *_parse_head(key, data, entry), entry.modified_at).derived)
        return {(derived.digest, derived.recipe): derived for derived in learned}

    async def get(self, digest: str, recipe: Recipe) -> Derived | None:
        """Return the facts of an intact entry; None if there is none. A repeated call costs microseconds."""
        key = _entry_key(digest, recipe_key(recipe))
        known = self._known.get(key)
        if known is None or known.stamp != self._place.file_stamp(key):
            self._known.pop(key, None)
            known = await self._learn(key)
            if known is None:
                return None
        self._known.move_to_end(key)
        known.used_at = datetime.now(UTC)
        if known.used_at - known.touched_at > TOUCH_AFTER:
            with suppress(ReadOnly):  # a read-only cache is never trimmed, so ages do not matter there
                await self._place.touch(key)
            known.touched_at, known.stamp = known.used_at, self._place.file_stamp(key) or ()
        return known.derived

    async def put(self, digest: str, recipe: Recipe, rendered: Rendered, *, is_original: bool = False) -> Derived:
        sha256 = hex_of(digest) if is_original else ""
        derived = Derived(
            digest=digest,
            recipe=recipe_key(recipe),
            sha256=sha256 or (await asyncio.to_thread(hashlib.sha256, rendered.data)).hexdigest(),
            media_type=rendered.media_type,
            size_bytes=len(rendered.data),
            width=rendered.width,
            height=rendered.height,
            pages=rendered.pages,
            pages_without_text=rendered.pages_without_text,
            notices=rendered.notices,
        )
        header = msgspec.json.encode(derived)
        key, head = (
            _entry_key(digest, derived.recipe),
            (_MAGIC + len(header).to_bytes(4) + hashlib.sha256(header).digest() + header),
        )
        kept = b"" if derived.is_original else rendered.data
        try:
            await self._write(key, head + kept, _checksum(derived, len(head)))
        except ReadOnly:
            await asyncio.to_thread(self._switch_to_temporary_folder)
            await self._write(key, head + kept, _checksum(derived, len(head)))
        self._remember(key, derived, len(head), datetime.now(UTC))
        if self._total_bytes is not None:
            self._total_bytes += len(head) + derived.kept_bytes
        if self._total_bytes is None or self._total_bytes > self._max_bytes:
            await self.trim(keep=key)
        return derived

    async def _write(self, key: str, data: bytes, checksum: Checksum) -> None:
        """Write an entry without fsync: an entry that a power cut left incomplete fails its checksum and is remade."""
        await self._place.write(key, data, checksum, durable=False)

    def _switch_to_temporary_folder(self) -> None:
        folder = tempfile.mkdtemp(prefix="loom-derived-")
        weakref.finalize(self, shutil.rmtree, folder)
        self._place = open_media(Path(folder)).place
        self._known.clear()
        self._total_bytes = None

    async def load(self, derived: Derived) -> bytes:
        """Return the derived bytes; empty if `derived.is_original`: read those from the media store."""
        async with self._open_entry(derived) as (key, checksum):
            return await self._place.load(key, checksum)

    async def open_local(self, derived: Derived) -> io.FileIO | None:
        """Return a verified file positioned at the first derived byte, which the caller reads to its end and closes;
        None if the bytes are not on this machine."""
        async with self._open_entry(derived) as (key, checksum):
            return await self._place.open_local(key, checksum)

    async def read_blocks(self, derived: Derived, block_bytes: int = BLOCK_BYTES) -> AsyncIterator[bytes]:
        """Yield blocks of exactly `block_bytes`; the last one may be shorter."""
        async with self._open_entry(derived) as (key, checksum):
            async for block in self._place.blocks(key, checksum, block_bytes):
                yield block

    async def drop(self, digest: str) -> int:
        """Delete everything derived from a medium; return the number of bytes freed."""
        return sum([await self._drop(entry) for entry in await self._entries_of(digest)])

    async def drop_orphans(self, digests: Collection[str], *, unless_since: datetime) -> int:
        """Delete entries of media other than `digests`, except those written or touched at or after `unless_since`;
        return the number of bytes freed."""
        orphans = [entry for entry in await self._entries() if _medium(entry.key) not in digests]
        return sum([await self._drop(entry, unless_since) for entry in orphans])

    async def trim(self, *, keep: str = "") -> int:
        """Delete the least recently used entries, except `keep`, if the cache exceeds its limit; return the number of
        bytes freed."""
        async with self._trimming:
            entries = await self._entries()
            total, freed = sum(entry.size_bytes for entry in entries), 0
            if total > self._max_bytes:
                for entry in sorted(entries, key=self._last_use):
                    if total - freed <= self._max_bytes * TRIMMED_TO:
                        break
                    if entry.key != keep:
                        freed += await self._drop(entry)
            self._total_bytes = total - freed
            return freed

    def _last_use(self, entry: BlobEntry) -> datetime:
        known = self._known.get(entry.key)
        return max(entry.modified_at, known.used_at) if known else entry.modified_at

    async def _entries(self) -> list[BlobEntry]:
        return [entry async for entry in self._place.listing(TOP) if _medium(entry.key)]

    async def _entries_of(self, digest: str) -> list[BlobEntry]:
        shard = f"{TOP}/{hex_of(digest)[:2]}"
        return [entry async for entry in self._place.listing(shard) if _medium(entry.key) == digest]

    async def _drop(self, entry: BlobEntry, unless_since: datetime | None = None) -> int:
        if not await self._place.delete(entry.key, unless_since=unless_since):
            return 0
        self._known.pop(entry.key, None)
        return entry.size_bytes

    async def _learn(self, key: str) -> _KnownDerived | None:
        """Read the header of an entry into memory. Verify local bytes too, so that damage is found before they are
        sent. Return None if the entry is missing or damaged."""
        try:
            derived, start, touched_at = await self._read_head(key)
            file = await self._place.open_local(key, _checksum(derived, start))
            if file is not None:
                file.close()
        except NotFound:
            return None
        except Corrupt:
            await self._delete_damaged(key)
            return None
        return self._remember(key, derived, start, touched_at)

    def _remember(self, key: str, derived: Derived, start: int, touched_at: datetime) -> _KnownDerived:
        stamp = self._place.file_stamp(key) or ()
        known = _KnownDerived(derived=derived, start=start, stamp=stamp, touched_at=touched_at, used_at=touched_at)
        self._known[key] = known
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return known

    async def _read_head(self, key: str) -> tuple[Derived, int, datetime]:
        data, entry = await self._place.head_bytes(key, _FIRST_READ_BYTES)
        start = _PREAMBLE_BYTES + int.from_bytes(data[len(_MAGIC) : len(_MAGIC) + 4])
        if _FIRST_READ_BYTES < start <= _MAX_HEAD_BYTES:
            data, entry = await self._place.head_bytes(key, start)
        return *_parse_head(key, data, entry), entry.modified_at

    @asynccontextmanager
    async def _open_entry(self, derived: Derived) -> AsyncGenerator[tuple[str, Checksum]]:
        """Yield the key and checksum of an entry. Drop the entry if the body of the context finds it damaged or
        missing."""
        key = _entry_key(derived.digest, derived.recipe)
        try:
            known = self._known.get(key) or await self._learn(key)
            if known is None or known.derived != derived:
                raise missing_blob(key)
            yield key, _checksum(derived, known.start)
        except NotFound:
            self._known.pop(key, None)
            raise
        except Corrupt:
            self._known.pop(key, None)
            await self._delete_damaged(key)
            raise

    async def _delete_damaged(self, key: str) -> None:
        with suppress(ReadOnly):  # the damaged entry is ignored; `put` writes a new one to a temporary folder
            await self._place.delete(key)


def _parse_head(key: str, data: bytes, entry: BlobEntry) -> tuple[Derived, int]:
    """Return the facts of an entry and the offset of its bytes; raise `Corrupt` if the header is damaged."""
    start = _PREAMBLE_BYTES + int.from_bytes(data[len(_MAGIC) : len(_MAGIC) + 4])
    header = data[_PREAMBLE_BYTES:start]
    if not data.startswith(_MAGIC) or hashlib.sha256(header).digest() != data[len(_MAGIC) + 4 : _PREAMBLE_BYTES]:
        raise damaged_blob(key)
    try:
        derived = decode_json(header, Derived)
    except msgspec.DecodeError as error:
        raise damaged_blob(key) from error
    if _entry_key(derived.digest, derived.recipe) != key or start + derived.kept_bytes != entry.size_bytes:
        raise damaged_blob(key)
    return derived, start


def _checksum(derived: Derived, start: int) -> Checksum:
    return Checksum(_NOTHING if derived.is_original else derived.sha256, start)


def _entry_key(digest: str, recipe: str) -> str:
    """Return `derived/ab/cdef….0123…`. The recipe is hashed, because it may be longer than a file name."""
    hexadecimal = hex_of(digest)
    return f"{TOP}/{hexadecimal[:2]}/{hexadecimal[2:]}.{hashlib.sha256(recipe.encode()).hexdigest()[:32]}"


def _medium(key: str) -> str:
    """Return the digest of the medium that an entry belongs to; empty if the key is not one of the cache."""
    digest = DIGEST_TAG + key.removeprefix(TOP).replace("/", "").partition(".")[0]
    return digest if is_digest(digest) else ""
