"""Back up a store and its media into a folder while the store is in use, and restore them from there.

The folder holds `loom.db` (always SQLite, also for a PostgreSQL store), `media` (bytes by digest) and the manifest
`backup.json`. The database is copied first, as a snapshot, and the media after it: because bytes are stored before a
message refers to them, every medium in the snapshot is there to copy. A second backup into the same folder copies only
new media, and replaces the old database copy after it has checked the new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Final

import msgspec

from loom.atomic_file import sync_folder, write_file_whole
from loom.errors import Conflict, Corrupt, NotFound, StoreError
from loom.store.database import Database, Transaction
from loom.store.directories import make_folders
from loom.store.media import MediaStore, open_media
from loom.store.media_references import digests_needed
from loom.store.sqlite_file import SqliteTransaction, connect
from loom.store.table_copy import insert, pages, stored_tables
from loom.struct_types import decode_json

DATABASE: Final = "loom.db"
MEDIA: Final = "media"
MANIFEST: Final = "backup.json"
_VERSION: Final = 1
_COPIED_AT_ONCE: Final = 4


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a backup. `missing_media` are digests that messages refer to and the original store lacked."""

    version: int = _VERSION
    made_at: float
    sessions: int
    messages: int
    media: int
    missing_media: tuple[str, ...] = ()


class BackupReport(msgspec.Struct, frozen=True, kw_only=True):
    sessions: int
    messages: int
    copied_media: int
    copied_bytes: int
    unchanged_media: int
    missing_media: tuple[str, ...] = ()
    """Digests that messages refer to and that are missing or damaged in the source."""


async def back_up(database: Database, media: MediaStore, folder: Path) -> BackupReport:
    """Copy a store into `folder`; the store may be in use. Raise `Corrupt` if the copy is damaged; an older backup in
    `folder` then stays unchanged."""
    await asyncio.to_thread(make_folders, folder)
    fresh = folder / f"{DATABASE}.new"
    await asyncio.to_thread(_remove_database, fresh)
    await database.snapshot(fresh)
    needed, sessions, messages = await asyncio.to_thread(_inspect, fresh)
    target = open_media(folder / MEDIA)
    copied, copied_bytes, unchanged, missing = await _copy_media(media, target, needed)
    manifest = Manifest(
        made_at=time.time(), sessions=sessions, messages=messages, media=copied + unchanged, missing_media=missing
    )
    await asyncio.to_thread(_publish, folder, fresh, manifest)
    return BackupReport(
        sessions=sessions,
        messages=messages,
        copied_media=copied,
        copied_bytes=copied_bytes,
        unchanged_media=unchanged,
        missing_media=missing,
    )


async def restore_media(folder: Path, media: MediaStore) -> BackupReport:
    """Copy the media of a backup that `media` lacks. The report lists the damaged ones."""
    manifest = read_manifest(folder)
    source = open_media(folder / MEDIA)
    digests = {stored.digest async for stored in source.listing()}
    copied, copied_bytes, unchanged, damaged = await _copy_media(source, media, digests)
    return BackupReport(
        sessions=manifest.sessions,
        messages=manifest.messages,
        copied_media=copied,
        copied_bytes=copied_bytes,
        unchanged_media=unchanged,
        missing_media=tuple(sorted({*manifest.missing_media, *damaged})),
    )


def restore_file(folder: Path, target: Path, *, replace: bool = False) -> Path | None:
    """Restore the database of a backup as the SQLite file `target`. An existing file is moved aside: return its new
    path, or None if there was none. Raise `Conflict` if the existing file holds sessions and `replace` is False."""
    read_manifest(folder)
    _inspect(folder / DATABASE)
    if target.exists() and not replace and not _is_empty(target):
        raise Conflict(f"{target.name} contains conversations.", hint="Use --replace to move it aside.")
    make_folders(target.parent)
    fresh = target.with_name(f"{target.name}.restored")
    _remove_database(fresh)
    _copy_file(folder / DATABASE, fresh)
    aside = move_aside(target, "replaced") if target.exists() else None
    fresh.rename(target)
    sync_folder(target.parent)
    return aside


async def restore_rows(folder: Path, database: Database) -> None:
    """Restore the rows of a backup into `database`, SQLite or PostgreSQL, in one transaction. Raise `Conflict` if it
    holds sessions."""
    read_manifest(folder)
    await asyncio.to_thread(_inspect, folder / DATABASE)

    def work(tx: Transaction) -> None:
        if tx.execute("SELECT 1 FROM session LIMIT 1"):
            raise Conflict(f"{database.label} contains conversations.", hint="Restore into an empty database.")
        source = SqliteTransaction(connect((folder / DATABASE).absolute(), timeout=15, is_frozen=True))
        with contextlib.closing(source):
            tables = stored_tables(source.connection)
            for table in reversed(tables):
                tx.execute(f"DELETE FROM {table.name}")  # noqa: S608  names of our own schema
            for table in tables:
                for rows in pages(source, table):
                    insert(tx, table, rows)
                if table.has_own_key:
                    tx.continue_keys(table.name)

    await database.write(work)


def read_manifest(folder: Path) -> Manifest:
    """Raise `NotFound` if `folder` holds no backup, `Corrupt` if its manifest is damaged."""
    try:
        found = decode_json((folder / MANIFEST).read_bytes(), Manifest)
    except FileNotFoundError:
        raise NotFound(f"No backup found in {folder}.", hint="Create one: `loom backup FOLDER`.") from None
    except msgspec.DecodeError:
        raise Corrupt(f"{MANIFEST} in {folder} is damaged.", hint="Use another backup.") from None
    if found.version > _VERSION:
        raise StoreError("This backup was made by a newer Loom.", hint="Upgrade Loom to restore it.")
    return found


def move_aside(file: Path, why: str) -> Path:
    """Rename a database and its write-ahead log to an unused name; return the new path."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    number = 0
    while (aside := file.with_name(f"{file.name}.{why}-{stamp}{f'-{number}' if number else ''}")).exists():
        number += 1
    for suffix in ("-wal", "-shm", ""):
        beside = file.with_name(file.name + suffix)
        if beside.exists():
            beside.rename(aside.with_name(aside.name + suffix))
    sync_folder(file.parent)
    return aside


async def _copy_media(
    source: MediaStore, target: MediaStore, needed: set[str]
) -> tuple[int, int, int, tuple[str, ...]]:
    """Copy the `needed` media that `target` lacks. Return the number copied, their bytes, the number that `target`
    had already, and the digests that `source` cannot deliver."""
    present = {stored.digest async for stored in target.listing()}
    absent = sorted(needed - present)
    missing: list[str] = []
    copied_bytes = 0
    slots = asyncio.Semaphore(_COPIED_AT_ONCE)

    async def copy(digest: str) -> None:
        nonlocal copied_bytes
        async with slots:
            try:
                _, size_bytes = await target.put_stream(source.read_blocks(digest), max_bytes=1 << 62)
                copied_bytes += size_bytes
            except (NotFound, Corrupt):
                missing.append(digest)

    async with asyncio.TaskGroup() as group:
        for digest in absent:
            group.create_task(copy(digest))
    return len(absent) - len(missing), copied_bytes, len(needed & present), tuple(sorted(missing))


def _inspect(file: Path) -> tuple[set[str], int, int]:
    """Return the digests that a copied database refers to, its number of sessions and its number of messages. Raise
    `Corrupt` if the copy is damaged."""
    try:
        connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None)
    except sqlite3.Error:
        raise Corrupt(f"{file.name} cannot be opened.", hint="Use another backup.") from None
    with contextlib.closing(connection):
        tx = SqliteTransaction(connection)
        try:
            words = [row[0] for row in tx.execute("PRAGMA integrity_check(1)")]
            if words != ["ok"]:
                raise Corrupt(f"The copy {file.name} is damaged: {words[0]}.", hint="Run `loom doctor --fix`.")
            sessions, messages = tx.execute(
                "SELECT (SELECT COUNT(*) FROM session), (SELECT COUNT(*) FROM node WHERE depth > 0)"
            )[0]
            return digests_needed(tx), sessions, messages
        except sqlite3.DatabaseError as error:
            raise Corrupt(f"The copy {file.name} is damaged: {error}.", hint="Run `loom doctor --fix`.") from error


def _is_empty(file: Path) -> bool:
    """Return whether a store has no sessions; False if the file cannot be read."""
    try:
        with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return not connection.execute("SELECT 1 FROM session LIMIT 1").fetchall()
    except sqlite3.DatabaseError:
        return False


def _publish(folder: Path, fresh: Path, manifest: Manifest) -> None:
    with fresh.open("rb+") as opened:
        os.fsync(opened.fileno())
    fresh.rename(folder / DATABASE)
    write_file_whole(folder / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))


def _copy_file(source: Path, target: Path) -> None:
    import shutil

    with (
        source.open("rb") as read,
        os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out,
    ):
        shutil.copyfileobj(read, out, 1 << 20)
        out.flush()
        os.fsync(out.fileno())


def _remove_database(file: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
