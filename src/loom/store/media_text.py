"""MediaTexts: the text inside media, stored for search. It is a cache: a missing text is extracted again."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final, Literal, TypeAlias

from loom.content.blocks import clean_text
from loom.content.recipes import Ocr, Recipe, Text
from loom.store.database import Database, Transaction
from loom.store.search_index import drop_medium, index_medium

MediaTextKind: TypeAlias = Literal["document", "picture", "other", "unread"]
"""`unread`: an image that was not read, because there was no time or no OCR engine."""

MAX_CHARACTERS: Final = 2_000_000
_PUT: Final = (
    "INSERT INTO media_text (digest, kind, text, created_at) VALUES (:digest, :kind, :text, :now)"
    " ON CONFLICT (digest) DO UPDATE SET kind = :kind, text = :text, created_at = :now"
)
_IS_UNREAD: Final = (
    "FROM node_media m LEFT JOIN media_text t ON t.digest = m.digest"
    " WHERE t.digest IS NULL OR (:pictures = 1 AND t.kind = 'unread')"
)
_SELECT_UNREAD: Final = "".join(
    ("SELECT m.digest, MAX(m.node_key) AS newest ", _IS_UNREAD, " GROUP BY m.digest ORDER BY newest DESC, m.digest")
)
_COUNT_UNREAD: Final = "".join(("SELECT COUNT(DISTINCT m.digest) ", _IS_UNREAD))


class MediaTexts:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, digest: str, kind: MediaTextKind, text: str) -> None:
        """Store the text of a medium, replacing an older one. An empty text means that it contains no words."""
        kept = clean_text(text[:MAX_CHARACTERS]).replace("\0", "")
        values = {"digest": digest, "kind": kind, "text": kept, "now": time.time()}

        def work(tx: Transaction) -> None:
            tx.execute(_PUT, values)
            index_medium(tx, digest, kept)

        await self._database.write(work, repeatable=True)

    async def save(self, digest: str, recipe: Recipe, text: str) -> None:
        """Store a text that a prompt needed, so that search finds it too. Ignored unless `recipe` covers the whole
        medium."""
        match recipe:
            case Text(pages=""):
                await self.put(digest, "document", text)
            case Ocr(page=0):
                await self.put(digest, "picture", text)
            case _:
                pass

    async def list_unread(self, *, pictures: bool = True) -> tuple[str, ...]:
        """Return the digests of referenced media without a stored text, newest first; with `pictures`, also images of
        kind `unread`."""
        rows = await self._database.read(lambda tx: tx.execute(_SELECT_UNREAD, {"pictures": int(pictures)}))
        return tuple(row[0] for row in rows)

    async def count_unread(self) -> int:
        ((count,),) = await self._database.read(lambda tx: tx.execute(_COUNT_UNREAD, {"pictures": 1}))
        return count


def forget_texts(tx: Transaction, digests: Collection[str]) -> None:
    """Delete the texts of deleted media, and their words in the search index."""
    for digest in digests:
        drop_medium(tx, digest)
    tx.executemany("DELETE FROM media_text WHERE digest = :digest", [{"digest": digest} for digest in digests])
