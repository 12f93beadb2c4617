"""Which bytes sessions need, beyond the media that their messages refer to.

The full texts of truncated tool results, and the last seen texts of tracked files, do not count as references: a sweep
deletes them when they are old. Deleting a session deletes them at once, unless another session needs them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec

from loom.content.media import is_digest
from loom.store.database import Transaction, rows_among
from loom.struct_types import json_decoder

KEPT: Final = '%"kept":{"digest":"sha256:%'
"""A LIKE pattern for tool messages whose result was truncated."""

_KEPT_DIGEST: Final = re.compile(r'"kept":\{"digest":"(sha256:[0-9a-f]{64})"')
_TRACKED: Final = '%"tracked":{%'
_AMONG_SAID: Final = "SELECT digest FROM node_media WHERE digest"
_AMONG_WAITING: Final = "SELECT digest FROM queued_media WHERE digest"
_AMONG_FILES: Final = "SELECT digest FROM gateway_file WHERE digest"
SELECT_REFERENCED: Final = (
    "SELECT digest FROM node_media UNION SELECT digest FROM queued_media UNION SELECT digest FROM gateway_file"
)
_SELECT_KEPT: Final = (
    "SELECT key, message FROM node WHERE key > :after AND role = 'tool' AND message LIKE :like ORDER BY key LIMIT :page"
)
_SELECT_TRACKED: Final = (
    "SELECT key, settings FROM session WHERE key > :after AND settings LIKE :like ORDER BY key LIMIT :page"
)
_PAGE: Final = 200


class _DigestField(msgspec.Struct):
    digest: str = ""


class _Tracking(msgspec.Struct):
    tracked: dict[str, _DigestField] = {}


_tracking = json_decoder(_Tracking)


def referenced_media(tx: Transaction, digests: Collection[str]) -> set[str]:
    """Return those of `digests` that a message or uploaded file refers to, or that a session needs otherwise."""
    candidates = sorted(digests)
    left = set(candidates)
    for sql in (_AMONG_SAID, _AMONG_WAITING, _AMONG_FILES):
        left.difference_update(row[0] for row in rows_among(tx, sql, candidates))
    for settings in _texts(tx, _SELECT_TRACKED, _TRACKED) if left else ():
        left -= tracked_digests(settings)
    for message in _texts(tx, _SELECT_KEPT, KEPT) if left else ():
        left -= kept_digests(message)
    return set(candidates) - left


def digests_needed(tx: Transaction) -> set[str]:
    """Return every digest whose bytes a session of the store needs."""
    rows = tx.execute(SELECT_REFERENCED)
    needed = {row[0] for row in rows if is_digest(row[0])}
    for settings in _texts(tx, _SELECT_TRACKED, _TRACKED):
        needed |= tracked_digests(settings)
    for message in _texts(tx, _SELECT_KEPT, KEPT):
        needed |= kept_digests(message)
    return needed


def _texts(tx: Transaction, sql: str, like: str) -> Iterator[Any]:
    """Yield the second column of a statement, read in pages: there may be many rows, and each may be long."""
    after = 0
    while page := tx.execute(sql, {"after": after, "like": like, "page": _PAGE}):
        yield from (text for _, text in page)
        after = page[-1][0]


def kept_digests(message: object) -> set[str]:
    """Return the digests of the full texts of truncated results in a stored message, which may be damaged."""
    return set(_KEPT_DIGEST.findall(message)) if isinstance(message, str) else set()


def tracked_digests(settings: object) -> set[str]:
    """Return the digests of the last seen texts of tracked files in the settings of a session; empty if these are
    damaged."""
    if not isinstance(settings, str):
        return set()
    try:
        return {seen.digest for seen in _tracking.decode(settings).tracked.values() if is_digest(seen.digest)}
    except (msgspec.DecodeError, UnicodeError):
        return set()
