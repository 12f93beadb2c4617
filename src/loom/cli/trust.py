"""`loom trust`, and the question that `loom` asks once in a folder that brings instructions."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click

from loom.cli.shared.questions import confirm
from loom.cli.shared.terminal import safe_text
from loom.config import load_config, user_folder
from loom.config.trust import TrustRecords, files_digest
from loom.content.media import size_label
from loom.errors import ConfigError, NotFound
from loom.tools.workspace import is_foreign

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group("trust", invoke_without_command=True)
@click.pass_context
def trust_command(ctx: click.Context) -> None:
    """Decide which folders may instruct the model and configure Loom; alone, list the decisions.

    A decision counts for one folder and for what stands in it now (AGENTS.md, settings, skills, commands, .mcp.json):
    when that changes, you are asked again. Folders in the setting `trusted_folders` are trusted with all below them.
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


_MOST_SHOWN = 40
_MOST_LINES = 12


def trust_records() -> TrustRecords:
    return TrustRecords(user_folder(os.environ, Path.cwd()))


def ask_about_folder() -> None:
    """Ask once about the working directory, in a terminal: before anything in it is used, and again when it changes."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    folder, records = Path.cwd(), trust_records()
    files = records.files(folder)
    try:
        if not files or load_config().is_trusted(folder) or records.find(folder) != "unknown":
            return
    except ConfigError:
        return  # the command says what is wrong
    digest = files_digest(files)
    show_files(folder, files)
    click.echo("Without your consent, only AGENTS.md of yours is read, and no setting that widens anything.", err=True)
    if digest:
        records.decide(folder, digest, is_trusted=confirm("Do you trust what this folder brings?"))
        click.echo("Remembered until it changes. `loom trust` lists and revokes decisions.", err=True)


def show_files(folder: Path, files: tuple[Path, ...]) -> None:
    """Show what a folder brings: every file, and the beginning of its text."""
    click.echo(safe_text(f"{folder} brings files that instruct the model or configure Loom:"), err=True)
    for file in files[:_MOST_SHOWN]:
        try:
            data = file.read_bytes()
        except OSError:
            data = b""
        name = str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file)
        owner = ", of another user" if is_foreign(file) else ""
        click.echo(safe_text(f"\n  {name} ({size_label(len(data))}{owner})"), err=True)
        lines = data[:4_000].decode("utf-8", "replace").splitlines()
        for line in lines[:_MOST_LINES]:
            click.echo(safe_text(f"    │ {line[:110]}"), err=True)
        if len(lines) > _MOST_LINES:
            click.echo("    │ …", err=True)
    if len(files) > _MOST_SHOWN:
        click.echo(f"\n  and {len(files) - _MOST_SHOWN} more", err=True)
    click.echo("", err=True)
