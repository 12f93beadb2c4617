"""`loom restore`: put a backup back in place."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import msgspec

from loom.cli.backup import describe, refuse_while_in_use, store_file
from loom.config import Config, load_config
from loom.runtime import MEDIA
from loom.store.backup import BackupReport, read_manifest, restore_file, restore_media, restore_rows
from loom.store.database import open_database
from loom.store.media import open_media


@click.command("restore")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--replace", is_flag=True, help="Put the present conversations aside, in a file beside the new one.")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON.")
def command(folder: Path, replace: bool, as_json: bool) -> None:
    """Put the conversations and media of a backup in FOLDER back in place.

    A store that holds conversations is left alone without --replace. A PostgreSQL store must be empty.
    """
    report, aside = asyncio.run(_restore(load_config(), folder.absolute(), replace=replace))
    if as_json:
        click.echo(msgspec.json.encode(report))
        return
    click.echo(describe(report, f"Restored from {folder}"))
    if aside is not None:
        click.echo(f"What was there before is kept as {aside.name}")


async def _restore(config: Config, folder: Path, *, replace: bool) -> tuple[BackupReport, Path | None]:
    read_manifest(folder)
    await refuse_while_in_use(config)
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
