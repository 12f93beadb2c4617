"""`loom backup`, `loom restore` and `loom sweep`: copy the store, put a copy back, delete unused media."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import click
import msgspec

from loom.config import Config, load_config
from loom.content.media import size_label
from loom.errors import Conflict
from loom.runtime import DATABASE, MEDIA, Runtime
from loom.store.backup import BackupReport, back_up, read_manifest, restore_file, restore_media, restore_rows
from loom.store.database import open_database, sqlite_path
from loom.store.media import open_media
from loom.store.store_lock import exclude_store
from loom.tools.number_text import count_text


@click.command("backup")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def backup_command(folder: Path, as_json: bool) -> None:
    """Copy all conversations and their media into FOLDER. You can keep using Loom meanwhile.

    A second backup into the same folder copies only media that are new, and replaces the older copy of the
    conversations once the new one has been checked. `loom restore FOLDER` restores it.
    """
    report = asyncio.run(_back_up(folder.absolute()))
    click.echo(msgspec.json.encode(report) if as_json else describe_report(report, f"Saved in {folder}"))


async def _back_up(folder: Path) -> BackupReport:
    async with Runtime.open() as runtime:
        return await back_up(runtime.stores.database, runtime.stores.media, folder)


def describe_report(report: BackupReport, what: str) -> str:
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
    """Return the SQLite file of the configured store; None for a PostgreSQL database."""
    url = config.secret("store", "url")
    if url.startswith(("postgresql://", "postgres://")):
        return None
    return sqlite_path(url) if url else config.data_folder() / DATABASE


@asynccontextmanager
async def hold_store_alone(config: Config) -> AsyncGenerator[None]:
    """Let no other process of this machine use the store meanwhile. Raise `LoomError` if one does, also if it does not
    respond. A PostgreSQL store has no lock: only a daemon is noticed."""
    from loom.client import local_client
    from loom.daemon.serve import lock_data_folder

    file = store_file(config)
    if file is None:
        daemon = await local_client(config)
        if daemon is not None:
            await daemon.close()
            raise Conflict(f"A daemon uses this store ({daemon.url}).", hint="Stop it first.")
        yield
        return
    with lock_data_folder(config), exclude_store(file):
        yield


@click.command("restore")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--replace", is_flag=True, help="Move the current conversations to a file next to the new one.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def restore_command(folder: Path, replace: bool, as_json: bool) -> None:
    """Restore the conversations and media of the backup in FOLDER.

    A store that contains conversations is not changed without --replace, and one that another process has open is not
    replaced. A PostgreSQL store must be empty, and is filled in one transaction; other processes may have it open.
    """
    report, aside = asyncio.run(_restore(load_config(), folder.absolute(), replace=replace))
    if as_json:
        click.echo(msgspec.json.encode(report))
        return
    click.echo(describe_report(report, f"Restored from {folder}"))
    if aside is not None:
        click.echo(f"The previous store is kept as {aside.name}")


async def _restore(config: Config, folder: Path, *, replace: bool) -> tuple[BackupReport, Path | None]:
    read_manifest(folder)
    async with hold_store_alone(config):
        return await _restore_alone(config, folder, replace=replace)


async def _restore_alone(config: Config, folder: Path, *, replace: bool) -> tuple[BackupReport, Path | None]:
    address = config.secret("media", "url") or config.data_folder() / MEDIA
    media = open_media(address, timeout_seconds=config.media.timeout_seconds)
    file = store_file(config)
    aside: Path | None = None
    if file is None:
        database = await open_database(config.secret("store", "url"))
        try:
            await restore_rows(folder, database)
        finally:
            await database.close()
    else:
        aside = await asyncio.to_thread(restore_file, folder, file, replace=replace)
    return await restore_media(folder, media), aside


@click.command("sweep")
@click.option(
    "--max-bytes",
    type=click.IntRange(min=0),
    default=None,
    help="Also delete the oldest until the rest fits this size.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def sweep_command(max_bytes: int | None, as_json: bool) -> None:
    """Delete media that no conversation refers to and that are older than `cleanup_after_days`.

    What a conversation refers to is never deleted. A daemon does this once a day automatically, and so do `loom`,
    `loom ask` and `loom chat` when they end.
    """
    asyncio.run(_sweep(max_bytes, as_json))


async def _sweep(max_bytes: int | None, as_json: bool) -> None:
    async with Runtime.open() as runtime:
        report = await runtime.upkeep.sweep(max_bytes=max_bytes)
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        click.echo(
            f"{count_text(len(report.deleted), 'medium', 'media')} deleted, {size_label(report.freed_bytes)} freed;"
            f" {report.kept} kept, {size_label(report.kept_bytes)}"
        )
        if report.uploads_deleted or report.uploads_left:
            left = (
                f"; {report.uploads_left} could not be deleted yet and are tried again" if report.uploads_left else ""
            )
            click.echo(f"{count_text(report.uploads_deleted, 'file', 'files')} deleted at providers{left}")
