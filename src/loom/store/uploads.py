"""Uploads: files that providers store for Loom, with their ids and expiry."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

import msgspec

from loom.store.database import Database, Params, Row, Transaction, row_as
from loom.store.forest import Clock
from loom.store.nodes import plain_text


class Upload(msgspec.Struct, frozen=True, array_like=True):
    """`recipe` is empty for the medium itself. `content` is the SHA-256 (hex) of the uploaded bytes."""

    provider: str
    account: str
    digest: str
    recipe: str
    file_id: str
    content: str
    expires_at: float
    model: str = ""
    """The model for which it was uploaded: its base URL and key are needed to delete it."""


class UnwantedUpload(msgspec.Struct, frozen=True, array_like=True):
    """A file to delete at its provider. `problem` is the reason why the last try failed."""

    provider: str
    account: str
    file_id: str
    model: str
    expires_at: float
    tries: int = 0
    problem: str = ""


_UNWANTED: Final = "provider, account, file_id, model, expires_at, tries, problem"


_COLUMNS: Final = "provider, account, digest, recipe, file_id, content, expires_at, model"
_AT: Final = "provider = :provider AND account = :account AND digest = :digest AND recipe = :recipe"


class UploadRecords:
    def __init__(self, database: Database, *, clock: Clock = time.time) -> None:
        self._database = database
        self._clock = clock

    async def find(self, provider: str, account: str, digest: str, recipe: str) -> Upload | None:
        """Return an upload that has not expired; None if there is none."""
        at = {"provider": provider, "account": account, "digest": digest, "recipe": recipe, "now": self._clock()}
        sql = f"SELECT {_COLUMNS} FROM upload WHERE {_AT} AND expires_at > :now"  # noqa: S608  constants only
        rows = await self._database.read(lambda tx: tx.execute(sql, at))
        return _upload(rows[0]) if rows else None

    async def keep(
        self,
        *,
        provider: str,
        account: str,
        digest: str,
        recipe: str,
        file_id: str,
        content: str,
        expires_at: float,
        model: str = "",
    ) -> None:
        """Store an upload, replacing an older one of the same bytes, and delete expired ones."""
        values: Params = {
            "provider": plain_text(provider, "a provider"),
            "account": plain_text(account, "an account"),
            "digest": plain_text(digest, "a digest"),
            "recipe": plain_text(recipe, "a recipe"),
            "file_id": plain_text(file_id, "a provider's file id"),
            "content": plain_text(content, "a hash"),
            "expires_at": expires_at,
            "model": plain_text(model, "the name of a model"),
            "now": self._clock(),
        }

        def work(tx: Transaction) -> None:
            tx.execute("DELETE FROM upload WHERE expires_at <= :now", {"now": values["now"]})
            tx.execute(
                f"INSERT INTO upload ({_COLUMNS}, created_at) VALUES (:provider, :account, :digest, :recipe,"  # noqa: S608  constants only
                " :file_id, :content, :expires_at, :model, :now) ON CONFLICT (provider, account, digest, recipe) DO"
                " UPDATE SET file_id = :file_id, content = :content, expires_at = :expires_at, model = :model,"
                " created_at = :now",
                values,
            )

        await self._database.write(work, repeatable=True)

    async def forget(self, provider: str, account: str, file_ids: Collection[str]) -> None:
        """Delete the records of files that the provider no longer has."""
        rows = [{"provider": provider, "account": account, "file_id": file_id} for file_id in file_ids]
        sql = "DELETE FROM upload WHERE provider = :provider AND account = :account AND file_id = :file_id"
        await self._database.write(lambda tx: tx.executemany(sql, rows), repeatable=True)

    async def condemn(self, digests: Collection[str]) -> int:
        """Mark the uploads of these media for deletion at their providers; return their number."""

        def work(tx: Transaction) -> int:
            found: list[Upload] = []
            for digest in digests:
                sql = f"DELETE FROM upload WHERE digest = :digest RETURNING {_COLUMNS}"  # noqa: S608  constants only
                found += [_upload(row) for row in tx.execute(sql, {"digest": digest})]
            now = self._clock()
            for upload in found:
                if upload.expires_at > now:
                    tx.execute(
                        f"INSERT INTO unwanted_upload ({_UNWANTED}) VALUES (:provider, :account, :file_id, :model,"  # noqa: S608  constants only
                        " :expires_at, 0, '') ON CONFLICT (provider, account, file_id) DO NOTHING",
                        {
                            "provider": upload.provider,
                            "account": upload.account,
                            "file_id": upload.file_id,
                            "model": upload.model,
                            "expires_at": upload.expires_at,
                        },
                    )
            return len(found)

        return await self._database.write(work)

    async def list_unwanted(self) -> tuple[UnwantedUpload, ...]:
        """Return the files to delete at providers, and drop the records of expired ones."""

        def work(tx: Transaction) -> tuple[UnwantedUpload, ...]:
            tx.execute("DELETE FROM unwanted_upload WHERE expires_at <= :now", {"now": self._clock()})
            rows = tx.execute(f"SELECT {_UNWANTED} FROM unwanted_upload ORDER BY tries, file_id")  # noqa: S608  constants only
            return tuple(row_as(row, UnwantedUpload, "The record of an upload") for row in rows)

        return await self._database.write(work, repeatable=True)

    async def settle_unwanted(self, upload: UnwantedUpload, problem: str) -> None:
        """Drop the record of a file that its provider has deleted; with `problem`, count a failed try instead."""
        values = {
            "provider": upload.provider,
            "account": upload.account,
            "file_id": upload.file_id,
            "problem": plain_text(problem, "a problem"),
        }
        at = "provider = :provider AND account = :account AND file_id = :file_id"
        change = f"UPDATE unwanted_upload SET tries = tries + 1, problem = :problem WHERE {at}"  # noqa: S608  constants only
        remove = f"DELETE FROM unwanted_upload WHERE {at}"  # noqa: S608  constants only
        if problem:
            await self._database.write(lambda tx: tx.execute(change, values))
        else:
            del values["problem"]
            await self._database.write(lambda tx: tx.execute(remove, values), repeatable=True)


def _upload(row: Row) -> Upload:
    return row_as(row, Upload, "The record of an upload")
