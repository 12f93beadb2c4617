"""Search index: which messages and media hold a word, in SQLite's FTS5 or PostgreSQL's tsvector.

Texts are cut into words here, so that both databases find the same. A word is found by its beginning: `time` finds
`timeout`, `readTimeout` and `proxy_read_timeout`; writing without spaces is indexed by pairs of characters. The index
only narrows a search down; `search.py` compares the texts themselves.

Writing a message does not touch the index. Messages are indexed in batches when something is searched for, or by
`SearchIndex.catch_up`, which also indexes stores that are older than the index.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from loom.content.codec import decode_message
from loom.content.messages import text_of
from loom.errors import LoomError, ReadOnly
from loom.store.database import Database, Row, Transaction

VERSION: Final = 1
"""Of the rules by which texts are cut into words. A store that was indexed by others is indexed anew."""

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
"""Of one row: PostgreSQL holds a megabyte of words in one."""
_WRITTEN_ANEW: Final = 50_000
"""Messages, up to which an index is written anew when some are deleted."""

_PIECE: Final = re.compile(r"[^\W_]+")
_HUMP: Final = re.compile(r"(?<=[a-zß-öø-ÿ0-9])(?=[A-ZÀ-ÖØ-Þ])|(?<=[A-ZÀ-ÖØ-Þ])(?=[A-ZÀ-ÖØ-Þ][a-zß-öø-ÿ])")
_UNSPACED: Final = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+"
)


class _Dialect(msgspec.Struct, frozen=True):
    """`is_unindexed` is a condition on a message `n`, as far as messages up to `:last` were indexed."""

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
    # A message with a lower key may be committed later, by another daemon.
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
    """Return the words by which a text is found, each once, in small letters."""
    found: dict[str, None] = {}
    for match in _PIECE.finditer(text):
        piece = match[0]
        for part in (piece, *_HUMP.split(piece)[1:]) if not piece.islower() else (piece,):
            folded = part.casefold()
            # Small letters may consist of several characters, of which some are no letters.
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
    """Return the words that a text must hold in order to hold what is searched for; none where that has no letters."""
    found: dict[str, None] = {}
    for piece in _PIECE.findall(word.casefold()):
        _add(found, piece)
    # The last pair of unspaced writing is a single character, which is the beginning of a pair elsewhere.
    return tuple(found)


class SearchIndex:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def catch_up(self, *, seconds: float | None = None) -> bool:
        """Index what is not indexed yet, for at most so long. Return whether nothing is left."""
        until = None if seconds is None else time.monotonic() + seconds
        try:
            while await self._database.read(_has_backlog):
                await self._database.write(_index_batch)
                if until is not None and time.monotonic() > until:
                    return not await self._database.read(_has_backlog)
        except ReadOnly:  # a store that can only be read is searched as far as it was indexed; the rest is scanned
            return False
        return True


def unindexed_messages(tx: Transaction) -> tuple[str, int] | None:
    """Return a condition on a message `n` that the index does not know yet, and the value of its `:last`; None if there
    is none. While the texts of media are not all indexed, it is every message."""
    if _state(tx, "version") != VERSION or tx.execute(_UNINDEXED_MEDIA, {"limit": 1}):
        return "n.key > :last", 0
    return (_dialect(tx).is_unindexed, _state(tx, "node")) if _unindexed(tx, limit=1) else None


def find_nodes(tx: Transaction, words: Sequence[str], *, before: int, limit: int, exact: bool = False) -> list[int]:
    """Return the keys of messages whose own text has words that begin with these (`exact`: are these), newest first."""
    params = {"query": _query(tx, words, exact=exact), "before": before, "limit": limit}
    return [row[0] for row in tx.execute(_dialect(tx).find_nodes, params)]


def find_media(tx: Transaction, words: Sequence[str], *, limit: int) -> list[str]:
    """Return the digests of media whose text has words that begin with these."""
    rows = tx.execute(_dialect(tx).find_media, {"query": _query(tx, words, exact=False), "limit": limit})
    return [row[0] for row in rows]


def index_medium(tx: Transaction, digest: str, text: str) -> None:
    """Take the place of what was indexed for a medium. One without words is noted, too, so that it is indexed."""
    drop_medium(tx, digest)
    words = list(words_of(text))
    for first in range(0, max(len(words), 1), _PART_WORDS):
        sql = "INSERT INTO search_medium (digest) VALUES (:digest) RETURNING key"
        ((key,),) = tx.execute(sql, {"digest": digest})
        part = " ".join(words[first : first + _PART_WORDS])
        tx.execute(_dialect(tx).insert_medium, {"key": key, "words": part})


def drop_medium(tx: Transaction, digest: str) -> None:
    """Take the words of a medium out of the index. On PostgreSQL they go with their row."""
    if tx.dialect == "sqlite":
        keys = tx.execute("SELECT key FROM search_medium WHERE digest = :digest", {"digest": digest})
        tx.executemany("DELETE FROM search_media WHERE rowid = :key", [{"key": key} for (key,) in keys])
    tx.execute("DELETE FROM search_medium WHERE digest = :digest", {"digest": digest})


def drop_nodes(tx: Transaction, keys: Iterable[int]) -> None:
    """Take messages that were deleted out of the index. On PostgreSQL they go with their rows; SQLite gives the highest
    keys to new messages, which must not be taken for indexed ones."""
    if tx.dialect == "sqlite":
        tx.executemany("DELETE FROM search_node WHERE rowid = :key", [{"key": key} for key in keys])
        tx.execute(
            "UPDATE search_state SET value = MIN(value, (SELECT COALESCE(MAX(key), 0) FROM node)) WHERE name = 'node'"
        )


def compact_index(tx: Transaction) -> None:
    """Write SQLite's index anew without the words of deleted messages, which it would keep for a while. In a large
    store only a part of it, so that it takes no longer than a moment."""
    for table in ("search_node", "search_media"):
        if _state(tx, "node") <= _WRITTEN_ANEW:
            tx.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")  # noqa: S608  names of our own schema
        else:
            tx.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', 200)")  # noqa: S608  the same


def _dialect(tx: Transaction) -> _Dialect:
    return _SQLITE if tx.dialect == "sqlite" else _POSTGRES


def _query(tx: Transaction, words: Sequence[str], *, exact: bool) -> str:
    """Return words have no signs that mean something to either database."""
    if tx.dialect == "sqlite":
        return " AND ".join(f'"{word}"' if exact else f'"{word}"*' for word in words)
    return " & ".join(f"'{word}'" if exact else f"'{word}':*" for word in words)


def _state(tx: Transaction, name: str) -> int:
    rows = tx.execute(_SELECT_STATE, {"name": name})
    return rows[0][0] if rows and isinstance(rows[0][0], int) else 0


def _has_backlog(tx: Transaction) -> bool:
    if _state(tx, "version") != VERSION:
        return True
    return bool(_unindexed(tx, limit=1)) or bool(tx.execute(_UNINDEXED_MEDIA, {"limit": 1}))


def _unindexed(tx: Transaction, *, limit: int) -> list[Row]:
    sql = f"SELECT n.key, n.message FROM node n WHERE {_dialect(tx).is_unindexed} ORDER BY n.key LIMIT :limit"  # noqa: S608
    return tx.execute(sql, {"last": _state(tx, "node"), "limit": limit})


def _index_batch(tx: Transaction) -> None:
    """One transaction of bounded length, so that others can write in between."""
    tx.lock("search")
    if _state(tx, "version") != VERSION:
        for table in ("search_node", "search_media", "search_medium"):
            tx.execute(f"DELETE FROM {table}")  # noqa: S608  names of our own schema
        tx.execute(_SET_STATE, {"name": "node", "value": 0})
        tx.execute(_SET_STATE, {"name": "version", "value": VERSION})
    rows = _unindexed(tx, limit=_BATCH)
    if rows:
        tx.executemany(_dialect(tx).insert_node, list(_entries(rows)))
        last = max(_state(tx, "node"), rows[-1][0])
        tx.execute(_SET_STATE, {"name": "node", "value": last})
    else:
        for digest, text in tx.execute(_UNINDEXED_MEDIA, {"limit": 4}):
            index_medium(tx, digest, text if isinstance(text, str) else "")


def _entries(rows: Iterable[Row]) -> Iterator[dict[str, object]]:
    for key, stored in rows:
        yield {"key": key, "words": " ".join(words_of(message_text(stored)))}


def message_text(stored: object) -> str:
    """Return the text of a stored message; one that is damaged holds no words, and neither does a system prompt."""
    if not isinstance(stored, str):
        return ""
    try:
        message = decode_message(stored)
    except LoomError:
        return ""
    return " ".join(text_of(block) for block in message.blocks)
