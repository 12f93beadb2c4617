"""Which bytes the sessions need, beyond what their messages refer to.

The whole texts of results that were cut, and the texts of files as they were last seen, are no references: a sweep
takes them when their days are over. With their session they go at once, unless another one needs them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec

from loom.content.media import is_digest
from loom.store.database import Transaction, rows_among

KEPT: Final = '%"kept":{"digest":"sha256:%'
"""LIKE the message of a tool whose result was cut."""

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


class _Seen(msgspec.Struct):
    digest: str = ""


class _Tracking(msgspec.Struct):
    tracked: dict[str, _Seen] = {}


_tracking = msgspec.json.Decoder(_Tracking)


def referenced_media(tx: Transaction, digests: Collection[str]) -> set[str]:
    """Return those of these digests that any message or uploaded file refers to, or that any session needs besides."""
    asked = sorted(digests)
    left = set(asked)
    for sql in (_AMONG_SAID, _AMONG_WAITING, _AMONG_FILES):
        left.difference_update(row[0] for row in rows_among(tx, sql, asked))
    for settings in _texts(tx, _SELECT_TRACKED, _TRACKED) if left else ():
        left -= tracked_digests(settings)
    for message in _texts(tx, _SELECT_KEPT, KEPT) if left else ():
        left -= kept_digests(message)
    return set(asked) - left


def digests_needed(tx: Transaction) -> set[str]:
    """Return every digest whose bytes any session of the store needs."""
    rows = tx.execute(SELECT_REFERENCED)
    needed = {row[0] for row in rows if is_digest(row[0])}
    for settings in _texts(tx, _SELECT_TRACKED, _TRACKED):
        needed |= tracked_digests(settings)
    for message in _texts(tx, _SELECT_KEPT, KEPT):
        needed |= kept_digests(message)
    return needed


def _texts(tx: Transaction, sql: str, like: str) -> Iterator[Any]:
    """Page by page: there may be many, and each may be long."""
    after = 0
    while page := tx.execute(sql, {"after": after, "like": like, "page": _PAGE}):
        yield from (text for _, text in page)
        after = page[-1][0]


def kept_digests(message: object) -> set[str]:
    """Return the whole texts of results that were cut, in a stored message that may be damaged."""
    return set(_KEPT_DIGEST.findall(message)) if isinstance(message, str) else set()


def tracked_digests(settings: object) -> set[str]:
    """Return the texts of files as they were last seen, in the settings of a session; none where these are damaged."""
    if not isinstance(settings, str):
        return set()
    try:
        return {seen.digest for seen in _tracking.decode(settings).tracked.values() if is_digest(seen.digest)}
    except (msgspec.DecodeError, UnicodeError):
        return set()
