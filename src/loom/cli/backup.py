"""`loom backup`: copy the store and its media. Also how `loom doctor --fix` saves what is left of a damaged store."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import click
import msgspec

from loom.cli.doctor_checks import Finding
from loom.config import Config
from loom.content.media import size_label
from loom.errors import Conflict
from loom.runtime import DATABASE, Runtime
from loom.store.backup import BackupReport, back_up, move_aside
from loom.store.database import sqlite_path
from loom.store.salvage import SalvageReport, salvage
from loom.tools.number_text import count_text


@click.command("backup")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
def command(folder: Path, as_json: bool) -> None:
    """Copy all conversations and their media into FOLDER. Loom may be in use meanwhile.

    A second backup into the same folder copies only media that are new, and replaces the older copy of the
    conversations once the new one has been checked. `loom restore FOLDER` puts it back.
    """
    report = asyncio.run(_back_up(folder.absolute()))
    click.echo(msgspec.json.encode(report) if as_json else describe(report, f"Saved in {folder}"))


async def _back_up(folder: Path) -> BackupReport:
    async with Runtime.open() as runtime:
        return await back_up(runtime.database, runtime.media, folder)


def describe(report: BackupReport, what: str) -> str:
    text = (
        f"{what}: {count_text(report.sessions, 'session')}, {count_text(report.messages, 'message')},"
        f" {count_text(report.copied_media, 'medium', 'media')} copied ({size_label(report.copied_bytes)}),"
        f" {report.unchanged_media} unchanged"
    )
    if report.missing_media:
        text += f"\n! {count_text(len(report.missing_media), 'medium', 'media')} could not be read: " + ", ".join(
            digest.rpartition(":")[2][:12] for digest in report.missing_media[:20]
        )
    return text


def store_file(config: Config) -> Path | None:
    """The SQLite file of the configured store; None if that is a PostgreSQL database."""
    url = config.secret("store", "url")
    if url.startswith(("postgresql://", "postgres://")):
        return None
    return sqlite_path(url) if url else config.data_folder() / DATABASE


async def refuse_while_in_use(config: Config) -> None:
    """Raise `Conflict` while a daemon uses the store."""
    from loom.client import find

    daemon = await find(config)
    if daemon is not None:
        await daemon.close()
        raise Conflict(f"A daemon uses this store ({daemon.url}).", hint="Stop it first.")


async def salvage_store(config: Config, *, fix: bool) -> list[Finding]:
    """With `fix`, replace a damaged SQLite store by a new one that holds what could be saved."""
    file = store_file(config)
    if not fix or file is None or not await asyncio.to_thread(_is_damaged, file):
        return []
    await refuse_while_in_use(config)
    fresh = file.with_name(f"{file.name}.salvaged")
    for suffix in ("", "-wal", "-shm"):
        fresh.with_name(fresh.name + suffix).unlink(missing_ok=True)
    report = await asyncio.to_thread(salvage, file, fresh)
    aside = await asyncio.to_thread(move_aside, file, "damaged")
    await asyncio.to_thread(fresh.rename, file)
    return [Finding("store", "warning", _describe_salvage(report, aside))]


def _describe_salvage(report: SalvageReport, aside: Path) -> str:
    sessions = count_text(report.sessions, "session")
    if report.recovered_sessions:
        sessions += f" and {count_text(report.recovered_sessions, 'conversation')} without a record"
    lost = f"; {count_text(report.notes, 'lost message')} marked in place" if report.notes else ""
    rows = count_text(sum(report.rows.values()), "other row")
    return (
        f"The database was damaged. Saved in a new one: {sessions}, {count_text(report.messages, 'message')}, {rows}"
        f"{lost}. The damaged file is kept as {aside.name}"
    )


def _is_damaged(file: Path) -> bool:
    """Whether SQLite itself finds fault with the file. One that is not there, or that is empty, is not damaged."""
    if not file.is_file() or not file.stat().st_size:
        return False
    try:
        with closing(sqlite3.connect(file, timeout=5)) as connection:
            return connection.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]
    except UnicodeDecodeError:
        return True
    except sqlite3.DatabaseError as error:
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
