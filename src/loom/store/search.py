"""Search: find conversations by words in their titles, messages and media.

The index (`search_index.py`) returns candidate messages, newest first; their texts are then read and compared
case-insensitively, in any language. Messages that are not indexed yet are scanned. Searches run one at a time on a
separate connection, so that they delay no other read.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, Literal, TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from loom.content.blocks import clean_text
from loom.errors import ContentError
from loom.store.database import MAX_NUMBER, Database, Row, Transaction, checked_limit, rows_among
from loom.store.search_index import SearchIndex, find_media, find_nodes, message_text, query_words, unindexed_messages

MAX_WORDS: Final = 20
MAX_WORD_CHARACTERS: Final = 200
_MOST_CANDIDATES: Final = 200_000
"""The most candidates of a search. They come newest first, so a very common word is found in the newest messages."""
_MOST_WALKED: Final = 4000
"""The most messages whose sessions are looked up."""
_FIRST_BATCH: Final = 32
_MOST_BATCH: Final = 256
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
# Walk down from each message to the ends of the sessions that contain it. The walk stops at another message of the same
# batch, which has its own walk, so that no part of a long conversation is walked twice.
_WALK_DOWN: Final = (
    "WITH RECURSIVE hit (key) AS (VALUES {0}),"
    " down (top, key) AS (SELECT key, key FROM hit"
    " UNION SELECT d.top, n.key FROM down d JOIN node n ON n.parent_key = d.key"
    " WHERE d.top = d.key OR d.key NOT IN (SELECT key FROM hit)),"
    " ends (session_key, key) AS (SELECT key, head_key FROM session UNION SELECT session_key, node_key FROM tip)"
    " SELECT d.top, 1, e.session_key FROM down d JOIN ends e ON e.key = d.key"
    " WHERE d.top = d.key OR d.key NOT IN (SELECT key FROM hit)"
    " UNION SELECT d.top, 0, d.key FROM down d WHERE d.top <> d.key AND d.key IN (SELECT key FROM hit)"
)
# Every message of a session, its parent, and its number of children in all sessions.
_SELECT_OWN: Final = (
    "WITH RECURSIVE ends (key) AS (SELECT head_key FROM session WHERE key = :session"
    " UNION SELECT node_key FROM tip WHERE session_key = :session),"
    " reach (key, parent_key) AS ("
    " SELECT n.key, n.parent_key FROM ends JOIN node n ON n.key = ends.key"
    " UNION"
    " SELECT n.key, n.parent_key FROM reach r JOIN node n ON n.key = r.parent_key)"
    " SELECT r.key, r.parent_key, (SELECT COUNT(*) FROM node c WHERE c.parent_key = r.key) FROM reach r"
    " WHERE r.parent_key IS NOT NULL"
)
_SELECT_OTHER_ENDS: Final = (
    "SELECT head_key FROM session WHERE key <> :session UNION SELECT node_key FROM tip WHERE session_key <> :session"
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


class MessageSearch:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, text: str, *, limit: int = 50, per_session: int = 3) -> tuple[SearchHit, ...]:
        """Return messages that contain every word of `text`, in their own text or in a medium that they show; the
        newest conversation first. A word also matches as the start of a longer one. Raise `ContentError` if there are
        no words, or too many."""
        words = _words(text)
        limit = checked_limit(limit)
        if not await SearchIndex(self._database).catch_up(seconds=_CATCH_UP_SECONDS):
            running = _indexing.get(self._database)
            if running is None or running.done():
                _indexing[self._database] = asyncio.create_task(SearchIndex(self._database).catch_up())
        return await self._database.read_aside(lambda tx: _find(tx, words, limit, per_session))


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
    skipped: set[int] = set()
    """Messages of sessions that have enough hits: a common word occurs in thousands of them."""
    candidates = (key for key in _candidates(tx, words) if key not in skipped)
    count, walked, size = 0, 0, _FIRST_BATCH
    while count < limit and walked < _MOST_WALKED and (batch := list(islice(candidates, size))):
        walked += len(batch)
        full_before = set(full)
        for session_key, hit in _hits(tx, batch, folded, full):
            hits = by_session[hit.found.session]
            hits.append(hit)
            count += 1
            if len(hits) >= per_session:
                full.add(session_key)
        size = min(size * 4, _MOST_BATCH)
        if count < limit and full != full_before:
            skipped.update(*(_own_nodes(tx, session_key) for session_key in full - full_before))
            size = _FIRST_BATCH
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
    before, size = MAX_NUMBER, _FIRST_PAGE if exact else _MOST_WALKED
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
    params |= {"last": last, "most": _MOST_WALKED}
    sql = _SCAN.format(condition, " AND ".join(_HAS_WORD.format(at) for at in range(len(words))))
    yield from (row[0] for row in tx.execute(sql, params))


# Messages that contain the words, and their sessions


def _hits(tx: Transaction, keys: Sequence[int], words: Sequence[str], full: set[int]) -> Iterator[tuple[int, _Hit]]:
    """Yield each matching message with each of its sessions, except sessions in `full`, to which the caller adds during
    the iteration. Texts are read only when needed: common words occur in thousands of messages of a few sessions."""
    sessions_of = _sessions_of(tx, keys)
    open_keys = [key for key in keys if not sessions_of[key] <= full]
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


def _sessions_of(tx: Transaction, keys: Sequence[int]) -> dict[int, set[int]]:
    """Return the sessions of each of these messages, as keys."""
    sessions: dict[int, set[int]] = {key: set() for key in keys}
    below: defaultdict[int, set[int]] = defaultdict(set)
    values = ", ".join(f"(CAST({int(key)} AS BIGINT))" for key in keys)
    for top, is_end, value in tx.execute(_WALK_DOWN.format(values)):
        if is_end:
            sessions[top].add(value)
        else:
            below[top].add(value)
    for key in sorted(keys, reverse=True):  # descendants have higher keys
        for other in below[key]:
            sessions[key] |= sessions[other]
    return sessions


def _own_nodes(tx: Transaction, session_key: int) -> set[int]:
    """Return the messages that belong to no other session, as keys."""
    rows = tx.execute(_SELECT_OWN, {"session": session_key})
    parents: dict[int, int] = {key: parent for key, parent, _ in rows}
    children = Counter(parents.values())
    shared = [key for key, _, count in rows if count > children[key]]
    shared += (key for (key,) in tx.execute(_SELECT_OTHER_ENDS, {"session": session_key}) if key in parents)
    for key in shared:
        at: int | None = key
        while at in parents:  # the messages above a shared one are shared, too
            at = parents.pop(at)
    return set(parents)


def _titles(tx: Transaction, words: Sequence[str], folded: Sequence[str]) -> Iterator[_Hit]:
    params: dict[str, object] = {f"w{at}": _pattern(word) for at, word in enumerate(words)}
    params["most"] = _MOST_WALKED
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
