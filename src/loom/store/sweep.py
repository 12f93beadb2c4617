"""Sweep: delete media without references.

Three rules protect media that are about to be used: referenced media are never deleted, the references are read again
right before each batch of deletions, and media that were stored or refreshed within the last hour stay. A writer that
stores (or refreshes) first and refers to the bytes afterwards therefore cannot lose them to a concurrent sweep.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from loom.errors import NotFound
from loom.store.blobs import GRACE
from loom.store.derived import DerivedCache
from loom.store.media import MediaStore, StoredMedia

BATCH: Final = 50
"""The number of deletions after which the references are read again."""


class SweepReport(msgspec.Struct, frozen=True, kw_only=True):
    deleted: tuple[str, ...] = ()
    freed_bytes: int = 0
    """Bytes freed, of media and of their derived bytes."""
    kept: int = 0
    kept_bytes: int = 0
    uploads_deleted: int = 0
    uploads_left: int = 0
    """Files uploaded to providers that could not be deleted there yet."""


async def sweep(
    media: MediaStore,
    referenced: Callable[[], Awaitable[Collection[str]]],
    *,
    now: datetime,
    derived: DerivedCache | None = None,
    cleanup_after_days: float = 7,
    max_bytes: int | None = None,
) -> SweepReport:
    """Delete unreferenced media older than `cleanup_after_days`; if the store is still larger than `max_bytes`, also
    younger ones, oldest first. Referenced media stay, even if they alone exceed `max_bytes`."""
    stored = [medium async for medium in media.listing()]
    doomed = _expired_media(stored, await referenced(), now, timedelta(days=cleanup_after_days), max_bytes)
    deleted: list[StoredMedia] = []
    freed_bytes = 0
    for first in range(0, len(doomed), BATCH):
        used = await referenced()
        for medium in doomed[first : first + BATCH]:
            if medium.digest not in used and await media.delete(medium.digest, unless_since=now - GRACE):
                deleted.append(medium)
                freed_bytes += medium.size_bytes + (await derived.drop(medium.digest) if derived else 0)
    if derived is not None:
        present = {medium.digest for medium in stored} - {medium.digest for medium in deleted}
        freed_bytes += await derived.drop_orphans(present, unless_since=now - GRACE)
    return SweepReport(
        deleted=tuple(medium.digest for medium in deleted),
        freed_bytes=freed_bytes,
        kept=len(stored) - len(deleted),
        kept_bytes=sum(medium.size_bytes for medium in stored) - sum(medium.size_bytes for medium in deleted),
    )


async def delete_unused(
    media: MediaStore,
    derived: DerivedCache,
    digests: Sequence[str],
    in_use: Callable[[Collection[str]], Awaitable[Collection[str]]],
    *,
    unless_since: datetime,
) -> int:
    """Delete the media of a deleted session at once, with their derived bytes; return the number of bytes freed.

    `in_use` is called right before each batch of deletions; the digests that it returns stay. `unless_since` is a time
    before the session was deleted: media stored or refreshed since then stay too.
    """
    freed_bytes = 0
    for first in range(0, len(digests), BATCH):
        batch = digests[first : first + BATCH]
        used = await in_use(batch)
        for digest in batch:
            if digest not in used:
                freed_bytes += await _forget(media, derived, digest, unless_since)
    return freed_bytes


async def _forget(media: MediaStore, derived: DerivedCache, digest: str, unless_since: datetime) -> int:
    freed_bytes = 0
    try:
        size_bytes = await media.size(digest)
    except NotFound:
        size_bytes = 0
    if await media.delete(digest, unless_since=unless_since):
        freed_bytes += size_bytes
    if not await media.exists(digest):
        freed_bytes += await derived.drop(digest)
    return freed_bytes


def _expired_media(
    stored: list[StoredMedia], used: Collection[str], now: datetime, cleanup_after: timedelta, max_bytes: int | None
) -> list[StoredMedia]:
    """Return the media to delete, oldest first. Media younger than `GRACE` are never among them."""
    candidates = sorted(
        (medium for medium in stored if medium.digest not in used and medium.modified_at < now - GRACE),
        key=lambda medium: medium.modified_at,
    )
    left_bytes = sum(medium.size_bytes for medium in stored)
    doomed: list[StoredMedia] = []
    for medium in candidates:
        if medium.modified_at >= now - cleanup_after and (max_bytes is None or left_bytes <= max_bytes):
            break
        doomed.append(medium)
        left_bytes -= medium.size_bytes
    return doomed
