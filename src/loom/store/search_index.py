"""Search index: which messages and media contain a word, in SQLite's FTS5 or PostgreSQL's tsvector.

Texts are split into words here, so that both databases find the same. A word is found by its prefix, and so are the
parts of identifiers: `time` finds `timeout`, `readTimeout` and `proxy_read_timeout`. Scripts without spaces are indexed
by pairs of characters. The index only narrows a search down; `search.py` compares the texts themselves.

Writing a message does not touch the index. Messages are indexed in batches, by a search or by `update_index`,
which also indexes stores that are older than the index.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from loom.content.codec import decode_message
from loom.content.messages import text_of
from loom.errors import LoomError, ReadOnly
from loom.store.database import Database, Row, Transaction

VERSION: Final = 1
"""The version of the rules that split texts into words. A store with another version is indexed again."""

SQLITE_TABLES: Final = """
CREATE VIRTUAL TABLE search_node USING fts5(words, detail=none, prefix='2 3 4 5', columnsize=0, tokenize='ascii');
CREATE VIRTUAL TABLE search_media USING fts5(words, detail=none, prefix='2 3 4 5', columnsize=0, tokenize='ascii')
""".strip()
POSTGRES_TABLES: Final = """
CREATE TABLE search_node (
    node_key BIGINT PRIMARY KEY REFERENCES node (key) ON DELETE CASCADE, words TSVECTOR NOT NULL
);
CREATE INDEX search_node_words ON search_node USING GIN (words) WITH (fastupdate = off);
CREATE TABLE search_media (
    medium_key BIGINT PRIMARY KEY REFERENCES search_medium (key) ON DELETE CASCADE, words TSVECTOR NOT NULL
);
CREATE INDEX search_media_words ON search_media USING GIN (words) WITH (fastupdate = off)
""".strip()

MAX_WORD_CHARACTERS: Final = 40
_BATCH: Final = 1000
_PART_WORDS: Final = 20_000
"""The most words of one row: PostgreSQL limits a tsvector to one megabyte."""
_MAX_REWRITTEN: Final = 50_000
"""The most messages of a store whose whole index is rewritten after a deletion."""

_PIECE: Final = re.compile(r"[^\W_]+")
_HUMP: Final = re.compile(r"(?<=[a-zß-öø-ÿ0-9])(?=[A-ZÀ-ÖØ-Þ])|(?<=[A-ZÀ-ÖØ-Þ])(?=[A-ZÀ-ÖØ-Þ][a-zß-öø-ÿ])")
_UNSPACED: Final = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)


class _Dialect(msgspec.Struct, frozen=True):
    """The statements of one database. `is_unindexed` is a condition on a message `n`; `:last` is the highest key that
    was indexed."""

    is_unindexed: str
    insert_node: str
    insert_medium: str
    find_nodes: str
    find_media: str


_SQLITE: Final = _Dialect(
    is_unindexed="n.key > :last",
    insert_node="INSERT INTO search_node (rowid, words) VALUES (:key, :words)",
    insert_medium="INSERT INTO search_media (rowid, words) VALUES (:key, :words)",
    find_nodes=(
        "SELECT rowid FROM search_node WHERE search_node MATCH :query AND rowid < :before"
        " ORDER BY rowid DESC LIMIT :limit"
    ),
    find_media=(
        "SELECT DISTINCT m.digest FROM search_media s JOIN search_medium m ON m.key = s.rowid"
        " WHERE s.search_media MATCH :query LIMIT :limit"
    ),
)
_POSTGRES: Final = _Dialect(
    # Another daemon may commit a message with a lower key later.
    # The bound of `s` says nothing new, but without it the planner reads the whole index for each batch.
    is_unindexed=(
        "n.key > :last - 1000 AND NOT EXISTS"
        " (SELECT 1 FROM search_node s WHERE s.node_key = n.key AND s.node_key > :last - 1000)"
    ),
    insert_node=(
        "INSERT INTO search_node (node_key, words) VALUES (:key, array_to_tsvector(string_to_array(:words, ' ', '')))"
        " ON CONFLICT DO NOTHING"
    ),
    insert_medium=(
        "INSERT INTO search_media (medium_key, words)"
        " VALUES (:key, array_to_tsvector(string_to_array(:words, ' ', '')))"
    ),
    find_nodes=(
        "SELECT node_key FROM search_node WHERE words @@ CAST(:query AS tsquery) AND node_key < :before"
        " ORDER BY node_key DESC LIMIT :limit"
    ),
    find_media=(
        "SELECT DISTINCT m.digest FROM search_media s JOIN search_medium m ON m.key = s.medium_key"
        " WHERE s.words @@ CAST(:query AS tsquery) LIMIT :limit"
    ),
)
_SELECT_STATE: Final = "SELECT value FROM search_state WHERE name = :name"
_SET_STATE: Final = (
    "INSERT INTO search_state (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = :value"
)
_UNINDEXED_MEDIA: Final = (
    "SELECT t.digest, t.text FROM media_text t"
    " WHERE NOT EXISTS (SELECT 1 FROM search_medium m WHERE m.digest = t.digest) ORDER BY t.digest LIMIT :limit"
)


def words_of(text: str) -> dict[str, None]:
    """Return the words to index a text by, each once, in lower case, as the keys of a dict."""
    found: dict[str, None] = {}
    for match in _PIECE.finditer(text):
        piece = match[0]
        for part in (piece, *_HUMP.split(piece)[1:]) if not piece.islower() else (piece,):
            folded = part.casefold()
            # Case folding may turn one character into several, some of which are not letters.
            for word in (folded,) if folded.isalnum() else _PIECE.findall(folded):
                _add(found, word)
    return found


def _add(found: dict[str, None], word: str) -> None:
    if word.isascii():
        found[word[:MAX_WORD_CHARACTERS]] = None
        return
    end = 0
    for run in _UNSPACED.finditer(word):
        if run.start() > end:
            found[word[end : run.start()][:MAX_WORD_CHARACTERS]] = None
        found.update(dict.fromkeys(run[0][at : at + 2] for at in range(len(run[0]))))
        end = run.end()
    if end < len(word):
        found[word[end:][:MAX_WORD_CHARACTERS]] = None


def query_words(word: str) -> tuple[str, ...]:
    """Return the indexed words that a text with `word` must contain; empty if `word` has no letters or digits."""
    found: dict[str, None] = {}
    for piece in _PIECE.findall(word.casefold()):
        _add(found, piece)
    # In scripts without spaces the last "pair" is a single character; as a prefix it matches pairs in the index.
    return tuple(found)


async def update_index(database: Database, *, seconds: float | None = None) -> bool:
    """Index new messages and media, for at most `seconds`. Return whether the index is complete."""
    until = None if seconds is None else time.monotonic() + seconds
    try:
        while await database.read(_has_backlog):
            await database.write(_index_batch)
            if until is not None and time.monotonic() > until:
                return not await database.read(_has_backlog)
    except ReadOnly:  # what is not indexed in a read-only store is scanned
        return False
    return True


def unindexed_messages(tx: Transaction) -> tuple[str, int] | None:
    """Return an SQL condition for messages `n` that are not indexed yet, and the value of its `:last`; None if all are
    indexed. While media texts are still to be indexed, the condition matches every message."""
    if _state(tx, "version") != VERSION or tx.execute(_UNINDEXED_MEDIA, {"limit": 1}):
        return "n.key > :last", 0
    return (_dialect(tx).is_unindexed, _state(tx, "node")) if _list_unindexed(tx, limit=1) else None


def find_nodes(tx: Transaction, words: Sequence[str], *, before: int, limit: int, exact: bool = False) -> list[int]:
    """Return the keys of messages whose own text contains all words, newest first. A word matches as a prefix, with
    `exact` only as a whole."""
    params = {"query": _query(tx, words, exact=exact), "before": before, "limit": limit}
    return [row[0] for row in tx.execute(_dialect(tx).find_nodes, params)]


def find_media(tx: Transaction, words: Sequence[str], *, limit: int) -> list[str]:
    """Return the digests of media whose text contains all words, each as a prefix."""
    rows = tx.execute(_dialect(tx).find_media, {"query": _query(tx, words, exact=False), "limit": limit})
    return [row[0] for row in rows]


def index_medium(tx: Transaction, digest: str, text: str) -> None:
    """Index the text of a medium, replacing an older one. A medium without words is recorded too, as indexed."""
    drop_medium(tx, digest)
    words = list(words_of(text))
    for first in range(0, max(len(words), 1), _PART_WORDS):
        sql = "INSERT INTO search_medium (digest) VALUES (:digest) RETURNING key"
        ((key,),) = tx.execute(sql, {"digest": digest})
        part = " ".join(words[first : first + _PART_WORDS])
        tx.execute(_dialect(tx).insert_medium, {"key": key, "words": part})


def drop_medium(tx: Transaction, digest: str) -> None:
    """Remove a medium from the index. On PostgreSQL the words are deleted with their row."""
    if tx.dialect == "sqlite":
        keys = tx.execute("SELECT key FROM search_medium WHERE digest = :digest", {"digest": digest})
        tx.executemany("DELETE FROM search_media WHERE rowid = :key", [{"key": key} for (key,) in keys])
    tx.execute("DELETE FROM search_medium WHERE digest = :digest", {"digest": digest})


def drop_nodes(tx: Transaction, keys: Iterable[int]) -> None:
    """Remove deleted messages from the index. PostgreSQL deletes them with their rows. SQLite may give their keys to
    new messages, which must not count as indexed."""
    if tx.dialect == "sqlite":
        tx.executemany("DELETE FROM search_node WHERE rowid = :key", [{"key": key} for key in keys])
        tx.execute(
            "UPDATE search_state SET value = MIN(value, (SELECT COALESCE(MAX(key), 0) FROM node)) WHERE name = 'node'"
        )


def compact_index(tx: Transaction) -> None:
    """Rewrite SQLite's index without the words of deleted messages, which it would otherwise keep for a while. In a
    large store, rewrite only a part of it, so that it stays fast."""
    for table in ("search_node", "search_media"):
        if _state(tx, "node") <= _MAX_REWRITTEN:
            tx.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")  # noqa: S608  names of our own schema
        else:
            tx.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', 200)")  # noqa: S608  names of our own schema


def _dialect(tx: Transaction) -> _Dialect:
    return _SQLITE if tx.dialect == "sqlite" else _POSTGRES


def _query(tx: Transaction, words: Sequence[str], *, exact: bool) -> str:
    """Return a query for all words. They contain only letters and digits, so nothing has to be escaped."""
    if tx.dialect == "sqlite":
        return " AND ".join(f'"{word}"' if exact else f'"{word}"*' for word in words)
    return " & ".join(f"'{word}'" if exact else f"'{word}':*" for word in words)


def _state(tx: Transaction, name: str) -> int:
    rows = tx.execute(_SELECT_STATE, {"name": name})
    return rows[0][0] if rows and isinstance(rows[0][0], int) else 0


def _has_backlog(tx: Transaction) -> bool:
    if _state(tx, "version") != VERSION:
        return True
    return bool(_list_unindexed(tx, limit=1)) or bool(tx.execute(_UNINDEXED_MEDIA, {"limit": 1}))


def _list_unindexed(tx: Transaction, *, limit: int) -> list[Row]:
    sql = f"SELECT n.key, n.message FROM node n WHERE {_dialect(tx).is_unindexed} ORDER BY n.key LIMIT :limit"  # noqa: S608
    return tx.execute(sql, {"last": _state(tx, "node"), "limit": limit})


def _index_batch(tx: Transaction) -> None:
    """Index one batch. Batches are small, so that other transactions can write in between."""
    tx.lock("search")
    if _state(tx, "version") != VERSION:
        for table in ("search_node", "search_media", "search_medium"):
            tx.execute(f"DELETE FROM {table}")  # noqa: S608  names of our own schema
        tx.execute(_SET_STATE, {"name": "node", "value": 0})
        tx.execute(_SET_STATE, {"name": "version", "value": VERSION})
    rows = _list_unindexed(tx, limit=_BATCH)
    if rows:
        entries = [{"key": key, "words": " ".join(words_of(message_text(stored)))} for key, stored in rows]
        tx.executemany(_dialect(tx).insert_node, entries)
        last = max(_state(tx, "node"), rows[-1][0])
        tx.execute(_SET_STATE, {"name": "node", "value": last})
    else:
        for digest, text in tx.execute(_UNINDEXED_MEDIA, {"limit": 4}):
            index_medium(tx, digest, text if isinstance(text, str) else "")


def message_text(stored: object) -> str:
    """Return the text of a stored message; empty for a damaged one and for a system prompt."""
    if not isinstance(stored, str):
        return ""
    try:
        message = decode_message(stored)
    except LoomError:
        return ""
    return " ".join(text_of(block) for block in message.blocks)
