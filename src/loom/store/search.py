"""Search: conversations by the words in their titles, messages and media.

The database narrows it down by LIKE, on JSON and without regard to anything but plain letters; what it finds is read
and compared word by word, without regard to case in any language.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from loom.content.blocks import clean_text
from loom.content.codec import decode_message
from loom.content.messages import text_of
from loom.errors import ContentError, LoomError
from loom.store.database import Database, Transaction, checked_limit

MAX_WORDS: Final = 20
MAX_WORD_CHARACTERS: Final = 200
_MOST_CANDIDATES: Final = 20_000
_SNIPPET_CHARACTERS: Final = 110
_BEFORE: Final = 30
_SPECIAL: Final = "!%_"
_ESCAPED_IN_JSON: Final = '"\\'
_LIGATURES: Final = re.compile(
    "ss|ffi|ffl|ff|fi|fl|st|i\u0307|\u02bcn|j\u030c|h\u0331|t\u0308|w\u030a|y\u030a|a\u02be", re.IGNORECASE
)
"""What one character may stand for: ß, what typesetters (so PDFs) write as one, letters with their marks (İ)."""

_HAS_WORD: Final = (
    "(LOWER(n.message) LIKE :w{0} ESCAPE '!' OR n.key IN (SELECT m.node_key FROM media_text t"
    " JOIN node_media m ON m.digest = t.digest WHERE LOWER(t.text) LIKE :w{0} ESCAPE '!'))"
)
_SELECT_HITS: Final = (
    "WITH RECURSIVE hit (key) AS (SELECT n.key FROM node n WHERE n.parent_key IS NOT NULL AND {0}),"
    " ends (session_key, key) AS (SELECT key, head_key FROM session UNION SELECT session_key, node_key FROM tip),"
    " reach (session_key, key) AS (SELECT session_key, key FROM ends"
    " UNION SELECT r.session_key, n.parent_key FROM reach r JOIN node n ON n.key = r.key"
    " WHERE n.parent_key IS NOT NULL)"
    " SELECT s.id, s.title, n.key, n.id, n.role FROM hit JOIN reach ON reach.key = hit.key"
    " JOIN session s ON s.key = reach.session_key JOIN node n ON n.key = hit.key"
    " ORDER BY s.updated_at DESC, s.id DESC, n.depth, n.key LIMIT :most"
)
_SELECT_TITLES: Final = (
    "SELECT s.id, s.title, h.id FROM session s JOIN node h ON h.key = s.head_key WHERE {0}"
    " ORDER BY s.updated_at DESC, s.id DESC LIMIT :most"
)
_TITLE_HAS_WORD: Final = "LOWER(s.title) LIKE :w{0} ESCAPE '!'"
_SELECT_ORDER: Final = "SELECT id FROM session ORDER BY updated_at DESC, id DESC"
_SELECT_TEXTS: Final = (
    "SELECT t.digest, t.kind, t.text FROM node_media m JOIN media_text t ON t.digest = m.digest WHERE m.node_key = :key"
)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A message that holds all the words. `where` is what the snippet is from; `media` the digest of that medium."""

    session: str
    title: str
    node: str
    role: str
    snippet: str
    where: Literal["text", "document", "picture"]
    media: str = ""


class Search:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, text: str, *, limit: int = 50, per_session: int = 3) -> tuple[Found, ...]:
        """Newest conversation first. Every word must be in the message or in a medium that it shows."""
        words = _words(text)
        limit = checked_limit(limit)
        return await self._database.read(lambda tx: _find(tx, words, limit, per_session))


def _words(text: str) -> list[str]:
    words = list(dict.fromkeys(text.split()))
    if not words:
        raise ContentError("there is nothing to search for.", hint="Give a word or more.")
    if len(words) > MAX_WORDS or max(map(len, words)) > MAX_WORD_CHARACTERS:
        raise ContentError("that is too much to search for.", hint=f"Give up to {MAX_WORDS} words of ordinary length.")
    return words


def _find(tx: Transaction, words: Sequence[str], limit: int, per_session: int) -> tuple[Found, ...]:
    params: dict[str, object] = {f"w{at}": _pattern(word) for at, word in enumerate(words)}
    params["most"] = _MOST_CANDIDATES
    folded = [word.casefold() for word in words]
    by_session: dict[str, list[Found]] = {}
    for found in _messages(tx, params, folded, per_session):
        by_session.setdefault(found.session, []).append(found)
    for found in _titles(tx, params, folded):  # mostly the first words again: the message itself is the better place
        by_session.setdefault(found.session, [found])
    order = [row[0] for row in tx.execute(_SELECT_ORDER) if row[0] in by_session]
    return tuple(found for session in order for found in by_session[session])[:limit]


def _titles(tx: Transaction, params: dict[str, object], words: Sequence[str]) -> Iterator[Found]:
    sql = _SELECT_TITLES.format(" AND ".join(_TITLE_HAS_WORD.format(at) for at in range(len(words))))
    for session, stored, head in tx.execute(sql, params):
        title = _text(stored)
        if all(word in title.casefold() for word in words):
            yield Found(session=session, title=title, node=head, role="", snippet=_snippet(title, words), where="text")


def _messages(tx: Transaction, params: dict[str, object], words: Sequence[str], per_session: int) -> Iterator[Found]:
    sql = _SELECT_HITS.format(" AND ".join(_HAS_WORD.format(at) for at in range(len(words))))
    counts: dict[str, int] = {}
    for session, title, key, node, role in tx.execute(sql, params):
        if counts.get(session, 0) >= per_session:
            continue
        place = _place(tx, key, words)
        if place is not None:
            counts[session] = counts.get(session, 0) + 1
            where, media, snippet = place
            yield Found(
                session=session,
                title=_text(title),
                node=node,
                role=_text(role),
                snippet=snippet,
                where=where,
                media=media,
            )


def _place(
    tx: Transaction, key: int, words: Sequence[str]
) -> tuple[Literal["text", "document", "picture"], str, str] | None:
    """Where in a message the words are: its own text if all are there, else the medium that has what is lacking."""
    said = _said(tx, key)
    lacking = [word for word in words if word not in said.casefold()]
    if not lacking:
        return "text", "", _snippet(said, words)
    media = tx.execute(_SELECT_TEXTS, {"key": key})
    texts = [(digest, kind, text, text.casefold()) for digest, kind, stored in media for text in [_text(stored)]]
    if not all(any(word in folded for _, _, _, folded in texts) for word in lacking):
        return None
    digest, kind, text, _ = next(found for found in texts if lacking[0] in found[3])
    return "picture" if kind == "picture" else "document", digest, _snippet(text, lacking)


def _said(tx: Transaction, key: int) -> str:
    """The text of a message; one that is damaged holds no words (`loom doctor` tells of it)."""
    ((stored,),) = tx.execute("SELECT message FROM node WHERE key = :key", {"key": key})
    try:
        message = decode_message(stored if isinstance(stored, str) else "")
    except LoomError:
        return ""
    return " ".join(text_of(block) for block in message.blocks)


def _text(stored: object) -> str:
    """What a column holds; where damage has made it something else than text, it holds no words."""
    return clean_text(stored) if isinstance(stored, str) else ""


def _pattern(word: str) -> str:
    """LIKE, for small letters. Where JSON or the database could write a character otherwise, anything may stand: SQLite
    makes only plain letters small, so the others are looked at before they are."""
    parts: list[str] = []
    for character in _LIGATURES.sub("\0", word):
        if not character.isascii() or not character.isprintable() or character in _ESCAPED_IN_JSON:
            parts.append("%")
        else:
            parts.append(f"!{character}" if character in _SPECIAL else character.lower())
    return f"%{''.join(parts)}%"


def _snippet(text: str, words: Sequence[str]) -> str:
    """One line around the first of the words."""
    line = " ".join(text.split())
    at = max(line.casefold().find(words[0]) - _BEFORE, 0)
    part = line[at : at + _SNIPPET_CHARACTERS]
    return ("…" if at else "") + part + ("…" if at + len(part) < len(line) else "")
