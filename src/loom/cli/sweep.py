"""`loom sweep`: delete media that no conversation refers to."""

from __future__ import annotations

import asyncio

import click
import msgspec

from loom.content.media import size_label
from loom.runtime import Runtime
from loom.tools.number_text import count_text


@click.command("sweep")
@click.option(
    "--max-bytes",
    type=click.IntRange(min=0),
    default=None,
    help="Also delete the oldest until the rest fits this size.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(max_bytes: int | None, as_json: bool) -> None:
    """Delete media that no conversation refers to and that are older than `cleanup_after_days`.

    What a conversation refers to is never deleted.
    """
    asyncio.run(_sweep(max_bytes, as_json))


async def _sweep(max_bytes: int | None, as_json: bool) -> None:
    async with Runtime.open() as runtime:
        report = await runtime.sweep(max_bytes=max_bytes)
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        click.echo(
            f"{count_text(len(report.deleted), 'medium', 'media')} deleted, {size_label(report.freed_bytes)} freed;"
            f" {report.kept} kept, {size_label(report.kept_bytes)}"
        )
