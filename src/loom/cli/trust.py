"""`loom trust`: which folders may instruct the model and configure Loom."""

from __future__ import annotations

import time
from pathlib import Path

import click

from loom.cli.shared.folder_question import show_files, trust_records
from loom.cli.shared.questions import confirm
from loom.cli.shared.terminal import safe_text
from loom.config import load_config
from loom.config.trust import files_digest
from loom.errors import NotFound

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group("trust", invoke_without_command=True)
@click.pass_context
def trust_command(ctx: click.Context) -> None:
    """Decide which folders may instruct the model and configure Loom; alone, list the decisions.

    A decision applies to one folder and its current AGENTS.md, settings, skills, commands and .mcp.json: when one of
    them changes, Loom asks again. Folders in the setting `trusted_folders` are always trusted, with their subfolders.
    """
    if ctx.invoked_subcommand is None:
        _list()


def _list() -> None:
    records = trust_records()
    found = records.list()
    for folder in load_config().trusted_folders:
        click.echo(safe_text(f"{'trusted':<9} {'always':<12} {folder}  (trusted_folders)"))
    for folder, decision in sorted(found.items()):
        now = records.find(Path(folder))
        state = "changed" if now == "unknown" else now
        since = time.strftime("%Y-%m-%d", time.localtime(decision.decided_at))
        click.echo(safe_text(f"{state:<9} {since:<12} {folder}"))
    if not found and not load_config().trusted_folders:
        click.echo("No decisions yet.  → loom trust add")


@trust_command.command("add")
@click.argument("folder", type=_FOLDER, default=".")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def add(folder: Path, yes: bool) -> None:
    """Trust what FOLDER brings (default: here), as it is now. The files are shown first."""
    records = trust_records()
    files = records.files(folder)
    if not files:
        raise NotFound(f"{folder.absolute()} brings nothing that instructs the model or configures Loom.")
    digest = files_digest(files)
    show_files(folder.absolute(), files)
    if not yes and not confirm("Do you trust what this folder brings?"):
        raise click.Abort
    records.decide(folder, digest, is_trusted=True)
    click.echo(safe_text(f"✔ {folder.absolute()} is trusted as it is now"))


@trust_command.command("refuse")
@click.argument("folder", type=_FOLDER, default=".")
def refuse(folder: Path) -> None:
    """Use nothing that FOLDER brings (default: here), and do not ask until it changes."""
    records = trust_records()
    records.decide(folder, files_digest(records.files(folder)), is_trusted=False)
    click.echo(safe_text(f"✔ nothing that {folder.absolute()} brings is used"))


@trust_command.command("revoke")
@click.argument("folder", type=click.Path(path_type=Path), default=".")
def revoke(folder: Path) -> None:
    """Forget the decision about FOLDER (default: here)."""
    if not trust_records().revoke(folder):
        raise NotFound(f"There is no decision about {folder.absolute()}.", hint="List them: loom trust")
    click.echo(safe_text(f"✔ the decision about {folder.absolute()} is forgotten"))
