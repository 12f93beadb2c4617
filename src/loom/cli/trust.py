"""`loom trust`, and the prompt about a folder that contains instructions or settings."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from loom.api_types import FolderTrustView
from loom.cli.shared.command_group import CommandGroup
from loom.cli.shared.questions import confirm
from loom.cli.shared.terminal import safe_text
from loom.config import load_config
from loom.content.media import size_label
from loom.errors import ConfigError, NotFound

TRUST_QUESTION = "Do you trust the files in this folder?"
_MOST_LINES = 12
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group("trust", cls=CommandGroup, invoke_without_command=True)
@click.pass_context
def trust_command(ctx: click.Context) -> None:
    """Decide which folders may instruct the model and configure Loom. Without a command, list the decisions.

    A decision applies to one folder and its current AGENTS.md, settings, skills, commands, agents and lists of MCP
    servers: when one of them changes, Loom asks again. Folders in the setting `trusted_folders` are always
    trusted, with their subfolders.
    """
    if ctx.invoked_subcommand is None:
        _list()


def _list() -> None:
    config = load_config()
    records = config.trust_records(Path.cwd())
    found = records.list()
    for folder in config.trusted_folders:
        click.echo(safe_text(f"{'trusted':<9} {'always':<12} {folder}  (trusted_folders)"))
    for folder, decision in sorted(found.items()):
        now = records.find(Path(folder))
        state = "changed" if now == "unknown" else now
        since = time.strftime("%Y-%m-%d", time.localtime(decision.decided_at))
        click.echo(safe_text(f"{state:<9} {since:<12} {folder}"))
    if not found and not config.trusted_folders:
        click.echo("No decisions yet.  → loom trust add")


@trust_command.command("add")
@click.argument("folder", type=_FOLDER, default=".")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def add(folder: Path, yes: bool) -> None:
    """Trust the instructions and settings in FOLDER (default: here) as they are now. The files are shown first."""
    folder, config = folder.absolute(), load_config()
    found = config.folder_trust(folder)
    if not found.files:
        raise NotFound(f"{folder} contains no instructions or settings for Loom.")
    show_files(found)
    if not yes and not confirm(TRUST_QUESTION):
        raise click.Abort
    config.trust_records(folder).decide_about(folder, found.digest, is_trusted=True)
    click.echo(safe_text(f"✔ {folder} is trusted as it is now"))


@trust_command.command("refuse")
@click.argument("folder", type=_FOLDER, default=".")
def refuse(folder: Path) -> None:
    """Ignore the instructions and settings in FOLDER (default: here), and do not ask until they change."""
    folder, config = folder.absolute(), load_config()
    config.trust_records(folder).decide_about(folder, config.folder_trust(folder).digest, is_trusted=False)
    click.echo(safe_text(f"✔ {folder} is not trusted: its instructions and settings are ignored"))


@trust_command.command("revoke")
@click.argument("folder", type=click.Path(path_type=Path), default=".")
def revoke(folder: Path) -> None:
    """Remove the decision about FOLDER (default: here)."""
    if not load_config().trust_records(folder).revoke(folder):
        raise NotFound(f"No decision stored for {folder.absolute()}.", hint="List them: `loom trust`.")
    click.echo(safe_text(f"✔ the decision about {folder.absolute()} was removed"))


def ask_about_folder() -> None:
    """Ask about the working directory, if a terminal is available and no decision covers its current files."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    folder = Path.cwd()
    try:
        config = load_config()
        found = config.folder_trust(folder)
    except ConfigError:
        return  # the command itself reports the error
    if not found.needs_decision:
        return
    show_files(found)
    click.echo("Until you trust it, only your own AGENTS.md is read, and no setting that grants more access.", err=True)
    records = config.trust_records(folder)
    records.decide_about(folder, found.digest, is_trusted=confirm(TRUST_QUESTION))
    click.echo("Remembered until it changes. `loom trust` lists and revokes decisions.", err=True)


def show_files(found: FolderTrustView) -> None:
    """Show the instructions and settings in a folder: every file, with the beginning of its text."""
    click.echo(safe_text(f"{found.folder} contains files that instruct the model or configure Loom:"), err=True)
    for file in found.files:
        owner = ", of another user" if file.is_foreign else ""
        click.echo(safe_text(f"\n  {file.name} ({size_label(file.bytes)}{owner})"), err=True)
        lines = file.text.splitlines()
        for line in lines[:_MOST_LINES]:
            click.echo(safe_text(f"    │ {line[:110]}"), err=True)
        if len(lines) > _MOST_LINES:
            click.echo("    │ …", err=True)
    if found.more:
        click.echo(f"\n  and {found.more} more", err=True)
    click.echo("", err=True)
