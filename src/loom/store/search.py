"""Search: find conversations by words in their titles, messages and media.

The index (`search_index.py`) returns candidate messages, newest first; their texts are then read and compared
case-insensitively, in any language. Messages that are not indexed yet are scanned. Searches run one at a time on a
separate connection, so that they delay no other read.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final, Literal, TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from loom.content.blocks import clean_text
from loom.errors import ContentError, StoreError
from loom.store.database import MAX_NUMBER, Database, Row, Transaction, checked_limit, rows_among
from loom.store.message_sessions import MessageSessions
from loom.store.search_index import find_media, find_nodes, message_text, query_words, unindexed_messages, update_index

_log = logging.getLogger(__name__)

MAX_WORDS: Final = 20
MAX_WORD_CHARACTERS: Final = 200
_MOST_CANDIDATES: Final = 200_000
"""The most candidates of a search. They come newest first, so a very common word is found in the newest messages."""
_MOST_OPENED: Final = 4000
"""The most messages whose texts are compared."""
_FIRST_BATCH: Final = 32
_MOST_BATCH: Final = 4096
_FIRST_PAGE: Final = 256
_MOST_MEDIA: Final = 200
_READ_AT_ONCE: Final = 16
_CATCH_UP_SECONDS: Final = 0.5
"""Time for indexing before a search. Messages left after it are scanned, and indexed in the background."""
_SNIPPET_CHARACTERS: Final = 110
_BEFORE: Final = 30
_SPECIAL: Final = "!%_"
_ESCAPED_IN_JSON: Final = '"\\'
_LIGATURES: Final = re.compile(
    "ss|ffi|ffl|ff|fi|fl|st|i\u0307|\u02bcn|j\u030c|h\u0331|t\u0308|w\u030a|y\u030a|a\u02be", re.IGNORECASE
)
"""Sequences that a text may contain as one character: ß, ligatures (common in PDFs), letters with diacritics (İ)."""

_HAS_WORD: Final = (
    "(LOWER(n.message) LIKE :w{0} ESCAPE '!' OR n.key IN (SELECT m.node_key FROM media_text t"
    " JOIN node_media m ON m.digest = t.digest WHERE LOWER(t.text) LIKE :w{0} ESCAPE '!'))"
)
_SCAN: Final = "SELECT n.key FROM node n WHERE n.parent_key IS NOT NULL AND {0} AND {1} ORDER BY n.key DESC LIMIT :most"
_SELECT_SHOWING: Final = "SELECT m.node_key FROM node_media m WHERE m.digest"
_SELECT_NODES: Final = (
    "SELECT n.key, n.id, n.role, n.depth, n.message FROM node n WHERE n.parent_key IS NOT NULL AND n.key"
)
_SELECT_SESSIONS: Final = "SELECT s.key, s.id, s.title, s.updated_at FROM session s WHERE s.key"
_SELECT_TITLES: Final = (
    "SELECT s.id, s.title, h.id, s.updated_at FROM session s JOIN node h ON h.key = s.head_key WHERE {0}"
    " ORDER BY s.updated_at DESC, s.id DESC LIMIT :most"
)
_TITLE_HAS_WORD: Final = "LOWER(s.title) LIKE :w{0} ESCAPE '!'"
_SELECT_TEXTS: Final = (
    "SELECT t.digest, t.kind, t.text FROM node_media m JOIN media_text t ON t.digest = m.digest WHERE m.node_key = :key"
)

_Where: TypeAlias = Literal["text", "document", "picture"]
_indexing: WeakKeyDictionary[Database, asyncio.Task[bool]] = WeakKeyDictionary()
"""The background indexing task of each database, so that only one runs at a time."""


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """A message that contains all the words. `where` names the source of the snippet; `media` is the digest if that is
    a medium."""

    session: str
    title: str
    node: str
    role: str
    snippet: str
    where: _Where
    media: str = ""


async def search_messages(
    database: Database, text: str, *, limit: int = 50, per_session: int = 3
) -> tuple[SearchHit, ...]:
    """Return messages that contain every word of `text`, in their own text or in a medium that they show; the newest
    conversation first. A word also matches as the start of a longer one. Raise `ContentError` if there are no words, or
    too many."""
    words = _words(text)
    limit = checked_limit(limit)
    if not await update_index(database, seconds=_CATCH_UP_SECONDS):
        running = _indexing.get(database)
        if running is None or running.done():
            _indexing[database] = asyncio.create_task(update_index(database))
            _indexing[database].add_done_callback(_log_failure)
    return await database.read_aside(lambda tx: _find(tx, words, limit, per_session))


def _log_failure(indexing: asyncio.Task[bool]) -> None:
    """Log why messages are not indexed. Searches go on without the index, and the next one starts again."""
    error = None if indexing.cancelled() else indexing.exception()
    if isinstance(error, StoreError):  # the store may have been closed meanwhile
        _log.info("messages are not indexed: %s", error)
    elif error is not None:
        _log.error("messages are not indexed", exc_info=error)


def _words(text: str) -> list[str]:
    words = list(dict.fromkeys(text.split()))
    if not words:
        raise ContentError("No search words given.", hint="Type one or more words.")
    if len(words) > MAX_WORDS or max(map(len, words)) > MAX_WORD_CHARACTERS:
        raise ContentError(
            "The search is too long.",
            hint=f"Use up to {MAX_WORDS} words of up to {MAX_WORD_CHARACTERS} characters.",
        )
    return words


class _Hit(msgspec.Struct, frozen=True):
    """A matching message in one session."""

    updated_at: float
    depth: int
    key: int
    found: SearchHit


def _find(tx: Transaction, words: Sequence[str], limit: int, per_session: int) -> tuple[SearchHit, ...]:
    if tx.dialect == "postgres":  # else it may read all messages for each step, or compile longer than it searches
        for way in ("enable_mergejoin", "enable_seqscan", "jit"):
            tx.execute(f"SET LOCAL {way} = off")
        # A plan for any words walks the newest messages, also where the words are in few of them.
        tx.execute("SET LOCAL plan_cache_mode = force_custom_plan")
    folded = [word.casefold() for word in words]
    by_session: defaultdict[str, list[_Hit]] = defaultdict(list)
    full: set[int] = set()
    """Sessions that have enough hits: a common word occurs in thousands of their messages."""
    candidates = _candidates(tx, words)
    sessions = MessageSessions(tx)
    count, opened, size = 0, 0, _FIRST_BATCH
    while count < limit and opened < _MOST_OPENED and (batch := list(islice(candidates, size))):
        sessions_of = {key: found for key, found in sessions.find(batch).items() if not found <= full}
        opened += len(sessions_of)
        for session_key, hit in _hits(tx, sessions_of, folded, full):
            hits = by_session[hit.found.session]
            hits.append(hit)
            count += 1
            if len(hits) >= per_session:
                full.add(session_key)
            if count >= limit:
                break
        size = min(size * 4, _MOST_BATCH) if len(sessions_of) * 2 < len(batch) else _FIRST_BATCH
    for hit in _titles(tx, words, folded):  # only if no message was found: a title often repeats the first message
        by_session.setdefault(hit.found.session, [hit])
    newest = sorted(by_session.values(), key=lambda hits: (hits[0].updated_at, hits[0].found.session), reverse=True)
    return tuple(hit.found for hits in newest for hit in sorted(hits, key=lambda hit: (hit.depth, hit.key)))[:limit]


# Messages that may contain the words


def _candidates(tx: Transaction, words: Sequence[str]) -> Iterator[int]:
    """Yield keys of messages, each once, up to `_MOST_CANDIDATES`."""
    seen: set[int] = set()
    for key in _all_candidates(tx, words):
        if key not in seen:
            seen.add(key)
            yield key
            if len(seen) >= _MOST_CANDIDATES:
                return


def _all_candidates(tx: Transaction, words: Sequence[str]) -> Iterator[int]:
    unindexed = unindexed_messages(tx)
    if unindexed is not None:
        yield from _scan(tx, words, *unindexed)
    parts = [query_words(word) for word in words]
    if not any(parts):  # no letters or digits
        yield from _scan(tx, words, "n.key > :last", 0)
        return
    prefixes = list(dict.fromkeys(part for found in parts for part in found))
    if tx.dialect == "sqlite":  # SQLite reads whole words in key order, but collects all matches of a prefix first
        yield from _in_messages(tx, prefixes, exact=True)
    yield from _in_messages(tx, prefixes, exact=False)
    yield from _in_media(tx, [found for found in parts if found])


def _in_messages(tx: Transaction, words: Sequence[str], *, exact: bool) -> Iterator[int]:
    """Yield messages from the index in growing pages. Prefixes start with a large page, because the database collects
    all their matches for each page."""
    before, size = MAX_NUMBER, _FIRST_PAGE if exact else _MOST_OPENED
    while keys := find_nodes(tx, words, before=before, limit=size, exact=exact):
        yield from keys
        if len(keys) < size:
            return
        before, size = keys[-1], size * 4


def _in_media(tx: Transaction, parts: Sequence[Sequence[str]]) -> Iterator[int]:
    """Yield messages that show a medium with one of the words; the other words may be elsewhere in the message."""
    digests = {digest for found in parts for digest in find_media(tx, found, limit=_MOST_MEDIA)}
    rows = rows_among(tx, _SELECT_SHOWING, sorted(digests)) if digests else []
    yield from sorted({row[0] for row in rows}, reverse=True)


def _scan(tx: Transaction, words: Sequence[str], condition: str, last: int) -> Iterator[int]:
    """Yield messages that match without using the index: those not indexed, or all, for words without letters."""
    params: dict[str, object] = {f"w{at}": _pattern(word) for at, word in enumerate(words)}
    params |= {"last": last, "most": _MOST_OPENED}
    sql = _SCAN.format(condition, " AND ".join(_HAS_WORD.format(at) for at in range(len(words))))
    yield from (row[0] for row in tx.execute(sql, params))


# Messages that contain the words, and their sessions


def _hits(
    tx: Transaction, sessions_of: Mapping[int, AbstractSet[int]], words: Sequence[str], full: AbstractSet[int]
) -> Iterator[tuple[int, _Hit]]:
    """Yield each matching message with each of its sessions, except sessions in `full`, to which the caller adds during
    the iteration. Texts are read only when needed: common words occur in thousands of messages of a few sessions."""
    open_keys = list(sessions_of)
    session_keys = {session for key in open_keys for session in sessions_of[key]} - full
    sessions = {row[0]: row[1:] for row in _rows_of(tx, _SELECT_SESSIONS, list(session_keys))}
    for first in range(0, len(open_keys), _READ_AT_ONCE):
        part = [key for key in open_keys[first : first + _READ_AT_ONCE] if sessions_of[key] - full]
        nodes = {row[0]: row for row in _rows_of(tx, _SELECT_NODES, part)}
        for key in part:
            if key not in nodes or sessions_of[key] <= full:
                continue
            _, node, role, depth, stored = nodes[key]
            place = _place(tx, key, stored, words)
            if place is None:
                continue
            for session_key in (sessions_of[key] & sessions.keys()) - full:
                session, title, updated_at = sessions[session_key]
                where, media, snippet = place
                shown = SearchHit(
                    session=session,
                    title=_text(title),
                    node=node,
                    role=_text(role),
                    snippet=snippet,
                    where=where,
                    media=media,
                )
                yield session_key, _Hit(updated_at, depth, key, shown)


def _rows_of(tx: Transaction, select: str, keys: Sequence[int]) -> list[Row]:
    """Return the rows whose last named column is one of `keys`; `select` ends with that column ("… WHERE n.key")."""
    rows: list[Row] = []
    for first in range(0, len(keys), 512):
        listed = ", ".join(map(str, map(int, keys[first : first + 512])))
        rows += tx.execute(f"{select} IN ({listed})")
    return rows


def _titles(tx: Transaction, words: Sequence[str], folded: Sequence[str]) -> Iterator[_Hit]:
    params: dict[str, object] = {f"w{at}": _pattern(word) for at, word in enumerate(words)}
    params["most"] = _MOST_OPENED
    sql = _SELECT_TITLES.format(" AND ".join(_TITLE_HAS_WORD.format(at) for at in range(len(words))))
    for session, stored, head, updated_at in tx.execute(sql, params):
        title = _text(stored)
        if all(word in title.casefold() for word in folded):
            snippet = _snippet(title, folded)
            found = SearchHit(session=session, title=title, node=head, role="", snippet=snippet, where="text")
            yield _Hit(updated_at, 0, 0, found)


def _place(tx: Transaction, key: int, stored: object, words: Sequence[str]) -> tuple[_Where, str, str] | None:
    """Return the source, digest and snippet of a match: the message's own text if it contains all words, else a medium
    with the first missing one. Return None if a word is in neither."""
    own = message_text(stored)
    lacking = [word for word in words if word not in own.casefold()]
    if not lacking:
        return "text", "", _snippet(own, words)
    media = tx.execute(_SELECT_TEXTS, {"key": key})
    texts = [(digest, kind, text, text.casefold()) for digest, kind, stored in media for text in [_text(stored)]]
    if not all(any(word in folded for _, _, _, folded in texts) for word in lacking):
        return None
    digest, kind, text, _ = next(found for found in texts if lacking[0] in found[3])
    return "picture" if kind == "picture" else "document", digest, _snippet(text, lacking)


def _text(stored: object) -> str:
    """Return the text of a column; empty if damage has made it something else than text."""
    return clean_text(stored) if isinstance(stored, str) else ""


def _pattern(word: str) -> str:
    """Return a LIKE pattern for lower-case text. Characters that JSON may escape, or that SQLite's LOWER leaves alone
    (all but ASCII letters), become wildcards; the text itself is compared afterwards."""
    parts: list[str] = []
    for character in _LIGATURES.sub("\0", word):
        if not character.isascii() or not character.isprintable() or character in _ESCAPED_IN_JSON:
            parts.append("%")
        else:
            parts.append(f"!{character}" if character in _SPECIAL else character.lower())
    return f"%{''.join(parts)}%"


def _snippet(text: str, words: Sequence[str]) -> str:
    """Return one line of text around the first occurrence of `words[0]`."""
    line = " ".join(text.split())
    at = max(line.casefold().find(words[0]) - _BEFORE, 0)
    part = line[at : at + _SNIPPET_CHARACTERS]
    return ("…" if at else "") + part + ("…" if at + len(part) < len(line) else "")
